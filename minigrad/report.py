"""Text that shows itself: as lines in a terminal, preformatted in a notebook."""

from __future__ import annotations

__all__ = ["Report", "Shown"]


class Shown:
    """What prints as a table; a notebook shows the same text."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from html import escape  # wanted in notebooks alone

        return f"<pre>{escape(str(self))}</pre>"


class Report(Shown, str):
    """A table in text. `print` is not needed to see it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

"""The exception of a gradient that cannot be computed, and names and texts in messages.

A first reader can skip this file.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["GradientError"]


class GradientError(RuntimeError):
    """Error for a gradient that the graph cannot give: it is freed, changed, or not recorded."""


def printable(text: object, most: int = 60) -> str:
    """Return one line of text, at most `most` characters, none of them a control character."""
    start = str(text)[: most + 1]
    end = "..." if len(start) > most else ""
    return (
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in start[:most])
        + end
    )


def listed(names: Iterable[object], most: int = 8) -> str:
    """Return sorted names for a message, "a, b and 3 more" if there are more than `most`."""
    names = sorted(map(str, names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(printable(name, 100) for name in names[:most]) + more

"""The exception of a gradient that cannot be computed, and names and texts in messages.

A first reader can skip this file.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["GradientError"]


class GradientError(RuntimeError):
    """Error for a gradient that the graph cannot give: it is freed, changed, or not recorded."""


def printable(text: object, most: int = 60) -> str:
    """Return one line of text for a message, without control characters.

    Parameters
    ----------
    text : object
        Converted by `str`.
    most : int
        Largest number of characters before "..."; 60 by default.
    """
    start = str(text)[: most + 1]
    end = "..." if len(start) > most else ""
    return (
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in start[:most])
        + end
    )


def listed(names: Iterable[object], most: int = 8) -> str:
    """Return sorted names for a message, and the number of names that are left out.

    Parameters
    ----------
    names : iterable of object
        Converted by `str`.
    most : int
        Largest number of names; 8 by default.

    Returns
    -------
    str
        Such as "a, b and 3 more".
    """
    names = sorted(map(str, names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(printable(name, 100) for name in names[:most]) + more

"""Primitive operations, and the functions composed of them, by kind.

`docs/reading.md` lists them in an order for readers. Each file begins with what to look at.
"""

from . import arithmetic, attention, loss, network, reduce, shape

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__

"""Base class of Tensor for type checkers, which read `methods.pyi` instead of this file.

`registry.py` sets the methods when operations are declared, so type checkers cannot see them. A
first reader can skip this file.
"""

from __future__ import annotations

from typing import Any


class Methods:
    """Base of Tensor, on which the operations are set as methods."""

    __slots__ = ()


class Size(int):
    """Number of elements. A call returns the shape, or the length of one axis."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        """Return the shape, or the length of axis `dim`."""
        return self.shape if dim is None else self.shape[dim]

    def __reduce__(self) -> Any:
        return int, (int(self),)

"""The methods that are set on Tensor: type checkers read `methods.pyi` in place of this file."""

from __future__ import annotations

from typing import Any


class Methods:
    """The base of Tensor; empty until the operations are imported."""

    __slots__ = ()


class Size(int):
    """The number of elements; called, the shape or the length of one axis."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __reduce__(self) -> Any:
        return int, (int(self),)

"""`x.size`, in which NumPy and PyTorch differ."""

from __future__ import annotations

from typing import Any


class Size(int):
    """A number of elements: NumPy's `x.size`, which answers PyTorch's `x.size()` and `x.size(dim)`
    as well.
    """

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __reduce__(self) -> Any:
        return int, (int(self),)

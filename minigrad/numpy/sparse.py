"""Constant matrices of scipy.sparse as operands of `matmul`.

`x @ A` works for a tensor x. For `A @ x` write `matmul(A, x)`, since SciPy makes an array of x.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..arrays import ADAPTERS, OtherArray, check_class

__all__: list[str] = []


class SparseMatrix(NDArrayOperatorsMixin, OtherArray):
    """Matrix of scipy.sparse, which can be multiplied by arrays and is not differentiated."""

    __slots__ = ("matrix", "values")
    ndim = 2

    def __init__(self, matrix: Any) -> None:
        self.matrix, self.values = matrix, matrix.data

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.matrix.dtype

    @property
    def mT(self) -> SparseMatrix:
        """The transposed matrix."""
        return SparseMatrix(self.matrix.T)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is not np.matmul or options:
            check_class(self.matrix)
        a, b = inputs
        if isinstance(a, SparseMatrix) and isinstance(b, np.ndarray):
            if b.ndim > 2:
                raise ValueError("b must have 1 or 2 axes if a is sparse")
            return a.matrix @ b
        if isinstance(a, np.ndarray) and a.ndim:
            rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1]) @ b.matrix
            return rows.reshape(*a.shape[:-1], b.shape[1])
        return NotImplemented


def _adapted(x: Any) -> SparseMatrix | None:
    """Return a matrix of scipy.sparse, which need not be installed, as a SparseMatrix."""
    if not hasattr(x, "tocsr"):
        return None
    return SparseMatrix(x if x.format in ("csr", "csc") else x.tocsr())


ADAPTERS.append(_adapted)

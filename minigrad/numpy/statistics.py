"""Covariances and correlations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops.arithmetic import divide, sqrt, subtract
from ..ops.network import matmul
from ..ops.reduce import mean
from ..ops.shape import astype, concatenate, reshape, squeeze, swapaxes
from ..registry import function
from ..tensor import Tensor, to_array
from .linalg import diagonal
from .shape import atleast_2d

__all__ = ["cov", "corrcoef"]


def _variables(name: str, m: Any, y: Any, rowvar: bool) -> Tensor:
    """Return the variables of m, and of y, as rows of one matrix."""
    parts: list[Tensor] = []
    for x in (m,) if y is None else (m, y):
        if np.ndim(x) > 2:
            raise ValueError(f"{name}: m must have 1 or 2 axes, got shape {np.shape(x)}")
        x = astype(x, np.result_type(to_array(x), np.float64))
        in_columns = not rowvar and np.ndim(x) == 2
        if in_columns and not (parts and np.shape(x)[0] == 1):  # as in NumPy
            x = swapaxes(x, 0, 1)
        parts.append(atleast_2d(x))
    return parts[0] if y is None else concatenate(parts)


@function(numpy=np.cov)
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: float | None = None
) -> Tensor:
    """Compute the covariances of variables."""
    x = _variables("cov", m, y, rowvar)
    ddof = (0 if bias else 1) if ddof is None else ddof
    if ddof != int(ddof):
        raise ValueError(f"cov: ddof must be an integer, got {ddof}")
    d = subtract(x, mean(x, 1, keepdims=True))
    return squeeze(matmul(d, d.mT) / max(x.shape[1] - ddof, 0))


@function(numpy=np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Tensor:
    """Compute the correlations of variables, from -1 to 1."""
    c = cov(x, y, rowvar)
    if not c.ndim:
        return divide(c, c)
    size = sqrt(diagonal(c))
    r = c / reshape(size, -1, 1) / size
    # clip values that rounding put outside of [-1, 1], without changing their derivatives
    return subtract(r, r.data - np.clip(r.data, -1, 1))

"""How quantities vary together."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor, unwrap
from .elementwise import divide, sqrt, subtract
from .joining import concatenate
from .linalg import diagonal, matmul
from .reduction import mean
from .shape import astype, atleast_2d, reshape, squeeze, swapaxes

__all__ = ["cov", "corrcoef"]


def _variables(name: str, m: Any, y: Any, rowvar: bool, dtype: Any) -> Tensor:
    """The variables of m, and of y, as rows of one matrix."""
    parts: list[Tensor] = []
    for x in (m,) if y is None else (m, y):
        if np.ndim(x) > 2:
            raise ValueError(f"{name}: expected a vector or a matrix, got shape {np.shape(x)}")
        x = astype(x, np.result_type(np.asarray(unwrap(x)), np.float64) if dtype is None else dtype)
        turned = (
            not rowvar and np.ndim(x) == 2 and not (parts and np.shape(x)[0] == 1)
        )  # as in NumPy
        parts.append(swapaxes(x, 0, 1) if turned else atleast_2d(x))
    return parts[0] if y is None else concatenate(parts)


@function(numpy=np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: float | None = None,
    *,
    dtype: Any = None,
) -> Tensor:
    """The covariances of the rows of m (of its columns, where not `rowvar`) and, if given, of those
    of y.

    The sum of products is divided by n - 1, by n with `bias`, or by n - `ddof`. A single variable
    gives its variance.
    """
    x = _variables("cov", m, y, rowvar, dtype)
    divisor_less = (0 if bias else 1) if ddof is None else ddof
    if divisor_less != int(divisor_less):
        raise ValueError(f"cov: expected an integer as ddof, got {ddof}")
    d = subtract(x, mean(x, 1, keepdims=True))
    return squeeze(matmul(d, d.mT) / max(x.shape[1] - divisor_less, 0))


@function(numpy=np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Tensor:
    """The covariances of `cov`, divided by both standard deviations: correlations, from -1 to 1."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return divide(c, c)
    size = sqrt(diagonal(c))
    r = c / reshape(size, -1, 1) / size
    return subtract(
        r, r.data - np.clip(r.data, -1, 1)
    )  # what rounding puts outside goes; no derivative goes with it

"""How quantities vary together."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor, unwrap
from .elementwise import divide, maximum, multiply, sqrt, subtract
from .joining import concatenate
from .linalg import diagonal, matmul
from .reduction import average
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


def _frequencies(n: int, fweights: Any, aweights: Any) -> tuple[Any, Any]:
    """The weight of each observation, and how many times `aweights` counts in the correction."""
    counts = None if fweights is None else np.asarray(unwrap(fweights))
    if counts is not None and (
        counts.dtype.kind not in "iuf" or np.any(counts != np.round(counts))
    ):
        raise TypeError("cov: expected integers as fweights, how often each observation was made")
    aweights = None if aweights is None else astype(aweights, float)
    for which, weights in (("fweights", counts), ("aweights", aweights)):
        if weights is not None and np.shape(weights) != (n,):
            raise ValueError(
                f"cov: expected {n} {which}, one for each observation, got shape "
                f"{np.shape(weights)}"
            )
        if weights is not None and np.any(np.asarray(unwrap(weights)) < 0):
            raise ValueError(f"cov: expected {which} that are not negative")
    if counts is None:
        return aweights, aweights
    return counts if aweights is None else multiply(aweights, counts), aweights


@function(numpy=np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: float | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Tensor:
    """The covariances of the rows of m (of its columns, where not `rowvar`) and, if given, of those
    of y.

    The sum of products is divided by n - 1, by n with `bias`, or by n - `ddof`; `fweights` are how
    often each observation was made (integers), `aweights` how much it counts. A single variable
    gives its variance.
    """
    x = _variables("cov", m, y, rowvar, dtype)
    divisor_less = (0 if bias else 1) if ddof is None else ddof
    if divisor_less != int(divisor_less):
        raise ValueError(f"cov: expected an integer as ddof, got {ddof}")
    n = x.shape[1]
    weights, importance = _frequencies(n, fweights, aweights)
    if weights is None:
        mean, scale = average(x, 1, keepdims=True), max(n - divisor_less, 0)
        d = subtract(x, mean)
        return squeeze(matmul(d, d.mT) / scale)
    mean, total = average(x, 1, weights, returned=True, keepdims=True)
    total = total[0, 0]
    lost = (
        divisor_less
        if importance is None
        else multiply(weights, importance).sum() / total * divisor_less
    )
    d = astype(subtract(x, mean), x.dtype)
    return squeeze(matmul(d * weights, d.mT) / maximum(total - lost, 0))


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

"""Reductions that leave NaN out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.op import function
from ..core.tensor import Tensor, unwrap
from .axes import Axis
from .elementwise import sqrt, square, where
from .reduction import cumprod, cumsum, max, min, prod, sum
from .sorting import hundredths, ranked

__all__ = [
    "nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "nancumsum", "nancumprod", "nanmedian",
    "nanquantile", "nanpercentile", "nan_to_num",
]  # fmt: skip


def _without(x: Any, instead: float) -> Tensor:
    """x with `instead` in place of NaN, which gets no gradient."""
    return where(np.isnan(unwrap(x)), instead, x)


@function(numpy=np.nansum, methods="nansum")
def nansum(x: Any, axis: Axis = None, keepdims: bool = False, **options: Any) -> Tensor:
    """The sum over `axis` of what is not NaN; `dtype`, `initial` and `where` as in `sum`."""
    return sum(_without(x, 0), axis, keepdims, **options)


@function(numpy=np.nanprod)
def nanprod(x: Any, axis: Axis = None, keepdims: bool = False, **options: Any) -> Tensor:
    """The product over `axis` of what is not NaN; options as in `prod`."""
    return prod(_without(x, 1), axis, keepdims, **options)


def _count(x: Any, axis: Axis, keepdims: bool) -> np.ndarray:
    array = np.asarray(unwrap(x))
    return np.asarray(np.sum(~np.isnan(array), axis=axis, keepdims=keepdims)).astype(array.dtype)


@function(numpy=np.nanmean, methods="nanmean")
def nanmean(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis` of what is not NaN; NaN where there is nothing else."""
    return nansum(x, axis, keepdims) / _count(x, axis, keepdims)


@function(numpy=np.nanvar)
def nanvar(x: Any, axis: Axis = None, keepdims: bool = False, *, correction: float = 0, ddof: float = 0) -> Tensor:
    """The variance over `axis` of what is not NaN; NaN where too little is left for n - `correction` > 0."""
    middle = nanmean(x, axis, True)
    spread = square(where(np.isnan(unwrap(x)), middle, x) - middle)
    count = _count(x, axis, keepdims) - (ddof or correction)
    return sum(spread, axis, keepdims) / np.where(count > 0, count, np.nan).astype(count.dtype)


@function(numpy=np.nanstd)
def nanstd(x: Any, axis: Axis = None, keepdims: bool = False, *, correction: float = 0, ddof: float = 0) -> Tensor:
    """The square root of `nanvar`."""
    return sqrt(nanvar(x, axis, keepdims, correction=correction, ddof=ddof))


def _extreme(x: Any, axis: Axis, keepdims: bool, reduction: Any, last: float) -> Tensor:
    y = reduction(_without(x, last), axis, keepdims)
    return where(_count(x, axis, keepdims) == 0, np.nan, y)


@function(numpy=np.nanmax)
def nanmax(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element over `axis` that is not NaN; NaN where there is nothing else."""
    return _extreme(x, axis, keepdims, max, -np.inf)


@function(numpy=np.nanmin)
def nanmin(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element over `axis` that is not NaN; NaN where there is nothing else."""
    return _extreme(x, axis, keepdims, min, np.inf)


@function(numpy=np.nancumsum)
def nancumsum(x: Any, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """The running sum along `axis`, NaN counting as 0."""
    return cumsum(_without(x, 0), axis, dtype=dtype)


@function(numpy=np.nancumprod)
def nancumprod(x: Any, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """The running product along `axis`, NaN counting as 1."""
    return cumprod(_without(x, 1), axis, dtype=dtype)


@function(numpy=np.nanmedian)
def nanmedian(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The middle element over `axis` of those that are not NaN; see `median`."""
    return nanquantile(x, 0.5, axis, keepdims=keepdims)


@function(numpy=np.nanquantile)
def nanquantile(x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """The elements of rank `q` over `axis` of those that are not NaN; see `quantile`."""
    return ranked("nanquantile", x, q, axis, method, keepdims, skip_nan=True)


@function(numpy=np.nanpercentile)
def nanpercentile(x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """`nanquantile` with q from 0 to 100."""
    return nanquantile(x, hundredths(q), axis, method, keepdims)


@function(numpy=np.nan_to_num, methods="nan_to_num")
def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    """x with numbers in place of NaN, ∞ and -∞: unless given 0, the largest and the smallest of the dtype."""
    array = np.asarray(unwrap(x))
    if not copy:
        raise ValueError("nan_to_num: a tensor is never changed in place; leave copy=True")
    limits = np.finfo(array.dtype)
    y = _without(x, nan)
    y = where(np.isposinf(array), limits.max if posinf is None else posinf, y)
    return where(np.isneginf(array), limits.min if neginf is None else neginf, y)

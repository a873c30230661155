"""Reductions that leave NaN out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor, unwrap
from . import reduction
from .axes import Axis
from .elementwise import where as choose
from .reduction import count, cumprod, cumsum, prod, root, var
from .shape import astype, clone
from .sorting import hundredths, ranked

__all__ = [
    "nansum",
    "nanprod",
    "nanmean",
    "nanvar",
    "nanstd",
    "nanmax",
    "nanmin",
    "nancumsum",
    "nancumprod",
    "nanmedian",
    "nanquantile",
    "nanpercentile",
    "nan_to_num",
]


def _without(x: Any, instead: float) -> Tensor:
    """x with `instead` in place of NaN, which gets no gradient."""
    return choose(np.isnan(unwrap(x)), instead, x)


@function(numpy=np.nansum, methods="nansum")
def nansum(x: Any, axis: Axis = None, *, keepdims: bool = False, **options: Any) -> Tensor:
    """The sum over `axis` of what is not NaN; `dtype`, `initial` and `where` as in `sum`."""
    return reduction.sum(_without(x, 0), axis, keepdims=keepdims, **options)


@function(numpy=np.nanprod)
def nanprod(x: Any, axis: Axis = None, *, keepdims: bool = False, **options: Any) -> Tensor:
    """The product over `axis` of what is not NaN; options as in `prod`."""
    return prod(_without(x, 1), axis, keepdims=keepdims, **options)


def _counted(x: Any, where: Any) -> Any:
    """x with NaN in place of what does not count."""
    return x if where is None else choose(reduction.counted(x, where), x, np.nan)


def _count(x: Any, axis: Axis, keepdims: bool) -> np.ndarray:
    array = np.asarray(unwrap(x))
    return count(array, axis, keepdims, ~np.isnan(array))


@function(numpy=np.nanmean, methods="nanmean")
def nanmean(
    x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None, where: Any = None
) -> Tensor:
    """The mean over `axis` of what is not NaN (and counts by `where`), in `dtype`; NaN where there
    is nothing else.
    """
    x = _counted(x if dtype is None else astype(x, dtype), where)
    return nansum(x, axis, keepdims=keepdims) / _count(x, axis, keepdims)


@function(numpy=np.nanvar)
def nanvar(x: Any, axis: Axis = None, *, keepdims: bool = False, **options: Any) -> Tensor:
    """The variance over `axis` of what is not NaN; NaN where too little is left for n -
    `correction` > 0.

    Options: `correction` (or `ddof`), `dtype`, `where`, booleans that say what counts, and `mean`,
    with keepdims.
    """
    if np.asarray(unwrap(x)).dtype.kind in "iub":  # which have no NaN
        return var(x, axis, keepdims=keepdims, **options)
    if len(options.keys() & {"ddof", "correction"}) > 1 or options.keys() - _VARIANCE_OPTIONS:
        raise ValueError(
            f"nanvar: expected correction or ddof, and where; got {', '.join(options)}"
        )
    counted = ~np.isnan(unwrap(x))
    if options.get("where") is not None:
        counted = counted & reduction.counted(x, options["where"])
    y = var(choose(counted, x, 0), axis, keepdims=keepdims, **{**options, "where": counted})
    left = np.sum(counted, axis=axis, keepdims=keepdims)
    correction = options.get("ddof", options.get("correction", 0))
    return choose(left > correction, y, np.nan)


_VARIANCE_OPTIONS = {"ddof", "correction", "dtype", "where", "mean"}


@function(numpy=np.nanstd)
def nanstd(x: Any, axis: Axis = None, *, keepdims: bool = False, **options: Any) -> Tensor:
    """The square root of `nanvar`."""
    return root(nanvar(x, axis, keepdims=keepdims, **options))


def _extreme(
    x: Any, axis: Axis, keepdims: bool, reduction: Any, last: float, initial: Any, where: Any
) -> Tensor:
    if np.asarray(unwrap(x)).dtype.kind in "iub":
        return reduction(x, axis, keepdims=keepdims, initial=initial, where=where)
    y = reduction(_without(x, last), axis, keepdims=keepdims, initial=initial, where=where)
    return y if initial is not None else choose(_count(x, axis, keepdims) == 0, np.nan, y)


@function(numpy=np.nanmax)
def nanmax(
    x: Any, axis: Axis = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Tensor:
    """The largest element over `axis` that is not NaN; NaN where there is nothing else."""
    return _extreme(x, axis, keepdims, reduction.max, -np.inf, initial, where)


@function(numpy=np.nanmin)
def nanmin(
    x: Any, axis: Axis = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Tensor:
    """The smallest element over `axis` that is not NaN; NaN where there is nothing else."""
    return _extreme(x, axis, keepdims, reduction.min, np.inf, initial, where)


@function(numpy=np.nancumsum)
def nancumsum(x: Any, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """The running sum along `axis`, NaN counting as 0."""
    return cumsum(_without(x, 0), axis, dtype=dtype)


@function(numpy=np.nancumprod)
def nancumprod(x: Any, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """The running product along `axis`, NaN counting as 1."""
    return cumprod(_without(x, 1), axis, dtype=dtype)


@function(numpy=np.nanmedian)
def nanmedian(x: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """The middle element over `axis` of those that are not NaN; see `median`."""
    return nanquantile(x, 0.5, axis, method="midpoint", keepdims=keepdims)


@function(numpy=np.nanquantile)
def nanquantile(
    x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """The elements of rank `q` over `axis` of those that are not NaN; see `quantile`."""
    return ranked("nanquantile", x, q, axis, method, keepdims, skip_nan=True)


@function(numpy=np.nanpercentile)
def nanpercentile(
    x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """`nanquantile` with q from 0 to 100."""
    return nanquantile(x, hundredths(q), axis, method=method, keepdims=keepdims)


@function(numpy=np.nan_to_num, methods="nan_to_num")
def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Tensor:
    """x with numbers in place of NaN, ∞ and -∞: unless given 0, the largest and the smallest of the
    dtype.
    """
    array = np.asarray(unwrap(x))
    if not copy:
        raise ValueError("nan_to_num: a tensor is never changed in place; leave copy=True")
    if array.dtype.kind in "iub":
        return clone(x)
    limits = np.finfo(array.dtype)
    numbers: Any = [
        astype(v, array.dtype) if hasattr(v, "dtype") else v for v in (nan, posinf, neginf)
    ]
    nan, posinf, neginf = numbers
    y = _without(x, nan)
    y = choose(np.isposinf(array), limits.max if posinf is None else posinf, y)
    return choose(np.isneginf(array), limits.min if neginf is None else neginf, y)

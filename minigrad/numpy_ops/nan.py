"""Reductions that leave NaN out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor, unwrap
from ..ops import reduction
from ..ops.axes import Axis
from ..ops.elementwise import where as choose
from ..ops.reduction import count, prod, root, var
from ..ops.shape import astype, clone

__all__ = [
    "nansum",
    "nanprod",
    "nanmean",
    "nanvar",
    "nanstd",
    "nanmax",
    "nanmin",
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
def nanvar(
    x: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    correction: float | None = None,
    ddof: float | None = None,
    dtype: Any = None,
    where: Any = None,
    mean: Any = None,
) -> Tensor:
    """Compute the variance over `axis` of what is not NaN; options as in `var`.

    NaN where too little is left for n - `correction` > 0.
    """
    counted = ~np.isnan(unwrap(x))
    if where is not None:
        counted = counted & reduction.counted(x, where)
    options = {"correction": correction, "ddof": ddof, "dtype": dtype, "mean": mean}
    y = var(choose(counted, x, 0), axis, keepdims=keepdims, where=counted, **options)
    left = np.sum(counted, axis=axis, keepdims=keepdims)
    return choose(left > (correction or ddof or 0), y, np.nan)


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

"""Reductions that skip NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Axis
from ..ops import reduce as reduction
from ..ops.shape import astype, clone, where
from ..registry import function
from ..tensor import Tensor, to_array, unwrap
from .options import var
from .reduction import prod, root

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


def _is_number(x: Any) -> np.ndarray:
    return ~np.isnan(unwrap(x))


@function(numpy=np.nansum, methods="nansum")
def nansum(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Sum the elements over `axis` that are not NaN.

    Parameters and result: as `sum`.
    """
    return reduction.sum(x, axis, keepdims=keepdims, where=_is_number(x))


@function(numpy=np.nanprod)
def nanprod(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Multiply the elements over `axis` that are not NaN.

    Parameters and result: as `sum`.
    """
    return prod(where(_is_number(x), x, 1), axis, keepdims=keepdims)


@function(numpy=np.nanmean, methods="nanmean")
def nanmean(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Compute the mean over `axis` of the elements that are not NaN; NaN if there are none.

    Parameters and result: as `sum`.
    """
    return reduction.mean(x, axis, keepdims=keepdims, where=_is_number(x))


@function(numpy=np.nanvar)
def nanvar(x: Any, axis: Axis = None, *, keepdims: bool = False, ddof: float = 0) -> Tensor:
    """Compute the variance over `axis` of the elements that are not NaN."""
    counts = _is_number(x)
    y = var(where(counts, x, 0), axis, keepdims=keepdims, where=counts, ddof=ddof)
    return where(np.sum(counts, axis=axis, keepdims=keepdims) > ddof, y, np.nan)


@function(numpy=np.nanstd)
def nanstd(x: Any, axis: Axis = None, *, keepdims: bool = False, ddof: float = 0) -> Tensor:
    """Compute the square root of `nanvar`."""
    return root(nanvar(x, axis, keepdims=keepdims, ddof=ddof))


def _extreme(x: Any, axis: Axis, keepdims: bool, reduction: Any, last: float) -> Tensor:
    if to_array(x).dtype.kind in "iub":
        return reduction(x, axis, keepdims=keepdims)
    counts = _is_number(x)
    y = reduction(where(counts, x, last), axis, keepdims=keepdims)
    return where(np.any(counts, axis=axis, keepdims=keepdims), y, np.nan)


@function(numpy=np.nanmax)
def nanmax(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return the largest element over `axis` that is not NaN; NaN if there are none.

    Parameters and result: as `sum`.
    """
    return _extreme(x, axis, keepdims, reduction.max, -np.inf)


@function(numpy=np.nanmin)
def nanmin(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return the smallest element over `axis` that is not NaN; NaN if there are none.

    Parameters and result: as `sum`.
    """
    return _extreme(x, axis, keepdims, reduction.min, np.inf)


@function(numpy=np.nan_to_num, methods="nan_to_num")
def nan_to_num(x: Any, *, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    """Replace NaN, inf and -inf."""
    array = to_array(x)
    if array.dtype.kind in "iub":
        return clone(x)
    limits = np.finfo(array.dtype)
    y = where(np.isnan(array), nan, x)
    y = where(np.isposinf(array), limits.max if posinf is None else posinf, y)
    y = where(np.isneginf(array), limits.min if neginf is None else neginf, y)
    return astype(y, array.dtype)

"""Sorting, selecting by rank, medians and quantiles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor, unwrap
from ..ops.axes import one_axis, shape_of
from ..ops.elementwise import where
from ..ops.indexing import take_along_axis
from ..ops.shape import flattened_last, moveaxis, ravel, reshape

__all__ = ["sort", "argsort", "partition", "top_k", "median", "quantile", "percentile"]


@function(numpy=np.sort)
def sort(
    x: Any,
    axis: int | None = -1,
    *,
    kind: str | None = None,
    stable: bool | None = None,
    descending: bool = False,
) -> Tensor:
    """The elements in rising order along `axis`, or all where it is None, or in falling order; NaN
    comes last.

    Equal ones keep their order.
    """
    if kind is not None and stable is not None:
        raise ValueError(
            "sort: kind and stable say the same; give one of them (sorting is always stable here)"
        )
    x, axis = _one(x, axis, "sort")
    return take_along_axis(x, argsort(x, axis, "stable", descending=descending), axis)


@function(numpy=np.argsort, methods="argsort")
def argsort(
    x: Any,
    axis: int | None = -1,
    kind: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Tensor:
    """The positions that would sort x along `axis`, or all of it where that is None; NaN comes
    last.
    """
    array = np.asarray(unwrap(x))
    # as NumPy has it from 2.5 on: what reverses the order leaves NaN last, and equal elements in
    # order
    if descending:
        array = ~array if array.dtype.kind in "biu" else -array
    return Tensor(np.argsort(array, axis, kind, stable=stable))


@function(numpy=np.partition)
def partition(x: Any, kth: Any, axis: int | None = -1, kind: str = "introselect") -> Tensor:
    """x with the elements along `axis` in such order that those at `kth` are where sorting would
    put them.
    """
    x, axis = _one(x, axis, "partition")
    array = np.asarray(unwrap(x))
    parted = np.partition(array, unwrap(kth), axis, kind)  # type: ignore[call-overload]
    order, back = (np.argsort(a, axis, kind="stable") for a in (array, parted))
    return take_along_axis(x, np.take_along_axis(order, np.argsort(back, axis), axis), axis)


def _one(x: Any, axis: int | None, name: str) -> tuple[Any, int]:
    x = ravel(x) if axis is None else x
    return x, one_axis(name, -1 if axis is None else axis, np.ndim(x))


class TopK(NamedTuple):
    """What `top_k` returns."""

    values: Tensor
    indices: np.ndarray


@function(methods="top_k")
def top_k(x: Any, k: int, axis: int = -1) -> TopK:
    """The k largest elements along `axis`, largest first, and where they stood. NaN counts as
    largest.
    """
    array = np.asarray(unwrap(x))
    axis = one_axis("top_k", axis, array.ndim)
    n = array.shape[axis]
    if not 0 < k <= n:
        raise ValueError(f"top_k: expected 1 <= k <= {n}, got {k}")
    chosen = np.sort(np.argpartition(array, n - k, axis).take(np.arange(n - k, n), axis), axis)
    falling = np.flip(np.take_along_axis(array, chosen, axis), axis)
    order = (
        k - 1 - np.flip(np.argsort(falling, axis, kind="stable"), axis)
    )  # of equal ones, the first comes first
    indices = np.take_along_axis(chosen, order, axis)
    return TopK(take_along_axis(x, indices, axis), indices)


# -- medians and quantiles
# -----------------------------------------------------------------------------


@function(numpy=np.median)
def median(x: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """The middle element over `axis`, or the mean of the two in the middle; NaN where there is one."""
    return ranked("median", x, 0.5, axis, "midpoint", keepdims)


@function(numpy=np.quantile)
def quantile(
    x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """The elements of rank `q` (0 = smallest, 1 = largest; a number or an array) over `axis`.

    Between two elements `method` decides: "linear" interpolates; "lower", "higher", "nearest" and
    "midpoint" are NumPy's. The shape of q comes first in the result's. NaN where a slice has one.
    """
    return ranked("quantile", x, q, axis, method, keepdims)


def ranked(name: str, x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Tensor:
    """Compute `quantile` for the function `name`."""
    if isinstance(q, (int, float)):
        q = np.asarray(q, x.dtype if x.dtype.kind == "f" else float)
    ranks = np.asarray(unwrap(q))
    if ranks.dtype.kind not in "fiu" or not np.all((ranks >= 0) & (ranks <= 1)):
        raise ValueError(f"{name}: expected q from 0 to 1, got {ranks}")
    last, with_ones = flattened_last(x, axis, name)
    if not last.shape[-1]:
        if name == "quantile":
            raise ValueError(f"{name}: no elements over axis {axis} of shape {shape_of(x)}")
        return Tensor(
            np.full((*ranks.shape, *(with_ones if keepdims else last.shape[:-1])), np.nan, x.dtype)
        )
    ordered = sort(last)  # NaN comes last
    missing = np.isnan(unwrap(ordered))
    ordered = where(missing[..., -1:], ordered[..., -1:], ordered)
    counts = np.full(missing[..., :1].shape, last.shape[-1])
    ends = np.maximum(counts, 1) - 1
    y = moveaxis(_at_ranks(ordered, reshape(q, -1) * ends.astype(ranks.dtype), ends, method), -1, 0)
    return reshape(y, (*ranks.shape, *(with_ones if keepdims else y.shape[1:])))


def _at_ranks(ordered: Tensor, place: Tensor, ends: np.ndarray, method: str) -> Tensor:
    """The elements at the places (..., k), from 0 to `ends`, which need not be whole, of rising
    rows (..., n).
    """
    whole: dict[str, Any] = {"lower": np.floor, "higher": np.ceil, "nearest": np.round}
    if method in whole:
        return take_along_axis(ordered, whole[method](place.data).astype(np.intp), -1)
    if method not in ("linear", "midpoint"):
        raise ValueError(
            f"quantile: method {method!r} is not supported; use linear, midpoint, "
            f"{', '.join(whole)}"
        )
    low, high = np.floor(place.data).astype(np.intp), np.ceil(place.data).astype(np.intp)
    below = take_along_axis(ordered, low, -1)
    if method == "midpoint":
        half = np.asarray(0.5, place.dtype)
        return below * half + take_along_axis(ordered, high, -1) * half
    # The line on which a place lies: at a whole one that to the right, at the last that to the
    # left, so that the derivative by the place is one that there is.
    start = np.maximum(np.minimum(low, ends - 1), 0)
    rise = take_along_axis(ordered, np.minimum(start + 1, ends), -1) - take_along_axis(
        ordered, start, -1
    )
    fraction = place - low.astype(place.dtype)
    return below + where((low == high) & ~np.isfinite(rise.data), 0, rise) * fraction


def hundredths(q: Any) -> Any:
    """Percents as a fraction of 1."""
    return q / 100 if isinstance(q, Tensor) else np.true_divide(q, 100)


@function(numpy=np.percentile)
def percentile(
    x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """`quantile` with q from 0 to 100."""
    return quantile(x, hundredths(q), axis, method=method, keepdims=keepdims)

"""Sorting, the largest elements, medians and quantiles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arguments import one_axis, shape_of
from ..ops.shape import astype, floating, reshape, where
from ..registry import function
from ..tensor import Tensor, as_operand, to_array, unwrap
from .batched import all_true
from .indexing import take_along_axis
from .shape import flattened_last, moveaxis, ravel

__all__ = ["sort", "argsort", "top_k", "median", "quantile", "percentile"]


@function(numpy=np.sort)
def sort(
    x: Any,
    axis: int | None = -1,
    *,
    kind: str | None = None,
    stable: bool | None = None,
    descending: bool = False,
) -> Tensor:
    """Sort along `axis`; NaN comes last, and equal elements keep their order.

    Other parameters and the result: as `numpy.sort`.

    Parameters
    ----------
    descending : bool
        Sort in falling order; False by default.
    """
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
    """Return the indices that sort x along `axis`; NaN comes last.

    Parameters: as `sort`.
    """
    array = to_array(x)
    if descending:  # as in NumPy 2.5, NaN still comes last and equal elements keep their order
        array = ~array if array.dtype.kind in "biu" else -array
    return Tensor(np.argsort(array, axis, kind, stable=stable))


def _one(x: Any, axis: int | None, name: str) -> tuple[Any, int]:
    x = ravel(x) if axis is None else x
    return x, one_axis(name, -1 if axis is None else axis, np.ndim(x))


class TopK(NamedTuple):
    """Result of `top_k`."""

    values: Tensor
    indices: Tensor


@function(methods="top_k")
def top_k(x: Any, k: int, axis: int = -1) -> TopK:
    """Return the k largest elements along `axis`, largest first, and their indices.

    NaN counts as largest.

    Parameters
    ----------
    x : array_like
    k : int
        Number of elements, at most the length of `axis`.
    axis : int
        The last by default.
    """
    array = to_array(x)
    axis = one_axis("top_k", axis, array.ndim)
    n = array.shape[axis]
    if not isinstance(k, (int, np.integer)) or not 0 < k <= n:
        raise ValueError(f"top_k: k must be from 1 to {n}, got {k}")
    chosen = np.sort(np.argpartition(array, n - k, axis).take(np.arange(n - k, n), axis), axis)
    falling = np.flip(np.take_along_axis(array, chosen, axis), axis)
    # equal elements keep their order
    order = k - 1 - np.flip(np.argsort(falling, axis, kind="stable"), axis)
    indices = np.take_along_axis(chosen, order, axis)
    return TopK(take_along_axis(x, indices, axis), Tensor(indices))


# -- medians and quantiles


@function(numpy=np.median)
def median(x: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Compute the median over `axis`; NaN if an element is NaN.

    Parameters and result: as `sum`.
    """
    return ranked("median", x, 0.5, axis, "midpoint", keepdims)


@function(numpy=np.quantile)
def quantile(
    x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """Compute quantiles over `axis`; NaN if an element is NaN.

    Other parameters and the result: as `numpy.quantile`.

    Parameters
    ----------
    method : {"linear", "lower", "higher", "nearest", "midpoint"}
        The value between two elements; "linear" by default.
    """
    return ranked("quantile", x, q, axis, method, keepdims)


def ranked(name: str, x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Tensor:
    """Compute `quantile` for the function `name`."""
    x, ranks = as_operand(x), to_array(q)
    if ranks.dtype.kind not in "fiu" or not np.all((ranks >= 0) & (ranks <= 1)):
        raise ValueError(f"{name}: q must be from 0 to 1, got {ranks}")
    dtype = ranks.dtype
    if isinstance(q, float) or dtype.kind != "f":
        dtype = x.dtype if x.dtype.kind == "f" and not ranks.ndim else np.dtype(float)
    last, with_ones = flattened_last(x, axis, name)
    if not last.shape[-1]:
        if name == "quantile":
            raise ValueError(
                f"{name}: x must have elements over axis {axis}, got shape {shape_of(x)}"
            )
        return Tensor(
            np.full((*ranks.shape, *(with_ones if keepdims else last.shape[:-1])), np.nan, dtype)
        )
    ordered = sort(last)  # NaN comes last
    missing = np.isnan(unwrap(ordered))
    ordered = where(missing[..., -1:], ordered[..., -1:], ordered)
    end = last.shape[-1] - 1
    positions = reshape(astype(q, float), -1) * end  # float16 counts to 2,048
    y = moveaxis(_at_positions(ordered, positions, end, method, dtype), -1, 0)
    return reshape(y, (*ranks.shape, *(with_ones if keepdims else y.shape[1:])))


def _at_positions(
    ordered: Tensor, position: Tensor, end: int, method: str, dtype: np.dtype
) -> Tensor:
    """Return values of sorted rows (..., end + 1) at positions (k,), which may be fractions.

    The fractions are rounded to `dtype`.
    """
    whole: dict[str, Any] = {"lower": np.floor, "higher": np.ceil, "nearest": np.round}
    if method in whole:
        return ordered[..., whole[method](position.data).astype(np.intp)]
    if method not in ("linear", "midpoint"):
        raise ValueError(
            f"quantile: method must be linear, midpoint, {', '.join(whole)}, got {method!r}"
        )
    ordered = floating(ordered)
    low, high = np.floor(position.data).astype(np.intp), np.ceil(position.data).astype(np.intp)
    if method == "midpoint":
        half = np.asarray(0.5, dtype)
        return ordered[..., low] * half + ordered[..., high] * half
    # Interpolate on the line to the right of an integer position, or to the left of the last one,
    # so that the derivative with respect to the position exists.
    start = np.clip(low, 0, max(end - 1, 0))
    with np.errstate(over="ignore", invalid="ignore"):
        rise = ordered[..., np.minimum(start + 1, end)] - ordered[..., start]
    fraction = astype(position - low, dtype)
    steep = np.isinf(rise.data)
    y = ordered[..., low] + where(steep, 0, rise) * fraction  # NaN between two equal infinities
    if all_true(~steep):
        return y
    steep = steep & (low != high)
    start, stop = (where(steep, ordered[..., i], 0) for i in (low, high))
    return where(steep, start * (1 - fraction) + stop * fraction, y)


@function(numpy=np.percentile)
def percentile(
    x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """Compute percentiles: quantiles of q / 100.

    Other parameters and the result: as `numpy.percentile`.

    Parameters
    ----------
    method : str
        As in `quantile`.
    """
    q = q / 100 if isinstance(q, Tensor) else np.true_divide(q, 100)
    return quantile(x, q, axis, method=method, keepdims=keepdims)

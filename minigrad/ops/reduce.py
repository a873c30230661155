"""Reductions: sums, means, variances, the largest and the smallest elements.

Look at `_spread`, the rule of a sum: each element gets the gradient of its sum. The other functions
are variations of it, or compositions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arguments import all_axes
from ..arrays import Array, ArrayLike, Axis, Mask, Shape, as_array
from ..registry import function, op
from ..tensor import Tensor, to_array
from .arithmetic import absolute, safe_divide, square, subtract
from .shape import astype

__all__ = ["max", "mean", "min", "sum", "var"]


def keepdims_shape(shape: Shape, axis: Axis) -> Shape:
    """Return `shape` with length 1 along the reduced axes."""
    if axis is None or not shape:
        return (1,) * len(shape)
    kept = list(shape)
    for a in axis if isinstance(axis, tuple) else (axis,):
        kept[a % len(shape)] = 1
    return tuple(kept)


def restored(g: Array, shape: Shape, axis: Axis) -> Array:
    """Return a value of the reduced shape in a shape that broadcasts to `shape`."""
    return g if g.ndim in (0, len(shape)) else g.reshape(keepdims_shape(shape, axis))


def _spread(g: Array, shape: Shape, axis: Axis) -> Array:
    """Return a gradient of the reduced shape, repeated over `shape`."""
    g = restored(g, shape, axis)
    is_plain, is_large = isinstance(g, (np.ndarray, np.generic)), math.prod(shape) > 4096
    if is_plain and is_large and not g.ndim:  # five times faster than broadcast_to
        return np.ndarray(shape, g.dtype, g.tobytes(), 0, (0,) * len(shape))
    if is_large or not is_plain:
        return np.broadcast_to(g, shape)
    y = np.empty(shape, g.dtype)  # ten times faster than broadcast_to, for small arrays
    y[...] = g
    return y


MAX_BY_ROWS = 100
"""Largest number of elements that NumPy always reduces."""


_COMMON = np.dtype(np.float32), np.dtype(np.float64)  # of the machine's byte order


def reduced(ufunc: np.ufunc, x: Array, axis: Axis, keepdims: Any = False) -> Array:
    """Return `ufunc.reduce(x, axis)`; along a short last axis, column by column.

    NumPy runs a loop for each row, which takes up to 60 times as long. The bits are the same.
    """
    if (
        type(x) is not np.ndarray
        or x.size <= MAX_BY_ROWS
        or x.ndim < 2
        or not 1 < x.shape[-1] < 8
        or axis not in (-1, x.ndim - 1)
        or x.dtype not in _COMMON
    ):
        return ufunc.reduce(x, axis=axis, keepdims=keepdims)
    y = x[..., 0] + 0.0 if ufunc is np.add else x[..., 0].copy()  # a sum is never -0.0
    for i in range(1, x.shape[-1]):
        ufunc(y, x[..., i], out=y)
    return y[..., None] if keepdims else y


# -- sums, means, variances


@op(numpy=np.sum, methods="sum", x=lambda g, x_shape, axis: _spread(g, x_shape, axis))
def sum(x, /, axis=None, *, keepdims=False):
    """Return the sum of the elements over `axis`.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.
    """
    return reduced(np.add, x, axis, keepdims)


def is_half(x: ArrayLike) -> bool:
    """Return whether x is float16, in which sums, squares and counts above 65,504 overflow."""
    return bool(getattr(x, "dtype", None) == _HALF)


_HALF = np.dtype(np.float16)


def total(x: ArrayLike, axis: Axis, keepdims: Any = True) -> Array:
    """Return the sum of arrays over `axis`; of float16 in float32."""
    if is_half(x):
        return np.add.reduce(x, axis=axis, keepdims=keepdims, dtype=np.float32)
    return reduced(np.add, x, axis, keepdims)


def _mean_gradient(g: Array, x_shape: Shape, axis: Axis) -> Array:
    g = g.astype(np.float32) if is_half(g) else g
    return _spread(g / (math.prod(x_shape) // (g.size or 1)), x_shape, axis)


@op(numpy=np.mean, methods="mean", x=_mean_gradient)
def mean(x, /, axis=None, *, keepdims=False):
    """Compute the mean over `axis`.

    Parameters: as `sum`.
    """
    x = x if type(x) is np.ndarray else as_array(x)
    if not x.ndim:
        all_axes("mean", axis, 0)  # NumPy allows axis 0 of a scalar for a sum, not for a mean
    if is_half(x):  # NumPy adds in single precision
        return np.mean(x, axis=axis, keepdims=keepdims)
    dtype = float if x.dtype.kind in "iub" else None
    y = np.add.reduce(x, axis=axis, keepdims=keepdims, dtype=dtype)
    return y / (x.size // (y.size or 1))


def centring_mean(x: ArrayLike, axis: Axis) -> Tensor:
    """Return the mean over `axis`, with keepdims, such that x - mean is exact to rounding.

    The mean of equal numbers may be rounded. So the mean of the remaining differences is added,
    which makes the differences of equal numbers 0.
    """
    y = mean(x, axis, keepdims=True)
    with np.errstate(invalid="ignore", over="ignore"):  # an infinite x has no mean
        rest = mean(to_array(x) - y.data, axis, keepdims=True)
    return y + rest.data.astype(y.dtype)


@function(numpy=np.var, methods="var")
def var(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Compute the variance over `axis`, the mean of the squares of x - mean.

    Parameters: as `sum`.
    """
    if is_half(x):
        return astype(var(astype(x, np.float32), axis, keepdims=keepdims), np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        rest = subtract(x, centring_mean(x, axis))
        rest = absolute(rest) if rest.dtype.kind == "c" else rest
        y = mean(square(rest), axis, keepdims=keepdims)
    if y.dtype == np.float32 and not (y.data < np.inf).all():  # squares overflow
        return astype(var(astype(x, np.float64), axis, keepdims=keepdims), np.float32)
    return y


# -- extremes


def _extreme(g: Array, y: Array, x: Array, axis: Axis) -> Array:
    """Return g at the extreme elements of each slice (or its NaN), divided among equal ones."""
    chosen = np.logical_or(x == restored(y, x.shape, axis), x != x).astype(g.dtype)
    share = safe_divide(restored(g, x.shape, axis), total(chosen, axis))
    return chosen * share.astype(g.dtype)


@op(numpy=(np.max, np.amax), methods="max", x=_extreme)
def max(x, /, axis=None, *, keepdims=False):
    """Return the largest element over `axis`; equal ones share the gradient.

    Parameters: as `sum`.
    """
    return reduced(np.maximum, x, axis, keepdims)


@op(numpy=(np.min, np.amin), methods="min", x=_extreme)
def min(x, /, axis=None, *, keepdims=False):
    """Return the smallest element over `axis`; equal ones share the gradient.

    Parameters: as `sum`.
    """
    return reduced(np.minimum, x, axis, keepdims)


def largest(x: Array, axis: Axis, where: Mask = True) -> Array:
    """Return the largest element of each slice, with keepdims; -inf if there are none."""
    if where is True and x.size and x.dtype.kind == "f":
        return reduced(np.maximum, x, axis, keepdims=True)
    dtype = None if x.dtype.kind == "f" else np.result_type(x, 0.0)
    return np.maximum.reduce(x, axis=axis, keepdims=True, where=where, initial=-np.inf, dtype=dtype)

"""Reductions: sums, means, variances, the largest and the smallest elements.

Look at `_spread`, the rule of a sum: each element gets the gradient of its sum. The other functions
are variations of it, or compositions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arguments import Axis, all_axes, booleans, check_broadcast, shape_of
from ..arrays import all_true, as_array
from ..registry import function, op
from ..tensor import Tensor, to_array
from .arithmetic import absolute, safe_divide, square, subtract
from .select import where as choose
from .shape import astype, floating

__all__ = ["max", "mean", "min", "sum", "var"]


def keepdims_shape(shape: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """Return `shape` with length 1 along the reduced axes."""
    if axis is None or not shape:
        return (1,) * len(shape)
    reduced = {a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,))}
    return tuple(1 if i in reduced else n for i, n in enumerate(shape))


def restored(g: Any, shape: tuple[int, ...], axis: Axis) -> Any:
    """Return a value of the reduced shape with axes of length 1 in place of the reduced ones."""
    return g if g.ndim == len(shape) else g.reshape(keepdims_shape(shape, axis))


def _spread(g: Any, shape: tuple[int, ...], axis: Axis) -> Any:
    """Return a gradient of the reduced shape, repeated over `shape`."""
    g = restored(g, shape, axis)
    if type(g) is not np.ndarray or math.prod(shape) > 4096:
        return np.broadcast_to(g, shape)
    y = np.empty(shape, g.dtype)  # ten times faster than broadcast_to, for small arrays
    y[...] = g
    return y


# -- sums, means, products


@op(x=lambda g, x_shape, axis: _spread(g, x_shape, axis))
def _sum(x, /, axis=None, keepdims=False):
    return np.add.reduce(x, axis=axis, keepdims=keepdims)


@function(numpy=np.sum, methods="sum")
def sum(
    x: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    dtype: Any = None,
    where: Any = None,
) -> Tensor:
    """Sum the elements over `axis`.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.
    dtype : dtype, optional
        Dtype of the sum.
    where : array of bool, broadcastable to x, optional
        True = the element counts.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
    """
    x = x if dtype is None else astype(x, dtype)
    if where is not None and where is not True:
        where = booleans("where", where)
        check_broadcast("where=", "the mask", where, shape_of(x), "the array")
        x = choose(where, x, 0)
    return _sum(x, axis=axis, keepdims=keepdims)


def is_half(x: Any) -> bool:
    """Return whether x is float16, in which sums, squares and counts above 65,504 overflow."""
    return bool(getattr(x, "dtype", None) == _HALF)


_HALF = np.dtype(np.float16)


def total(x: Any, axis: Any, keepdims: Any = True) -> Any:
    """Return the sum of arrays over `axis`; of float16 in float32."""
    return np.add.reduce(x, axis=axis, keepdims=keepdims, dtype=np.float32 if is_half(x) else None)


def _mean_gradient(g: Any, x_shape: tuple[int, ...], axis: Axis) -> Any:
    g = g.astype(np.float32) if is_half(g) else g
    return _spread(g / (math.prod(x_shape) // (g.size or 1)), x_shape, axis)


@op(x=_mean_gradient)
def _mean(x, /, axis=None, keepdims=False):
    x = x if type(x) is np.ndarray else as_array(x)
    if axis is not None and not x.ndim:
        all_axes("mean", axis, 0)  # NumPy allows axis 0 of a scalar for a sum, not for a mean
    if is_half(x):  # NumPy adds in single precision
        return np.mean(x, axis=axis, keepdims=keepdims)
    dtype = float if x.dtype.kind in "iub" else None
    y = np.add.reduce(x, axis=axis, keepdims=keepdims, dtype=dtype)
    return y / (x.size // (y.size or 1))


@function(numpy=np.mean, methods="mean")
def mean(
    x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None, where: Any = None
) -> Tensor:
    """Compute the mean over `axis`.

    Other parameters and the result: as `sum`.

    Parameters
    ----------
    dtype : dtype, optional
        Dtype of the computation and the result.
    """
    x = x if dtype is None else astype(x, dtype)
    if where is None or where is True:
        return _mean(x, axis=axis, keepdims=keepdims)
    if is_half(x):
        return astype(mean(x, axis, keepdims=keepdims, dtype=np.float32, where=where), np.float16)
    x = floating(x)
    return sum(x, axis, keepdims=keepdims, where=where) / count(x, axis, keepdims, where)


def centring_mean(x: Any, axis: Axis, where: Any = None) -> Tensor:
    """Return the mean over `axis`, with keepdims, such that x - mean is exact to rounding.

    The mean of equal numbers may be rounded. So the mean of the remaining differences is added,
    which makes the differences of equal numbers 0.
    """
    y = mean(x, axis, keepdims=True, where=where)
    with np.errstate(invalid="ignore", over="ignore"):  # an infinite x has no mean
        rest = mean(to_array(x) - y.data, axis, keepdims=True, where=where)
    return y + rest.data.astype(y.dtype)


_mean_of = mean  # for functions with a parameter `mean`


def count(x: Any, axis: Axis, keepdims: bool, where: Any) -> Any:
    """Return the number of elements that count in each slice, in a real floating dtype."""
    mask = np.broadcast_to(True if where is None else booleans("where", where), shape_of(x))
    dtype = to_array(x).dtype
    dtype = np.finfo(dtype).dtype if dtype.kind in "fc" else np.dtype(float)
    return as_array(np.sum(mask, axis=axis, keepdims=keepdims)).astype(dtype)


@function(numpy=np.var, methods="var")
def var(
    x: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    correction: float | None = None,
    ddof: float | None = None,
    unbiased: bool | None = None,
    dtype: Any = None,
    where: Any = None,
    mean: Any = None,
) -> Tensor:
    """Compute the variance over `axis`.

    Other parameters and the result: as `sum`.

    Parameters
    ----------
    correction : float
        The sum of squares is divided by n - correction; 0 by default, as in NumPy.
    ddof : float
        Another name of `correction`.
    unbiased : bool
        True = correction 1, PyTorch's default; False = correction 0.
    dtype : dtype, optional
        Dtype of the computation and the result.
    mean : array_like, optional
        Mean of x with the reduced axes kept, if it is known.
    """
    divisors = [value for value in (correction, ddof, unbiased) if value is not None]
    if len(divisors) > 1:
        raise ValueError(
            f"var: only one of correction, ddof and unbiased must be given, got {len(divisors)}"
        )
    less = float(divisors[0] if divisors else 0)
    options = {"keepdims": keepdims, "correction": less, "where": where, "mean": mean}
    if dtype is None and mean is None and is_half(x):
        return astype(var(x, axis, **options, dtype=np.float32), np.float16)
    if axis is not None and not len(shape_of(x)) and where is None:
        all_axes("var", axis, 0)
    if where is None:  # one count for all slices
        n: Any = math.prod(shape_of(x)) // (math.prod(keepdims_shape(shape_of(x), axis)) or 1)
    else:
        n = count(x, axis, keepdims, where)
    with np.errstate(over="ignore"):
        middle = (
            _mean_of(x, axis, keepdims=True, dtype=dtype, where=where) if mean is None else mean
        )
        middle = middle if dtype is None else astype(middle, dtype)
        rest = subtract(x, middle)
        rest = absolute(rest) if rest.dtype.kind == "c" else rest
        squares = sum(square(rest), axis, keepdims=keepdims, where=where, dtype=dtype)
        y = squares / as_array(np.maximum(n - less, 0), squares.dtype)
        if y.dtype != np.float32 or dtype is not None:
            return y
        smallest = 0 if mean is not None else 1e-6 * np.square(middle.data).reshape(y.shape)
    if all_true((smallest <= y.data) & (y.data < np.inf)):
        return y
    # float32 overflows, or the variance is small beside the rounding of the mean
    return astype(var(x, axis, **options, dtype=np.float64), np.float32)


# -- extremes


def _extreme(g: Any, y: Any, x: Any, axis: Axis) -> Any:
    """Return g at the extreme elements of each slice (or its NaN), divided among equal ones."""
    chosen = np.logical_or(x == restored(y, x.shape, axis), x != x).astype(g.dtype)
    share = safe_divide(restored(g, x.shape, axis), total(chosen, axis))
    return chosen * share.astype(g.dtype)


@op(numpy=(np.max, np.amax), methods="max", x=_extreme)
def max(x, /, axis=None, *, keepdims=False):
    """Return the largest element over `axis`; equal ones share the gradient.

    Parameters and result: as `sum`.
    """
    return np.maximum.reduce(x, axis=axis, keepdims=keepdims)


@op(numpy=(np.min, np.amin), methods="min", x=_extreme)
def min(x, /, axis=None, *, keepdims=False):
    """Return the smallest element over `axis`; equal ones share the gradient.

    Parameters and result: as `sum`.
    """
    return np.minimum.reduce(x, axis=axis, keepdims=keepdims)


def largest(x: Any, axis: Axis, where: Any = True) -> Any:
    """Return the largest element of each slice, with keepdims; -inf if there are none."""
    dtype = None if x.dtype.kind == "f" else np.result_type(x, 0.0)
    return np.maximum.reduce(x, axis=axis, keepdims=True, where=where, initial=-np.inf, dtype=dtype)

"""Reductions: sums, products, extremes, means, running sums and products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.batched import all_true, as_array
from ..core.registry import function, op
from ..core.tensor import Tensor, as_operand, to_array, unwrap
from .axes import Axis, all_axes, booleans, check_broadcast, shape_of
from .elementwise import absolute, safe_divide, sqrt, square, subtract, times_exp
from .elementwise import where as choose
from .shape import astype, floating

__all__ = [
    "sum",
    "mean",
    "var",
    "std",
    "max",
    "min",
    "prod",
    "ptp",
    "average",
    "logsumexp",
    "cumsum",
    "cumprod",
]


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

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.
    dtype : dtype, optional
        Dtype of the computation and the result.
    where : array of bool, broadcastable to x, optional
        True = the element counts.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
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

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.
    correction : float
        The sum of squares is divided by n - correction; 0 by default, as in NumPy.
    ddof : float
        Another name of `correction`.
    unbiased : bool
        True = correction 1, PyTorch's default; False = correction 0.
    dtype : dtype, optional
        Dtype of the computation and the result.
    where : array of bool, broadcastable to x, optional
        True = the element counts.
    mean : array_like, optional
        Mean of x with the reduced axes kept, if it is known.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
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
    if axis is not None and not np.ndim(x) and where is None:
        all_axes("var", axis, 0)
    if where is None:  # one count for all slices
        n: Any = np.size(x) // (math.prod(keepdims_shape(shape_of(x), axis)) or 1)
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


@function(numpy=np.std, methods="std")
def std(
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
    """Compute the standard deviation over `axis`, the square root of `var`.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.
    correction : float
        The sum of squares is divided by n - correction; 0 by default, as in NumPy.
    ddof : float
        Another name of `correction`.
    unbiased : bool
        True = correction 1, PyTorch's default; False = correction 0.
    dtype : dtype, optional
        Dtype of the computation and the result.
    where : array of bool, broadcastable to x, optional
        True = the element counts.
    mean : array_like, optional
        Mean of x with the reduced axes kept, if it is known.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
    """
    options = {"keepdims": keepdims, "correction": correction, "ddof": ddof, "unbiased": unbiased}
    options |= {"where": where, "mean": mean}
    if dtype is None and mean is None and is_half(x):  # its variance overflows
        return astype(std(x, axis, **options, dtype=np.float32), np.float16)
    with np.errstate(over="ignore"):
        y = root(var(x, axis, **options, dtype=dtype))
    if y.dtype == np.float32 and not all_true(~np.isinf(y.data)):
        # the variance overflows, not the root
        y = astype(root(var(x, axis, **options, dtype=np.float64)), np.float32)
    return y


def root(squares: Tensor) -> Tensor:
    """Return the square root of variances; its derivative where they are 0 is 0."""
    constant = to_array(squares) == 0
    if all_true(~constant):
        return sqrt(squares)
    return choose(constant, 0.0, sqrt(choose(constant, 1.0, squares)))


def _may_divide(y: Any) -> bool:
    """Return whether a product, divided by one of its factors, is the product of the others."""
    y = unwrap(y)
    return all_true((np.abs(y) > np.finfo(y.dtype).tiny) & np.isfinite(y))


def _product_of_others(g: Any, y: Any, x: Any, axis: Axis) -> Any:
    """Return g times the product of all other elements of the slice, also if some are 0."""
    shape = keepdims_shape(x.shape, axis)
    if _may_divide(y):
        return restored(g, x.shape, axis) * restored(y, x.shape, axis) / x
    axes = [i for i, n in enumerate(shape) if n == 1] if axis is not None else list(range(x.ndim))
    last = np.moveaxis(x, axes, range(-len(axes), 0))
    rows = last.reshape(last.shape[: x.ndim - len(axes)] + (1, -1))  # (..., 1, n)
    others = np.prod(np.where(np.eye(rows.shape[-1], dtype=bool), 1, rows), axis=-1)  # (..., n)
    return g.reshape(shape) * np.moveaxis(others.reshape(last.shape), range(-len(axes), 0), axes)


@op(numpy=np.prod, methods="prod", x=_product_of_others)
def prod(x, /, axis=None, *, keepdims=False):
    """Multiply the elements over `axis`.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
    """
    return np.multiply.reduce(x, axis=axis, keepdims=keepdims)


@function(numpy=np.average)
def average(
    x: Any,
    axis: Axis = None,
    weights: Any = None,
    *,
    keepdims: bool = False,
) -> Any:
    """Compute the mean over `axis`.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    weights : array_like, optional
        In the shape of x, or a vector along a single axis; all 1 by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
    """
    axis = None if axis is None else all_axes("average", axis, np.ndim(x))
    if weights is None:
        return mean(x, axis, keepdims=keepdims)
    x = as_operand(x)
    weights = _along(weights, x.shape, axis)
    least = float if x.dtype.kind in "iub" else x.dtype
    weights = astype(weights, np.result_type(x.dtype, weights.dtype, least))
    total = sum(weights, axis, keepdims=keepdims)
    if not all_true(unwrap(total) != 0):
        raise ZeroDivisionError("average: weights must not sum to zero in a slice")
    return sum(x * weights, axis, keepdims=keepdims) / total


def _along(weights: Any, shape: tuple[int, ...], axes: Any) -> Any:
    """Return weights that broadcast to `shape`, from weights of that shape or along one axis."""
    weights = as_operand(weights)
    if weights.shape == shape:
        return weights
    if axes is None or len(axes) != 1 or weights.shape != (shape[axes[0]],):
        raise ValueError(
            f"average: weights must have the shape {shape} of x, or be a vector along one axis, "
            f"got shape {weights.shape} for axis {axes}"
        )
    weights = weights.reshape([-1 if i in axes else 1 for i in range(len(shape))])
    return np.broadcast_to(weights, shape)


# -- extremes


def _extreme(g: Any, y: Any, x: Any, axis: Axis) -> Any:
    """Return g at the extreme elements of each slice (or its NaN), divided among equal ones."""
    chosen = ((x == restored(y, x.shape, axis)) | np.isnan(x)).astype(g.dtype)
    share = safe_divide(restored(g, x.shape, axis), total(chosen, axis))
    return chosen * share.astype(g.dtype)


@op(numpy=(np.max, np.amax), methods="max", x=_extreme)
def max(x, /, axis=None, *, keepdims=False):
    """Return the largest element over `axis`; equal ones share the gradient.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
    """
    return np.maximum.reduce(x, axis=axis, keepdims=keepdims)


@op(numpy=(np.min, np.amin), methods="min", x=_extreme)
def min(x, /, axis=None, *, keepdims=False):
    """Return the smallest element over `axis`; equal ones share the gradient.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
    """
    return np.minimum.reduce(x, axis=axis, keepdims=keepdims)


@function(numpy=np.ptp)
def ptp(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return the difference of the largest and the smallest element over `axis`.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
    """
    return max(x, axis, keepdims=keepdims) - min(x, axis, keepdims=keepdims)


# -- sums of exponentials


def largest(x: Any, axis: Axis, where: Any = True) -> Any:
    """Return the largest element of each slice, with keepdims; -inf if there are none."""
    dtype = None if x.dtype.kind == "f" else np.result_type(x, 0.0)
    return np.maximum.reduce(x, axis=axis, keepdims=True, where=where, initial=-np.inf, dtype=dtype)


@op(
    methods="logsumexp",
    x=lambda g, y, x, axis: times_exp(restored(g, x.shape, axis), x, restored(y, x.shape, axis)),
)
def logsumexp(x, /, axis=None, keepdims=False):
    """Compute log(sum(exp(x))) over `axis`, without overflow; -inf if all x are -inf.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        All axes by default.
    keepdims : bool
        Keep the reduced axes with length 1; False by default.

    Returns
    -------
    Tensor
        Shape of x without the reduced axes.
    """
    x = as_array(x)
    top = largest(x, axis)
    finite = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):  # log 0 = -inf is the answer for a slice of -inf
        y = (np.log(total(np.exp(x - finite), axis)) + finite).astype(finite.dtype, copy=False)
    return y if keepdims else y.reshape(np.add.reduce(y, axis=axis).shape)


# -- running sums and products


def _sum_from_end(g: Any, x_shape: tuple[int, ...], axis: int | None) -> Any:
    along = 0 if axis is None else axis
    return np.flip(np.cumsum(np.flip(g, along), along), along).reshape(x_shape)


@op(numpy=np.cumsum, methods="cumsum", x=_sum_from_end)
def cumsum(x, /, axis=None):
    """Compute the running sum along `axis`.

    Parameters
    ----------
    x : array_like
    axis : int or None
        None, the default, flattens x.

    Returns
    -------
    Tensor
        Shape of x, or a vector if `axis` is None.
    """
    return np.cumsum(x, axis)


def _cumprod_gradient(g: Any, x: Any, axis: int | None) -> Any:
    if axis is None or not x.ndim:
        return _cumprod_gradient(g.reshape(-1), x.reshape(-1), 0).reshape(x.shape)
    y = np.cumprod(x, axis)
    if _may_divide(y):
        return _sum_from_end(g * y, x.shape, axis) / x
    # if a factor is 0: row j contains the running products without the j-th factor
    rows, back = np.moveaxis(x, axis, -1), np.moveaxis(g, axis, -1)
    others = np.cumprod(
        np.where(np.eye(x.shape[axis], dtype=bool), 1, rows[..., None, :]), axis=-1
    )  # (..., j, k)
    return np.moveaxis(np.sum(np.triu(others * back[..., None, :]), axis=-1), -1, axis)


@op(numpy=np.cumprod, methods="cumprod", x=_cumprod_gradient)
def cumprod(x, /, axis=None):
    """Compute the running product along `axis`.

    Parameters
    ----------
    x : array_like
    axis : int or None
        None, the default, flattens x.

    Returns
    -------
    Tensor
        Shape of x, or a vector if `axis` is None.
    """
    return np.cumprod(x, axis)

"""Reductions beyond the core set: products, averages, logarithms of sums, running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import all_axes, one_axis
from ..arrays import Axis, as_array
from ..ops import reduce
from ..ops.arithmetic import sqrt
from ..ops.reduce import is_half, keepdims_shape, largest, restored, total
from ..ops.shape import astype, concatenate, reshape
from ..ops.shape import where as choose
from ..registry import Op, function, op
from ..tensor import Tensor, as_operand, to_array, unwrap
from .batched import all_true
from .forms import numpy_form
from .options import var

__all__ = [
    "std",
    "prod",
    "average",
    "ptp",
    "logsumexp",
    "cumsum",
    "cumprod",
]


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

    Parameters and result: as `var`.
    """
    options = {"keepdims": keepdims, "correction": correction, "ddof": ddof, "unbiased": unbiased}
    options |= {"where": where, "mean": mean}
    if dtype is None and mean is None and is_half(x):  # its variance overflows
        return astype(std(x, axis, **options, dtype=np.float32), np.float16)
    with np.errstate(over="ignore"):
        y = root(var(x, axis, **options, dtype=dtype))
    if dtype is None and y.dtype == np.float32 and not all_true(~np.isinf(y.data)):
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
    axes = [i for i, n in enumerate(shape) if n == 1]
    last = np.moveaxis(x, axes, range(-len(axes), 0))
    rows = last.reshape(last.shape[: x.ndim - len(axes)] + (1, -1))  # (..., 1, n)
    others = np.prod(np.where(np.eye(rows.shape[-1], dtype=bool), 1, rows), axis=-1)  # (..., n)
    return g.reshape(shape) * np.moveaxis(others.reshape(last.shape), range(-len(axes), 0), axes)


@op(numpy=np.prod, methods="prod", x=_product_of_others)
def prod(x, /, axis=None, *, keepdims=False):
    """Multiply the elements over `axis`.

    Parameters and result: as `sum`.
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
    """Compute the mean over `axis`."""
    axis = None if axis is None else all_axes("average", axis, np.ndim(x))
    if weights is None:
        return reduce.mean(x, axis, keepdims=keepdims)
    x = as_operand(x)
    weights = _along(weights, x.shape, axis)
    least = float if x.dtype.kind in "iub" else x.dtype
    weights = astype(weights, np.result_type(x.dtype, weights.dtype, least))
    total = reduce.sum(weights, axis, keepdims=keepdims)
    if not all_true(unwrap(total) != 0):
        raise ZeroDivisionError("average: weights must not sum to zero in a slice")
    return reduce.sum(x * weights, axis, keepdims=keepdims) / total


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


@function(numpy=np.ptp)
def ptp(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Return the difference of the largest and the smallest element over `axis`."""
    return reduce.max(x, axis, keepdims=keepdims) - reduce.min(x, axis, keepdims=keepdims)


def _shares(x: Any, axis: Axis) -> Any:
    """Return softmax(x) over `axis`; 0 in a slice of -inf. Elements of inf share the 1."""
    top = largest(unwrap(x), axis)
    infinite = np.isinf(top)
    limits = np.where((top == np.inf) & (unwrap(x) == np.inf), 0, -np.inf)
    terms = np.exp(np.where(infinite, limits, x - np.where(infinite, 0, top)))
    sums = total(terms, axis)
    return terms / np.where(sums == 0, 1, sums)


def _log_of_sum(x: Any, axis: Axis, keepdims: Any) -> Any:
    """Return the result of `logsumexp`, the exponentials, and their sums."""
    x = as_array(x)
    top = largest(x, axis)
    if not all_true(np.isfinite(top)):
        top = np.where(np.isfinite(top), top, 0)
    terms = np.exp(x - top)
    sums = total(terms, axis)
    with np.errstate(divide="ignore"):  # log 0 = -inf is the answer for a slice of -inf
        y = (np.log(sums) + top).astype(top.dtype, copy=False)
    return y if keepdims else np.squeeze(y, axis), (terms, sums)


def _logsumexp(x: Any, /, axis: Axis, keepdims: Any) -> Any:
    return _log_of_sum(x, axis, keepdims)[0]


_definition = Op(
    _logsumexp, {"x": lambda g, x, axis: restored(g, x.shape, axis) * _shares(x, axis)}
).function


def _logsumexp_gradients(g: Any, y: Any, x: Any, axis: Axis, keepdims: Any, saved: Any) -> Any:
    g, (terms, sums) = restored(g, x.shape, axis), saved
    return (g / sums * terms if all_true(np.isfinite(y)) else g * _shares(x, axis),)


@op(methods="logsumexp", vjp=_logsumexp_gradients, definition=_definition)
def logsumexp(x, /, axis=None, keepdims=False):
    """Compute log(sum(exp(x))) over `axis`, without overflow; -inf if all x are -inf.

    Parameters and result: as `sum`.
    """
    return _log_of_sum(x, axis, keepdims)


def _sum_from_end(g: Any, x_shape: tuple[int, ...], axis: int | None) -> Any:
    along = 0 if axis is None else axis
    return np.flip(np.cumsum(np.flip(g, along), along), along).reshape(x_shape)


@op(numpy=np.cumsum, methods="cumsum", x=_sum_from_end)
def cumsum(x, /, axis=None):
    """Compute the running sum along `axis`."""
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
    """Compute the running product along `axis`."""
    return np.cumprod(x, axis)


def _cumulative(running: Any, first: float) -> Any:
    """Return a running sum or product in the form of the array API standard."""

    def call(
        x: Any, axis: int | None = None, dtype: Any = None, include_initial: Any = False
    ) -> Any:
        if axis is None and np.ndim(x) > 1:
            raise ValueError(f"axis must be given for an array of {np.ndim(x)} dimensions")
        x = as_operand(x) if dtype is None else astype(x, dtype)
        x = reshape(x, 1) if np.ndim(x) == 0 else x
        name = f"cumulative_{'sum' if running is cumsum else 'prod'}"
        axis = one_axis(name, 0 if axis is None else axis, np.ndim(x))
        y = running(x, axis)
        if not include_initial:
            return y
        shape = list(y.shape)
        shape[axis] = 1
        return concatenate([np.full(shape, first, y.dtype), y], axis)

    return call


if hasattr(np, "cumulative_sum"):  # since NumPy 2.1
    numpy_form(np.cumulative_sum)(_cumulative(cumsum, 0.0))
    numpy_form(np.cumulative_prod)(_cumulative(cumprod, 1.0))

"""Functions that take many elements to one: sums, means, extremes, norms; and running sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.op import function, op
from ..core.tensor import Tensor
from .elementwise import absolute, exp_share, power, ratio, sqrt, square, where

__all__ = ["sum", "mean", "var", "std", "max", "min", "prod", "logsumexp", "norm", "cumsum"]

Axis = int | tuple[int, ...] | None


def _kept(shape: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """`shape` with the reduced axes at length 1."""
    if axis is None:
        return (1,) * len(shape)
    reduced = {a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,))}
    return tuple(1 if i in reduced else n for i, n in enumerate(shape))


def _restored(g: Any, shape: tuple[int, ...], axis: Axis) -> Any:
    """A value of the reduced shape, with the reduced axes back at length 1."""
    return g if g.ndim == len(shape) else g.reshape(_kept(shape, axis))


def _spread(g: Any, shape: tuple[int, ...], axis: Axis) -> Any:
    """A gradient of the reduced shape, repeated over `shape`."""
    g = _restored(g, shape, axis)
    if type(g) is not np.ndarray or math.prod(shape) > 4096:
        return np.broadcast_to(g, shape)
    y = np.empty(shape, g.dtype)  # ten times faster than broadcast_to, for small arrays
    y[...] = g
    return y


@op(numpy=np.sum, methods="sum", x=lambda g, x_shape, axis: _spread(g, x_shape, axis))
def sum(x, /, axis=None, keepdims=False):
    """The sum over `axis` (an int, a tuple, or None for all axes)."""
    return np.add.reduce(x, axis=axis, keepdims=keepdims)


@op(
    numpy=np.mean,
    methods="mean",
    x=lambda g, x_shape, axis: _spread(g / (math.prod(x_shape) // (g.size or 1)), x_shape, axis),
)
def mean(x, /, axis=None, keepdims=False):
    """The mean over `axis`."""
    y = np.add.reduce(x, axis=axis, keepdims=keepdims)
    return y / (np.size(x) // (y.size or 1))


@function(numpy=np.var, methods="var")
def var(
    x: Any, axis: Axis = None, keepdims: bool = False, *, correction: float = 0, ddof: float | None = None
) -> Tensor:
    """The mean squared distance from the mean over `axis`, the sum divided by n - `correction`.

    As NumPy's, the correction is 0 unless given (its old name `ddof` works too); PyTorch's is 1.
    """
    correction = correction if ddof is None else ddof
    middle = mean(x, axis, True)
    count = np.size(x) // (middle.size or 1) - correction
    return sum(square(x - middle), axis, keepdims) / (count if count > 0 else float("nan"))


@function(numpy=np.std, methods="std")
def std(
    x: Any, axis: Axis = None, keepdims: bool = False, *, correction: float = 0, ddof: float | None = None
) -> Tensor:
    """The square root of `var`."""
    return sqrt(var(x, axis, keepdims, correction=correction, ddof=ddof))


def _extreme(g: Any, y: Any, x: Any, axis: Axis) -> Any:
    """g at the extreme elements of each slice, shared equally by those that tie."""
    chosen = (x == _restored(y, x.shape, axis)).astype(g.dtype)
    return _restored(g, x.shape, axis) * chosen / np.sum(chosen, axis=axis, keepdims=True)


@op(numpy=np.max, methods="max", x=_extreme)
def max(x, /, axis=None, keepdims=False):
    """The largest element over `axis`; equal ones share the gradient, as in PyTorch's `amax`."""
    return np.maximum.reduce(x, axis=axis, keepdims=keepdims)


@op(numpy=np.min, methods="min", x=_extreme)
def min(x, /, axis=None, keepdims=False):
    """The smallest element over `axis`; equal ones share the gradient, as in PyTorch's `amin`."""
    return np.minimum.reduce(x, axis=axis, keepdims=keepdims)


def _product_of_others(g: Any, y: Any, x: Any, axis: Axis) -> Any:
    """g times the product of all other elements of the slice, also where some are 0."""
    shape = _kept(x.shape, axis)
    if np.all((np.abs(y) > np.finfo(y.dtype).tiny) & np.isfinite(y)):
        return _restored(g, x.shape, axis) * _restored(y, x.shape, axis) / x
    axes = [i for i, n in enumerate(shape) if n == 1] if axis is not None else list(range(x.ndim))
    last = np.moveaxis(x, axes, range(-len(axes), 0))
    rows = last.reshape(last.shape[: x.ndim - len(axes)] + (1, -1))  # (..., 1, n)
    others = np.prod(np.where(np.eye(rows.shape[-1], dtype=bool), 1, rows), axis=-1)  # (..., n)
    return g.reshape(shape) * np.moveaxis(others.reshape(last.shape), range(-len(axes), 0), axes)


@op(numpy=np.prod, methods="prod", x=_product_of_others)
def prod(x, /, axis=None, keepdims=False):
    """The product over `axis`."""
    return np.multiply.reduce(x, axis=axis, keepdims=keepdims)


def largest(x: Any, axis: Axis, where: Any = True) -> Any:
    """The largest element of each slice, its axes kept; -inf where there is none."""
    return np.maximum.reduce(x, axis=axis, keepdims=True, where=where, initial=-np.inf, dtype=np.result_type(x, 0.0))


@op(methods="logsumexp", x=lambda g, y, x, axis: exp_share(_restored(g, x.shape, axis), x, _restored(y, x.shape, axis)))
def logsumexp(x, /, axis=None, keepdims=False):
    """log Σ eˣ over `axis`, without overflow; -inf where all x are -inf."""
    x = np.asarray(x)
    top = largest(x, axis)
    finite = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):  # log 0 = -inf is the answer for a slice of -inf
        y = np.log(np.add.reduce(np.exp(x - finite), axis=axis, keepdims=True)) + finite
    return y if keepdims else y.reshape(np.add.reduce(y, axis=axis).shape)


@op(x=lambda g, y, x, axis: _restored(g, x.shape, axis) * ratio(x, _restored(y, x.shape, axis)))
def _euclidean_norm(x, /, axis=None, keepdims=False):
    return np.sqrt(np.add.reduce(x * x, axis=axis, keepdims=keepdims))


@function(numpy=np.linalg.norm, methods="norm")
def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The norm over `axis`: Euclidean unless `ord` says otherwise, as in `np.linalg.norm`.

    Its gradient at 0 is 0. Matrix norms that need an SVD (`ord` 2, -2, "nuc") are not supported.
    """
    ndim = np.ndim(x)
    if ord is None or ord == "fro" or (ord == 2 and (isinstance(axis, int) or ndim == 1)):
        return _euclidean_norm(x, axis=axis, keepdims=keepdims)
    if (isinstance(axis, tuple) and len(axis) == 2) or (axis is None and ndim == 2):
        return _matrix_norm(x, ord, axis or (0, 1), keepdims)
    size = absolute(x)
    if ord in (np.inf, -np.inf):
        return max(size, axis, keepdims) if ord > 0 else min(size, axis, keepdims)
    if ord == 0:
        return sum((size != 0).astype(size.dtype), axis, keepdims)
    if ord == 1:
        return sum(size, axis, keepdims)
    nought = np.inf if ord < 0 else 0.0  # 0 to the power ord
    if ord > 0 and ord % 2 == 0:
        total = sum(power(x, ord), axis, keepdims)
    else:
        zero = size == 0
        total = sum(where(zero, nought, power(where(zero, 1, size), ord)), axis, keepdims)
    zero = total == nought
    return where(zero, 0, power(where(zero, 1, total), 1 / ord))


def _matrix_norm(x: Any, ord: Any, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    if ord not in (1, -1, np.inf, -np.inf):
        raise ValueError(f"norm: ord={ord!r} of a matrix needs a singular value decomposition, which has no rule")
    summed, compared = axis if abs(ord) == 1 else axis[::-1]
    sums = sum(absolute(x), summed, True)
    y = max(sums, compared, True) if ord > 0 else min(sums, compared, True)
    return y if keepdims else sum(y, axis)


@op(numpy=np.cumsum, methods="cumsum", x=lambda g, x_shape, axis: _sum_from_end(g, x_shape, axis))
def cumsum(x, /, axis=None):
    """The running sum along `axis`, or of the flattened array where it is None."""
    return np.cumsum(x, axis)


def _sum_from_end(g: Any, shape: tuple[int, ...], axis: int | None) -> Any:
    along = 0 if axis is None else axis
    return np.flip(np.cumsum(np.flip(g, along), along), along).reshape(shape)

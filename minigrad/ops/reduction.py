"""Functions that take many elements to one: sums, products, extremes, means; and running sums and
products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.nested import needs_gradient
from ..core.registry import function, op
from ..core.tensor import Tensor, unwrap
from .axes import Axis, all_axes, booleans, check_broadcast, shape_of
from .elementwise import safe_divide, sqrt, square, times_exp
from .elementwise import where as choose
from .shape import astype

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
    """`shape` with the reduced axes at length 1."""
    if axis is None or not shape:
        return (1,) * len(shape)
    reduced = {a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,))}
    return tuple(1 if i in reduced else n for i, n in enumerate(shape))


def restored(g: Any, shape: tuple[int, ...], axis: Axis) -> Any:
    """A value of the reduced shape, with the reduced axes back at length 1."""
    return g if g.ndim == len(shape) else g.reshape(keepdims_shape(shape, axis))


def _spread(g: Any, shape: tuple[int, ...], axis: Axis) -> Any:
    """A gradient of the reduced shape, repeated over `shape`."""
    g = restored(g, shape, axis)
    if type(g) is not np.ndarray or math.prod(shape) > 4096:
        return np.broadcast_to(g, shape)
    y = np.empty(shape, g.dtype)  # ten times faster than broadcast_to, for small arrays
    y[...] = g
    return y


# -- sums, means, products
# -----------------------------------------------------------------------------


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
    initial: Any = None,
    where: Any = None,
) -> Tensor:
    """The sum over `axis` (an int, a tuple, or None for all axes).

    `where` (booleans) says what counts, `initial` is what the sum starts from, and `dtype` what it
    adds up in.
    """
    y = _sum(_counted(x, 0, dtype, where), axis=axis, keepdims=keepdims)
    return y if initial is None else y + _in_dtype(initial, y)


def _in_dtype(value: Any, y: Tensor) -> Any:
    """An array or tensor in the dtype of the result y; a number as it is."""
    return astype(value, y.dtype) if hasattr(value, "dtype") else value


def _counted(x: Any, nothing: float, dtype: Any, where: Any) -> Any:
    """x in `dtype`, with `nothing` in place of what does not count."""
    if dtype is not None:
        x = astype(x, dtype)
    return x if where is None or where is True else choose(counted(x, where), x, nothing)


def counted(x: Any, where: Any) -> np.ndarray:
    """The booleans `where`, which must broadcast to x."""
    where = booleans("where=", where)
    check_broadcast("where=", "the mask", where, shape_of(x), "the array")
    return where


def is_half(x: Any) -> bool:
    """Whether x is in half precision, which holds neither sums and squares nor counts above 65,504."""
    return bool(getattr(x, "dtype", None) == np.float16)


def total(x: Any, axis: Any, keepdims: Any = True) -> Any:
    """The sum of arrays over `axis`; in single precision of such in half precision."""
    return np.add.reduce(x, axis=axis, keepdims=keepdims, dtype=np.float32 if is_half(x) else None)


def _mean_gradient(g: Any, x_shape: tuple[int, ...], axis: Axis) -> Any:
    g = g.astype(np.float32) if is_half(g) else g
    return _spread(g / (math.prod(x_shape) // (g.size or 1)), x_shape, axis)


@op(x=_mean_gradient)
def _mean(x, /, axis=None, keepdims=False):
    if axis is not None and not np.ndim(x):
        all_axes("mean", axis, 0)  # a sum over axis 0 of a number is one; a mean is not
    if is_half(x):  # NumPy adds in single precision
        return np.mean(x, axis=axis, keepdims=keepdims)
    y = np.add.reduce(x, axis=axis, keepdims=keepdims)
    return y / (np.size(x) // (y.size or 1))


@function(numpy=np.mean, methods="mean")
def mean(
    x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None, where: Any = None
) -> Tensor:
    """The mean over `axis`, of what counts by `where` (booleans), computed in `dtype`."""
    x = x if dtype is None else astype(x, dtype)
    if where is None or where is True:
        return _mean(x, axis=axis, keepdims=keepdims)
    if is_half(x):
        return astype(mean(x, axis, keepdims=keepdims, dtype=np.float32, where=where), np.float16)
    return sum(x, axis, keepdims=keepdims, where=where) / count(x, axis, keepdims, where)


def centring_mean(x: Any, axis: Axis, where: Any = None) -> Tensor:
    """Return the mean over `axis`, with keepdims, such that x - mean is exact to rounding.

    The sum of equal numbers is rounded. The mean of the differences that are left corrects the
    mean, so that differences of equal numbers are 0.
    """
    y = mean(x, axis, keepdims=True, where=where)
    with np.errstate(invalid="ignore", over="ignore"):  # an infinite x has no mean
        rest = mean(np.asarray(unwrap(x)) - y.data, axis, keepdims=True, where=where)
    return y + rest.data.astype(y.dtype)


_mean_of = mean  # for functions that take one as `mean`


def count(x: Any, axis: Axis, keepdims: bool, where: Any) -> Any:
    """How many elements count in each slice, in x's dtype; of integers in float64."""
    every = np.broadcast_to(True if where is None else booleans("where=", where), shape_of(x))
    dtype = x.dtype if x.dtype.kind in "fc" else float
    return np.asarray(np.sum(every, axis=axis, keepdims=keepdims)).astype(dtype)


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
    """The mean squared distance from the mean over `axis`, the sum divided by n - `correction`.

    As NumPy's, the correction is 0 unless given (its old name is `ddof`); PyTorch's is 1
    (`unbiased=True`). `where` and `dtype` as in `mean`; `mean` is the mean, with keepdims, where it
    is known already.
    """
    given = [value for value in (correction, ddof, unbiased) if value is not None]
    if len(given) > 1:
        raise ValueError("var: correction, ddof and unbiased say the same; give one of them")
    less = float(given[0] if given else 0)
    if dtype is None and mean is None and is_half(x):
        single = var(x, axis, keepdims=keepdims, correction=less, dtype=np.float32, where=where)
        return astype(single, np.float16)
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
        squares = sum(square(x - middle), axis, keepdims=keepdims, where=where, dtype=dtype)
        y = squares / np.asarray(np.maximum(n - less, 0), squares.dtype)
        if y.dtype != np.float32 or dtype is not None:
            return y
        smallest = 0 if mean is not None else 1e-6 * np.square(middle.data).reshape(y.shape)
    if ((smallest <= y.data) & (y.data < np.inf)).all():
        return y
    # float32 overflows, or the variance is small beside the rounding of the mean
    wide = var(
        x, axis, keepdims=keepdims, correction=less, dtype=np.float64, where=where, mean=mean
    )
    return astype(wide, np.float32)


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
    """The square root of `var`."""
    given = {"correction": correction, "ddof": ddof, "unbiased": unbiased}
    given |= {"where": where, "mean": mean}
    with np.errstate(over="ignore"):
        y = root(var(x, axis, keepdims=keepdims, **given, dtype=dtype))
    if y.dtype == np.float32 and np.isinf(y.data).any():  # the variance overflows, not the root
        y = astype(root(var(x, axis, keepdims=keepdims, **given, dtype=np.float64)), np.float32)
    return y


def root(squares: Tensor) -> Tensor:
    """The square root of variances; where nothing varies, its derivatives are 0, as those of a norm
    are.
    """
    constant = np.asarray(unwrap(squares)) == 0
    return (
        choose(constant, 0.0, sqrt(choose(constant, 1.0, squares)))
        if constant.any()
        else sqrt(squares)
    )


def _product_of_others(g: Any, y: Any, x: Any, axis: Axis, initial: Any) -> Any:
    """g times `initial` and the product of all other elements of the slice, also where some are 0."""
    shape = keepdims_shape(x.shape, axis)
    if np.all((np.abs(y) > np.finfo(y.dtype).tiny) & np.isfinite(y)):
        return restored(g, x.shape, axis) * restored(y, x.shape, axis) / x
    axes = [i for i, n in enumerate(shape) if n == 1] if axis is not None else list(range(x.ndim))
    last = np.moveaxis(x, axes, range(-len(axes), 0))
    rows = last.reshape(last.shape[: x.ndim - len(axes)] + (1, -1))  # (..., 1, n)
    others = np.prod(
        np.where(np.eye(rows.shape[-1], dtype=bool), 1, rows), axis=-1, initial=initial
    )  # (..., n)
    return g.reshape(shape) * np.moveaxis(others.reshape(last.shape), range(-len(axes), 0), axes)


def _product_of_all(g: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    return (g * np.prod(x, axis=axis, keepdims=keepdims)).sum()


@op(x=_product_of_others, initial=_product_of_all)
def _prod(x, initial, /, axis=None, keepdims=False):
    return np.multiply.reduce(x, axis=axis, keepdims=keepdims, initial=initial)


@function(numpy=np.prod, methods="prod")
def prod(
    x: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    dtype: Any = None,
    initial: Any = None,
    where: Any = None,
) -> Tensor:
    """The product over `axis`; `dtype`, `initial` and `where` as in `sum`."""
    x = _counted(x, 1, dtype, where)
    if initial is not None and not hasattr(
        initial, "dtype"
    ):  # a number, which must not lose its fraction
        x = astype(x, np.result_type(np.asarray(unwrap(x)), initial))
    return _prod(x, 1 if initial is None else initial, axis=axis, keepdims=keepdims)


@function(numpy=np.average)
def average(
    x: Any,
    axis: Axis = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """The mean over `axis`, weighted by `weights` (of x's shape, or along `axis`); with `returned`
    also their sum.
    """
    axis = None if axis is None else all_axes("average", axis, np.ndim(x))
    if weights is None:
        y = mean(x, axis, keepdims=keepdims)
        total: Any = np.full(y.shape, np.size(x) // (y.size or 1), y.dtype)
    else:
        w = _fitted(weights, shape_of(x), axis)
        total = sum(w, axis, keepdims=keepdims)
        if np.any(unwrap(total) == 0):
            raise ZeroDivisionError("average: the weights of a slice sum to zero")
        y = sum(x * w, axis, keepdims=keepdims) / total
        total = total.broadcast_to(y.shape)
    return (y, total if isinstance(total, Tensor) else Tensor(total)) if returned else y


def _fitted(weights: Any, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> Any:
    """Weights in the shape of what they weigh, from that shape or from that along the axes."""
    weights = weights if isinstance(weights, Tensor) else np.asarray(weights)
    if weights.shape == shape:
        return weights
    if axes is None:
        raise TypeError(
            f"average: expected weights of shape {shape} where there is no axis, got "
            f"{weights.shape}"
        )
    if weights.shape != tuple(shape[a] for a in axes):
        raise ValueError(
            f"average: weights of shape {weights.shape} do not fit axis {axes} of shape {shape}"
        )
    order = sorted(range(len(axes)), key=axes.__getitem__)
    weights = weights.transpose(order).reshape([n if i in axes else 1 for i, n in enumerate(shape)])
    return np.broadcast_to(weights, shape)


# -- extremes
# ------------------------------------------------------------------------------------------


def _extreme(g: Any, y: Any, x: Any, axis: Axis, where: Any) -> Any:
    """g at the extreme elements of each slice (NaN, if there is one), shared by those that tie; 0
    if `initial` wins.
    """
    chosen = (x == restored(y, x.shape, axis)) | np.isnan(x)
    chosen = (chosen if where is None else chosen & np.asarray(unwrap(where))).astype(g.dtype)
    return safe_divide(
        restored(g, x.shape, axis) * chosen, np.sum(chosen, axis=axis, keepdims=True)
    )


def _reduced(ufunc: np.ufunc, x: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    if initial is None and where is None:
        return ufunc.reduce(x, axis=axis, keepdims=keepdims)
    options = {} if initial is None else {"initial": initial}
    return ufunc.reduce(
        x, axis=axis, keepdims=keepdims, where=True if where is None else where, **options
    )


@op(x=_extreme)
def _max(x, /, axis=None, keepdims=False, initial=None, where=None):
    return _reduced(np.maximum, x, axis, keepdims, initial, where)


@function(numpy=(np.max, np.amax), methods="max")
def max(
    x: Any, axis: Axis = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Tensor:
    """The largest of `initial` and the elements over `axis` that count by `where`; equal ones share
    the gradient.
    """
    return _started(
        _max(x, axis=axis, keepdims=keepdims, initial=unwrap(initial), where=where), initial
    )


@op(x=_extreme)
def _min(x, /, axis=None, keepdims=False, initial=None, where=None):
    return _reduced(np.minimum, x, axis, keepdims, initial, where)


@function(numpy=(np.min, np.amin), methods="min")
def min(
    x: Any, axis: Axis = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Tensor:
    """The smallest of `initial` and the elements over `axis` that count by `where`; equal ones
    share the gradient.
    """
    return _started(
        _min(x, axis=axis, keepdims=keepdims, initial=unwrap(initial), where=where), initial
    )


def _started(y: Tensor, initial: Any) -> Tensor:
    """The extreme y, with the gradient of `initial` where it is that."""
    return (
        choose(y.data == initial.data, astype(initial, y.dtype), y)
        if needs_gradient(initial)
        else y
    )


@function(numpy=np.ptp)
def ptp(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest less the smallest element over `axis`."""
    return max(x, axis, keepdims=keepdims) - min(x, axis, keepdims=keepdims)


# -- sums of exponentials
# ------------------------------------------------------------------------------


def largest(x: Any, axis: Axis, where: Any = True) -> Any:
    """The largest element of each slice, with keepdims; -inf where there is none."""
    return np.maximum.reduce(
        x, axis=axis, keepdims=True, where=where, initial=-np.inf, dtype=np.result_type(x, 0.0)
    )


@op(
    methods="logsumexp",
    x=lambda g, y, x, axis: times_exp(restored(g, x.shape, axis), x, restored(y, x.shape, axis)),
)
def logsumexp(x, /, axis=None, keepdims=False):
    """log Σ eˣ over `axis`, without overflow; -inf where all x are -inf."""
    x = np.asarray(x)
    top = largest(x, axis)
    finite = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):  # log 0 = -inf is the answer for a slice of -inf
        y = (np.log(total(np.exp(x - finite), axis)) + finite).astype(finite.dtype, copy=False)
    return y if keepdims else y.reshape(np.add.reduce(y, axis=axis).shape)


# -- running sums and products
# -------------------------------------------------------------------------


@op(x=lambda g, x_shape, axis: _sum_from_end(g, x_shape, axis))
def _cumsum(x, /, axis=None):
    return np.cumsum(x, axis)


def _sum_from_end(g: Any, shape: tuple[int, ...], axis: int | None) -> Any:
    along = 0 if axis is None else axis
    return np.flip(np.cumsum(np.flip(g, along), along), along).reshape(shape)


@function(numpy=np.cumsum, methods="cumsum")
def cumsum(x: Any, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """The running sum along `axis`, or of the flattened array where it is None, in `dtype`."""
    return _cumsum(x if dtype is None else astype(x, dtype), axis=axis)


def _cumprod_gradient(g: Any, x: Any, axis: int | None) -> Any:
    if axis is None or not x.ndim:
        return _cumprod_gradient(g.reshape(-1), x.reshape(-1), 0).reshape(x.shape)
    y = np.cumprod(x, axis)
    if np.all((np.abs(y) > np.finfo(y.dtype).tiny) & np.isfinite(y)):
        return _sum_from_end(g * y, x.shape, axis) / x
    # a product without its j-th factor, where one of them is 0: a row for each j
    rows, back = np.moveaxis(x, axis, -1), np.moveaxis(g, axis, -1)
    others = np.cumprod(
        np.where(np.eye(x.shape[axis], dtype=bool), 1, rows[..., None, :]), axis=-1
    )  # (..., j, k)
    return np.moveaxis(np.sum(np.triu(others * back[..., None, :]), axis=-1), -1, axis)


@op(x=_cumprod_gradient)
def _cumprod(x, /, axis=None):
    return np.cumprod(x, axis)


@function(numpy=np.cumprod, methods="cumprod")
def cumprod(x: Any, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """The running product along `axis`, or of the flattened array where it is None, in `dtype`."""
    return _cumprod(x if dtype is None else astype(x, dtype), axis=axis)

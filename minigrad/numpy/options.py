"""Further options of functions of the book: dtype=, where=, casting= and others.

Each function here answers the calls that the function of the same name in the book does not accept.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import all_axes, booleans, check_broadcast, shape_of
from ..arrays import Axis, as_array
from ..ops import reduce, shape
from ..ops.arithmetic import absolute, square, subtract
from ..ops.reduce import is_half, keepdims_shape
from ..ops.shape import floating
from ..ops.shape import where as choose
from ..registry import FORMS, names_of
from ..tensor import Tensor, to_array
from .batched import all_true

_FURTHER: dict[Callable[..., Any], tuple[Callable[..., Any], set[str]]] = {}
"""Functions with further options, and the options in the book, by the function of the book."""


def _with_options(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Callable[[], Any] | None:
    """Return the call of a function with further options, or None."""
    other, known = _FURTHER.get(function, (None, set[str]()))
    if other is None or options.keys() <= known or not options.keys() <= {*names_of(other)}:
        return None
    return functools.partial(other, *args, **options)


FORMS.append(_with_options)


def _further(function: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of the declared function to `function`, and copy its docstring."""

    def declare(other: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters.values()
        known = {p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY}
        _FURTHER[function] = other, known
        function.__signature__, function.__doc__ = inspect.signature(other), other.__doc__
        return other

    return declare


@_further(shape.astype)
def astype(x: Any, dtype: Any, *, casting: Any = "unsafe", copy: bool = True) -> Tensor:
    """Convert x to `dtype`; the gradient has the dtype of x.

    Parameters
    ----------
    x : array_like
    dtype : dtype
    casting : {"unsafe", "same_kind", "safe", "equiv", "no"}
        Conversions that are allowed, as in `numpy.can_cast`; all by default.
    copy : bool
        False returns a tensor x itself if it has this dtype. True by default.

    Returns
    -------
    Tensor
        Copy of x in this dtype.
    """
    dtype = np.dtype(dtype)
    if not copy and isinstance(x, Tensor) and x.dtype == dtype:
        return x
    if not np.can_cast(to_array(x).dtype, dtype, casting):
        raise TypeError(
            f"astype: casting must allow {to_array(x).dtype} to {dtype}, got {casting!r}"
        )
    return shape.astype(x, dtype)


@_further(reduce.sum)
def sum(
    x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None, where: Any = None
) -> Tensor:
    """Return the sum of the elements over `axis`.

    Parameters and result: as `numpy.sum`.
    """
    x = x if dtype is None else shape.astype(x, dtype)
    if where is not None:
        where = booleans("where", where)
        check_broadcast("where=", "the mask", where, shape_of(x), "the array")
        x = choose(where, x, 0)
    return reduce.sum(x, axis, keepdims=keepdims)


@_further(reduce.mean)
def mean(
    x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None, where: Any = None
) -> Tensor:
    """Compute the mean over `axis`.

    Parameters and result: as `numpy.mean`.
    """
    x = x if dtype is None else shape.astype(x, dtype)
    if where is None:
        return reduce.mean(x, axis, keepdims=keepdims)
    if is_half(x):
        y = mean(x, axis, keepdims=keepdims, dtype=np.float32, where=where)
        return shape.astype(y, np.float16)
    x = floating(x)
    return sum(x, axis, keepdims=keepdims, where=where) / _count(x, axis, keepdims, where)


def _count(x: Any, axis: Axis, keepdims: bool, where: Any) -> Any:
    """Return the number of elements that count in each slice, in a real floating dtype."""
    mask = np.broadcast_to(booleans("where", where), shape_of(x))
    dtype = to_array(x).dtype
    dtype = np.finfo(dtype).dtype if dtype.kind in "fc" else np.dtype(float)
    return as_array(np.sum(mask, axis=axis, keepdims=keepdims)).astype(dtype)


_mean_of = mean  # for a function with a parameter `mean`


@_further(reduce.var)
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

    Other parameters and the result: as `numpy.var`.

    Parameters
    ----------
    correction : float
        The sum of squares is divided by n - correction; 0 by default, as in NumPy.
    ddof : float
        Another name of `correction`.
    unbiased : bool
        True = correction 1, PyTorch's default; False = correction 0.
    """
    divisors = [value for value in (correction, ddof, unbiased) if value is not None]
    if len(divisors) > 1:
        raise ValueError(
            f"var: only one of correction, ddof and unbiased must be given, got {len(divisors)}"
        )
    less = float(divisors[0] if divisors else 0)
    options = {"keepdims": keepdims, "correction": less, "where": where, "mean": mean}
    if dtype is None and mean is None and is_half(x):
        return shape.astype(var(x, axis, **options, dtype=np.float32), np.float16)
    if axis is not None and not len(shape_of(x)) and where is None:
        all_axes("var", axis, 0)
    if where is None:  # one count for all slices
        n: Any = math.prod(shape_of(x)) // (math.prod(keepdims_shape(shape_of(x), axis)) or 1)
    else:
        n = _count(x, axis, keepdims, where)
    with np.errstate(over="ignore"):
        middle = (
            _mean_of(x, axis, keepdims=True, dtype=dtype, where=where) if mean is None else mean
        )
        middle = middle if dtype is None else shape.astype(middle, dtype)
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
    return shape.astype(var(x, axis, **options, dtype=np.float64), np.float32)

"""Elementwise functions beyond the core set: remainders, logarithms of sums, limits, choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops.arithmetic import divide, safe_divide, sqrt
from ..ops.network import logistic
from ..registry import function, op, ufunc
from ..tensor import Tensor, unwrap
from .batched import all_true
from .forms import numpy_form

__all__ = [
    "reciprocal",
    "remainder",
    "expm1",
    "log1p",
    "rsqrt",
    "logaddexp",
    "maximum",
    "minimum",
    "clip",
    "xlogy",
]


def ratio(a: Any, b: Any) -> Any:
    """Return a / b, or 0 if b is 0: for derivatives that are defined as 0 at such points."""
    if all_true(unwrap(b) != 0):
        return a / b
    is_zero = b == 0
    return np.where(is_zero, 0, a / np.where(is_zero, 1, b))


reciprocal = ufunc(np.reciprocal, "Compute 1 / x.", "reciprocal", x=lambda g, y: -g * y * y)


remainder = ufunc(
    np.remainder,
    "Compute a - b * floor(a / b), which has the sign of b.",
    "__mod__ __rmod__",
    a=lambda g: g,
    b=lambda g, a, b: -g * np.floor_divide(a, b),
)


expm1 = ufunc(
    np.expm1,
    "Compute eˣ - 1, exact for small x.",
    "expm1",
    x=lambda g, x: g * np.exp(x),  # y + 1 cancels far below 0
)


log1p = ufunc(
    np.log1p,
    "Compute log(1 + x), exact for small x.",
    "log1p",
    x=lambda g, x: safe_divide(g, 1 + x),
)


@function(methods="rsqrt")
def rsqrt(x: Any) -> Tensor:
    """Compute 1 / sqrt(x).

    Parameters
    ----------
    x : array_like
    """
    return divide(1.0, sqrt(x))


def share(g: Any, a: Any, b: Any, unit: float = 1.0) -> Any:
    """Return g eᵃ / (eᵃ + eᵇ), for exponents in `unit`; 0 if both terms are 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        gap = b - a if unit == 1 else (b - a) * unit
        if not all_true(unwrap(gap) == unwrap(gap)):  # NaN, which two equal infinities give, too
            same = (a == b) & np.isinf(a)
            gap = unit * np.where(same, -np.minimum(a, 0), b - np.where(same, 0, a))
        if isinstance(gap, Tensor):
            return g * logistic(-gap)
        total = np.exp(gap)
        total += 1
        return g / total


MAX_AT_ONCE = 200
"""Largest number of elements for which np.logaddexp is faster than several functions."""


@op(
    numpy=np.logaddexp,
    methods="logaddexp",
    a=lambda g, a, b: share(g, a, b),
    b=lambda g, a, b: share(g, b, a),
)
def logaddexp(a, b, /):
    """Compute log(eᵃ + eᵇ), without overflow."""
    high = np.maximum(a, b)
    if high.size > MAX_AT_ONCE and high.dtype.char in "fd":
        with np.errstate(invalid="ignore", over="ignore"):
            y = high + np.log1p(np.exp(np.minimum(a, b) - high))
        largest = np.maximum.reduce(y, axis=None)
        if all_true(largest == largest):  # the difference of equal infinities is NaN
            return y
    return np.logaddexp(a, b)


def _larger(g: Any, a: Any, b: Any) -> Any:
    """Return g where a > b or either is NaN, half of it at a tie."""
    return np.where(a < b, 0, np.where(a == b, g / 2, g))


def _smaller(g: Any, a: Any, b: Any) -> Any:
    """Return g where a < b or either is NaN, half of it at a tie."""
    return _larger(g, b, a)


maximum = ufunc(
    np.maximum,
    "Return the larger of a and b; equal ones share the gradient.",
    "maximum",
    a=_larger,
    b=_smaller,
)


minimum = ufunc(
    np.minimum,
    "Return the smaller of a and b; equal ones share the gradient.",
    "minimum",
    a=_smaller,
    b=_larger,
)


def _inside(x: Any, low: Any, high: Any) -> Any:
    return (x >= (-np.inf if low is None else low)) & (x <= (np.inf if high is None else high))


@op(
    x=lambda g, x, low, high: g * _inside(x, low, high),
    low=lambda g, x, low, high: g * ((x < low) & _inside(low, None, high)),
    high=lambda g, x, low, high: g * ((x > high) | (high < (-np.inf if low is None else low))),
)
def _clip(x, low, high, /):
    return np.clip(x, low, high)


@function(methods="clip")
def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """Limit x to a range.

    The gradient passes where x is inside the limits or equal to one, as in PyTorch's `clamp`.

    Other parameters and the result: as `numpy.clip`.

    Parameters
    ----------
    min, max : float or array_like, optional
        The lower and the upper limit.
    """
    return _clip(x, min, max)


_OMITTED: Any = object()


@numpy_form(np.clip)
def _np_clip(
    a: Any,
    a_min: Any = _OMITTED,
    a_max: Any = _OMITTED,
    *,
    min: Any = _OMITTED,
    max: Any = _OMITTED,
) -> Tensor:
    if (a_min is _OMITTED) != (a_max is _OMITTED):
        raise TypeError(
            "np.clip: a_min and a_max must be given together (one can be None), or min= or max="
        )
    if a_min is not _OMITTED and (min is not _OMITTED or max is not _OMITTED):
        raise ValueError("np.clip: only one pair of a_min, a_max and min, max must be given")
    low, high = (min, max) if a_min is _OMITTED else (a_min, a_max)
    return _clip(a, None if low is _OMITTED else low, None if high is _OMITTED else high)


@op(
    methods="xlogy",
    a=lambda g, a, b: g * np.log(np.where((a == 0) & (b <= 0), 1.0, b)),
    b=lambda g, a, b: safe_divide(g * a, b),
)
def xlogy(a, b, /):
    """Compute a * log(b), which is 0 where a is 0, unless b is NaN.

    Parameters
    ----------
    a, b : array_like
        Shapes that broadcast.
    """
    return a * np.log(np.where((a == 0) & ~np.isnan(b), a**0, b))  # 1 in the dtype of a

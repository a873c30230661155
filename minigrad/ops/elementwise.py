"""Elementwise functions: arithmetic, powers, exponentials, sine and cosine, choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.batched import all_true
from ..core.forms import numpy_form
from ..core.op import either
from ..core.registry import function, op, ufunc
from ..core.tensor import Tensor, unwrap
from .axes import booleans

__all__ = [
    "xlogy",
    "add",
    "subtract",
    "multiply",
    "divide",
    "negative",
    "positive",
    "absolute",
    "sign",
    "power",
    "square",
    "reciprocal",
    "remainder",
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "logaddexp",
    "sin",
    "cos",
    "tanh",
    "maximum",
    "minimum",
    "where",
    "masked_fill",
    "clip",
]

# -- division where a slope may be infinite
#
# A branch that was not chosen gets the gradient 0, which an infinite slope must not turn into NaN.
# So 0 / 0 = 0 · ∞ = 0 here.


@op(a=lambda g, b: safe_divide(g, b), b=lambda g, y, b: -safe_multiply(safe_divide(g, b), y))
def _safe_divide(a, b, /):
    return a / b if all_true(b) else a / np.where((b == 0) & (a == 0), 1, b)


@op(a=lambda g, b: safe_multiply(g, b), b=lambda g, a: safe_multiply(g, a))
def _safe_multiply(a, b, /):
    return np.where(b == 0, 0, a) * np.where(a == 0, 0, b)


safe_divide: Any = either(_safe_divide)
safe_multiply: Any = either(_safe_multiply)


def ratio(a: Any, b: Any) -> Any:
    """Return a / b, or 0 if b is 0: for derivatives that are defined as 0 at such points."""
    is_zero = b == 0
    return np.where(is_zero, 0, a / np.where(is_zero, 1, b))


# -- arithmetic

add = ufunc(np.add, "Add a and b.", "__add__ __radd__", a=lambda g: g, b=lambda g: g)
subtract = ufunc(
    np.subtract, "Subtract b from a.", "__sub__ __rsub__", a=lambda g: g, b=lambda g: -g
)
multiply = ufunc(
    np.multiply, "Multiply a and b.", "__mul__ __rmul__", a=lambda g, b: g * b, b=lambda g, a: g * a
)
divide = ufunc(
    np.divide,
    "Divide a by b.",
    "__truediv__ __rtruediv__",
    a=lambda g, b: g / b,
    b=lambda g, y, b: -g * y / b,
)
negative = ufunc(np.negative, "Negate x.", "__neg__", x=lambda g: -g)
positive = ufunc(np.positive, "Return a copy of x.", "__pos__", x=lambda g: g)
absolute = ufunc(
    np.absolute,
    "Compute |x|; its derivative at 0 is 0.",
    "__abs__ abs",
    x=lambda g, x: g * np.sign(x),
)
sign = ufunc(
    np.sign, "Return -1, 0 or 1; the derivative is 0.", "sign", x=lambda g: np.zeros_like(g)
)


# A rule may replace a value by a constant only where its formula has no value, such as log 0.
# Elsewhere the constant would remove the value from the graph, and second derivatives with it.


def _power_a(g: Any, a: Any, b: Any) -> Any:
    if isinstance(b, (int, float)):
        return g * a * 2.0 if b == 2 else g * (b * a ** (b - 1)) if b != 0 else np.zeros_like(g)
    # a⁰ has derivative 0, also at a = 0
    return g * (b * np.where((a == 0) & (b == 0), 1, a) ** (b - 1.0))


def _power_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    # 0ᵇ has derivative 0, not 0 · log 0
    return g * y * np.log(np.where((a == 0) & (b >= 0), 1.0, a))


@op(numpy=np.power, methods="__pow__ __rpow__", a=_power_a, b=_power_b)
def power(a, b, /):
    """Raise a to the power b; the derivative of 0ᵇ by b is 0.

    Parameters
    ----------
    a, b : array_like
        Shapes that broadcast.

    Returns
    -------
    Tensor
        Broadcast shape of a and b.
    """
    if getattr(a, "dtype", np.dtype(bool)).kind == "b":
        # ** of bools is int8, and of Python's numbers complex
        return np.power(a, b)
    return a**b  # an array's ** is faster than np.power for 2, 0.5 and -1


square = ufunc(np.square, "Compute x².", "square", x=lambda g, x: g * x * 2.0)
reciprocal = ufunc(np.reciprocal, "Compute 1 / x.", "reciprocal", x=lambda g, y: -g * y * y)
remainder = ufunc(
    np.remainder,
    "Compute a - b * floor(a / b), which has the sign of b.",
    "__mod__ __rmod__",
    a=lambda g: g,
    b=lambda g, a, b: -g * np.floor_divide(a, b),
)

# -- exponentials and logarithms

exp = ufunc(np.exp, "Compute eˣ.", "exp", x=lambda g, y: g * y)
expm1 = ufunc(
    np.expm1,
    "Compute eˣ - 1, exact for small x.",
    "expm1",
    x=lambda g, x: g * np.exp(x),  # y + 1 cancels far below 0
)
log = ufunc(np.log, "Compute the natural logarithm.", "log", x=lambda g, x: safe_divide(g, x))
log1p = ufunc(
    np.log1p,
    "Compute log(1 + x), exact for small x.",
    "log1p",
    x=lambda g, x: safe_divide(g, 1 + x),
)
sqrt = ufunc(np.sqrt, "Compute the square root.", "sqrt", x=lambda g, y: safe_divide(g, 2 * y))


@function(methods="rsqrt")
def rsqrt(x: Any) -> Tensor:
    """Compute 1 / sqrt(x).

    Parameters
    ----------
    x : array_like

    Returns
    -------
    Tensor
        Shape of x.
    """
    return divide(1.0, sqrt(x))


def times_exp(g: Any, x: Any, y: Any) -> Any:
    """Return g * exp(x - y); 0 if y is -inf, since all terms are, and g if x and y are inf."""
    same = (x == y) & (y == np.inf)  # the difference is 0, not inf - inf
    return g * np.exp(np.where(same, 0, x) - np.where(same | np.isneginf(y), 0, y))


logaddexp = ufunc(
    np.logaddexp,
    "Compute log(eᵃ + eᵇ), without overflow.",
    "logaddexp",
    a=lambda g, y, a: times_exp(g, a, y),
    b=lambda g, y, b: times_exp(g, b, y),
)

# -- angles

sin = ufunc(np.sin, "Compute the sine; x is in radians.", "sin", x=lambda g, x: g * np.cos(x))
cos = ufunc(np.cos, "Compute the cosine; x is in radians.", "cos", x=lambda g, x: -g * np.sin(x))


tanh = ufunc(np.tanh, "Compute the hyperbolic tangent.", "tanh", x=lambda g, y: g * (1.0 - y * y))

# -- choices


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


@op(
    a=lambda g, condition: np.where(condition, g, 0),
    b=lambda g, condition: np.where(condition, 0, g),
)
def where(condition, a, b, /):
    """Return elements of a where `condition` is True, else of b.

    The operand that is not chosen gets a gradient of exactly 0.

    Parameters
    ----------
    condition : array_like of bool
    a, b : array_like
        Values for True and for False.

    Returns
    -------
    Tensor
        Broadcast shape of all three.
    """
    return np.where(condition, a, b)


@numpy_form(np.where)
def _np_where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return tuple(map(Tensor, np.nonzero(unwrap(condition))))
    if x is None or y is None:
        raise ValueError("np.where: x and y must be given together")
    return where(unwrap(condition), x, y)


@function(methods="masked_fill")
def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """Replace elements where `mask` is True.

    Parameters
    ----------
    x : array_like
    mask : array of bool, broadcastable with x
        True = the element is replaced.
    value : float or array_like
        The replacement.

    Returns
    -------
    Tensor
        Broadcast shape of x, `mask` and `value`.
    """
    return where(booleans("masked_fill: mask", mask, "True for what is replaced"), value, x)


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

    Parameters
    ----------
    x : array_like
    min : float or array_like, optional
        The lower limit.
    max : float or array_like, optional
        The upper limit.

    Returns
    -------
    Tensor
        Broadcast shape of x and the limits.
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

    Returns
    -------
    Tensor
        Broadcast shape of a and b.
    """
    return np.where((a == 0) & ~np.isnan(b), 0, a * np.log(np.where((a == 0) & (b <= 0), 1.0, b)))

"""Functions of each element by itself: arithmetic, powers, exponentials, angles, choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
    "log2",
    "log10",
    "sqrt",
    "rsqrt",
    "logaddexp",
    "hypot",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "arctan2",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "maximum",
    "minimum",
    "where",
    "masked_fill",
    "clip",
]

# -- division where a slope may be infinite
# ---------------------------------------------------------- A branch that was not taken sends back
# 0, which an infinite slope must not turn into NaN: 0 / 0 = 0 · ∞ = 0.


@op(a=lambda g, b: safe_divide(g, b), b=lambda g, y, b: -safe_multiply(safe_divide(g, b), y))
def _safe_divide(a, b, /):
    return a / b if np.all(b) else a / np.where((b == 0) & (a == 0), 1, b)


@op(a=lambda g, b: safe_multiply(g, b), b=lambda g, a: safe_multiply(g, a))
def _safe_multiply(a, b, /):
    return np.where(b == 0, 0, a) * np.where(a == 0, 0, b)


safe_divide: Any = either(_safe_divide)
safe_multiply: Any = either(_safe_multiply)


def ratio(a: Any, b: Any) -> Any:
    """a / b, and 0 where b is 0: for derivatives that are taken as 0 at a point where there is
    none.
    """
    nought = b == 0
    return np.where(nought, 0, a / np.where(nought, 1, b))


# -- arithmetic
# --------------------------------------------------------------------------------------

add = ufunc(np.add, "a + b.", "__add__ __radd__", a=lambda g: g, b=lambda g: g)
subtract = ufunc(np.subtract, "a - b.", "__sub__ __rsub__", a=lambda g: g, b=lambda g: -g)
multiply = ufunc(
    np.multiply, "a · b.", "__mul__ __rmul__", a=lambda g, b: g * b, b=lambda g, a: g * a
)
divide = ufunc(
    np.divide,
    "a / b.",
    "__truediv__ __rtruediv__",
    a=lambda g, b: g / b,
    b=lambda g, y, b: -g * y / b,
)
negative = ufunc(np.negative, "-x.", "__neg__", x=lambda g: -g)
positive = ufunc(np.positive, "+x, a copy.", "__pos__", x=lambda g: g)
absolute = ufunc(
    np.absolute, "|x|; its derivative at 0 is 0.", "__abs__ abs", x=lambda g, x: g * np.sign(x)
)
sign = ufunc(np.sign, "-1, 0 or 1; its derivative is 0.", "sign", x=lambda g: np.zeros_like(g))


# A rule may test a value for where a formula breaks down, such as log 0, and may put a constant
# there. Anywhere else the constant would hide how the value depends on what it was computed from,
# and with it second derivatives.


def _power_a(g: Any, a: Any, b: Any) -> Any:
    if isinstance(b, (int, float)):
        return g * a * 2.0 if b == 2 else g * (b * a ** (b - 1)) if b != 0 else np.zeros_like(g)
    return g * (
        b * np.where((a == 0) & (b == 0), 1, a) ** (b - 1.0)
    )  # a⁰ has derivative 0, also at a = 0


def _power_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return (
        g * y * np.log(np.where((a == 0) & (b >= 0), 1.0, a))
    )  # 0ᵇ has derivative 0, not 0 · log 0


@op(numpy=np.power, methods="__pow__ __rpow__", a=_power_a, b=_power_b)
def power(a, b, /):
    """a to the power b; either can be a tensor. d/db of 0ᵇ is taken as 0."""
    if getattr(a, "dtype", np.dtype(float)).kind == "b":  # whose operator gives 8 bits
        return np.power(a, b)
    return a**b  # an array's ** is faster than np.power for 2, 0.5 and -1


square = ufunc(np.square, "x².", "square", x=lambda g, x: g * x * 2.0)
reciprocal = ufunc(np.reciprocal, "1 / x.", "reciprocal", x=lambda g, y: -g * y * y)
remainder = ufunc(
    np.remainder,
    "a - b ⌊a / b⌋, which has the sign of b.",
    "__mod__ __rmod__",
    a=lambda g: g,
    b=lambda g, a, b: -g * np.floor_divide(a, b),
)

# -- exponentials and logarithms
# -----------------------------------------------------------------------

exp = ufunc(np.exp, "eˣ.", "exp", x=lambda g, y: g * y)
expm1 = ufunc(np.expm1, "eˣ - 1, exact for small x.", "expm1", x=lambda g, y: g * (y + 1))
log = ufunc(np.log, "The natural logarithm.", "log", x=lambda g, x: safe_divide(g, x))
log1p = ufunc(
    np.log1p, "log(1 + x), exact for small x.", "log1p", x=lambda g, x: safe_divide(g, 1 + x)
)
log2 = ufunc(
    np.log2, "The logarithm to base 2.", "log2", x=lambda g, x: safe_divide(g, x * math.log(2))
)
log10 = ufunc(
    np.log10, "The logarithm to base 10.", "log10", x=lambda g, x: safe_divide(g, x * math.log(10))
)
sqrt = ufunc(np.sqrt, "The square root.", "sqrt", x=lambda g, y: safe_divide(g, 2 * y))


@function(methods="rsqrt")
def rsqrt(x: Any) -> Tensor:
    """1 / √x."""
    return divide(1.0, sqrt(x))


def times_exp(g: Any, x: Any, y: Any) -> Any:
    """g · eˣ⁻ʸ; 0 where y is -inf, that is, where every term is, and g where x and y are both +inf."""
    same = (x == y) & (y == np.inf)  # the difference is 0, not inf - inf
    return g * np.exp(np.where(same, 0, x) - np.where(same | np.isneginf(y), 0, y))


logaddexp = ufunc(
    np.logaddexp,
    "log(eᵃ + eᵇ), without overflow.",
    "logaddexp",
    a=lambda g, y, a: times_exp(g, a, y),
    b=lambda g, y, b: times_exp(g, b, y),
)
hypot = ufunc(
    np.hypot,
    "√(a² + b²), without overflow.",
    "hypot",
    a=lambda g, y, a: g * ratio(a, y),
    b=lambda g, y, b: g * ratio(b, y),
)

# -- angles
# --------------------------------------------------------------------------------------------

sin = ufunc(np.sin, "The sine (radians).", "sin", x=lambda g, x: g * np.cos(x))
cos = ufunc(np.cos, "The cosine (radians).", "cos", x=lambda g, x: -g * np.sin(x))
tan = ufunc(np.tan, "The tangent (radians).", "tan", x=lambda g, y: g * (1 + y * y))
arcsin = ufunc(
    np.arcsin,
    "The angle in [-π/2, π/2] with sine x.",
    "arcsin",
    x=lambda g, x: safe_divide(g, np.sqrt((1 - x) * (1 + x))),
)
arccos = ufunc(
    np.arccos,
    "The angle in [0, π] with cosine x.",
    "arccos",
    x=lambda g, x: safe_divide(-g, np.sqrt((1 - x) * (1 + x))),
)
arctan = ufunc(
    np.arctan, "The angle in (-π/2, π/2) with tangent x.", "arctan", x=lambda g, x: g / (1 + x * x)
)


def _per_square(g: Any, a: Any, b: Any) -> Any:
    """g a / (a² + b²), without squares that overflow; 0 at the origin."""
    length = np.hypot(a, b)
    return ratio(g * ratio(a, length), length)


arctan2 = ufunc(
    np.arctan2,
    "The angle in (-π, π] of the point (b, a).",
    "arctan2",
    a=lambda g, a, b: _per_square(g, b, a),
    b=lambda g, a, b: _per_square(-g, a, b),
)
sinh = ufunc(np.sinh, "The hyperbolic sine.", "sinh", x=lambda g, x: g * np.cosh(x))
cosh = ufunc(np.cosh, "The hyperbolic cosine.", "cosh", x=lambda g, x: g * np.sinh(x))
tanh = ufunc(np.tanh, "The hyperbolic tangent.", "tanh", x=lambda g, y: g * (1 - y * y))
arcsinh = ufunc(np.arcsinh, "The inverse of sinh.", "arcsinh", x=lambda g, x: g / np.hypot(x, 1.0))
arccosh = ufunc(
    np.arccosh,
    "The inverse of cosh.",
    "arccosh",
    x=lambda g, x: safe_divide(g, np.sqrt((x - 1) * (x + 1))),
)
arctanh = ufunc(
    np.arctanh, "The inverse of tanh.", "arctanh", x=lambda g, x: safe_divide(g, (1 - x) * (1 + x))
)

# -- choices
# -------------------------------------------------------------------------------------------


def _larger(g: Any, a: Any, b: Any) -> Any:
    """g where a > b or either is NaN, half of it at a tie."""
    return np.where(a < b, 0, np.where(a == b, g / 2, g))


def _smaller(g: Any, a: Any, b: Any) -> Any:
    """g where a < b or either is NaN, half of it at a tie."""
    return _larger(g, b, a)


maximum = ufunc(
    np.maximum,
    "The larger of a and b; equal ones share the gradient as in PyTorch.",
    "maximum",
    a=_larger,
    b=_smaller,
)
minimum = ufunc(
    np.minimum,
    "The smaller of a and b; equal ones share the gradient as in PyTorch.",
    "minimum",
    a=_smaller,
    b=_larger,
)


@op(
    a=lambda g, condition: np.where(condition, g, 0),
    b=lambda g, condition: np.where(condition, 0, g),
)
def where(condition, a, b, /):
    """a where `condition` (booleans), else b. The branch not taken gets a gradient of exactly 0."""
    return np.where(condition, a, b)


@numpy_form(np.where)
def _np_where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return tuple(map(Tensor, np.nonzero(unwrap(condition))))
    if x is None or y is None:
        raise ValueError("np.where: expected both x and y, or neither")
    return where(unwrap(condition), x, y)


@function(methods="masked_fill")
def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """`value` where `mask` (booleans, broadcast to x) is True, else x."""
    return where(booleans("masked_fill", mask, "True for what is replaced"), value, x)


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
    """x, but no less than `min` and no more than `max` (either can be None, or a tensor).

    The gradient passes where x is within the bounds or on them, as in PyTorch's `clamp`.
    """
    return _clip(x, min, max)


_GIVEN: Any = object()


@numpy_form(np.clip)
def _np_clip(
    a: Any, a_min: Any = _GIVEN, a_max: Any = _GIVEN, *, min: Any = _GIVEN, max: Any = _GIVEN
) -> Tensor:
    if (a_min is _GIVEN) != (a_max is _GIVEN):
        raise TypeError("np.clip: expected both a_min and a_max (one can be None), or min= or max=")
    if a_min is not _GIVEN and (min is not _GIVEN or max is not _GIVEN):
        raise ValueError("np.clip: a_min, a_max and min, max say the same; give one pair of them")
    low, high = (min, max) if a_min is _GIVEN else (a_min, a_max)
    return _clip(a, None if low is _GIVEN else low, None if high is _GIVEN else high)


@op(
    methods="xlogy",
    a=lambda g, a, b: g * np.log(np.where((a == 0) & (b <= 0), 1.0, b)),
    b=lambda g, a, b: safe_divide(g * a, b),
)
def xlogy(a, b, /):
    """a log b, and 0 where a is 0, whatever b is but NaN; the derivative by a is 0 where both are
    0.
    """
    return np.where((a == 0) & ~np.isnan(b), 0, a * np.log(np.where((a == 0) & (b <= 0), 1.0, b)))

"""Arithmetic, powers, exponentials, sine and cosine: one entry each, with the rule beside it.

Look at `multiply`, the model of all. `a=lambda g, b: g * b` is the derivative with respect to `a`.
The name `b` in its parameters means that the value of `b` is saved.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, Function, as_array
from ..registry import Op, either, op, ufunc

__all__ = [
    "absolute",
    "add",
    "cos",
    "divide",
    "exp",
    "log",
    "multiply",
    "negative",
    "positive",
    "power",
    "sign",
    "sin",
    "sqrt",
    "square",
    "subtract",
    "tanh",
]

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
    b=lambda g, y, b: g * y / -b,
)
negative = ufunc(np.negative, "Negate x.", "__neg__", x=lambda g: -g)
positive = ufunc(np.positive, "Return a copy of x.", "__pos__", x=lambda g: g)
absolute = ufunc(
    np.absolute,
    "Compute |x|; its derivative at 0 is 0.",
    "__abs__ abs",
    x=lambda g, x: g * np.sign(x),
)
sign = ufunc(np.sign, "Return -1, 0 or 1; the derivative is 0.", "sign", x=lambda g: _zeros(g))


def _zeros(g: Array) -> Array:
    """Return zeros that depend on g in the graph, so that they can be differentiated."""
    return np.where(False, g, 0)


# A rule may replace a value by a constant only where its formula has no value, such as log 0.
# Elsewhere the constant would remove the value from the graph, and second derivatives with it.


def _power_a(g: Array, a: Array, b: Array) -> Array:
    if isinstance(b, (int, float)) and (b == 0 or b >= 1):
        return g * a * 2.0 if b == 2 else g * (b * a ** (b - 1)) if b != 0 else _zeros(g)
    # a⁰ has derivative 0, also at a = 0, and 0 · ∞ is 0: see below
    unused = np.logical_or(b == 0, np.logical_and(g == 0, b < 1))
    return safe_multiply(g, b * np.where(np.logical_and(a == 0, unused), 1, a) ** (b - 1.0))


def _power_b(g: Array, y: Array, a: Array, b: Array) -> Array:
    # 0ᵇ has derivative 0, not 0 · log 0
    return g * y * np.log(np.where(np.logical_and(a == 0, b >= 0), 1.0, a))


@op(numpy=np.power, methods="__pow__ __rpow__", a=_power_a, b=_power_b)
def power(a, b, /):
    """Compute a to the power b; the derivative of 0ᵇ by b is 0.

    Parameters
    ----------
    a, b : array_like
        Shapes that broadcast.
    """
    if getattr(a, "dtype", np.dtype(bool)).kind == "b":
        # True ** True would be int8, and (-8) ** (1 / 3) of Python's numbers complex
        return np.power(a, b)
    return a**b  # an array's ** is faster than np.power for 2, 0.5 and -1


square = ufunc(np.square, "Compute x².", "square", x=lambda g, x: g * x * 2.0)

# -- exponentials and logarithms

exp = ufunc(np.exp, "Compute eˣ.", "exp", x=lambda g, y: g * y)
# safe_divide(0, 0) is 0: see below
log = ufunc(np.log, "Compute the natural logarithm.", "log", x=lambda g, x: safe_divide(g, x))
sqrt = ufunc(np.sqrt, "Compute the square root.", "sqrt", x=lambda g, y: safe_divide(g, 2 * y))


# -- angles

sin = ufunc(np.sin, "Compute the sine; x is in radians.", "sin", x=lambda g, x: g * np.cos(x))
cos = ufunc(np.cos, "Compute the cosine; x is in radians.", "cos", x=lambda g, x: -g * np.sin(x))


@np.errstate(over="ignore")  # the square may be inf
def _over_cosh_squared(a: Array, x: Array, /) -> Array:
    """Compute a / cosh(x)²."""
    y = np.cosh(x)
    y *= y
    return a / y


over_cosh_squared: Function = either(
    Op(
        _over_cosh_squared,
        {
            "a": lambda g, x: over_cosh_squared(g, x),
            "x": lambda g, y, x: g * y * np.tanh(x) * -2.0,
        },
    ).function
)

# in place of g * (1 - y²), which loses digits to cancellation if |y| is near 1
tanh = ufunc(np.tanh, "Compute the hyperbolic tangent.", "tanh", x=over_cosh_squared)

# -- division where a slope may be infinite
#
# A branch that was not chosen gets the gradient 0, which an infinite slope must not turn into NaN.
# So 0 / 0 = 0 · ∞ = 0 here.


@op(a=lambda g, b: safe_divide(g, b), b=lambda g, y, b: -safe_multiply(safe_divide(g, b), y))
def _safe_divide(a, b, /):
    return a / b if as_array(b).all() else a / np.where((b == 0) & (a == 0), 1, b)


@op(a=lambda g, b: safe_multiply(g, b), b=lambda g, a: safe_multiply(g, a))
def _safe_multiply(a, b, /):
    return np.where(b == 0, 0, a) * np.where(a == 0, 0, b)


safe_divide: Function = either(_safe_divide)
safe_multiply: Function = either(_safe_multiply)

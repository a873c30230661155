"""Elementwise functions beyond the core set: logarithms, angles, roots, signs, choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import as_array
from ..ops.arithmetic import add, safe_divide
from ..ops.shape import getitem, where
from ..registry import Op, add_methods, answer, either, function, op, ufunc
from ..tensor import Tensor, as_operand, to_array, wrap
from ..tensor import unwrap as untracked
from .batched import all_true
from .compare import floor_divide
from .elementwise import ratio, remainder, share
from .forms import numpy_form
from .nested import as_tensors

__all__ = [
    "log2",
    "log10",
    "hypot",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "arctan2",
    "sinh",
    "cosh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "cbrt",
    "exp2",
    "logaddexp2",
    "fmax",
    "fmin",
    "copysign",
    "deg2rad",
    "rad2deg",
    "sinc",
    "divmod",
    "fmod",
    "unwrap",
    "select",
    "polyval",
    "conjugate",
    "heaviside",
]

LN2 = math.log(2)

# -- logarithms and angles

log2 = ufunc(
    np.log2, "Compute the base-2 logarithm.", "log2", x=lambda g, x: safe_divide(g * (1 / LN2), x)
)
log10 = ufunc(
    np.log10,
    "Compute the base-10 logarithm.",
    "log10",
    x=lambda g, x: safe_divide(g * (1 / math.log(10)), x),
)
MAX_HYPOT = 500
"""Largest number of elements for which np.hypot is faster than its formula."""

_LEAST_SQUARES = {np.dtype(np.float32): 1e-23, np.dtype(float): 1e-275}
"""Sums of squares from which on a square that underflows does not matter."""


@op(
    numpy=np.hypot,
    methods="hypot",
    a=lambda g, y, a, b: g * cosine(a, b, length=untracked(y)),
    b=lambda g, y, a, b: g * cosine(b, a, length=untracked(y)),
)
def hypot(a, b, /):
    """Compute sqrt(a² + b²), without overflow."""
    dtype = getattr(a, "dtype", None)
    if dtype in _LEAST_SQUARES and dtype == getattr(b, "dtype", None) and a.size > MAX_HYPOT:
        with np.errstate(over="ignore"):
            y = a * a + b * b
        least, most = np.minimum.reduce(y, axis=None), np.maximum.reduce(y, axis=None)
        if all_true((least > _LEAST_SQUARES[dtype]) & (most < np.inf)):  # and not NaN
            return np.sqrt(y)
    return np.hypot(a, b)


def _cosine(a: Any, b: Any, /, length: Any = None) -> Any:
    """Compute a / length for length = hypot(a, b), also an infinite one; 0 at the origin."""
    if length is None:
        with np.errstate(over="ignore"):
            length = np.hypot(a, b)
    if not all_true(np.isfinite(length)):
        far = np.isinf(length)
        infinite = np.isinf(a) | np.isinf(b)
        near = [np.where(far, x / 4, x) for x in (a, b)]  # elsewhere x / 4 could underflow
        a, b = (np.where(infinite, np.isinf(x) * np.sign(x), x) for x in near)
        length = np.hypot(a, b)
    return ratio(a, length)


cosine: Any = either(
    Op(
        _cosine,
        {
            "a": lambda g, a, b: ratio(g * cosine(b, a) ** 2, np.hypot(a, b)),
            "b": lambda g, y, a, b: ratio(-g * y * cosine(b, a), np.hypot(a, b)),
        },
    ).function
)


def _one_minus_square(x: Any, /) -> Any:
    return (1 - x) * (1 + x)  # exact near 1


one_minus_square: Any = either(
    Op(_one_minus_square, {"x": lambda g, x: g * x * -2.0}).function  # exact near 0
)
tan = ufunc(np.tan, "Compute the tangent; x is in radians.", "tan", x=lambda g, y: g * (1 + y * y))
arcsin = ufunc(
    np.arcsin,
    "Return the angle in [-π/2, π/2] with sine x.",
    "arcsin",
    x=lambda g, x: safe_divide(g, np.sqrt(one_minus_square(x))),
)
arccos = ufunc(
    np.arccos,
    "Return the angle in [0, π] with cosine x.",
    "arccos",
    x=lambda g, x: safe_divide(-g, np.sqrt(one_minus_square(x))),
)
arctan = ufunc(
    np.arctan,
    "Return the angle in (-π/2, π/2) with tangent x.",
    "arctan",
    x=lambda g, x: g / (length := np.hypot(x, 1.0)) / length,
)
sinh = ufunc(np.sinh, "Compute the hyperbolic sine.", "sinh", x=lambda g, x: g * np.cosh(x))
cosh = ufunc(np.cosh, "Compute the hyperbolic cosine.", "cosh", x=lambda g, x: g * np.sinh(x))
arcsinh = ufunc(
    np.arcsinh, "Compute the inverse of sinh.", "arcsinh", x=lambda g, x: g / np.hypot(x, 1.0)
)
arccosh = ufunc(
    np.arccosh,
    "Compute the inverse of cosh.",
    "arccosh",
    x=lambda g, x: safe_divide(safe_divide(g, np.sqrt(x - 1)), np.sqrt(x + 1)),
)
arctanh = ufunc(
    np.arctanh,
    "Compute the inverse of tanh.",
    "arctanh",
    x=lambda g, x: safe_divide(g, one_minus_square(x)),
)


arctan2 = ufunc(
    np.arctan2,
    "Return the angle in (-π, π] of the point (b, a).",
    "arctan2",
    a=lambda g, a, b: ratio(g * cosine(b, a), np.hypot(a, b)),
    b=lambda g, a, b: ratio(-g * cosine(a, b), np.hypot(a, b)),
)

# -- roots, powers, signs

cbrt = ufunc(
    np.cbrt,
    "Compute the cube root; its derivative at 0 is inf.",
    x=lambda g, y: safe_divide(g, 3 * y * y),
)
exp2 = ufunc(np.exp2, "Compute 2ˣ.", "exp2", x=lambda g, y: g * y * LN2)
logaddexp2 = ufunc(
    np.logaddexp2,
    "Compute log2(2ᵃ + 2ᵇ), without overflow.",
    a=lambda g, a, b: share(g, a, b, LN2),
    b=lambda g, a, b: share(g, b, a, LN2),
)


def _winner(g: Any, a: Any, b: Any, wins: np.ufunc = np.greater) -> Any:
    """Return g where a wins over b or b is NaN, half of it at a tie."""
    return np.where(wins(a, b) | np.isnan(b), g, np.where(a == b, g / 2, 0))


fmax = ufunc(
    np.fmax,
    "Return the larger of a and b; NaN only if both are. Equal ones share the gradient.",
    a=lambda g, a, b: _winner(g, a, b),
    b=lambda g, a, b: _winner(g, b, a),
)
fmin = ufunc(
    np.fmin,
    "Return the smaller of a and b; NaN only if both are. Equal ones share the gradient.",
    a=lambda g, a, b: _winner(g, a, b, np.less),
    b=lambda g, a, b: _winner(g, b, a, np.less),
)
copysign = ufunc(
    np.copysign,
    "Return |a| with the sign of b; the derivative at a = 0 is 0.",
    a=lambda g, a, b: g * np.sign(a) * np.where(np.signbit(b), -1, 1),
    b=lambda g: np.zeros_like(g),
)
deg2rad = ufunc(
    np.deg2rad, "Convert degrees to radians.", "deg2rad", x=lambda g: g * (math.pi / 180)
)
rad2deg = ufunc(
    np.rad2deg, "Convert radians to degrees.", "rad2deg", x=lambda g: g * (180 / math.pi)
)
conjugate = ufunc(
    np.conjugate, "Return x, or the conjugates of complex numbers.", "conj", x=lambda g: g
)


def _real(x: Tensor) -> Tensor:
    """Real part, which is the tensor itself for real numbers."""
    return as_tensors(np.real(x.data), (x,)) if x.dtype.kind == "c" else x


def _imag(x: Tensor) -> Tensor:
    """Imaginary part, which is 0 for real numbers."""
    return wrap(as_array(np.imag(x.data)), None)


add_methods(Tensor, {"real": property(_real), "imag": property(_imag)})
numpy_form(np.real)(lambda val: as_operand(val).real)


@numpy_form(np.real_if_close)
def real_if_close(a: Any, tol: float = 100) -> Tensor:
    if a.dtype.kind != "c":
        return a
    limit = tol * np.finfo(a.dtype).eps if tol > 1 else tol
    return a.real if all_true(np.abs(a.imag.data) < limit) else a


answer(np.radians, deg2rad)
answer(np.degrees, rad2deg)


def _sinc_slope(x: Any) -> Any:
    """Return the derivative of sin(πx) / (πx), by its series near 0."""
    t = math.pi * x
    near = np.abs(t) < 1
    far, square = np.where(near, 1, t), np.where(near, t, 0) ** 2
    series: Any = 0.0
    for k in range(10, 0, -1):
        series = series * square + (-1) ** k * 2 * k / math.factorial(2 * k + 1)
    return math.pi * np.where(near, t * series, (np.cos(far) - np.sin(far) / far) / far)


@op(numpy=np.sinc, methods="sinc", x=lambda g, x: g * _sinc_slope(x))
def sinc(x, /):
    """Compute sin(πx) / (πx), which is 1 at 0."""
    return np.sinc(x)


fmod = ufunc(
    np.fmod,
    "Compute the remainder of a / b, which has the sign of a.",
    a=lambda g: g,
    b=lambda g, y, a, b: -g * np.rint((a - y) / b),  # a / b may be rounded up to an integer
)


@function(numpy=np.unwrap)
def unwrap(
    p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi
) -> Tensor:
    """Add whole periods to angles, so that neighbours differ by at most half a period."""
    p, array = as_operand(p), to_array(p)
    return add(p, np.unwrap(array, discont, axis, period=period) - array)


@function(numpy=np.divmod, methods="__divmod__ __rdivmod__")
def divmod(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Return floor(a / b), which has no gradient, and the remainder."""
    return floor_divide(a, b), remainder(a, b)


@function(numpy=np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Tensor:
    """Choose each element by the first condition that is true."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            "select: condlist and choicelist must have the same length, at least 1, got "
            f"{len(condlist)} and {len(choicelist)}"
        )
    if any(to_array(c).dtype != bool for c in condlist):
        raise TypeError("select: condlist must contain booleans")
    y = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        y = where(untracked(condition), choice, y)
    return y


@numpy_form(np.where)
def _np_where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return tuple(map(Tensor, np.nonzero(untracked(condition))))
    if x is None or y is None:
        raise ValueError("np.where: x and y must be given together")
    return where(untracked(condition), x, y)


@function(numpy=np.polyval)
def polyval(p: Any, x: Any) -> Tensor:
    """Evaluate a polynomial at x."""
    y: Any = wrap(np.zeros_like(to_array(x)), None)
    for i in range(np.shape(p)[0]):
        y = y * x + getitem(p, i)
    return y


@function(numpy=np.heaviside, methods="heaviside")
def heaviside(x: Any, values: Any) -> Tensor:
    """Return 0 for negative, 1 for positive and NaN for NaN elements of x, and `values` for zeros.

    Elements of `values` have a gradient where x is zero.
    """
    y = where(to_array(x) == 0, values, np.heaviside(untracked(x), untracked(values)))
    return y[()]  # a number if it has no axes

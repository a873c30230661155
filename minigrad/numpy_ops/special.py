"""Less common functions of each element: roots, powers of two, signs, degrees, choices among
several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.registry import function, op, ufunc
from ..core.tensor import DISPATCH, Tensor, wrap
from ..core.tensor import unwrap as untracked
from ..ops.compare import floor_divide
from ..ops.elementwise import multiply, remainder, safe_divide, times_exp, where
from ..ops.indexing import getitem
from ..ops.shape import clone

__all__ = [
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
]

LN2 = math.log(2)

cbrt = ufunc(
    np.cbrt, "The cube root; its derivative at 0 is inf.", x=lambda g, y: safe_divide(g, 3 * y * y)
)
exp2 = ufunc(np.exp2, "2ˣ.", "exp2", x=lambda g, y: g * y * LN2)
logaddexp2 = ufunc(
    np.logaddexp2,
    "log2(2ᵃ + 2ᵇ), without overflow.",
    a=lambda g, y, a: times_exp(g, a * LN2, y * LN2),
    b=lambda g, y, b: times_exp(g, b * LN2, y * LN2),
)


def _winner(g: Any, a: Any, b: Any, wins: np.ufunc = np.greater) -> Any:
    """g where a wins over b or b is NaN, half of it at a tie."""
    return np.where(wins(a, b) | np.isnan(b), g, np.where(a == b, g / 2, 0))


fmax = ufunc(
    np.fmax,
    "The larger of a and b; NaN only where both are. Equal ones share the gradient.",
    a=lambda g, a, b: _winner(g, a, b),
    b=lambda g, a, b: _winner(g, b, a),
)
fmin = ufunc(
    np.fmin,
    "The smaller of a and b; NaN only where both are. Equal ones share the gradient.",
    a=lambda g, a, b: _winner(g, a, b, np.less),
    b=lambda g, a, b: _winner(g, b, a, np.less),
)
copysign = ufunc(
    np.copysign,
    "|a| with the sign of b; its derivative at a = 0 is 0.",
    a=lambda g, a, b: g * np.sign(a) * np.where(np.signbit(b), -1, 1),
    b=lambda g: np.zeros_like(g),
)
deg2rad = ufunc(np.deg2rad, "Degrees as radians.", "deg2rad", x=lambda g: g * (math.pi / 180))
rad2deg = ufunc(np.rad2deg, "Radians as degrees.", "rad2deg", x=lambda g: g * (180 / math.pi))
conjugate = ufunc(
    np.conjugate, "x, since it is real; of complex numbers the conjugates.", "conj", x=lambda g: g
)
numpy_form(np.real, np.real_if_close)(lambda x: clone(x))
Tensor.real = property(  # type: ignore[assignment]
    lambda x: x if x.dtype.kind != "c" else wrap(x.data.real, None),
    doc="The real part; of real numbers the tensor itself.",
)
Tensor.imag = property(  # type: ignore[assignment]
    lambda x: wrap(np.asarray(x.data.imag), None), doc="The imaginary part; of real numbers zeros."
)
DISPATCH[np.radians], DISPATCH[np.degrees] = deg2rad, rad2deg


def _sinc_slope(x: Any) -> Any:
    """The derivative of sin(πx) / (πx), by its series near 0."""
    t = math.pi * x
    near = np.abs(t) < 0.1
    far = np.where(near, 1, t)
    series = t * (-1 / 3 + t**2 * (1 / 30 - t**2 * (1 / 840 - t**2 / 45360)))
    return math.pi * np.where(near, series, (np.cos(far) - np.sin(far) / far) / far)


@op(numpy=np.sinc, methods="sinc", x=lambda g, x: g * _sinc_slope(x))
def sinc(x, /):
    """sin(πx) / (πx), and 1 at 0."""
    return np.sinc(x)


fmod = ufunc(
    np.fmod,
    "The remainder of a / b, which has the sign of a.",
    a=lambda g: g,
    b=lambda g, a, b: -g * np.trunc(a / b),
)


@function(numpy=np.unwrap)
def unwrap(
    p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi
) -> Tensor:
    """Angles p with whole periods added, so that neighbours along `axis` are no more than half a
    period apart.
    """
    array = np.asarray(untracked(p))
    return p + (np.unwrap(array, discont, axis, period=period) - array)


@function(numpy=np.divmod, methods="__divmod__ __rdivmod__")
def divmod(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """a / b rounded down, which has no gradient, and the remainder."""
    return floor_divide(a, b), remainder(a, b)


@function(numpy=np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Tensor:
    """From each choice the elements where its condition (booleans) is the first that is true; else
    `default`.
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"select: expected as many conditions as choices, got {len(condlist)} and "
            f"{len(choicelist)}"
        )
    if any(np.asarray(untracked(c)).dtype != bool for c in condlist):
        raise TypeError("select: expected booleans as conditions")
    y = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        y = where(untracked(condition), choice, y)
    return y


@function(numpy=np.polyval)
def polyval(p: Any, x: Any) -> Tensor:
    """The polynomial with the coefficients p, highest power first, at x."""
    y: Any = multiply(x, 0)
    for i in range(np.shape(p)[0]):
        y = y * x + getitem(p, i)
    return y

"""Less common functions of each element: roots, powers of two, signs, degrees, choices among
several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.nested import without_tensors
from ..core.registry import function, op, ufunc
from ..core.tensor import DISPATCH, Tensor
from ..core.tensor import unwrap as untracked
from .axes import shape_of
from .compare import floor_divide
from .elementwise import absolute, power, remainder, safe_divide, times_exp, where
from .indexing import getitem, take_along_axis
from .joining import stack
from .shape import astype, broadcast_to

__all__ = [
    "cbrt",
    "exp2",
    "logaddexp2",
    "fmax",
    "fmin",
    "copysign",
    "heaviside",
    "deg2rad",
    "rad2deg",
    "sinc",
    "float_power",
    "xlogy",
    "divmod",
    "fmod",
    "unwrap",
    "select",
    "piecewise",
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
heaviside = ufunc(
    np.heaviside,
    "0 where a < 0, b where a = 0, 1 where a > 0; the derivative by a is 0.",
    a=lambda g: np.zeros_like(g),
    b=lambda g, a: g * (a == 0),
)
deg2rad = ufunc(np.deg2rad, "Degrees as radians.", "deg2rad", x=lambda g: g * (math.pi / 180))
rad2deg = ufunc(np.rad2deg, "Radians as degrees.", "rad2deg", x=lambda g: g * (180 / math.pi))
DISPATCH[np.radians], DISPATCH[np.degrees] = deg2rad, rad2deg
DISPATCH[np.fabs] = lambda x: absolute(
    astype(x, np.fabs(np.empty(0, x.dtype)).dtype)
)  # of integers, too, a float


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


@function(numpy=np.float_power, methods="float_power")
def float_power(a: Any, b: Any) -> Tensor:
    """a to the power b, in double precision at least."""
    a, b = (x if isinstance(x, Tensor) else np.asarray(x) for x in (a, b))
    dtype = np.result_type(a.dtype, b.dtype, np.float64)
    return power(astype(a, dtype), astype(b, dtype))


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


@function(numpy=np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Tensor:
    """The function (or number) of each condition where it is true, the last that is true counting.

    One more function than conditions is for where none is; otherwise that is 0. Each sees its own
    elements only.
    """
    x = x if isinstance(x, Tensor) else np.asarray(x)
    given = without_tensors(condlist)
    single = not np.ndim(given) or (not isinstance(given[0], (list, np.ndarray)) and np.ndim(x))
    rows = [np.asarray(row, bool) for row in ([given] if single else given)]
    conditions = np.zeros((len(rows), *np.shape(x)), bool)
    for i, row in enumerate(rows):
        conditions[i, row] = True
    if len(funclist) == len(conditions) + 1:
        conditions = np.concatenate([conditions, ~conditions.any(0, keepdims=True)])
    if len(funclist) != len(conditions):
        raise ValueError(f"piecewise: {len(funclist)} functions for {len(conditions)} conditions")
    y: Any = Tensor(np.zeros_like(untracked(x)))
    for condition, f in zip(conditions, funclist):
        values = f(getitem(x, condition), *args, **kw) if callable(f) else f
        spread = Tensor(np.zeros_like(untracked(x))).index_add(
            index=condition, values=astype(values, untracked(x).dtype)
        )
        y = where(condition, spread, y)
    return y


@numpy_form(np.choose)
def _np_choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Tensor:
    """At each place the element of the choice whose number stands there in a."""
    index = np.asarray(untracked(a))
    if (
        mode == "wrap" and len(choices) and index.dtype.kind in "iu"
    ):  # NumPy comes there step by step
        index = index % len(choices)
    np.choose(index, [np.zeros((), bool)] * len(choices), mode=mode)  # type: ignore[call-overload]  # checks numbers
    index = index.clip(0, len(choices) - 1) if mode == "clip" else index
    shape = np.broadcast_shapes(index.shape, *map(shape_of, choices))
    options = stack([broadcast_to(choice, shape) for choice in choices])
    return getitem(take_along_axis(options, np.broadcast_to(index, shape)[None], 0), 0)

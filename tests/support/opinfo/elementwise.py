"""Functions of each element by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .base import Draw, Sample, add


def unary(
    name: str,
    low: float = -3,
    high: float = 3,
    kinks: tuple[float, ...] = (),
    reference: Any = None,
    *,
    operands: int = 1,
    **options: tuple[Any, ...],
) -> None:
    """Add a function of one operand; `options` are the choices of each option."""
    add(
        name,
        lambda d: Sample(
            d.array(d.shape(), low, high, kinks),
            **{option: d.one_of(*choices) for option, choices in options.items()},
        ),
        reference,
        operands=operands,
    )


for _name in (
    "negative", "positive", "conjugate", "square", "exp", "exp2", "expm1", "sin", "cos", "arctan", "sinh", "cosh",
    "tanh", "arcsinh", "deg2rad", "rad2deg",
):  # fmt: skip
    unary(_name)
unary("sinc", operands=0)  # far from 0, the sine of πx has no digits
for _name in ("absolute", "sign", "cbrt"):
    unary(_name, kinks=(0,))
for _name in ("log", "log2", "log10", "sqrt", "reciprocal"):
    unary(_name, 0.3)
for _name in ("arcsin", "arccos", "arctanh"):
    unary(_name, -0.8, 0.8)
unary("log1p", -0.5)
unary("tan", -1.2, 1.2)
unary("arccosh", 1.3, 4)
unary("rsqrt", 0.3, reference=lambda x: 1 / np.sqrt(x))
unary("erf", -5, 5, reference=np.vectorize(math.erf, otypes=[float]))
unary("clone", reference=np.array, operands=0)
add("astype", lambda d: Sample(d.array(d.shape()), dtype=np.float64), lambda x, dtype: x)

# -- activations -------------------------------------------------------------------------------------


def _gelu(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2))


unary("relu", kinks=(0,), reference=lambda x: np.where(x > 0, x, 0))
unary("sigmoid", -8, 8, reference=lambda x: 1 / (1 + np.exp(-x)))
unary("log_sigmoid", -8, 8, reference=lambda x: -np.log1p(np.exp(-x)))
unary("silu", reference=lambda x: x / (1 + np.exp(-x)))
unary("softplus", reference=lambda x, beta: np.log1p(np.exp(beta * x)) / beta, beta=(1.0, 2.0, 0.5))
unary(
    "leaky_relu",
    kinks=(0,),
    reference=lambda x, negative_slope: np.where(x > 0, x, negative_slope * x),
    negative_slope=(0.01, 0.3),
)
unary(
    "elu",
    kinks=(0,),
    reference=lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
    alpha=(1.0, 0.5),
)
unary("gelu", reference=_gelu, operands=0, approximate=("none", "tanh"))

# -- functions of two operands ---------------------------------------------------------------------


def binary(
    name: str,
    a: tuple[float, float] = (-3, 3),
    b: tuple[float, float] = (-3, 3),
    reference: Any = None,
    *,
    a_kinks: tuple[float, ...] = (),
    compares: bool = False,
    operands: int = 2,
) -> None:
    """Add a function of two operands, which is not smooth where they are equal if it `compares`."""

    def samples(d: Draw) -> Sample:
        shape = d.shape(max_ndim=2)
        x, w = d.array(shape, *a, a_kinks), d.array(d.partner(shape), *b)
        if compares:
            x, w = np.round(x * 5) / 5, np.round(w * 5) / 5 + 0.1
        return Sample(w, x) if a == b and d.bool() else Sample(x, w)

    add(name, samples, reference, operands=operands)


for _name in ("add", "subtract", "multiply", "logaddexp", "logaddexp2"):
    binary(_name)
for _name in ("maximum", "minimum", "fmax", "fmin"):
    binary(_name, compares=True)
binary("divide", b=(0.5, 3))
binary("safe_divide", b=(0.5, 3), reference=np.divide)
binary("safe_multiply", reference=np.multiply)
binary("power", a=(0.3, 3))
binary("hypot", a=(0.5, 3))
binary("arctan2", a=(0.5, 3))
binary("copysign", b=(0.3, 2), a_kinks=(0,))
binary("xlogy", b=(0.3, 3), reference=lambda a, b: a * np.log(b))


def _remainder(d: Draw) -> Sample:
    b = d.array(shape := d.shape(max_ndim=2), 0.5, 2)
    return Sample((d.integers(-3, 3, shape) + d.array(shape, 0.2, 0.8)) * b, b)


def _fmod(d: Draw) -> Sample:
    """Draw quotients of both signs, or shapes that broadcast and quotients from 2.09 to 2.95."""
    if d.bool():
        return _remainder(d)
    shape = d.shape(max_ndim=2)
    return Sample(d.array(shape, 2.2, 2.8), d.array(d.partner(shape), 0.95, 1.05))


def _where(d: Draw) -> Sample:
    shape = d.shape(max_ndim=2)
    return Sample(d.mask(d.partner(shape)), d.array(shape), d.array(d.partner(shape)))


def _clip(d: Draw) -> Sample:
    x = d.array(shape := d.shape(max_ndim=2), kinks=(-1, 0, 1))
    if d.bool():
        return Sample(x, *d.one_of((-1.0, 1.0), (0.0, None), (None, 0.0)))
    x, limit = np.round(x * 5) / 5, np.round(d.array(shape, -3, 3) * 5) / 5 + 0.1
    low, high = np.minimum(limit, -0.1), np.maximum(limit, 0.3)
    return Sample(x, *d.one_of((low, high), (limit, None), (None, limit)))


add("remainder", _remainder)
add("fmod", _fmod)
add("where", _where)
add("clip", _clip)
add(
    "masked_fill",
    lambda d: Sample(x := d.array(d.shape()), mask=d.mask(x.shape), value=d.one_of(0.0, -9.0)),
    lambda x, mask, value: np.where(mask, value, x),
)

"""Functions of each element by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.registry import OPS

from .base import Draw, Sample, add, by_element


def unary(
    name: str,
    reference: Any,
    low: float = -3,
    high: float = 3,
    kinks: tuple[float, ...] = (),
    **kwargs: Any,
) -> None:
    samples = lambda d: Sample([d.array(d.shape(), low, high, kinks)])
    add(name, reference, samples, **kwargs)


unary("negative", lambda x: 0 - x)
unary("positive", lambda x: x + 0)
unary("absolute", by_element(abs), kinks=(0,), analytic=False)
unary("sign", by_element(lambda v: math.copysign(1, v)), kinks=(0,), analytic=False)
unary("square", by_element(lambda v: v**2))
unary("reciprocal", by_element(lambda v: 1 / v), 0.5, 3)
unary("exp", by_element(math.exp))
unary("expm1", by_element(math.expm1))
unary("log", by_element(math.log), 0.3, 3)
unary("log1p", by_element(math.log1p), -0.5, 3)
unary("log2", by_element(math.log2), 0.3, 3)
unary("log10", by_element(math.log10), 0.3, 3)
unary("sqrt", by_element(math.sqrt), 0.3, 3)
unary("rsqrt", by_element(lambda v: 1 / math.sqrt(v)), 0.3, 3)
unary("sin", by_element(math.sin))
unary("cos", by_element(math.cos))
unary("tan", by_element(math.tan), -1.2, 1.2)
unary("arcsin", by_element(math.asin), -0.8, 0.8)
unary("arccos", by_element(math.acos), -0.8, 0.8)
unary("arctan", by_element(math.atan))
unary("sinh", by_element(math.sinh))
unary("cosh", by_element(math.cosh))
unary("tanh", by_element(math.tanh))
unary("arcsinh", by_element(math.asinh))
unary("arccosh", by_element(math.acosh), 1.3, 4)
unary("arctanh", by_element(math.atanh), -0.8, 0.8)
unary("erf", by_element(math.erf), -5, 5, analytic=False)
unary("relu", by_element(lambda v: max(v, 0)), kinks=(0,), analytic=False)
unary("sigmoid", by_element(lambda v: 1 / (1 + math.exp(-v))), -8, 8, analytic=False)
unary("log_sigmoid", by_element(lambda v: -math.log1p(math.exp(-v))), -8, 8, analytic=False)
unary("silu", by_element(lambda v: v / (1 + math.exp(-v))), analytic=False)
unary("clone", np.array)
unary("astype", lambda x: x, call=lambda x: mg.astype(x, np.float64), analytic=False)
add(
    "softplus",
    lambda x, beta=1.0: by_element(lambda v: math.log1p(math.exp(beta * v)) / beta)(x),
    lambda d: Sample([d.array(d.shape())], {"beta": d.one_of(1.0, 2.0)}),
    analytic=False,
)
add(
    "leaky_relu",
    lambda x, negative_slope: by_element(lambda v: v if v > 0 else v * negative_slope)(x),
    lambda d: Sample([d.array(d.shape(), kinks=(0,))], {"negative_slope": d.one_of(0.01, 0.3)}),
    analytic=False,
)
add(
    "elu",
    lambda x, alpha: by_element(lambda v: v if v > 0 else alpha * (math.exp(v) - 1))(x),
    lambda d: Sample([d.array(d.shape(), kinks=(0,))], {"alpha": d.one_of(1.0, 0.5)}),
    analytic=False,
)


def _gelu(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "none":
        return by_element(lambda v: v * 0.5 * math.erfc(-v / math.sqrt(2)))(x)
    return by_element(
        lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
    )(x)


add(
    "gelu",
    _gelu,
    lambda d: Sample([d.array(d.shape())], {"approximate": d.one_of("none", "tanh")}),
    analytic=False,
    errors=[
        (
            lambda: mg.gelu(np.ones(2), approximate="exp"),
            ValueError,
            "gelu: expected approximate 'none' or 'tanh'",
        )
    ],
)


def binary(
    name: str,
    reference: Any,
    a: tuple[float, float] = (-3, 3),
    b: tuple[float, float] = (-3, 3),
    b_kinks: tuple[float, ...] = (),
    apart: bool = False,
    a_kinks: tuple[float, ...] = (),
    **kwargs: Any,
) -> None:
    def samples(d: Draw) -> Sample:
        shape = d.shape(max_ndim=2)
        x, w = d.array(shape, *a, a_kinks), d.array(d.partner(shape), *b, b_kinks)
        if apart:  # a whole number of steps in x, and half of one more in w
            x, w = np.round(x * 5) / 5, np.round(w * 5) / 5 + (0 if d.at_kinks else 0.1)
            d.has_kinks = True
        return Sample([x, w] if d.bool() or a != b or b_kinks else [w, x])

    mismatch = (
        lambda: getattr(mg, name)(np.ones((2, 3)), np.ones(4)),
        ValueError,
        rf"{name}: .*\(2, 3\) float64.*\(4,\)",
    )
    add(name, reference, samples, errors=[mismatch], **kwargs)


binary("add", lambda a, b: np.asarray(a) - (-np.asarray(b)))
binary("subtract", lambda a, b: np.asarray(a) + (-np.asarray(b)))
binary("multiply", lambda a, b: np.einsum("...,...->...", a, b))
binary("divide", lambda a, b: a * np.asarray(b) ** -1.0, b=(0.5, 3))
binary("power", lambda a, b: np.exp(b * np.log(a)), a=(0.3, 3))
for _name, _reference, _low in (
    ("safe_divide", lambda a, b: a * b**-1.0, 0.5),
    ("safe_multiply", lambda a, b: np.einsum("...,...->...", a, b), -3),
):
    add(
        _name,
        _reference,
        lambda d, low=_low: Sample(
            [d.array(shape := d.shape(max_ndim=2)), d.array(d.partner(shape), low, 3)]
        ),
        call=OPS[_name].function,
    )
binary("logaddexp", lambda a, b: np.log(np.exp(a) + np.exp(b)), analytic=False)
binary("hypot", lambda a, b: np.sqrt(a * a + b * b), a=(0.5, 3), analytic=False)
binary("arctan2", lambda a, b: np.angle(b + 1j * a), a=(0.5, 3), analytic=False)
binary("maximum", lambda a, b: (a + b + abs(a - b)) / 2, apart=True, analytic=False)
binary("minimum", lambda a, b: (a + b - abs(a - b)) / 2, apart=True, analytic=False)


def _remainder(d: Draw) -> Sample:
    b = d.array(shape := d.shape(max_ndim=2), 0.5, 2)
    return Sample([(d.rng.integers(-3, 3, shape) + d.array(shape, 0.2, 0.8)) * b, b])


add("remainder", lambda a, b: a - np.floor(a / b) * b, _remainder, analytic=False)


def _where(d: Draw) -> Sample:
    shape = d.shape(max_ndim=2)
    return Sample(
        [
            d.rng.random(d.partner(shape)) < 0.5,
            d.array(shape),
            d.array(d.partner(shape) if d.bool() else shape),
        ]
    )


def _broadcastable(samples: Callable[[Draw], Sample]) -> Callable[[Draw], Sample]:
    """Samples whose operands are made to broadcast, where partners of partners do not."""

    def fitted(d: Draw) -> Sample:
        sample = samples(d)
        try:
            np.broadcast_shapes(*[np.shape(x) for x in sample.operands])
        except ValueError:
            shape = sample.operands[1].shape
            sample.operands = [
                d.rng.random(shape) < 0.5,
                *[d.array(shape) for _ in sample.operands[1:]],
            ]
        return sample

    return fitted


add(
    "where",
    lambda c, a, b: np.choose(c, [np.broadcast_arrays(c, a, b)[2], a]),
    _broadcastable(_where),
)
add(
    "masked_fill",
    lambda x, mask, value: np.array(
        [value if m else v for v, m in zip(x.ravel(), mask.ravel())]
    ).reshape(x.shape),
    lambda d: Sample(
        [x := d.array(d.shape()), d.rng.random(x.shape) < 0.5], {"value": d.one_of(0.0, -9.0)}
    ),
    errors=[
        (
            lambda: mg.masked_fill(np.ones(2), np.ones(2), 0),
            TypeError,
            "masked_fill: expected booleans",
        )
    ],
)


def _clip(d: Draw) -> Sample:
    x = d.array(shape := d.shape(max_ndim=2), kinks=(-1, 0, 1))
    kind = d.one_of("numbers", "arrays", "low", "high")
    if kind == "arrays":
        return Sample(
            [
                np.round(x * 5) / 5,
                np.round(d.array(shape, -3, 0) * 5) / 5 + 0.1,
                np.round(d.array(shape, 0, 3) * 5) / 5 + 0.1,
            ]
        )
    return Sample([x, *{"numbers": [-1.0, 1.0], "low": [0.0, None], "high": [None, 0.0]}[kind]])


def _clip_reference(x: np.ndarray, low: Any, high: Any) -> np.ndarray:
    x = x if low is None else np.where(x < low, low, x)
    return x if high is None else np.where(x > high, high, x)


add("clip", _clip_reference, _clip, analytic=False)

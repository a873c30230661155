"""For every op: samples of its inputs, an independent reference, and inputs it must refuse.

`test_ops.py` generates the tests from this table; one of them asserts that it names the same ops as
the registry, so that an untested op cannot land.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import minigrad as mg
from minigrad.core.op import FUNCTIONS, OPS
from minigrad.kernels.dropout import keep_mask


@dataclass
class Sample:
    """Operands (float64 arrays, or whatever the op takes) and options for one call."""

    operands: list[Any]
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operands = [np.asarray(x) if isinstance(x, np.generic) else x for x in self.operands]


@dataclass
class OpInfo:
    name: str
    call: Callable[..., Any]  # on tensors, arrays, or a mixture
    reference: Callable[..., Any]  # on arrays
    samples: Callable[[Draw], Sample]
    analytic: bool = True  # a complex step gives its derivative
    errors: list[tuple[Callable[[], Any], type[Exception], str]] = field(default_factory=list)


class Draw:
    """Draws arrays whose shape hypothesis chooses and whose values come from a seed."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def shape(self, min_ndim: int = 0, max_ndim: int = 3, min_side: int = 0, max_side: int = 4) -> tuple[int, ...]:
        return tuple(self.draw(st.lists(st.integers(min_side, max_side), min_size=min_ndim, max_size=max_ndim)))

    def array(
        self, shape: tuple[int, ...], low: float = -3.0, high: float = 3.0, kinks: tuple[float, ...] = ()
    ) -> np.ndarray:
        x = self.rng.uniform(low, high, shape)
        for kink in kinks:
            x = np.where(np.abs(x - kink) < 0.05, kink + 0.1, x)
        return x

    def distinct(self, shape: tuple[int, ...]) -> np.ndarray:
        """No two elements nearer than 0.05."""
        n = math.prod(shape)
        return (self.rng.permutation(n) * 0.1 + self.rng.uniform(0, 0.05, n) - n * 0.05).reshape(shape)

    def partner(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts with `shape`, to a larger or a smaller one."""
        kind = self.draw(st.sampled_from(["same", "ones", "fewer", "more"]))
        if kind == "ones":
            return tuple(self.draw(st.sampled_from([1, n])) for n in shape)
        if kind == "fewer":
            return shape[self.draw(st.integers(0, len(shape))) :]
        return (2, *shape) if kind == "more" else shape

    def axis(self, ndim: int, allow_none: bool = True, several: bool = True) -> Any:
        choices: list[Any] = [None] if allow_none else []
        choices += range(-ndim, ndim)
        if several and ndim:
            choices += [c for k in range(1, ndim + 1) for c in itertools.combinations(range(ndim), k)]
        return self.draw(st.sampled_from(choices))

    def bool(self) -> bool:
        return self.draw(st.booleans())

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))


TABLE: dict[str, OpInfo] = {}


def add(name: str, reference: Callable[..., Any], samples: Callable[[Draw], Sample], **kwargs: Any) -> None:
    call = kwargs.pop("call", None) or getattr(mg, name)
    assert name not in TABLE, name
    TABLE[name] = OpInfo(name, call, reference, samples, **kwargs)


# -- elementwise -------------------------------------------------------------------------------------


def unary(
    name: str, reference: Any, low: float = -3, high: float = 3, kinks: tuple[float, ...] = (), **kwargs: Any
) -> None:
    samples = lambda d: Sample([d.array(d.shape(), low, high, kinks)])
    add(name, reference, samples, **kwargs)


def by_element(f: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of floats as a reference for arrays."""
    return lambda x: np.array([f(float(v)) for v in np.ravel(x)], dtype=float).reshape(np.shape(x))


unary("negative", lambda x: 0 - x)
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
    return by_element(lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))))(x)


add(
    "gelu",
    _gelu,
    lambda d: Sample([d.array(d.shape())], {"approximate": d.one_of("none", "tanh")}),
    analytic=False,
    errors=[
        (lambda: mg.gelu(np.ones(2), approximate="exp"), ValueError, "gelu: expected approximate 'none' or 'tanh'")
    ],
)


def binary(
    name: str,
    reference: Any,
    a: tuple[float, float] = (-3, 3),
    b: tuple[float, float] = (-3, 3),
    b_kinks: tuple[float, ...] = (),
    apart: bool = False,
    **kwargs: Any,
) -> None:
    def samples(d: Draw) -> Sample:
        shape = d.shape(max_ndim=2)
        x, w = d.array(shape, *a), d.array(d.partner(shape), *b, b_kinks)
        if apart:  # a whole number of steps in x, and half of one more in w
            x, w = np.round(x * 5) / 5, np.round(w * 5) / 5 + 0.1
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
        [d.rng.random(d.partner(shape)) < 0.5, d.array(shape), d.array(d.partner(shape) if d.bool() else shape)]
    )


def _broadcastable(samples: Callable[[Draw], Sample]) -> Callable[[Draw], Sample]:
    """Samples whose operands are made to broadcast, where partners of partners do not."""

    def fitted(d: Draw) -> Sample:
        sample = samples(d)
        try:
            np.broadcast_shapes(*[np.shape(x) for x in sample.operands])
        except ValueError:
            shape = sample.operands[1].shape
            sample.operands = [d.rng.random(shape) < 0.5, *[d.array(shape) for _ in sample.operands[1:]]]
        return sample

    return fitted


add("where", lambda c, a, b: np.choose(c, [np.broadcast_arrays(c, a, b)[2], a]), _broadcastable(_where))
add(
    "masked_fill",
    lambda x, mask, value: np.array([value if m else v for v, m in zip(x.ravel(), mask.ravel())]).reshape(x.shape),
    lambda d: Sample([x := d.array(d.shape()), d.rng.random(x.shape) < 0.5], {"value": d.one_of(0.0, -9.0)}),
    errors=[(lambda: mg.masked_fill(np.ones(2), np.ones(2), 0), TypeError, "masked_fill: expected a boolean mask")],
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


# -- reductions --------------------------------------------------------------------------------------


def reduction(
    name: str, reference: Any, make: Any = None, min_side: int = 0, several: bool = True, **kwargs: Any
) -> None:
    def samples(d: Draw) -> Sample:
        shape = d.shape(min_side=min_side)
        x = d.array(shape) if make is None else make(d, shape)
        return Sample([x], {"axis": d.axis(len(shape), several=several), "keepdims": d.bool()})

    f = kwargs.get("call") or getattr(mg, name)
    error = (lambda: f(np.ones((2, 3)), axis=2), (ValueError, IndexError), rf"{name}: .*\(2, 3\)")
    add(name, reference, samples, errors=[error], **kwargs)  # type: ignore[list-item]


def _slices(f: Callable[[np.ndarray], float]) -> Callable[..., np.ndarray]:
    """A function of a vector as a reference for a reduction."""

    def reduced(x: np.ndarray, axis: Any = None, keepdims: bool = False) -> np.ndarray:
        axes = (
            tuple(range(x.ndim))
            if axis is None
            else tuple(a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))
        )
        kept = [i for i in range(x.ndim) if i not in axes]
        y = np.empty([x.shape[i] for i in kept])
        moved = x.transpose([*kept, *axes])
        for place in np.ndindex(y.shape):
            y[place] = f(moved[place].ravel())
        return y.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdims else y

    return reduced


_tiny = lambda d, shape: d.array(shape, 0.5, 2)
reduction("sum", _slices(math.fsum))
reduction("mean", _slices(lambda v: math.fsum(v) / len(v)), min_side=1)
reduction("max", _slices(lambda v: max(v)), Draw.distinct, min_side=1, analytic=False)
reduction("min", _slices(lambda v: min(v)), Draw.distinct, min_side=1, analytic=False)
reduction("prod", _slices(math.prod), lambda d, shape: d.array(shape, 0.5, 1.5) * d.rng.choice([0, 1, 1, 1, -1], shape))
reduction("logsumexp", _slices(lambda v: math.log(sum(map(math.exp, v)))), min_side=1, analytic=False)
reduction(
    "euclidean_norm", _slices(lambda v: math.sqrt(sum(v * v))), _tiny, min_side=1, call=OPS["euclidean_norm"].function
)


def _norm(d: Draw) -> Sample:
    x = d.array(d.shape(1, 2, 1), 0.3, 2) * d.rng.choice([-1, 1])
    x = x + 0.1 * d.distinct(x.shape)
    axis = d.axis(x.ndim, several=False) if x.ndim == 1 else d.one_of(0, 1, -1)
    return Sample([x], {"ord": d.one_of(None, 1, 2, 3, 2.5, np.inf, -np.inf), "axis": axis, "keepdims": d.bool()})


add(
    "norm",
    np.linalg.norm,
    _norm,
    analytic=False,
    errors=[
        (lambda: mg.norm(np.ones((2, 2)), ord="nuc"), ValueError, "norm: ord='nuc' of a matrix needs a singular value")
    ],
)


def _spread_samples(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 2))
    return Sample([x], {"axis": d.axis(x.ndim), "keepdims": d.bool(), "correction": d.one_of(0, 1)})


def _var(x: np.ndarray, axis: Any, keepdims: bool, correction: float) -> np.ndarray:
    return _slices(lambda v: sum((v - sum(v) / len(v)) ** 2) / (len(v) - correction))(x, axis, keepdims)


add("var", _var, _spread_samples)
add("std", lambda *a, **k: np.sqrt(_var(*a, **k)), lambda d: _far_apart(_spread_samples(d)), analytic=False)


def _far_apart(sample: Sample) -> Sample:
    x = sample.operands[0]
    sample.operands[0] = x * 0.1 + np.arange(x.size).reshape(x.shape)
    return sample


def _cumsum(x: np.ndarray, axis: int | None) -> np.ndarray:
    x, axis = (x.ravel(), 0) if axis is None else (x, axis)
    return np.moveaxis(np.moveaxis(x, axis, -1) @ np.triu(np.ones((x.shape[axis],) * 2)), -1, axis)


add("cumsum", _cumsum, lambda d: Sample([x := d.array(d.shape(1))], {"axis": d.axis(x.ndim, several=False)}))


def _softmax(d: Draw) -> Sample:
    return Sample([x := d.array(d.shape(1, min_side=1))], {"axis": d.axis(x.ndim, allow_none=False, several=False)})


def _masked_softmax(d: Draw) -> Sample:
    sample = _softmax(d)
    if d.bool():
        sample.options["where"] = d.rng.random(sample.operands[0].shape) < 0.6
    return sample


def _softmax_reference(x: np.ndarray, axis: int, where: Any = None) -> np.ndarray:
    e = np.exp(x) * (1 if where is None else where)
    total = np.sum(e, axis, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=np.broadcast_to(total > 0, e.shape))


add(
    "softmax",
    _softmax_reference,
    _masked_softmax,
    analytic=False,
    errors=[(lambda: mg.softmax(np.ones(2), where=np.ones(2)), TypeError, "softmax: expected booleans in where=")],
)
add("log_softmax", lambda x, axis: np.log(_softmax_reference(x, axis)), _softmax, analytic=False)


# -- shape -------------------------------------------------------------------------------------------


def _reshape(d: Draw) -> Sample:
    x = d.array(d.shape())
    shape = d.one_of((-1,), x.shape[::-1], (1, *x.shape), (*x.shape, 1)) if x.size else (0, 2)
    return Sample([x], {"shape": shape})


by_flat_index = lambda f: (
    lambda x, **k: x.ravel()[f(np.arange(x.size).reshape(x.shape), **k)]
)  # what f does to positions

add(
    "reshape",
    lambda x, shape: np.array(x.ravel().tolist()).reshape(shape),
    _reshape,
    call=lambda x, shape: mg.reshape(x, shape),
    errors=[(lambda: mg.reshape(np.ones((2, 3)), 4), ValueError, r"reshape: .*\(2, 3\) float64, shape=\(4,\)")],
)
add(
    "transpose",
    by_flat_index(lambda i, axes: np.einsum(i, list(range(i.ndim)), list(axes or range(i.ndim)[::-1]))),
    lambda d: Sample(
        [x := d.array(d.shape())], {"axes": d.one_of(None, tuple(int(a) for a in d.rng.permutation(x.ndim)))}
    ),
    call=lambda x, axes: mg.transpose(x, axes),
    errors=[(lambda: mg.transpose(np.ones((2, 3)), 0, 0), ValueError, r"transpose: .*\(2, 3\)")],
)
add(
    "swapaxes",
    np.swapaxes,
    lambda d: Sample(
        [x := d.array(d.shape(1))], {"axis1": d.axis(x.ndim, False, False), "axis2": d.axis(x.ndim, False, False)}
    ),
    errors=[(lambda: mg.swapaxes(np.ones((2, 3)), 0, 2), ValueError, r"swapaxes: no axes 0 and 2 in shape \(2, 3\)")],
)


def _moveaxis(d: Draw) -> Sample:
    x = d.array(d.shape(1))
    n = int(d.rng.integers(1, x.ndim + 1))
    ends = [tuple(int(a) for a in d.rng.permutation(x.ndim)[:n]) for _ in range(2)]
    source, destination = (ends[0][0], ends[1][0]) if d.bool() else ends
    return Sample([x], {"source": source, "destination": destination})


add("moveaxis", np.moveaxis, _moveaxis)
add(
    "expand_dims",
    np.expand_dims,
    lambda d: Sample([x := d.array(d.shape())], {"axis": d.one_of(0, -1, x.ndim, (0, -1))}),
)
add(
    "squeeze",
    np.squeeze,
    lambda d: Sample([d.array((1, *d.shape(max_ndim=2), 1))], {"axis": d.one_of(None, 0, -1, (0, -1))}),
)
add("ravel", np.ravel, lambda d: Sample([d.array(d.shape())]))
add(
    "broadcast_to",
    lambda x, shape: x + np.zeros(shape),
    lambda d: Sample(
        [x := d.array(tuple(d.one_of(1, n) for n in d.shape(min_side=1)))],
        {"shape": (2, *[3 if n == 1 else n for n in x.shape])},
    ),
    errors=[(lambda: mg.broadcast_to(np.ones(3), (2,)), ValueError, r"broadcast_to: .*\(3,\) float64, shape=\(2,\)")],
)


def _joined(d: Draw) -> Sample:
    shape = list(d.shape(1))
    axis = d.axis(len(shape), allow_none=True, several=False)
    arrays = []
    for _ in range(d.one_of(1, 2, 3)):
        if axis is not None:
            shape[axis] = d.one_of(0, 1, 2)
        arrays.append(d.array(tuple(shape)))
    return Sample(arrays, {"axis": axis})


def _joined_reference(*arrays: np.ndarray, axis: int | None) -> np.ndarray:
    if axis is None:
        return np.array([v for x in arrays for v in x.ravel()])
    return np.moveaxis(np.array([row for x in arrays for row in np.moveaxis(x, axis, 0)]).reshape(
        sum(x.shape[axis] for x in arrays), *np.moveaxis(arrays[0], axis, 0).shape[1:]), 0, axis)  # fmt: skip


add(
    "concatenate",
    _joined_reference,
    _joined,
    call=lambda *xs, axis: mg.concatenate(xs, axis),
    errors=[
        (lambda: mg.concatenate([np.ones((2, 3)), np.ones((2, 4))]), ValueError, r"concatenate: .*\(2, 3\).*\(2, 4\)")
    ],
)
add(
    "stack",
    lambda *xs, axis: np.stack(xs, axis),
    lambda d: Sample(
        [d.array(shape := d.shape()), *[d.array(shape) for _ in range(d.one_of(0, 1, 2))]],
        {"axis": d.one_of(0, -1, len(shape))},
    ),
    call=lambda *xs, axis: mg.stack(xs, axis),
    errors=[
        (
            lambda: mg.stack([np.ones(2), np.ones(3)]),
            ValueError,
            r"stack: expected arrays of one shape, got \[\(2,\), \(3,\)\]",
        )
    ],
)
add(
    "split",
    lambda x, indices_or_sections, axis: np.array_split(x, indices_or_sections, axis),
    lambda d: Sample(
        [x := d.array(d.shape(1))],
        {"indices_or_sections": d.one_of(1, 2, 3, [1], [1, 2]), "axis": d.axis(x.ndim, False, False)},
    ),
)


def _pad(d: Draw) -> Sample:
    x = d.array(d.shape(1, 2, 2))
    widths = d.one_of(1, (0, 2), tuple((int(a), int(b)) for a, b in d.rng.integers(0, 3, (x.ndim, 2))))
    return Sample(
        [x], {"pad_width": widths, "mode": d.one_of("constant", "constant", "edge", "reflect", "symmetric", "wrap")}
    )


add(
    "pad",
    np.pad,
    _pad,
    call=mg.pad,
    errors=[(lambda: mg.pad(np.ones(3), 1, mode="mean"), ValueError, "pad: mode 'mean' is not supported")],
)
add("flip", np.flip, lambda d: Sample([x := d.array(d.shape())], {"axis": d.axis(x.ndim)}))
add(
    "roll",
    np.roll,
    lambda d: Sample(
        [d.array(d.shape(1))], d.one_of({"shift": 2}, {"shift": -1, "axis": 0}, {"shift": (1, 2), "axis": (0, -1)})
    ),
)
add(
    "repeat",
    np.repeat,
    lambda d: Sample(
        [d.array(d.shape(1))], d.one_of({"repeats": 2}, {"repeats": 3, "axis": 0}, {"repeats": 0, "axis": -1})
    ),
)
add("tile", np.tile, lambda d: Sample([d.array(d.shape())], {"reps": d.one_of(2, (2, 1), (1, 3), (2, 1, 2))}))
add(
    "diff",
    np.diff,
    lambda d: Sample([x := d.array(d.shape(1))], {"axis": d.axis(x.ndim, False, False), "n": d.one_of(1, 2)}),
)


def _windows(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 3, 6))
    return Sample([x], {"window_shape": d.one_of(1, 2, 3), "axis": d.axis(x.ndim, False, False)})


add(
    "sliding_window_view",
    np.lib.stride_tricks.sliding_window_view,
    _windows,
    errors=[(lambda: mg.sliding_window_view(np.ones(3), 4), ValueError, "a window of 4 does not fit into 3 elements")],
)


# -- indexing ----------------------------------------------------------------------------------------


def _index(d: Draw, shape: tuple[int, ...]) -> Any:
    """Any index that NumPy knows, for an array of this shape."""
    ints = lambda n: d.rng.integers(-n, n, d.one_of((), (2,), (5,), (2, 3)))
    part = lambda n: d.one_of(
        slice(None),
        slice(1, None),
        slice(None, None, -1),
        slice(0, n, 2),
        -1,
        n - 1,
        None,
        ints(n),
        ints(n),
        [0, 0, -1],
    )
    kind = d.one_of("basic", "mixed", "mask", "row mask", "ellipsis", "array")
    if kind == "basic":
        return tuple(d.one_of(slice(None), slice(-1, None, -2), 0, -1) for n in shape[:2]) + (None,)
    if kind == "mask":
        return d.rng.random(shape) < 0.5
    if kind == "row mask":
        return d.rng.random(shape[:1]) < 0.5
    if kind == "ellipsis":
        return (..., -1)
    if kind == "array":
        return ints(shape[0])
    index = tuple(part(n) for n in shape)
    try:
        np.empty(shape)[index]
    except IndexError:  # arrays that do not broadcast with one another
        index = index[:1]
    return index


def _getitem(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    return Sample([x], {"index": _index(d, x.shape)})


add(
    "getitem",
    by_flat_index(lambda i, index: i[index]),
    _getitem,
    errors=[
        (lambda: mg.Tensor(np.ones((2, 3)))[2], IndexError, r"getitem: index 2 is out of bounds.*\(2, 3\)"),
        (lambda: mg.Tensor(np.ones((2, 3)))[0, 0, 0], IndexError, r"getitem: too many indices.*\(2, 3\)"),
    ],
)


def _scatter(d: Draw) -> Sample:
    shape = d.shape(1, 3, 1)
    index = _index(d, shape)
    return Sample([d.array(np.empty(shape)[index].shape)], {"index": index, "shape": shape})


def _scatter_reference(x: np.ndarray, index: Any, shape: tuple[int, ...]) -> np.ndarray:
    y = np.zeros(math.prod(shape))
    for place, value in zip(np.arange(y.size).reshape(shape)[index].ravel(), x.ravel()):
        y[place] += value
    return y.reshape(shape)


add(
    "scatter",
    _scatter_reference,
    _scatter,
    errors=[
        (
            lambda: mg.scatter(np.ones(2), index=[0, 3], shape=(3,)),
            IndexError,
            r"scatter: index 3 is out of bounds.*\(2,\)",
        )
    ],
)


def _index_add(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    index = _index(d, x.shape)
    return Sample([x, index, d.array(x[index].shape)])


add("index_add", lambda x, index, v: x + _scatter_reference(v, index, x.shape), _index_add)
add(
    "take",
    lambda x, indices, axis: np.take(x, indices, axis),
    lambda d: Sample(
        [x := d.array(d.shape(1, 3, 2))],
        {"indices": d.one_of(1, [0, 1, 1], np.array([[0, 1], [1, -1]])), "axis": d.axis(x.ndim, several=False)},
    ),
    errors=[(lambda: mg.take(np.ones((2, 3)), [5], 1), IndexError, "index 5 is out of bounds for axis 1")],
)


def _along(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    axis = d.axis(x.ndim, False, False)
    shape = list(x.shape)
    shape[axis] = d.one_of(1, 2, 5)
    return Sample([x], {"indices": d.rng.integers(0, x.shape[axis], shape), "axis": axis})


add(
    "take_along_axis",
    np.take_along_axis,
    _along,
    errors=[(lambda: mg.take_along_axis(np.ones((2, 2)), [0]), ValueError, "expected indices with 2 axes as x")],
)
add(
    "sort",
    lambda x, axis: np.apply_along_axis(sorted, axis, x) if x.size else x,
    lambda d: Sample([x := d.distinct(d.shape(1))], {"axis": d.axis(x.ndim, False, False)}),
)
add(
    "top_k",
    lambda x, k, axis: np.flip(np.sort(x, axis), axis).take(range(k), axis),
    lambda d: Sample(
        [x := d.distinct(d.shape(1, 3, 1))],
        {"axis": (a := d.axis(x.ndim, False, False)), "k": d.one_of(*range(1, x.shape[a] + 1))},
    ),
    call=lambda x, k, axis: mg.top_k(x, k, axis)[0],
    errors=[
        (lambda: mg.top_k(np.ones(3), 4), ValueError, "top_k: expected 1 <= k <= 3, got 4"),
        (lambda: mg.top_k(np.ones(()), 1), ValueError, r"top_k: axis -1 is not one of the 0 axes of shape \(\)"),
        (lambda: mg.sort(np.ones(2), 1), ValueError, r"sort: axis 1 is not one of the 1 axes of shape \(2,\)"),
    ],
)


# -- linear algebra ----------------------------------------------------------------------------------


def _matmul(d: Draw) -> Sample:
    n, k, m = d.one_of(0, 1, 2, 3), d.one_of(1, 2, 3), d.one_of(1, 2, 4)
    a, b = d.one_of(
        ((n, k), (k, m)), ((k,), (k, m)), ((n, k), (k,)), ((k,), (k,)), ((2, n, k), (k, m)), ((n, k), (2, k, m)),
        ((2, n, k), (2, k, m)), ((2, 1, n, k), (3, k, m)), ((1, n, k), (2, k, m)), ((2, n, k), (k,)), ((k,), (2, k, m)),
    )  # fmt: skip
    return Sample([d.array(a), d.array(b)])


def _matmul_reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    y = (left[..., :, :, None] * right[..., None, :, :]).sum(-2)
    y = y[..., 0, :] if a.ndim == 1 else y
    return y[..., 0] if b.ndim == 1 else y


add(
    "matmul",
    _matmul_reference,
    _matmul,
    errors=[
        (
            lambda: mg.Tensor(np.ones((2, 3))) @ np.ones((4, 5)),
            ValueError,
            r"matmul: .*a \(2, 3\) float64, b \(4, 5\) float64",
        )
    ],
)
add(
    "dot",
    np.dot,
    lambda d: Sample(
        [d.array(s) for s in d.one_of(((2, 3), (3, 4)), ((3,), (3,)), ((), (2,)), ((2, 3), (2, 3, 4)), ((2, 3), (3,)))]
    ),
)
add("vdot", np.vdot, lambda d: Sample([d.array(s) for s in d.one_of(((2, 3), (3, 2)), ((3,), (3,)), ((), ()))]))
add(
    "inner",
    np.inner,
    lambda d: Sample([d.array(s) for s in d.one_of(((2, 3), (3,)), ((3,), (3,)), ((2, 3), (4, 3)), ((), (2,)))]),
)
add(
    "outer",
    lambda a, b: np.array([[x * y for y in b.ravel()] for x in a.ravel()]).reshape(a.size, b.size),
    lambda d: Sample([d.array(d.shape(max_ndim=2)), d.array(d.shape(max_ndim=1))]),
)


def _tensordot(d: Draw) -> Sample:
    a, b, axes = d.one_of(
        ((2, 3), (3, 4), 1), ((2, 3, 4), (3, 4, 2), 2), ((2, 3, 4), (4, 5, 3), ((1, 2), (2, 0))), ((2,), (3,), 0),
        ((2, 3, 4), (2, 4), ((0, -1), (0, 1))), ((), (2,), 0), ((2, 3), (2, 5), (0, 0)),
    )  # fmt: skip
    return Sample([d.array(a), d.array(b)], {"axes": axes})


add(
    "tensordot",
    lambda a, b, axes: np.tensordot(a, b, axes),
    _tensordot,
    errors=[
        (
            lambda: mg.tensordot(np.ones(2), np.ones((2, 2)), ([0], [0, 1])),
            ValueError,
            "tensordot: expected as many axes",
        )
    ],
)

_EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("ij->ji", [(2, 3)]),
    ("ij->", [(2, 3)]), ("ij->j", [(2, 3)]), ("iij->ij", [(2, 2, 3)]), ("iii->i", [(2, 2, 2)]), ("i,i->", [(3,), (3,)]),
    ("i,j->ij", [(3,), (2,)]), ("ij,ij->ij", [(2, 3), (2, 3)]), ("ij,k->i", [(2, 3), (4,)]), ("ij,ij,ij->i", [(2, 3)] * 3),
    ("nihd,njhd->nijh", [(2, 3, 2, 4), (2, 5, 2, 4)]), ("nijh,njhd->nihd", [(2, 3, 5, 2), (2, 5, 2, 4)]), ("id,jd->ij", [(3, 2), (4, 2)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]), ("...ij,...jk->...ik", [(3, 4), (2, 4, 5)]), ("...i->...", [(2, 3)]),
    ("i...,i...->...", [(2, 3), (2, 1)]), ("...,...", [(2, 3), (3,)]), ("bij,bjk,bkl->bil", [(2, 2, 3), (2, 3, 2), (2, 2, 2)]),
    ("ij,i,j->", [(2, 3), (2,), (3,)]), (",i->i", [(), (3,)]), ("ii,ij->j", [(2, 2), (2, 3)]), ("ji,jk->ik", [(3, 0), (3, 2)]),
]  # fmt: skip


def _einsum(d: Draw) -> Sample:
    subscripts, shapes = d.one_of(*_EINSUMS)
    return Sample([d.array(s) for s in shapes], {"subscripts": subscripts})


def _einsum_reference(*operands: np.ndarray, subscripts: str) -> np.ndarray:
    """The definition: a loop over every index, all products added up."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    rank = max(x.ndim - len(t.replace("...", "")) for t, x in zip(terms, operands))
    dots = "UVWXYZ"[:rank]
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    full = lambda t, n: t.replace("...", dots[rank - (n - len(t.replace("...", ""))) :] if n is not None else dots)
    terms = [full(t, x.ndim) for t, x in zip(terms, operands)]
    right = full(right, None)
    sizes: dict[str, int] = {}
    for t, x in zip(terms, operands):
        for c, n in zip(t, x.shape):
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    y = np.zeros([sizes[c] for c in right])
    for place in np.ndindex(*sizes.values()):
        at = dict(zip(sizes, place))
        y[tuple(at[c] for c in right)] += math.prod(
            x[tuple(min(at[c], n - 1) for c, n in zip(t, x.shape))] for t, x in zip(terms, operands)
        )
    return y


add(
    "einsum",
    _einsum_reference,
    _einsum,
    call=lambda *xs, subscripts: mg.einsum(subscripts, *xs),
    errors=[
        (
            lambda: mg.einsum("ij,jk->ik", np.ones((2, 3)), np.ones((4, 5))),
            ValueError,
            r"einsum: .*\(2, 3\).*\(4, 5\).*'ij,jk->ik'",
        ),
        (lambda: mg.einsum([0, 1], np.ones(2)), TypeError, "einsum: expected subscripts as a string, got a list"),
    ],
)


def _matrix(d: Draw) -> Sample:
    return Sample([d.array(d.shape(2, 3, 1))], {})


def _with_offset(d: Draw) -> Sample:
    return Sample([d.array(d.shape(2, 3, 1))], {"k": d.one_of(-1, 0, 1, 2)})


add("tril", lambda x, k: x * (np.arange(x.shape[-1]) <= np.arange(x.shape[-2])[:, None] + k), _with_offset)
add("triu", lambda x, k: x * (np.arange(x.shape[-1]) >= np.arange(x.shape[-2])[:, None] + k), _with_offset)


def _diagonal(d: Draw) -> Sample:
    x = d.array(d.shape(2, 3, 1))
    first, second = (int(a) for a in d.rng.permutation(x.ndim)[:2])
    return Sample([x], {"offset": d.one_of(-1, 0, 1), "axis1": first, "axis2": second - d.one_of(0, x.ndim)})


add("diagonal", np.diagonal, _diagonal)
add("trace", np.trace, _diagonal)
add(
    "diag",
    np.diag,
    lambda d: Sample([d.array(d.shape(1, 2, 1))], {"k": d.one_of(-1, 0, 1)}),
    errors=[
        (lambda: mg.diag(np.ones((2, 2, 2))), ValueError, r"diag: expected a vector or a matrix, got shape \(2, 2, 2\)")
    ],
)


def _regular(d: Draw, n: int, batch: tuple[int, ...]) -> np.ndarray:
    return d.array((*batch, n, n), -1, 1) + np.eye(n) * (n + 1)


def _square(d: Draw) -> Sample:
    return Sample([_regular(d, d.one_of(1, 2, 3), d.shape(0, 1, 1, 2))])


_not_square = lambda name: (lambda: getattr(mg, name)(np.ones((2, 3))), ValueError, rf"{name}: .*\(2, 3\)")
_singular = lambda name: (lambda: getattr(mg, name)(np.zeros((2, 2))), np.linalg.LinAlgError, rf"{name}: .*\(2, 2\)")


def _adjugate_inverse(x: np.ndarray) -> np.ndarray:
    return np.stack(
        [
            np.stack([np.linalg.lstsq(m, e, rcond=None)[0] for e in np.eye(m.shape[-1])], -1)
            for m in x.reshape(-1, *x.shape[-2:])
        ]
    ).reshape(x.shape)


def _leibniz(x: np.ndarray) -> np.ndarray:
    n = x.shape[-1]
    total = np.zeros(x.shape[:-2])
    for p in itertools.permutations(range(n)):
        inversions = sum(p[i] > p[j] for i in range(n) for j in range(i + 1, n))
        total += (-1) ** inversions * np.prod([x[..., i, p[i]] for i in range(n)], axis=0)
    return total


add("inv", _adjugate_inverse, _square, errors=[_not_square("inv"), _singular("inv")])
add("det", _leibniz, _square, errors=[_not_square("det")])
add("logabsdet", lambda x: np.log(np.abs(_leibniz(x))), _square, call=OPS["logabsdet"].function, analytic=False)
add("slogdet", lambda x: [np.sign(_leibniz(x)), np.log(np.abs(_leibniz(x)))], _square, analytic=False)


def _solve(d: Draw) -> Sample:
    n = d.one_of(1, 2, 3)
    a = _regular(d, n, d.shape(0, 1, 1, 2))
    return Sample([a, d.array((n,) if d.bool() else (*a.shape[:-2], n, 2))])


add(
    "solve",
    lambda a, b: _adjugate_inverse(a) @ b,
    _solve,
    errors=[
        (lambda: mg.solve(np.ones((2, 2)), np.ones(3)), ValueError, r"solve: .*a \(2, 2\) float64, b \(3,\) float64")
    ],
)


def _positive(d: Draw) -> Sample:
    a = _square(d).operands[0]
    return Sample([a @ a.swapaxes(-1, -2)])


def _crout(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    for j in range(x.shape[-1]):
        y[..., j, j] = np.sqrt(x[..., j, j] - (y[..., j, :j] ** 2).sum(-1))
        for i in range(j + 1, x.shape[-1]):
            y[..., i, j] = (x[..., i, j] - (y[..., i, :j] * y[..., j, :j]).sum(-1)) / y[..., j, j]
    return y


add(
    "cholesky",
    _crout,
    _positive,
    call=lambda x: mg.cholesky((x + mg.swapaxes(x, -1, -2)) / 2),  # of the symmetric part, which it presumes
    analytic=False,
    errors=[(lambda: mg.cholesky(-np.eye(2)), np.linalg.LinAlgError, r"cholesky: .*positive definite.*\(2, 2\)")],
)


# -- kernels -----------------------------------------------------------------------------------------
# The references are loops over rows; the second derivatives come from the kernels' definitions.


def _rows_of(x: np.ndarray) -> np.ndarray:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _linear(d: Draw) -> Sample:
    x = d.array((*d.shape(max_ndim=2), 3), 0.2, 1)
    out = d.one_of(1, 2, 4)
    bias = d.array((out,), 0.1, 1) if d.bool() else None
    weight = d.array((out, 3), 0.2, 1) * d.rng.choice([-1, 1], (out, 1)) if bias is None else d.array((out, 3), 0.2, 1)
    return Sample([x, weight, bias], {"activation": d.one_of(None, "relu"), "dropout": d.one_of(0.0, 0.4)})


def _linear_call(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    return mg.linear(x, weight, bias, **options, generator=np.random.default_rng(0))


def _dropped(y: np.ndarray, p: float) -> np.ndarray:
    keep, scale = keep_mask(y.shape, p, np.random.default_rng(0)) if p else (1, 1)
    return y * keep * scale


def _linear_reference(x: np.ndarray, weight: np.ndarray, bias: Any, activation: Any, dropout: float) -> np.ndarray:
    y = np.array([[math.fsum(row * w) for w in weight] for row in _rows_of(x)]).reshape(*x.shape[:-1], len(weight))
    y = y if bias is None else y + bias
    return _dropped(np.where(y > 0, y, 0) if activation else y, dropout)


add(
    "linear",
    _linear_reference,
    _linear,
    call=_linear_call,
    analytic=False,
    errors=[
        (
            lambda: mg.linear(np.ones((2, 3)), np.ones((4, 2))),
            ValueError,
            r"linear: expected x \(..., in\).*x \(2, 3\) float64",
        ),
        (
            lambda: mg.linear(np.ones(3), np.ones((2, 3)), activation="tanh"),
            ValueError,
            "expected activation None or 'relu'",
        ),
    ],
)


def _normalised(d: Draw) -> Sample:
    width = d.one_of(2, 3, 8)
    x = d.array((*d.shape(max_ndim=2, min_side=1), width), -1, 1) + np.arange(width)
    update = d.array(x.shape, -0.2, 0.2) if d.bool() else None
    weight, bias = (d.array((width,)) if d.bool() else None for _ in range(2))
    return Sample([x, update, weight, bias], {"eps": d.one_of(1e-5, 0.1), "dropout": d.one_of(0.0, 0.4)})


def _layer_norm_call(x: Any, update: Any, weight: Any, bias: Any, eps: float, dropout: float) -> Any:
    return mg.layer_norm(x, weight, bias, eps, update, dropout, np.random.default_rng(0))


def _layer_norm(x: np.ndarray, update: Any, weight: Any, bias: Any, eps: float, dropout: float) -> np.ndarray:
    x = x if update is None else x + _dropped(update, dropout)
    rows = [(r - r.mean()) / math.sqrt(sum((r - r.mean()) ** 2) / len(r) + eps) for r in _rows_of(x)]
    y = np.array(rows).reshape(x.shape) * (1 if weight is None else weight)
    return y if bias is None else y + bias


def _rms_normalised(d: Draw) -> Sample:
    sample = _normalised(d)
    del sample.operands[3]
    return sample


def _rms_norm_call(x: Any, update: Any, weight: Any, eps: float, dropout: float) -> Any:
    return mg.rms_norm(x, weight, eps, update, dropout, np.random.default_rng(0))


def _rms_norm(x: np.ndarray, update: Any, weight: Any, eps: float, dropout: float) -> np.ndarray:
    x = x if update is None else x + _dropped(update, dropout)
    rows = [r / math.sqrt(sum(r * r) / len(r) + eps) for r in _rows_of(x)]
    return np.array(rows).reshape(x.shape) * (1 if weight is None else weight)


_OTHER_UPDATE = (
    lambda: mg.layer_norm(np.ones((2, 3)), update=np.ones((3, 3))),
    ValueError,
    r"row_norm: expected an update of the shape of x; got x \(2, 3\) float64, update \(3, 3\) float64",
)
_NO_PROBABILITY = (
    lambda: mg.layer_norm(np.ones((2, 3)), update=np.ones((2, 3)), dropout=1.0),
    ValueError,
    "dropout: expected 0 <= p < 1, got 1.0",
)
for _name in ("row_norm", "layer_norm"):
    add(
        _name,
        _layer_norm,
        _normalised,
        call=_layer_norm_call,
        analytic=False,
        errors=[_OTHER_UPDATE, _NO_PROBABILITY],
    )
add("rms_norm", _rms_norm, _rms_normalised, call=_rms_norm_call, analytic=False)


def _attention(d: Draw) -> Sample:
    n, h, lq, lk = d.one_of(1, 2), d.one_of(1, 2, 3), d.one_of(1, 3), d.one_of(1, 2, 4)
    dk, dv = d.one_of(1, 2), d.one_of(1, 3)
    mask = d.one_of(None, (n, 1, 1, lk), (1, 1, lq, lk), (n, h, lq, lk), (lq, lk))
    mask = None if mask is None else d.rng.random(mask) < 0.6
    options = {"mask": mask, "num_heads": h, "scale": d.one_of(None, 0.3), "dropout": d.one_of(0.0, 0.4)}
    far = d.one_of(1, 1, 100)  # scores whose exponentials would overflow
    return Sample([d.array((n, lq, h * dk)) * far, d.array((n, lk, h * dk)), d.array((n, lk, h * dv))], options)


def _attention_call(query: Any, key: Any, value: Any, **options: Any) -> Any:
    return mg.scaled_dot_product_attention(query, key, value, **options, generator=np.random.default_rng(0))


def _attention_reference(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: Any, num_heads: int, scale: Any, dropout: float
) -> np.ndarray:
    n, lq, width = query.shape
    lk, dk, dv = key.shape[1], width // num_heads, value.shape[2] // num_heads
    mask = np.broadcast_to(True if mask is None else mask, (n, num_heads, lq, lk))
    keep, factor = np.ones((n, num_heads, lq, lk)), 1.0
    if dropout:
        keep, factor = keep_mask((n, num_heads, lq, lk), dropout, np.random.default_rng(0))
    y = np.zeros((n, lq, num_heads * dv))
    for b, h, i in np.ndindex(n, num_heads, lq):
        seen = [j for j in range(lk) if mask[b, h, i, j]]
        q = query[b, i, h * dk : (h + 1) * dk]
        scores = [q @ key[b, j, h * dk : (h + 1) * dk] * (1 / math.sqrt(dk) if scale is None else scale) for j in seen]
        exponentials = [math.exp(s - max(scores)) for s in scores]
        for j, e in zip(seen, exponentials):
            weight = e / sum(exponentials) * keep[b, h, i, j] * factor
            y[b, i, h * dv : (h + 1) * dv] += weight * value[b, j, h * dv : (h + 1) * dv]
    return y


_BAD = (
    lambda: mg.scaled_dot_product_attention(*[np.ones((1, 2, 4))] * 3, num_heads=3),
    ValueError,
    "for h = 3 heads, got",
)
_BAD_MASK = (
    lambda: mg.scaled_dot_product_attention(*[np.ones((1, 2, 4))] * 3, mask=np.ones((2, 2))),
    TypeError,
    "expected a boolean mask, True = may attend, got dtype float64",
)
_MISFIT = (
    lambda: mg.scaled_dot_product_attention(*[np.ones((1, 2, 4))] * 3, mask=np.ones((3, 3), bool)),
    ValueError,
    r"a mask of shape \(1, 1, 3, 3\) does not broadcast to \(N, h, Lq, Lk\) = \(1, 1, 2, 2\)",
)
for _name in ("attention", "scaled_dot_product_attention"):
    add(
        _name, _attention_reference, _attention, call=_attention_call, analytic=False, errors=[_BAD, _BAD_MASK, _MISFIT]
    )


def _dropout_reference(x: np.ndarray, p: float) -> np.ndarray:
    keep, factor = keep_mask(x.shape, p, np.random.default_rng(0))
    return np.where(keep, x * factor, 0)


add(
    "dropout",
    _dropout_reference,
    lambda d: Sample([d.array(d.shape())], {"p": d.one_of(0.1, 0.5)}),
    call=lambda x, p: mg.dropout(x, p, generator=np.random.default_rng(0)),
    errors=[(lambda: mg.dropout(np.ones(2), 1.0), ValueError, "dropout: expected 0 <= p < 1, got 1.0")],
)


def _lookup(d: Draw) -> Sample:
    n = d.one_of(2, 5, 300)  # tables of different sizes have different gradients
    ids = d.rng.integers(0, n, d.shape(max_ndim=2, max_side=20))
    return Sample([d.array((n, 2))], {"indices": ids})


add(
    "embedding",
    lambda weight, indices: weight[indices],
    _lookup,
    errors=[
        (
            lambda: mg.embedding(np.ones((3, 2)), [0, 3]),
            IndexError,
            "embedding: expected indices from 0 to 2, got 0 to 3",
        ),
        (
            lambda: mg.embedding(np.ones((3, 2)), [0.0]),
            TypeError,
            "embedding: expected integer indices, got dtype float64",
        ),
    ],
)


def _classified(d: Draw) -> Sample:
    classes = d.one_of(2, 5)
    x = d.array((*d.shape(1, 2, 1), classes))
    targets = d.rng.integers(0, classes, x.shape[:-1])
    targets[d.rng.random(targets.shape) < 0.2] = -100
    weight = d.rng.uniform(0.5, 2, classes) if d.bool() else None
    reduction = d.one_of("mean", "sum", "none")
    return Sample(
        [x], {"targets": targets, "weight": weight, "label_smoothing": d.one_of(0.0, 0.1), "reduction": reduction}
    )


def _cross_entropy(
    x: np.ndarray, targets: np.ndarray, weight: Any, label_smoothing: float, reduction: str
) -> np.ndarray:
    classes, rows, total = x.shape[-1], [], 0.0
    w = np.ones(classes) if weight is None else weight
    for row, t in zip(_rows_of(x), targets.ravel()):
        logp = [v - math.log(sum(map(math.exp, row))) for v in row]
        smooth = label_smoothing / classes * sum(-w[c] * logp[c] for c in range(classes))
        rows.append(0.0 if t == -100 else -(1 - label_smoothing) * w[t] * logp[t] + smooth)
        total += 0.0 if t == -100 else w[t]
    if reduction == "none":
        return np.array(rows).reshape(targets.shape)
    return np.asarray(sum(rows) / ((total or 1.0) if reduction == "mean" else 1.0))


add(
    "cross_entropy",
    _cross_entropy,
    _classified,
    analytic=False,
    errors=[
        (
            lambda: mg.cross_entropy(np.ones((2, 3)), [0, 3]),
            IndexError,
            "expected targets from 0 to 2 or -100, got 0 to 3",
        ),
        (lambda: mg.cross_entropy(np.ones((2, 3)), [0]), ValueError, r"expected targets of shape \(2,\), got \(1,\)"),
        (
            lambda: mg.cross_entropy(np.ones((2, 3)), [0.0, 1.0]),
            TypeError,
            "expected integer targets, got dtype float64",
        ),
        (
            lambda: mg.cross_entropy(np.ones((2, 3)), [0, 1], reduction="max"),
            ValueError,
            "expected reduction 'mean', 'sum' or 'none'",
        ),
        (
            lambda: mg.cross_entropy(np.ones((2, 3)), [0, 1], np.ones(2)),
            ValueError,
            r"expected 3 class weights, got shape \(2,\)",
        ),
    ],
)


def _projected(d: Draw) -> Sample:
    sample = _classified(d)
    shape, classes = sample.operands[0].shape[:-1], sample.operands[0].shape[-1]
    sample.operands = [d.array((*shape, 3)), d.array((classes, 3)), d.array((classes,)) if d.bool() else None]
    sample.options["class_weight"] = sample.options.pop("weight")
    sample.options["reduction"] = d.one_of("mean", "sum")
    return sample


def _projected_reference(x: np.ndarray, weight: np.ndarray, bias: Any, class_weight: Any, **options: Any) -> np.ndarray:
    return _cross_entropy(_linear_reference(x, weight, bias, None, 0.0), weight=class_weight, **options)


add("linear_cross_entropy", _projected_reference, _projected, call=mg.linear_cross_entropy, analytic=False)


# -- what has no gradient ------------------------------------------------------------------------------

NO_GRADIENT = {name for name, f in FUNCTIONS.items() if f.__module__ == "minigrad.ops.compare" or name in ("one_hot",)}

"""Functions that take many elements to one, and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.registry import OPS

from .base import Draw, Sample, add


def reduction(
    name: str,
    reference: Any,
    make: Any = None,
    min_side: int = 0,
    several: bool = True,
    **kwargs: Any,
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
reduction(
    "prod",
    _slices(math.prod),
    lambda d, shape: d.array(shape, 0.5, 1.5) * d.rng.choice([0, 1, 1, 1, -1], shape),
)
reduction(
    "logsumexp", _slices(lambda v: math.log(sum(map(math.exp, v)))), min_side=1, analytic=False
)
reduction(
    "euclidean_norm",
    _slices(lambda v: math.sqrt(sum(v * v))),
    _tiny,
    min_side=1,
    call=OPS["euclidean_norm"].function,
)


def _norm(d: Draw) -> Sample:
    x = d.array(d.shape(1, 2, 1), 0.3, 2) * d.rng.choice([-1, 1])
    x = x + 0.1 * d.distinct(x.shape)
    axis = d.axis(x.ndim, several=False) if x.ndim == 1 else d.one_of(0, 1, -1)
    return Sample(
        [x],
        {"ord": d.one_of(None, 1, 2, 3, 2.5, np.inf, -np.inf), "axis": axis, "keepdims": d.bool()},
    )


add(
    "norm",
    np.linalg.norm,
    _norm,
    analytic=False,
    errors=[
        (
            lambda: mg.norm(np.ones((2, 2)), ord="x"),
            ValueError,
            "norm: ord='x' is no norm of matrices",
        )
    ],
)


def _spread_samples(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 2))
    return Sample([x], {"axis": d.axis(x.ndim), "keepdims": d.bool(), "correction": d.one_of(0, 1)})


def _var(x: np.ndarray, axis: Any, keepdims: bool, correction: float) -> np.ndarray:
    return _slices(lambda v: sum((v - sum(v) / len(v)) ** 2) / (len(v) - correction))(
        x, axis, keepdims
    )


add("var", _var, _spread_samples)
add(
    "std",
    lambda *a, **k: np.sqrt(_var(*a, **k)),
    lambda d: _far_apart(_spread_samples(d)),
    analytic=False,
)


def _far_apart(sample: Sample) -> Sample:
    x = sample.operands[0]
    sample.operands[0] = x * 0.1 + np.arange(x.size).reshape(x.shape)
    return sample


def _cumsum(x: np.ndarray, axis: int | None) -> np.ndarray:
    x, axis = (x.ravel(), 0) if axis is None else (x, axis)
    return np.moveaxis(np.moveaxis(x, axis, -1) @ np.triu(np.ones((x.shape[axis],) * 2)), -1, axis)


add(
    "cumsum",
    _cumsum,
    lambda d: Sample([x := d.array(d.shape(1))], {"axis": d.axis(x.ndim, several=False)}),
)


def _running_product(d: Draw) -> Sample:
    x = d.array(shape := d.shape(1), 0.5, 1.5) * d.rng.choice([0, 1, 1, 1, -1], shape)
    return Sample([x], {"axis": d.axis(x.ndim, several=False)})


add("cumprod", lambda x, axis: np.cumprod(x, axis), _running_product)
add(
    "ptp",
    lambda x, axis, keepdims: (
        np.max(x, axis=axis, keepdims=keepdims) - np.min(x, axis=axis, keepdims=keepdims)
    ),
    lambda d: Sample(
        [x := d.distinct(d.shape(1, 3, 1))], {"axis": d.axis(x.ndim), "keepdims": d.bool()}
    ),
    analytic=False,
)


def _averaged(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    kind, axis = d.one_of("none", "same", "vector"), d.axis(x.ndim)
    if kind == "vector":
        axis = d.axis(x.ndim, False, False)
    weights = (
        None
        if kind == "none"
        else d.array(x.shape if kind == "same" else x.shape[axis : axis + 1 or None], 0.5, 2)
    )
    return Sample([x, weights], {"axis": axis, "keepdims": d.bool()})


add(
    "average",
    lambda x, weights, axis, keepdims: np.average(x, axis, weights, keepdims=keepdims),
    _averaged,
    call=lambda x, weights, axis, keepdims: mg.average(x, axis, weights, keepdims=keepdims),
    errors=[
        (
            lambda: mg.average(np.ones((2, 3)), weights=np.ones(2)),
            TypeError,
            r"expected weights of shape \(2, 3\)",
        ),
        (
            lambda: mg.average(np.ones((2, 3)), 1, np.ones(2)),
            ValueError,
            r"weights of shape \(2,\) do not fit axis .1,. of shape",
        ),
        (
            lambda: mg.average(np.ones(2), weights=[1, -1]),
            ZeroDivisionError,
            "the weights of a slice sum to zero",
        ),
    ],
)


def _softmax(d: Draw) -> Sample:
    return Sample(
        [x := d.array(d.shape(1, min_side=1))],
        {"axis": d.axis(x.ndim, allow_none=False, several=False)},
    )


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
    errors=[
        (
            lambda: mg.softmax(np.ones(2), where=np.ones(2)),
            TypeError,
            "softmax: where=: expected booleans",
        )
    ],
)
add("log_softmax", lambda x, axis: np.log(_softmax_reference(x, axis)), _softmax, analytic=False)

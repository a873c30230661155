"""Losses: the references are formulas of each element, or loops over rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.ops.losses import _bounded_log

from .base import Draw, Sample, add, by_element


def _reduced(losses: np.ndarray, reduction: str) -> Any:
    return {
        "none": losses,
        "sum": losses.sum(),
        "mean": losses.mean() if losses.size else losses.sum(),
    }[reduction]


def _reduction(d: Draw, x: np.ndarray) -> str:
    return d.one_of("mean", "sum", "none") if x.size else "sum"  # the mean of nothing is NaN


def _by_element(
    name: str, formula: Callable[..., float], samples: Callable[[Draw], Sample], **kwargs: Any
) -> None:
    def reference(x: np.ndarray, y: np.ndarray, reduction: str, **options: Any) -> Any:
        losses = np.array([formula(a, b, **options) for a, b in zip(x.ravel(), y.ravel())], float)
        return _reduced(losses.reshape(x.shape), reduction)

    kwargs.setdefault("errors", []).append(
        (
            lambda: getattr(mg, name)(np.ones((2, 1)) / 2, np.ones(2) / 2),
            ValueError,
            rf"{name}: expected input and target of one shape, got \(2, 1\) and \(2,\)",
        )
    )
    kwargs["errors"].append(
        (
            lambda: getattr(mg, name)(np.ones(2), np.ones(2), reduction="max"),
            ValueError,
            f"{name}: expected reduction",
        )
    )
    add(name, reference, samples, **kwargs)


def _numbers(kinks: tuple[float, ...] = (), **choices: Any) -> Callable[[Draw], Sample]:
    def draw(d: Draw) -> Sample:
        shape = d.shape()
        y = d.array(shape)
        x = y + d.array(shape, kinks=kinks)
        return Sample(
            [x, y], {**{k: d.one_of(*v) for k, v in choices.items()}, "reduction": _reduction(d, x)}
        )

    return draw


_by_element("mse_loss", lambda x, y: (x - y) ** 2, _numbers())
_by_element("l1_loss", lambda x, y: abs(x - y), _numbers((0,)), analytic=False)
_by_element(
    "smooth_l1_loss",
    lambda x, y, beta: abs(x - y) - beta / 2 if abs(x - y) >= beta else (x - y) ** 2 / (2 * beta),
    _numbers((0, -1, 1, -2, 2), beta=(0, 1.0, 2.0)),
    analytic=False,
    errors=[
        (
            lambda: mg.smooth_l1_loss(1.0, 2.0, beta=-1),
            ValueError,
            "smooth_l1_loss: expected beta >= 0, got -1",
        )
    ],
)
_by_element(
    "huber_loss",
    lambda x, y, delta: (
        delta * (abs(x - y) - delta / 2) if abs(x - y) > delta else (x - y) ** 2 / 2
    ),
    _numbers((-1, 1, -2, 2), delta=(1.0, 2.0)),
    analytic=False,
    errors=[
        (
            lambda: mg.huber_loss(1.0, 2.0, delta=0),
            ValueError,
            "huber_loss: expected delta > 0, got 0",
        )
    ],
)


def _weighted(low: float, high: float, logits: bool) -> Callable[[Draw], Sample]:
    def draw(d: Draw) -> Sample:
        shape = d.shape()
        x, y = d.array(shape, low, high), d.array(shape, 0.1, 0.9)
        options = {"weight": d.one_of(None, 0.7), "reduction": _reduction(d, x)}
        return Sample([x, y], {**options, "pos_weight": d.one_of(None, 1.5)} if logits else options)

    return draw


_by_element(
    "binary_cross_entropy",
    lambda x, y, weight: (
        (y * math.log(1 + math.exp(-x)) + (1 - y) * math.log(1 + math.exp(x))) * (weight or 1)
    ),
    _weighted(-3, 3, logits=False),
    call=lambda x, y, **options: mg.binary_cross_entropy(
        mg.sigmoid(x), y, **options
    ),  # within 0 and 1, as it moves
    analytic=False,
    errors=[
        (
            lambda: mg.binary_cross_entropy(np.array([2.0, -1]), np.ones(2)),
            ValueError,
            "expected probabilities from 0 to 1, got -1.0 to 2.0; for logits write",
        )
    ],
)
_by_element(
    "binary_cross_entropy_with_logits",
    lambda x, y, weight, pos_weight: (
        (y * (pos_weight or 1) * math.log(1 + math.exp(-x)) + (1 - y) * math.log(1 + math.exp(x)))
        * (weight or 1)
    ),
    _weighted(-3, 3, logits=True),
    analytic=False,
)


def _divergences(d: Draw) -> Sample:
    log_target = d.bool()
    x = d.array((2, *d.shape(max_ndim=2)))
    y = d.array(x.shape, -2, 0) if log_target else d.array(x.shape, 0.1, 1)
    return Sample(
        [x, y], {"log_target": log_target, "reduction": d.one_of("batchmean", _reduction(d, x))}
    )


def _kl_div(x: np.ndarray, y: np.ndarray, reduction: str, log_target: bool) -> Any:
    losses = np.exp(y) * (y - x) if log_target else y * (np.log(y) - x)
    return losses.sum() / 2 if reduction == "batchmean" else _reduced(losses, reduction)


add("kl_div", _kl_div, _divergences)


def _nll(d: Draw) -> Sample:
    shape, classes = d.shape(max_ndim=2), d.one_of(1, 2, 5)
    targets = d.rng.integers(0, classes, shape)
    targets = np.where(d.rng.random(shape) < 0.2, -100, targets)
    weight = d.array((classes,), 0.2, 2) if d.bool() else None
    return Sample(
        [d.array((*shape, classes))],
        {"target": targets, "weight": weight, "reduction": d.one_of("mean", "sum", "none")},
    )


def _nll_reference(x: np.ndarray, target: np.ndarray, weight: Any, reduction: str) -> Any:
    losses, total = np.zeros(target.shape), 0.0
    for place in np.ndindex(target.shape):
        if target[place] != -100:
            w = 1.0 if weight is None else weight[target[place]]
            losses[place] = -w * x[place][target[place]]
            total += w
    return losses.sum() / (total or 1) if reduction == "mean" else _reduced(losses, reduction)


add(
    "nll_loss",
    _nll_reference,
    _nll,
    analytic=False,
    errors=[
        (
            lambda: mg.nll_loss(np.ones((2, 3)), [0, 3]),
            IndexError,
            "nll_loss: expected targets from 0 to 2",
        ),
        (
            lambda: mg.nll_loss(np.ones((2, 3, 4)), np.zeros((2, 4), int)),
            ValueError,
            r"the classes stand on the last axis, not on axis 1 as in PyTorch; write moveaxis\(logits, 1, -1\)",
        ),
    ],
)

add(
    "bounded_log",
    by_element(lambda x: math.log(x) if x > math.exp(-100) else -100.0),
    lambda d: Sample([d.array(d.shape(), 0.1, 2)]),
    call=_bounded_log,
    analytic=False,
)

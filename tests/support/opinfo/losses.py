"""Losses of an input and a target, and of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.torch.losses import _bounded_log

from .base import TABLE, Draw, OpInfo, Sample, add


def elementwise_loss(name: str, samples: Callable[[Draw], Sample], call: Any = None) -> None:
    """Add a loss of an input and a target of the same shape, without a reference."""

    def with_reduction(d: Draw) -> Sample:
        sample = samples(d)
        sample.options["reduction"] = d.one_of("mean", "sum", "none")
        return sample

    TABLE[name] = OpInfo(name, call or getattr(mg, name), None, with_reduction)


def _near(d: Draw, *kinks: float, **options: Any) -> Sample:
    """Draw inputs whose distances from their targets are not at `kinks`."""
    y = d.array(d.shape(min_side=1))
    return Sample(y + d.array(y.shape, kinks=kinks), y, **options)


elementwise_loss("mse_loss", _near)
elementwise_loss("l1_loss", lambda d: _near(d, 0))
elementwise_loss("smooth_l1_loss", lambda d: _near(d, 0, -1, 1, -2, 2, beta=d.one_of(0, 1.0, 2.0)))
elementwise_loss("huber_loss", lambda d: _near(d, -1, 1, -2, 2, delta=d.one_of(1.0, 2.0)))


def _binary_sample(d: Draw) -> Sample:
    x = d.array(d.shape(min_side=1))
    return Sample(x, d.array(x.shape, 0.1, 0.9), weight=d.one_of(None, 0.7))


def _binary_sample_of_logits(d: Draw) -> Sample:
    sample = _binary_sample(d)
    sample.options["pos_weight"] = d.one_of(None, 1.5)
    return sample


elementwise_loss(
    "binary_cross_entropy",
    _binary_sample,
    lambda x, y, **options: mg.binary_cross_entropy(mg.sigmoid(x), y, **options),
)
elementwise_loss("binary_cross_entropy_with_logits", _binary_sample_of_logits)


def _kl_div_sample(d: Draw) -> Sample:
    x, log_target = d.array(d.shape(1, min_side=1)), d.bool()
    y = d.array(x.shape, -2, 0) if log_target else d.array(x.shape, 0.1, 1)
    return Sample(x, y, log_target=log_target)


elementwise_loss("kl_div", _kl_div_sample)
add("bounded_log", lambda d: Sample(d.array(d.shape(), 0.1, 2)), np.log, _bounded_log)


def classified(d: Draw) -> Sample:
    """Draw logits with classes as targets, some of them ignored."""
    classes = d.one_of(1, 2, 5)
    x = d.array((*d.shape(1, 2, 1), classes))
    target = d.integers(0, classes, x.shape[:-1])
    for position in d.positions(target.size):
        target.flat[position] = -100
    weight = d.array((classes,), 0.5, 2).tolist() if d.bool() else None
    return Sample(x, target=target, weight=weight, reduction=d.one_of("mean", "sum", "none"))


def negative_log_likelihood(
    x: np.ndarray, target: np.ndarray, weight: Any, reduction: str, label_smoothing: float = 0.0
) -> Any:
    """Return the loss of log probabilities x."""
    classes = x.shape[-1]
    weight = np.ones(classes) if weight is None else np.array(weight)
    counted, target = target != -100, np.where(target == -100, 0, target)
    goal = (1 - label_smoothing) * np.eye(classes)[target] + label_smoothing / classes
    losses = np.where(counted, -(goal * weight * x).sum(-1), 0)
    if reduction == "none":
        return losses
    divisor = (weight[target] * counted).sum() if reduction == "mean" else 1
    return losses.sum() / (divisor or 1)


add("nll_loss", classified, negative_log_likelihood)

"""How far predictions are from what they should be: the losses of PyTorch, by its names and with
its options.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.registry import function, op
from ..core.tensor import Tensor, unwrap
from . import reduction as reductions
from .activations import softplus
from .axes import check_broadcast, check_choice, shape_of
from .elementwise import absolute, multiply, square, subtract, where, xlogy
from .indexing import take_along_axis
from .shape import astype, reshape
from .softmax import log_softmax
from .targets import REDUCTIONS, Targets, reduced

__all__ = [
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "nll_loss",
    "kl_div",
]


def _check(name: str, x: Any, target: Any, reduction: str) -> None:
    """An error for what is no reduction, or where broadcasting would compare each element with
    many.
    """
    check_choice(name, "reduction", reduction, *REDUCTIONS)
    if shape_of(x) != shape_of(target):
        raise ValueError(
            f"{name}: expected input and target of one shape, got {shape_of(x)} and "
            f"{shape_of(target)}"
        )


def _times(name: str, argument: str, losses: Any, weight: Any) -> Any:
    """The losses of elements times a weight that broadcasts to them, in the dtype of the losses."""
    if weight is None:
        return losses
    check_broadcast(name, argument, weight, shape_of(losses), "the loss")
    weight = weight if isinstance(weight, Tensor) else np.asarray(weight)
    return losses * (weight if weight.dtype == losses.dtype else astype(weight, losses.dtype))


def _of_elements(losses: Any, reduction: str) -> Tensor:
    return reductions.mean(losses) if reduction == "mean" else reduced(losses, reduction, 1.0)


def _distance(name: str, input: Any, target: Any, reduction: str) -> Tensor:
    _check(name, input, target, reduction)
    return subtract(input, target)


# -- numbers
# -------------------------------------------------------------------------------------------


@function()
def mse_loss(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """(input - target)², of one shape; `reduction` "mean", "sum" or "none"."""
    return _of_elements(square(_distance("mse_loss", input, target, reduction)), reduction)


@function()
def l1_loss(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """|input - target|, of one shape; `reduction` as in `mse_loss`."""
    return _of_elements(absolute(_distance("l1_loss", input, target, reduction)), reduction)


@function()
def smooth_l1_loss(
    input: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d² / (2 beta) where d = |input - target| < `beta`, else d - beta / 2; with beta 0 `l1_loss`."""
    if not beta >= 0:
        raise ValueError(f"smooth_l1_loss: expected beta >= 0, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    d = _distance("smooth_l1_loss", input, target, reduction)
    return _huber(d, np.abs(unwrap(d)) < beta, beta, 1 / beta, 1.0, reduction)


@function()
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d² / 2 where d = |input - target| <= `delta`, else delta (d - delta / 2)."""
    if not delta > 0:
        raise ValueError(f"huber_loss: expected delta > 0, got {delta}")
    d = _distance("huber_loss", input, target, reduction)
    return _huber(d, np.abs(unwrap(d)) <= delta, delta, 1.0, delta, reduction)


def _huber(
    d: Tensor, near: Any, limit: float, curvature: float, slope: float, reduction: str
) -> Tensor:
    """d² curvature / 2 where `near`, else (|d| - limit / 2) slope; |d|² would have no second
    derivative at 0.
    """
    losses = where(
        near, square(where(near, d, 0.0)) * (curvature / 2), (absolute(d) - limit / 2) * slope
    )
    return _of_elements(losses, reduction)


# -- probabilities
# -------------------------------------------------------------------------------------


@op(x=lambda g, x: g / np.maximum(x, 1e-12))
def _bounded_log(x, /):
    """log x, no less than -100, and of a slope no more than 10¹²: what PyTorch's
    binary_cross_entropy does.
    """
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(x), -100)


@function()
def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean"
) -> Tensor:
    """-target log p - (1 - target) log(1 - p) for probabilities p = `input`, times `weight`.

    For logits write `binary_cross_entropy_with_logits`, which loses no digits where p is near 0 or
    1.
    """
    _check("binary_cross_entropy", input, target, reduction)
    p = np.asarray(unwrap(input))
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError(
            f"binary_cross_entropy: expected probabilities from 0 to 1, got {p.min()} to "
            f"{p.max()}; "
            "for logits write binary_cross_entropy_with_logits"
        )
    losses = -(
        _bounded_log(input) * target + _bounded_log(subtract(1, input)) * subtract(1, target)
    )
    return _of_elements(_times("binary_cross_entropy", "weight", losses, weight), reduction)


@function()
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, *, pos_weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """-pos_weight target log sigmoid(x) - (1 - target) log(1 - sigmoid(x)) for x = `input`, times
    `weight`.

    `target` has the shape of the input, with numbers from 0 to 1; `weight` and `pos_weight`
    broadcast with them.
    """
    _check("binary_cross_entropy_with_logits", input, target, reduction)
    x = input if isinstance(input, Tensor) else np.asarray(input)
    positive: Any = target if isinstance(target, Tensor) else np.asarray(target)
    positive = (
        astype(positive, np.result_type(x.dtype, np.float16))
        if positive.dtype.kind != "f"
        else positive
    )
    name = "binary_cross_entropy_with_logits"
    losses = _times(name, "pos_weight", multiply(positive, softplus(-x)), pos_weight)
    losses = losses + multiply(1 - positive, softplus(x))
    return _of_elements(_times(name, "weight", losses, weight), reduction)


@function()
def kl_div(input: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target · (log target - input) for log-probabilities `input`; 0 where the target is 0.

    As in PyTorch "mean" is that over all elements; "batchmean", the sum divided by the length of
    the first axis, is the divergence of rows. With `log_target`, the target is given as logarithms
    too.
    """
    _check("kl_div", input, target, "sum" if reduction == "batchmean" else reduction)
    if log_target:
        losses = multiply(np.exp(target), subtract(target, input))
    else:
        losses = subtract(xlogy(target, target), multiply(target, input))
    if reduction == "batchmean":
        return reductions.sum(losses) / (shape_of(input)[0] if shape_of(input) else 1)
    return _of_elements(losses, reduction)


# -- classes
# -------------------------------------------------------------------------------------------


def row_losses(log_probabilities: Any, targets: Targets) -> Tensor:
    """The cross-entropy of each row of log-probabilities (rows, C), in the shape of the targets."""
    loss = take_along_axis(log_probabilities, targets.index[:, None], 1)[:, 0] * -targets.on_target
    if targets.smooth:
        weighted = (
            log_probabilities if targets.weight is None else log_probabilities * targets.weight
        )
        loss = loss - reductions.sum(weighted, -1) * targets.on_all
    return loss.reshape(targets.shape)


@function()
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = -100,
    reduction: str = "mean",
) -> Tensor:
    """`cross_entropy` for log-probabilities (..., C) in place of logits; targets are integers
    (...).
    """
    check_choice("nll_loss", "reduction", reduction, *REDUCTIONS)
    dtype = np.asarray(unwrap(input)).dtype
    targets = Targets("nll_loss", shape_of(input), target, weight, ignore_index, 0.0, dtype)
    rows = reshape(input, -1, shape_of(input)[-1])
    rows = rows if targets.ignored is None else where(targets.ignored[:, None], 0.0, rows)
    return reduced(row_losses(rows, targets), reduction, targets.total)


def _sum_to_one(probabilities: np.ndarray, axis: int) -> bool:
    return bool(np.allclose(probabilities.sum(axis), 1, atol=1e-3))


def class_probability_loss(
    name: str, logits: Any, target: Any, weight: Any, smoothing: float, reduction: str
) -> Tensor:
    """-Σ_c w_c q_c log p_c over the last axis, for probabilities q of the classes; the mean is that
    of rows.
    """
    if not 0 <= smoothing <= 1:
        raise ValueError(f"{name}: expected 0 <= label_smoothing <= 1, got {smoothing}")
    classes = shape_of(logits)[-1]
    values = np.asarray(unwrap(target))
    if values.ndim > 2 and not _sum_to_one(values, -1) and _sum_to_one(values, 1):
        raise ValueError(
            f"{name}: the probabilities must sum to 1 over the last axis, not over axis 1 as in "
            "PyTorch; write moveaxis(logits, 1, -1) and moveaxis(target, 1, -1)"
        )
    if smoothing:
        target = (target if isinstance(target, Tensor) else np.asarray(target)) * (
            1 - smoothing
        ) + smoothing / classes
    losses = multiply(log_softmax(logits), target)
    if weight is not None:
        if shape_of(weight) != (classes,):
            raise ValueError(
                f"{name}: expected {classes} class weights, got shape {shape_of(weight)}"
            )
        losses = losses * np.asarray(unwrap(weight), losses.dtype)
    return _of_elements(-reductions.sum(losses, -1), reduction)

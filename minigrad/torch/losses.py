"""Loss functions, with PyTorch's names and options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..arguments import check_broadcast, check_choice, check_shape, checked_number, shape_of
from ..numpy.activations import softplus
from ..numpy.batched import all_true
from ..numpy.elementwise import xlogy
from ..ops import reduce
from ..ops.arithmetic import absolute, multiply, square, subtract
from ..ops.loss import REDUCTIONS, Targets, cross_entropy, reduced, row_losses
from ..ops.network import log_softmax
from ..ops.shape import astype, floating, reshape, where
from ..registry import FORMS, function, op
from ..tensor import Tensor, as_operand, to_array, unwrap

__all__ = [
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
    "nll_loss",
]


def reduced_elements(losses: Any, reduction: str) -> Tensor:
    """Return the losses of elements, their sum or their mean."""
    return reduce.mean(losses) if reduction == "mean" else reduced(losses, reduction, 1.0)


def _check(name: str, x: Any, target: Any, reduction: str) -> None:
    """Raise an error for an unknown reduction, or shapes that would broadcast."""
    check_choice(name, "reduction", reduction, *REDUCTIONS)
    if shape_of(x) != shape_of(target):
        raise ValueError(
            f"{name}: input and target must have one shape, got {shape_of(x)} and "
            f"{shape_of(target)}"
        )


def _times(name: str, argument: str, losses: Any, weight: Any) -> Any:
    """Return losses times a weight that broadcasts to them, in the dtype of the losses."""
    if weight is None:
        return losses
    check_broadcast(name, argument, weight, shape_of(losses), "the loss")
    weight = as_operand(weight)
    return losses * (weight if weight.dtype == losses.dtype else astype(weight, losses.dtype))


def _distance(name: str, input: Any, target: Any, reduction: str) -> Tensor:
    _check(name, input, target, reduction)
    return subtract(floating(input), target)


# -- regression


@function()
def mse_loss(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """Compute the squared error.

    Parameters
    ----------
    input : array_like
    target : array_like
        Array in the shape of the input.
    reduction : {"mean", "sum", "none"}
        Reduction of the losses of elements; "mean" by default.

    Returns
    -------
    Tensor
        Scalar, or the loss of each element.
    """
    return reduced_elements(square(_distance("mse_loss", input, target, reduction)), reduction)


@function()
def l1_loss(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """Compute the absolute error.

    Parameters and result: as `mse_loss`.
    """
    return reduced_elements(absolute(_distance("l1_loss", input, target, reduction)), reduction)


@function()
def smooth_l1_loss(
    input: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Compute d² / (2 beta) if d < beta, else d - beta / 2, for d = |input - target|.

    Other parameters and the result: as `mse_loss`.

    Parameters
    ----------
    beta : float
        Limit of the quadratic part; 1 by default. The loss is `l1_loss` if `beta` is 0.
    """
    if checked_number("smooth_l1_loss", "beta", beta) == 0:
        return l1_loss(input, target, reduction=reduction)
    d = _distance("smooth_l1_loss", input, target, reduction)
    return _huber(d, np.abs(unwrap(d)) < beta, beta, 1 / beta, 1.0, reduction)


@function()
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Compute d² / 2 if d <= delta, else delta * (d - delta / 2), d = |input - target|.

    Other parameters and the result: as `mse_loss`.

    Parameters
    ----------
    delta : float
        Limit of the quadratic part; 1 by default.
    """
    checked_number("huber_loss", "delta", delta, above=True)
    d = _distance("huber_loss", input, target, reduction)
    return _huber(d, np.abs(unwrap(d)) <= delta, delta, 1.0, delta, reduction)


def _huber(
    d: Tensor, near: Any, limit: float, curvature: float, slope: float, reduction: str
) -> Tensor:
    """Return curvature * d² / 2 where `near`, else slope * (|d| - limit / 2)."""
    losses = where(
        near, square(where(near, d, 0.0)) * (curvature / 2), (absolute(d) - limit / 2) * slope
    )
    return reduced_elements(losses, reduction)


# -- probabilities


@op(x=lambda g, x: g / np.maximum(x, 1e-12))
def _bounded_log(x, /):
    """Compute log x, at least -100, with a slope of at most 1e12, as PyTorch's loss does."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(x), -100)


@function()
def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean"
) -> Tensor:
    """Compute -target * log p - (1 - target) * log(1 - p) for probabilities p.

    Other parameters and the result: as `mse_loss`.

    Parameters
    ----------
    input : array_like
        Probabilities from 0 to 1. `binary_cross_entropy_with_logits` is more exact for logits.
    weight : array_like, optional
        A factor that broadcasts to the losses.
    """
    _check("binary_cross_entropy", input, target, reduction)
    p = to_array(input)
    if not all_true((p >= 0) & (p <= 1)):
        raise ValueError(
            f"binary_cross_entropy: input must be probabilities from 0 to 1, got {p.min()} to "
            f"{p.max()}; for logits write binary_cross_entropy_with_logits"
        )
    losses = -(
        _bounded_log(input) * target + _bounded_log(subtract(1, input)) * subtract(1, target)
    )
    return reduced_elements(_times("binary_cross_entropy", "weight", losses, weight), reduction)


@function()
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, *, pos_weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """Compute the binary cross-entropy of sigmoid(input), without overflow.

    Other parameters and the result: as `binary_cross_entropy`.

    Parameters
    ----------
    input : array_like
        Logits.
    pos_weight : array_like, optional
        A factor of the losses of target 1, which broadcasts to them.
    """
    _check("binary_cross_entropy_with_logits", input, target, reduction)
    x = floating(input)
    positive = as_operand(target)
    if positive.dtype.kind != "f":
        positive = astype(positive, np.result_type(x.dtype, np.float16))
    name = "binary_cross_entropy_with_logits"
    losses = _times(name, "pos_weight", multiply(positive, softplus(-x)), pos_weight)
    losses = losses + multiply(1 - positive, softplus(x))
    return reduced_elements(_times(name, "weight", losses, weight), reduction)


@function()
def kl_div(input: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Compute target * (log target - input) for log-probabilities `input`.

    Parameters
    ----------
    input : array_like
        Log-probabilities.
    target : array_like
        Probabilities, in the shape of the input.
    reduction : {"mean", "batchmean", "sum", "none"}
        "mean" (the default) divides the sum by the number of elements, "batchmean" by the number
        of rows.
    log_target : bool
        The target consists of log-probabilities; False by default.
    """
    _check("kl_div", input, target, "sum" if reduction == "batchmean" else reduction)
    input, target = floating(input), floating(target)
    if log_target:
        losses = multiply(np.exp(target), subtract(target, input))
    else:
        losses = subtract(xlogy(target, target), multiply(target, input))
    if reduction == "batchmean":
        return reduce.sum(losses) / (shape_of(input)[0] if shape_of(input) else 1)
    return reduced_elements(losses, reduction)


# -- classes


@function()
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = -100,
    reduction: str = "mean",
) -> Tensor:
    """Compute the cross-entropy of log-probabilities.

    Other parameters and the result: as `cross_entropy`.

    Parameters
    ----------
    input : array_like, shape (..., C)
        Log-probabilities.
    target : array_like of int, shape (...)
        Classes.
    """
    check_choice("nll_loss", "reduction", reduction, *REDUCTIONS)
    dtype = to_array(input).dtype
    targets = Targets("nll_loss", shape_of(input), target, weight, ignore_index, 0.0, dtype)
    rows = reshape(input, -1, shape_of(input)[-1])
    rows = rows if targets.ignored is None else where(targets.ignored[:, None], 0.0, rows)
    return reduced(row_losses(rows, targets), reduction, targets.divisor)


def _sum_to_one(probabilities: np.ndarray, axis: int) -> bool:
    return bool(np.isclose(probabilities.sum(axis), 1, atol=1e-3).all())


def _class_probability_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Compute the cross-entropy for probabilities (..., C) of classes; a mean is over all rows."""
    if not 0 <= label_smoothing <= 1:
        raise ValueError(
            f"cross_entropy: label_smoothing must be from 0 to 1, got {label_smoothing}"
        )
    classes, values = shape_of(input)[-1], to_array(target)
    if values.ndim > 2 and not _sum_to_one(values, -1) and _sum_to_one(values, 1):
        raise ValueError(
            "cross_entropy: the probabilities must sum to 1 over the last axis, not over axis 1 as "
            "in PyTorch; write moveaxis(logits, 1, -1) and moveaxis(target, 1, -1)"
        )
    if label_smoothing:
        target = as_operand(target) * (1 - label_smoothing) + label_smoothing / classes
    losses = multiply(log_softmax(input), target)
    if weight is not None:
        check_shape("cross_entropy", "weight", weight, (classes,))
        losses = losses * to_array(weight).astype(losses.dtype)
    return reduced_elements(-reduce.sum(losses, -1), reduction)


def _with_probabilities(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Callable[[], Any] | None:
    """Return the call of `cross_entropy` for a target that contains probabilities, or None."""
    values = {**dict(zip(("input", "target"), args)), **options}
    if function is not cross_entropy or not values.keys() >= {"input", "target"}:
        return None
    x, target = values["input"], values["target"]
    if shape_of(target) != shape_of(x) or to_array(target).dtype.kind != "f" or not shape_of(x):
        return None
    return partial(_class_probability_loss, *args, **options)


FORMS.append(_with_probabilities)

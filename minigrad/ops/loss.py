"""Cross-entropy of logits, alone or with the linear layer that computes the logits.

With smoothing ε (Szegedy et al. 2016, arXiv:1512.00567) over C classes with weights w, the loss of
a row of class t is (1 - ε) w_t (-log p_t) + ε/C Σ_c w_c (-log p_c), as in PyTorch. The mean divides
by the sum of w_t over the rows that are not ignored. Look at `row_losses`, which is this formula.
`Targets` checks the targets and contains the factors in it.
"""

from __future__ import annotations

import numpy as np

from ..arguments import check_choice, check_shape, shape_of
from ..arrays import Array, ArrayLike, DType, Ids, Shape
from ..fuse import fusible
from ..nested import needs_gradient
from ..registry import function
from ..tensor import Tensor, as_operand, to_array
from . import reduce
from .network import linear, log_softmax
from .shape import astype, getitem, where

__all__ = ["cross_entropy", "linear_cross_entropy"]

REDUCTIONS = ("mean", "sum", "none")


class Targets:
    """Classes of rows of logits, with the weights of the losses of rows and classes.

    Attributes
    ----------
    index : array of int, shape (rows,)
        Class of each row; 0 for an ignored row.
    ignored : array of bool, shape (rows,), or None
        True = the row is ignored. None if there is no such row.
    on_target, on_all : array of float, shape (rows,)
        Factors of -log p of the class, and of Σ_c w_c (-log p_c).
    divisor : float
        Divisor of a mean.
    """

    def __init__(
        self,
        name: str,
        shape: Shape,
        target: Ids,
        weight: ArrayLike,
        ignore_index: int | None,
        smoothing: float,
        dtype: DType,
    ) -> None:
        flat = _checked_target(name, shape, target, weight, smoothing)
        classes, self.shape = shape[-1], shape[:-1]
        dtype = np.result_type(dtype, np.float32 if dtype.kind == "f" else float)  # of kernels
        self.weight = None if weight is None else to_array(weight).astype(dtype)
        self.smooth = smoothing > 0
        counts = np.ones_like(flat, dtype=bool) if ignore_index is None else flat != ignore_index
        index = np.where(counts, flat, 0)
        if not ((index >= 0) & (index < classes)).all():
            other = "" if ignore_index is None else f" or {ignore_index}"
            raise IndexError(
                f"{name}: target must be from 0 to {classes - 1}{other}, got {index.min()} to "
                f"{index.max()}"
            )
        self.index = index.astype(np.intp, copy=False)
        self.ignored = None if counts.all() else ~counts
        weights = 1 if self.weight is None else to_array(getitem(self.weight, self.index))
        weights = (counts * weights).astype(dtype, copy=False)
        total = weights.sum()
        self.divisor: Array = total + (total == 0)  # 1 if all rows are ignored
        self.on_target = weights * dtype.type(1 - float(smoothing))
        self.on_all = (counts * dtype.type(float(smoothing) / classes)).astype(dtype)


def _checked_target(name: str, shape: Shape, target: Ids, weight: Array, smoothing: float) -> Array:
    """Return the targets of logits of some shape as a vector, or raise an error."""
    if not shape or not shape[-1]:
        raise ValueError(f"{name}: input must have classes on a last axis, got shape {shape}")
    if needs_gradient((weight, smoothing)):
        raise TypeError(
            f"{name}: weight and label_smoothing must not require gradients; use .detach()"
        )
    target = to_array(target)
    if target.dtype.kind not in "iu":
        raise TypeError(f"{name}: target must be integers, got dtype {target.dtype}")
    if target.shape != shape[:-1]:
        if len(shape) > 2 and target.shape == (shape[0], *shape[2:]):
            raise ValueError(
                f"{name}: classes must be on the last axis, not on axis 1 as in PyTorch, got "
                f"logits {shape} and targets {target.shape}; write moveaxis(logits, 1, -1)"
            )
        raise ValueError(f"{name}: target must have shape {shape[:-1]}, got {target.shape}")
    if not 0 <= smoothing <= 1:
        raise ValueError(f"{name}: label_smoothing must be from 0 to 1, got {smoothing}")
    if weight is not None:
        check_shape(name, "weight", weight, shape[-1:])
    return target.reshape(-1)


def reduced(losses: Array, choice: str, divisor: ArrayLike) -> Tensor:
    """Return the losses, their sum, or for "mean" their sum divided by `divisor`."""
    if choice == "none":
        return losses
    divisor = divisor if choice == "mean" else 1.0
    if losses.dtype == np.float16:  # large sums and counts overflow in float16
        return astype(reduce.sum(astype(losses, np.float32)) / divisor, np.float16)
    return reduce.sum(losses) / divisor


def row_losses(log_probabilities: Array, targets: Targets) -> Tensor:
    """Return the cross-entropy of each row of log-probabilities (rows, C)."""
    rows = np.arange(log_probabilities.shape[0])
    loss = getitem(log_probabilities, (rows, targets.index)) * -targets.on_target
    if targets.smooth:
        weighted = (
            log_probabilities if targets.weight is None else log_probabilities * targets.weight
        )
        loss = loss - reduce.sum(weighted, -1) * targets.on_all
    return loss.reshape(targets.shape)


@fusible
def _cross_entropy(logits: Array, targets: Targets) -> Tensor:
    """Compute the loss of each row."""
    rows = logits.reshape(-1, logits.shape[-1])
    logp = log_softmax(
        rows if targets.ignored is None else where(targets.ignored[:, None], 0.0, rows)
    )
    return row_losses(logp, targets)


@function()
def cross_entropy(
    input: ArrayLike,
    target: Ids,
    weight: ArrayLike = None,
    *,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Compute the cross-entropy of logits, a scalar, or (...) with `reduction` "none".

    Parameters
    ----------
    input : Tensor, shape (..., C)
        Logits.
    target : array of int, shape (...)
        Classes.
    weight : array, shape (C,), optional
        Weights of the classes.
    ignore_index : int, optional
        Rows with this target are ignored; -100 by default.
    label_smoothing : float
        Share of each target that is spread evenly over all classes; 0 by default.
    reduction : {"mean", "sum", "none"}
        "mean", the default, divides the sum by the weights of the targets that are not ignored,
        and is 0 if all rows are ignored.
    """
    check_choice("cross_entropy", "reduction", reduction, *REDUCTIONS)
    dtype = to_array(input).dtype
    targets = Targets(
        "cross_entropy", shape_of(input), target, weight, ignore_index, label_smoothing, dtype
    )
    return reduced(_cross_entropy(as_operand(input), targets=targets), reduction, targets.divisor)


@fusible
def _linear_cross_entropy(
    x: Array, weight: Array, bias: Array, targets: Targets, divisor: Array
) -> Tensor:
    """Compute the sum of the losses of linear(x, weight, bias), divided by `divisor`."""
    # no kernel of cross_entropy: this is the reference for another kernel
    return reduce.sum(_cross_entropy.definition(linear(x, weight, bias), targets)) / divisor


@function()
def linear_cross_entropy(
    x: ArrayLike,
    linear_weight: ArrayLike,
    target: Ids,
    *,
    linear_bias: ArrayLike = None,
    weight: ArrayLike = None,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Compute cross_entropy(linear(x, linear_weight, linear_bias), target, weight, ...).

    The kernel stores no logits of a whole batch: it computes them for blocks of rows, and their
    gradient replaces them.

    Other parameters: as `cross_entropy`.

    Parameters
    ----------
    x : Tensor, shape (..., d)
    linear_weight : Tensor, shape (C, d)
    target : array of int, shape (...)
    linear_bias : Tensor, shape (C,), optional
    reduction : {"mean", "sum"}
        Reduction of the losses of rows; "mean" by default.
    """
    check_choice("linear_cross_entropy", "reduction", reduction, "mean", "sum")
    x, linear_weight = as_operand(x), as_operand(linear_weight)
    if not x.ndim:
        raise ValueError("linear_cross_entropy: x must have features, a last axis, got a scalar")
    if linear_weight.shape[1:] != x.shape[-1:]:
        raise ValueError(
            f"linear_cross_entropy: linear_weight must have shape (C, {x.shape[-1]}), got "
            f"{linear_weight.shape}"
        )
    classes = linear_weight.shape[:1]
    if linear_bias is not None:
        check_shape("linear_cross_entropy", "linear_bias", linear_bias, classes)
    targets = Targets(
        "linear_cross_entropy",
        x.shape[:-1] + classes,
        target,
        weight,
        ignore_index,
        label_smoothing,
        x.dtype,
    )
    divisor = targets.divisor if reduction == "mean" else 1.0
    return _linear_cross_entropy(x, linear_weight, linear_bias, targets=targets, divisor=divisor)

"""Cross-entropy of logits, alone or with the linear layer that computes the logits.

With smoothing ε (Szegedy et al. 2016, arXiv:1512.00567) over C classes with weights w, the loss of
a row of class t is (1 - ε) w_t (-log p_t) + ε/C Σ_c w_c (-log p_c), as in PyTorch. The mean divides
by the sum of w_t over the rows that are not ignored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.batched import as_array
from ..core.modes import MODE
from ..core.registry import function
from ..core.tensor import Tensor, to_array
from ..ops import reduction as reductions
from ..ops.axes import check_choice, shape_of
from ..ops.elementwise import where
from ..ops.losses import class_probability_loss, row_losses
from ..ops.softmax import log_softmax
from ..ops.targets import REDUCTIONS, Targets, reduced
from .blocks import BLOCK, as_rows, needs_shift, ones, row_blocks, row_sums
from .definitions import kernel
from .linear import linear_definition

__all__ = ["cross_entropy", "linear_cross_entropy"]

_ONE_BLOCK = 1 << 20  # fewer logits are computed in one block: 4 MB of float32


def cross_entropy_definition(logits: Any, targets: Targets) -> Tensor:
    """Compute the loss of each row."""
    rows = logits.reshape(-1, logits.shape[-1])
    logp = log_softmax(
        rows if targets.ignored is None else where(targets.ignored[:, None], 0.0, rows)
    )
    return row_losses(logp, targets)


def _losses(
    rows: np.ndarray, targets: Targets, block: slice, exponentials: np.ndarray
) -> tuple[Any, Any, Any]:
    """Return losses of rows of logits, their shifts (rows, 1), and Σ exp(logit - shift) (rows, 1).

    The shift is the largest logit of the row if its exponential might overflow. The terms of the
    sum are then as small as the loss, so logits with a common large offset lose no digits.
    """
    index = targets.index[block]
    top = np.zeros((len(rows), 1), rows.dtype)
    if needs_shift(rows.min(initial=0), rows.max(initial=0), rows.dtype):
        top = rows.max(-1, keepdims=True)
        rows = np.subtract(rows, top, out=exponentials)
    at_target = rows[np.arange(len(index)), index]
    smoothed: Any = 0
    if targets.smooth:
        weight = ones(rows.shape[1], rows.dtype)[:, 0] if targets.weight is None else targets.weight
        smoothed = rows @ weight * targets.on_all[block]
    np.exp(rows, out=exponentials)
    total = row_sums(exponentials)
    loss = (
        np.log(total)[:, 0] * targets.factor[block]
        - at_target * targets.on_target[block]
        - smoothed
    )
    return loss, top, total


def _logits_gradient(e: np.ndarray, factor: Any, targets: Targets, block: slice, g: Any) -> None:
    """Replace exponentials `e` by the gradient of the logits.

    `e * factor` are probabilities, and `g` is the gradient of each loss.
    """
    e *= factor * (targets.factor[block] * g)[:, None]
    if targets.smooth:
        spread = (targets.on_all[block] * g)[:, None]
        e -= spread if targets.weight is None else spread * targets.weight
    e[np.arange(len(e)), targets.index[block]] -= targets.on_target[block] * g


def _cross_entropy_vjp(g: Any, logits: Any, targets: Any, saved: Any) -> tuple[Any]:
    rows, g = as_rows(logits), np.ascontiguousarray(g).reshape(-1)
    top, log_total = saved
    gx = np.empty_like(rows)
    for block in row_blocks(*rows.shape):
        p = gx[block]
        np.copyto(p, rows[block])
        targets.without_ignored(p, block)
        p -= top[block]
        p -= log_total[block]
        np.exp(p, out=p)
        _logits_gradient(p, 1, targets, block, g[block])
    return (gx.reshape(logits.shape),)


@kernel(vjp=_cross_entropy_vjp, definition=cross_entropy_definition)
def _cross_entropy(logits, /, targets):
    rows = as_rows(logits)
    loss, top, total = (np.empty((len(rows), *one), rows.dtype) for one in ((), (1,), (1,)))
    for block in row_blocks(*rows.shape):
        part = targets.without_ignored(rows[block].copy(), block)
        loss[block], top[block], total[block] = _losses(part, targets, block, part)
    return loss.reshape(targets.shape), (top, np.log(total, out=total))


@function()
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Compute the cross-entropy of logits.

    Parameters
    ----------
    input : Tensor, shape (..., C)
        Logits.
    target : array of int, shape (...), or of float, shape (..., C)
        Classes, or probabilities of the classes.
    weight : array, shape (C,), optional
        Weights of the classes.
    ignore_index : int, optional
        Rows with this target are ignored; -100 by default.
    label_smoothing : float
        Share of each target that is spread evenly over all classes; 0 by default.
    reduction : {"mean", "sum", "none"}
        "mean", the default, divides the sum by the weights of the targets that are not ignored,
        and is 0 if all rows are ignored. For probabilities it divides by the number of rows.

    Returns
    -------
    Tensor, scalar, or shape (...) with `reduction` "none"
        Reduced loss, or the loss of each row.
    """
    check_choice("cross_entropy", "reduction", reduction, *REDUCTIONS)
    if shape_of(target) == shape_of(input) and to_array(target).dtype.kind == "f":
        return class_probability_loss(
            "cross_entropy", input, target, weight, label_smoothing, reduction
        )
    dtype = to_array(input).dtype
    targets = Targets(
        "cross_entropy", shape_of(input), target, weight, ignore_index, label_smoothing, dtype
    )
    return reduced(_cross_entropy(input, targets=targets), reduction, targets.divisor)


def linear_cross_entropy_definition(
    x: Any, weight: Any, bias: Any, targets: Targets, divisor: float, with_gradient: bool
) -> Tensor:
    """Compute the sum of the losses of linear(x, weight, bias), divided by `divisor`."""
    return (
        reductions.sum(cross_entropy_definition(linear_definition(x, weight, bias), targets))
        / divisor
    )


def _linear_cross_entropy_vjp(
    g: Any,
    x: Any,
    weight: Any,
    bias: Any,
    targets: Any,
    divisor: Any,
    with_gradient: Any,
    saved: Any,
    needs: Any,
) -> tuple[Any, ...]:
    return tuple(c * g if needed else None for c, needed in zip(saved, needs))


def _blocks_of_logits(rows: int, weight: np.ndarray) -> Sequence[slice]:
    """Return equal blocks of rows whose logits take no more memory than the weight's gradient."""
    classes = len(weight)
    count = max(1, math.ceil(rows * classes / max(weight.size, _ONE_BLOCK)))
    return row_blocks(rows, classes, math.ceil(rows / count) * classes + 1)


@kernel(vjp=_linear_cross_entropy_vjp, definition=linear_cross_entropy_definition)
def _linear_cross_entropy(x, weight, bias, /, targets, divisor, with_gradient):
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    classes = weight.shape[0]
    loss = 0.0
    gx: Any = None
    gw: Any = None
    gb = None
    if with_gradient:
        gx, gb = np.empty_like(rows), np.zeros(classes, rows.dtype)
        gw = np.empty_like(weight) if len(rows) else np.zeros_like(weight)
    blocks = _blocks_of_logits(len(rows), weight)
    buffer = np.empty((blocks[0].stop if blocks else 0, classes), np.result_type(rows, weight))
    for outer in blocks:
        logits = np.matmul(rows[outer], weight.T, out=buffer[: outer.stop - outer.start])
        for inner in row_blocks(len(logits), classes):
            part = logits[inner]
            if bias is not None:
                part += bias
            block = slice(outer.start + inner.start, outer.start + inner.stop)
            targets.without_ignored(part, block)
            # writes the exponentials over the logits
            losses, _, total = _losses(part, targets, block, part)
            loss += float(losses.sum())
            if with_gradient:
                _logits_gradient(
                    part, np.reciprocal(total), targets, block, rows.dtype.type(1 / divisor)
                )
        if with_gradient:
            np.matmul(logits, weight, out=gx[outer])
            gb += (ones(len(logits), rows.dtype).T @ logits)[0]
            if outer.start == 0:
                np.matmul(logits.T, rows[outer], out=gw)
            else:  # in parts, which need no second array of the weight's size
                for columns in row_blocks(classes, weight.shape[1], 8 * BLOCK):
                    gw[columns] += logits[:, columns].T @ rows[outer]
    return np.asarray(loss / divisor, rows.dtype), (
        None if gx is None else gx.reshape(x.shape),
        gw,
        gb,
    )


@function()
def linear_cross_entropy(
    x: Any,
    linear_weight: Any,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Compute the cross-entropy of a linear layer's output without storing all logits.

    The result is `cross_entropy(linear(x, linear_weight, linear_bias), target, weight, ...)`. The
    logits are computed for blocks of rows, and their gradient replaces them.

    Parameters
    ----------
    x : Tensor, shape (..., d)
    linear_weight : Tensor, shape (C, d)
    target : array of int, shape (...)
    linear_bias : Tensor, shape (C,), optional
    weight : array, shape (C,), optional
        Weights of the classes.
    ignore_index : int, optional
        Rows with this target are ignored; -100 by default.
    label_smoothing : float
        Share of each target that is spread evenly over all classes; 0 by default.
    reduction : {"mean", "sum"}
        Reduction of the losses of rows; "mean" by default.

    Returns
    -------
    Tensor
        Mean or sum of the losses, a scalar.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f"linear_cross_entropy: reduction must be 'mean' or 'sum', got {reduction!r}"
        )
    x, linear_weight, linear_bias = (
        t if t is None or isinstance(t, Tensor) else as_array(t)
        for t in (x, linear_weight, linear_bias)
    )
    if linear_weight.ndim != 2 or linear_weight.shape[1:] != x.shape[-1:]:
        raise ValueError(
            f"linear_cross_entropy: linear_weight must have shape (C, {x.shape[-1]}), got "
            f"{linear_weight.shape}"
        )
    classes = linear_weight.shape[:1]
    if linear_bias is not None and linear_bias.shape != classes:
        raise ValueError(
            f"linear_cross_entropy: linear_bias must have shape {classes}, got {linear_bias.shape}"
        )
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
    operands = (x, linear_weight, linear_bias)
    tracked = MODE.get().record and any(
        isinstance(t, Tensor) and t._node is not None for t in operands
    )
    return _linear_cross_entropy(*operands, targets, divisor, tracked)

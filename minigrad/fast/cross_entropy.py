"""Kernels of cross-entropy, alone or with the linear layer that computes the logits.

The logits are computed for blocks of rows, and their gradient replaces them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fuse import fuse
from ..nested import needs_gradient
from ..ops import loss
from ..ops.loss import Targets
from ..registry import op
from ..tensor import Tensor
from .blocks import BLOCK, as_rows, needs_shift, ones, row_blocks, row_sums

_ONE_BLOCK = 1 << 20  # fewer logits are computed in one block: 4 MB of float32


def _factor(targets: Targets, block: slice, classes: int) -> Any:
    """Return the factors of log Σ eˣ in the losses of rows."""
    weights = classes if targets.weight is None else targets.weight.sum()
    return targets.on_target[block] + targets.on_all[block] * targets.on_all.dtype.type(weights)


def _without_ignored(targets: Targets, logits: np.ndarray, block: slice) -> np.ndarray:
    """Set the ignored rows of logits to 0, because they may contain NaN."""
    if targets.ignored is not None:
        logits[targets.ignored[block]] = 0
    return logits


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
        np.log(total)[:, 0] * _factor(targets, block, rows.shape[1])
        - at_target * targets.on_target[block]
        - smoothed
    )
    return loss, top, total


def _logits_gradient(e: np.ndarray, factor: Any, targets: Targets, block: slice, g: Any) -> None:
    """Replace exponentials `e` by the gradient of the logits.

    `e * factor` are probabilities, and `g` is the gradient of each loss.
    """
    e *= factor * (_factor(targets, block, e.shape[1]) * g)[:, None]
    if targets.smooth:
        spread = (targets.on_all[block] * g)[:, None]
        e -= spread if targets.weight is None else spread * targets.weight
    e[np.arange(len(e)), targets.index[block]] -= targets.on_target[block] * g


def _cross_entropy_vjp(g: Any, logits: Any, targets: Any, saved: Any) -> tuple[Any]:
    rows, g = as_rows(logits), g.reshape(-1)
    top, log_total = saved
    gx = np.empty_like(rows)
    for block in row_blocks(*rows.shape):
        p = gx[block]
        np.copyto(p, rows[block])
        _without_ignored(targets, p, block)
        p -= top[block]
        p -= log_total[block]
        np.exp(p, out=p)
        _logits_gradient(p, 1, targets, block, g[block])
    return (gx.reshape(logits.shape),)


@fuse(loss._cross_entropy, vjp=_cross_entropy_vjp)
def _cross_entropy(logits, /, targets):
    rows = as_rows(logits)
    losses, top, total = (np.empty((len(rows), *one), rows.dtype) for one in ((), (1,), (1,)))
    for block in row_blocks(*rows.shape):
        part = _without_ignored(targets, rows[block].copy(), block)
        losses[block], top[block], total[block] = _losses(part, targets, block, part)
    return losses.reshape(targets.shape), (top, np.log(total, out=total))


def _definition(
    x: Any, weight: Any, bias: Any, targets: Targets, divisor: Any, with_gradient: bool
) -> Tensor:
    return loss._linear_cross_entropy.definition(x, weight, bias, targets, divisor)


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
    return row_blocks(rows, classes, math.ceil(rows / count) * classes)


@op(vjp=_linear_cross_entropy_vjp, definition=_definition)
def _linear_cross_entropy(x, weight, bias, /, targets, divisor, with_gradient):
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    classes = weight.shape[0]
    summed = 0.0
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
            _without_ignored(targets, part, block)
            # writes the exponentials over the logits
            losses, _, total = _losses(part, targets, block, part)
            summed += float(losses.sum())
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
    return np.asarray(summed / divisor, rows.dtype), (
        None if gx is None else gx.reshape(x.shape),
        gw,
        gb,
    )


def _with_gradient_if_needed(
    x: Any, weight: Any, bias: Any, targets: Targets, divisor: Any
) -> Tensor:
    """Compute the gradients beside the loss if an operand needs one."""
    operands = (x, weight, bias)
    return _linear_cross_entropy(*operands, targets, divisor, needs_gradient(operands))


loss._linear_cross_entropy.kernel = _with_gradient_if_needed

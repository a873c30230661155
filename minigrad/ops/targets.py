"""Targets of cross-entropies, and reductions of losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.batched import BatchedArray, all_true, as_array, batched_like
from ..core.nested import needs_gradient
from ..core.tensor import Tensor, unwrap
from . import indexing, reduction
from .shape import astype

REDUCTIONS = ("mean", "sum", "none")


class Targets:
    """Targets of rows of logits, with the weights of the losses of rows and classes."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        targets: Any,
        weight: Any,
        ignore_index: int | None,
        smoothing: float,
        dtype: Any,
    ) -> None:
        if not shape:
            raise ValueError(f"{name}: input must have classes, a last axis, got a scalar")
        classes = shape[-1]
        constants = [x for x in (weight, smoothing) if isinstance(x, Tensor)]
        if constants and needs_gradient(constants):
            raise TypeError(
                f"{name}: weight and label_smoothing must not require gradients; use .detach()"
            )
        targets = targets.data if isinstance(targets, Tensor) else as_array(targets)
        if targets.shape != shape[:-1]:
            if len(shape) > 2 and targets.shape == (shape[0], *shape[2:]):
                raise ValueError(
                    f"{name}: classes must be on the last axis, not on axis 1 as in PyTorch, got "
                    f"logits {shape} and targets {targets.shape}; write moveaxis(logits, 1, -1)"
                )
            raise ValueError(f"{name}: target must have shape {shape[:-1]}, got {targets.shape}")
        if targets.dtype.kind not in "iu":
            raise TypeError(f"{name}: target must be integers, got dtype {targets.dtype}")
        if not 0 <= smoothing <= 1:
            raise ValueError(f"{name}: label_smoothing must be from 0 to 1, got {smoothing}")
        dtype = np.result_type(dtype, np.float32)  # dtype in which the kernels compute
        weight = None if weight is None else np.array(unwrap(weight), dtype)
        if weight is not None and weight.shape != (classes,):
            raise ValueError(f"{name}: weight must have shape ({classes},), got {weight.shape}")
        flat = targets.reshape(-1)
        valid = np.ones_like(flat, dtype=bool) if ignore_index is None else flat != ignore_index
        index = np.where(valid, flat, 0)  # (rows,)
        if not all_true((index >= 0) & (index < classes)):
            allowed = f"0 to {classes - 1}" + (
                "" if ignore_index is None else f" or {ignore_index}"
            )
            raise IndexError(
                f"{name}: target must be from {allowed}, got {index.min()} to {index.max()}"
            )
        self.index = index.astype(indexing.INTP, copy=False)
        self.shape = targets.shape
        self.ignored = None if all_true(valid) else ~valid  # (rows,)
        if weight is None:
            chosen = valid.astype(dtype)
        else:
            chosen = valid * batched_like(weight, self.index)[self.index]
        total = chosen.sum()
        is_batched = isinstance(total, BatchedArray)
        # the divisor of a mean
        self.divisor: Any = np.where(total == 0, 1, total) if is_batched else float(total) or 1.0
        # (rows,): factors of -log p of the target, of Σ_c w_c (-log p_c), and of log Σ eˣ
        self.on_target = chosen * dtype.type(1 - smoothing)
        self.on_all = (valid * dtype.type(smoothing / classes)).astype(dtype)
        weight_sum = classes if weight is None else weight.sum()
        self.factor = self.on_target + self.on_all * dtype.type(weight_sum)
        self.weight = weight
        self.smooth = smoothing > 0

    def without_ignored(self, logits: np.ndarray, block: slice) -> np.ndarray:
        """Set the ignored rows of logits to 0, because they may contain NaN."""
        if self.ignored is not None:
            logits[self.ignored[block]] = 0
        return logits


def reduced(losses: Any, choice: str, divisor: Any) -> Tensor:
    """Return the losses, their sum, or for "mean" their sum divided by `divisor`."""
    if choice == "none":
        return losses
    divisor = divisor if choice == "mean" else 1.0
    if losses.dtype == np.float16:  # large sums and counts overflow in float16
        return astype(reduction.sum(astype(losses, np.float32)) / divisor, np.float16)
    return reduction.sum(losses) / divisor

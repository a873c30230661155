"""Losses as modules, by PyTorch's names; the functions are minigrad's."""

from __future__ import annotations

from typing import Any

import minigrad as mg
from minigrad.core.tensor import Tensor
from minigrad.ops.axes import check_choice

from .linear import FunctionModule

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "SmoothL1Loss",
]


class _Loss(FunctionModule):
    """A function of predictions and targets; arrays among its options, such as weights, are
    buffers.
    """

    reductions: tuple[str, ...] = ("mean", "sum", "none")

    def __init__(self, *, reduction: str = "mean") -> None:
        self._set(reduction)

    def _set(self, reduction: str, **options: Any) -> None:
        check_choice(type(self).__name__, "reduction", reduction, *self.reductions)
        self.options = {"reduction": reduction, **options}
        for name in ("weight", "pos_weight"):
            if name in options:
                self.register_buffer(name, self.options.pop(name))

    def forward(self, input: Any, target: Any) -> Tensor:
        return type(self).function(
            input, target, **self.options, **{name: getattr(self, name) for name in self._buffers}
        )


class MSELoss(_Loss, function=mg.mse_loss):
    """The mean of (input - target)²."""


class L1Loss(_Loss, function=mg.l1_loss):
    """The mean of |input - target|."""


class SmoothL1Loss(_Loss, function=mg.smooth_l1_loss):
    """The mean of d² / (2 beta) where d = |input - target| < `beta`, of d - beta / 2 elsewhere."""

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        self._set(reduction=reduction, beta=beta)


class HuberLoss(_Loss, function=mg.huber_loss):
    """The mean of d² / 2 where d = |input - target| <= `delta`, of delta (d - delta / 2) elsewhere."""

    def __init__(self, *, reduction: str = "mean", delta: float = 1.0) -> None:
        self._set(reduction=reduction, delta=delta)


class BCELoss(_Loss, function=mg.binary_cross_entropy):
    """The binary cross-entropy of probabilities, with targets from 0 to 1 of their shape."""

    def __init__(self, weight: Any = None, *, reduction: str = "mean") -> None:
        self._set(weight=weight, reduction=reduction)


class BCEWithLogitsLoss(_Loss, function=mg.binary_cross_entropy_with_logits):
    """The binary cross-entropy of logits, with targets from 0 to 1 of their shape; positives times
    `pos_weight`.
    """

    def __init__(
        self, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
    ) -> None:
        self._set(weight=weight, reduction=reduction, pos_weight=pos_weight)


class CrossEntropyLoss(_Loss, function=mg.cross_entropy):
    """The cross-entropy of logits (..., C) for integers (...), or for probabilities (..., C).

    `weight` (C,) weights the classes; targets that are `ignore_index` count nothing. Classes stand
    on the last axis: of PyTorch's (N, C, L) write `logits.moveaxis(1, -1)`.
    """

    def __init__(
        self,
        weight: Any = None,
        *,
        ignore_index: int | None = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        self._set(
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )


class NLLLoss(_Loss, function=mg.nll_loss):
    """`CrossEntropyLoss` for log-probabilities, as `log_softmax` gives them."""

    def __init__(
        self, weight: Any = None, *, ignore_index: int | None = -100, reduction: str = "mean"
    ) -> None:
        self._set(weight=weight, ignore_index=ignore_index, reduction=reduction)


class KLDivLoss(_Loss, function=mg.kl_div):
    """The Kullback-Leibler divergence for log-probabilities as input; "batchmean" is that of rows."""

    reductions = ("mean", "sum", "none", "batchmean")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        self._set(reduction=reduction, log_target=log_target)

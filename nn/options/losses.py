"""Losses as modules, with PyTorch's names."""

from __future__ import annotations

from typing import Any

import minigrad as mg
from minigrad.arguments import check_choice
from minigrad.tensor import Tensor

from .activations import FunctionModule

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
    """Function of predictions and targets. Weights among its options are buffers."""

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
        """Compute the loss of predictions and targets."""
        return type(self).function(
            input, target, **self.options, **{name: getattr(self, name) for name in self._buffers}
        )


class MSELoss(_Loss, function=mg.mse_loss):
    """Mean of (input - target)².

    Parameters: as `mse_loss`.
    """


class L1Loss(_Loss, function=mg.l1_loss):
    """Mean of |input - target|.

    Parameters: as `l1_loss`.
    """


class SmoothL1Loss(_Loss, function=mg.smooth_l1_loss):
    """Mean of d² / (2 * beta) if d = |input - target| < beta, else of d - beta / 2.

    Parameters: as `smooth_l1_loss`.
    """

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        self._set(reduction=reduction, beta=beta)


class HuberLoss(_Loss, function=mg.huber_loss):
    """Mean of d² / 2 if d = |input - target| <= delta, else of delta * (d - delta / 2).

    Parameters: as `huber_loss`.
    """

    def __init__(self, *, reduction: str = "mean", delta: float = 1.0) -> None:
        self._set(reduction=reduction, delta=delta)


class BCELoss(_Loss, function=mg.binary_cross_entropy):
    """Binary cross-entropy of probabilities, with targets from 0 to 1 of the same shape.

    Parameters: as `binary_cross_entropy`.
    """

    def __init__(self, weight: Any = None, *, reduction: str = "mean") -> None:
        self._set(weight=weight, reduction=reduction)


class BCEWithLogitsLoss(_Loss, function=mg.binary_cross_entropy_with_logits):
    """Binary cross-entropy of logits, with targets from 0 to 1 of the same shape.

    Parameters: as `binary_cross_entropy_with_logits`.
    """

    def __init__(
        self, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
    ) -> None:
        self._set(weight=weight, reduction=reduction, pos_weight=pos_weight)


class CrossEntropyLoss(_Loss, function=mg.cross_entropy):
    """Cross-entropy of logits (..., C) for targets (...) or probabilities (..., C).

    Classes are on the last axis. For PyTorch's (N, C, L), write `logits.moveaxis(1, -1)`.

    Parameters: as `cross_entropy`.
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
    """Negative log-likelihood: `CrossEntropyLoss` for log-probabilities instead of logits.

    Parameters: as `nll_loss`.
    """

    def __init__(
        self, weight: Any = None, *, ignore_index: int | None = -100, reduction: str = "mean"
    ) -> None:
        self._set(weight=weight, ignore_index=ignore_index, reduction=reduction)


class KLDivLoss(_Loss, function=mg.kl_div):
    """Kullback-Leibler divergence of targets from log-probabilities.

    Parameters: as `kl_div`.
    """

    reductions = ("mean", "sum", "none", "batchmean")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        self._set(reduction=reduction, log_target=log_target)

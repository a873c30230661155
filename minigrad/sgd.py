"""Stochastic gradient descent, with momentum.

This is the smallest optimizer: look at `SGD._update` for what an optimizer has to define.
`Optimizer` has everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .arguments import checked_flag, checked_number
from .optimizer import Optimizer

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent: p - lr * d for each parameter p, with d = g + weight_decay * p.

    With a momentum, m = momentum * m + (1 - dampening) * d replaces d, and the first m is d. With
    `nesterov`, d + momentum * m replaces d.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Leaf tensors, or parameter groups with their own settings.
    lr : float
        Learning rate; 0.001 by default.
    momentum : float
        Decay of the average m; 0, no momentum, by default.
    dampening : float
        Reduces the weight of new gradients in m; 0 by default.
    weight_decay : float
        Multiple of a parameter that is added to its gradient; 0 by default.
    nesterov : bool
        Use Nesterov momentum, which requires a momentum and no dampening; False by default.
    maximize : bool
        Increase the loss instead of decreasing it; False by default.
    clip_norm : float, optional
        Scale all gradients down together if their norm is larger.
    skip_nonfinite : bool
        Skip a step whose gradients are not finite instead of raising a FloatingPointError; False
        by default.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        clip_norm: float | None = None,
        skip_nonfinite: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults, clip_norm=clip_norm, skip_nonfinite=skip_nonfinite)

    def _state_names(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        has_momentum = self.defaults["momentum"] or settings["momentum"]
        return ("momentum_buffer",) if has_momentum else ()

    def _check(self, settings: dict[str, Any]) -> None:
        super()._check(settings)
        for name in ("momentum", "dampening"):
            settings[name] = checked_number("SGD", name, settings[name])
        settings["nesterov"] = checked_flag("SGD", "nesterov", settings["nesterov"])
        momentum, dampening = settings["momentum"], settings["dampening"]
        if settings["nesterov"] and (momentum == 0 or dampening):
            raise ValueError(
                "SGD: momentum must be greater than 0 and dampening 0 if nesterov is True"
            )
        if dampening and momentum == 0:
            raise ValueError("SGD: momentum must be greater than 0 if there is a dampening")

    def _constants(self, settings: dict[str, Any], steps: int) -> Any:
        sign = -1.0 if settings["maximize"] else 1.0
        added = 1.0 if steps == 1 else 1.0 - settings["dampening"]
        momentum, nesterov = settings["momentum"], settings["nesterov"]
        return sign, settings["lr"], settings["weight_decay"], momentum, added, nesterov

    def _update(
        self,
        p: np.ndarray,
        g: np.ndarray,
        state: dict[str, np.ndarray],
        factor: float,
        constants: Any,
    ) -> None:
        sign, lr, decay, momentum, added, nesterov = constants
        d = g * (sign * factor)
        if decay:
            d += decay * p
        if momentum:
            m = state["momentum_buffer"]
            m *= momentum
            m += d if added == 1.0 else added * d
            d = d + momentum * m if nesterov else m
        p -= lr * d

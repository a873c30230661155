"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .optimizer import FlatGroup, Optimizer
from .settings import checked_number

__all__ = ["SGD"]


class SGD(Optimizer):
    """p ← p - lr · d, with d = g, or with `momentum` μ: d ← μ d + g; with `nesterov`, g + μ d in
    its place.

    `weight_decay` adds that multiple of p to g.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        skip_nonfinite: bool = False,
    ) -> None:
        self.state_names = ("momentum_buffer",) if momentum else ()
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults, clip_norm, skip_nonfinite)

    def _check(self, settings: Mapping[str, Any]) -> None:
        super()._check(settings)
        momentum = checked_number("SGD", "momentum", settings["momentum"])
        if settings["nesterov"] and momentum == 0:
            raise ValueError("SGD: nesterov needs a momentum")
        if momentum and not self.state_names:
            raise ValueError("SGD: a momentum in one group needs one among the defaults")

    def _update(self, group: FlatGroup, block: slice, factor: float, constants: Any) -> None:
        p = group.data[block]
        d = group.grad[block] * factor
        if constants["weight_decay"]:
            d += constants["weight_decay"] * p
        if constants["momentum"]:
            m = group.state["momentum_buffer"][block]
            m *= constants["momentum"]
            m += d
            d = d + constants["momentum"] * m if constants["nesterov"] else m
        p -= constants["lr"] * d

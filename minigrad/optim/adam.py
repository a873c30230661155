"""Adam, and Adam with decoupled weight decay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .optimizer import FlatGroup, Optimizer
from .settings import checked_number

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """Kingma, Ba (2015), arXiv:1412.6980; `weight_decay` adds that multiple of the parameter to its
    gradient.

    The state is the paper's m and v, the averages of gradients and of their squares, before the
    correction of their bias: `exp_avg` and `exp_avg_sq`, as PyTorch names them.
    """

    state_names = ("exp_avg", "exp_avg_sq")
    decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        skip_nonfinite: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, clip_norm, skip_nonfinite)

    def _check(self, settings: Mapping[str, Any]) -> None:
        super()._check(settings)
        name, betas = type(self).__name__, settings["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ValueError(f"{name}: expected two betas, got {betas!r}")
        for i, beta in enumerate(betas):
            checked_number(name, f"betas[{i}]", beta, high=1.0)
        checked_number(name, "eps", settings["eps"], above=True)

    def _constants(self, settings: dict[str, Any], steps: int) -> Any:
        (b1, b2), lr, decay = settings["betas"], settings["lr"], settings["weight_decay"]
        # lr · m̂ / (√v̂ + eps) = rate · m / (√v + small)
        root = math.sqrt(1 - b2**steps)
        return b1, b2, lr * root / (1 - b1**steps), settings["eps"] * root, decay, 1 - lr * decay

    def _update(self, group: FlatGroup, block: slice, factor: float, constants: Any) -> None:
        b1, b2, rate, small, decay, shrink = constants
        p, m, v = group.data[block], group.state["exp_avg"][block], group.state["exp_avg_sq"][block]
        t = group.grad[block] * (factor * (1 - b1))  # (1 - β₁) g
        if decay and self.decoupled:
            p *= shrink
        elif decay:
            t += (decay * (1 - b1)) * p
        m *= b1
        m += t
        t *= t
        t *= (1 - b2) / (1 - b1) ** 2  # (1 - β₂) g²
        v *= b2
        v += t
        np.sqrt(v, out=t)
        t += small
        np.divide(m, t, out=t)
        t *= rate
        p -= t


class AdamW(Adam):
    """Adam whose `weight_decay` shrinks the parameters directly: Loshchilov, Hutter (2019),
    arXiv:1711.05101.
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        clip_norm: float | None = None,
        skip_nonfinite: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, clip_norm, skip_nonfinite)

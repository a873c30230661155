"""SGD, Adam and AdamW: the formulas of a step, and the learning rates of the paper.

Look at `SGD._update`, the smallest formula, and at `Adam._update`. `Optimizer` has everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .arguments import checked_count
from .optimizer import Optimizer, Settings, State

__all__ = ["SGD", "Adam", "AdamW", "noam_schedule"]


class SGD(Optimizer):
    """Stochastic gradient descent: p - lr * d for each parameter p, with d = g + weight_decay * p.

    With a momentum, m = momentum * m + d replaces d.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Leaf tensors, or parameter groups with their own settings.
    lr : float
        Learning rate; 0.001 by default.
    momentum : float
        Decay of the sum m; 0, no momentum, by default.
    weight_decay : float
        Multiple of a parameter that is added to its gradient; 0 by default.
    **options
        As for `Optimizer`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        *,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, defaults, **options)

    def _state_names(self, settings: Settings) -> tuple[str, ...]:
        has_momentum = self.defaults["momentum"] or settings["momentum"]
        return ("momentum_buffer",) if has_momentum else ()

    def _update(self, p: np.ndarray, g: np.ndarray, state: State, settings: Settings) -> None:
        if settings["weight_decay"]:
            g += settings["weight_decay"] * p
        if settings["momentum"]:
            m = state["momentum_buffer"]
            m *= settings["momentum"]
            m += g
            g = m
        p -= settings["lr"] * g


class Adam(Optimizer):
    """Adam: steps of lr * m / (sqrt(v) + eps), for averages m of gradients and v of their squares.

    The state consists of the averages before the correction of their bias, `exp_avg` and
    `exp_avg_sq`, as in PyTorch.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Leaf tensors, or parameter groups with their own settings.
    lr : float
        Learning rate; 0.001 by default.
    betas : tuple of two floats
        Decay of the averages of gradients, and of their squares; (0.9, 0.999) by default.
    eps : float
        Added to the root of the average of squares; 1e-8 by default.
    weight_decay : float
        Multiple of a parameter that is added to its gradient; 0 by default.
    **options
        As for `Optimizer`.

    References
    ----------
    Kingma, Ba (2015), arXiv:1412.6980.
    """

    decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, **options)

    def _state_names(self, settings: Settings) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def _update(self, p: np.ndarray, g: np.ndarray, state: State, settings: Settings) -> None:
        self._average(p, g, state, settings)
        self._move(p, g, state["exp_avg"], state["exp_avg_sq"], state["step"], settings)

    def _average(self, p: np.ndarray, g: np.ndarray, state: State, settings: Settings) -> None:
        """Apply the weight decay, and update the averages m and v; overwrites `g`."""
        (b1, b2), decay = settings["betas"], settings["weight_decay"]
        m, v = state["exp_avg"], state["exp_avg_sq"]
        if self.decoupled:
            p *= 1 - settings["lr"] * decay
        elif decay:
            g += decay * p
        m *= b1
        m += (1 - b1) * g
        g *= g
        g *= 1 - b2
        v *= b2
        v += g

    def _move(
        self,
        p: np.ndarray,
        d: np.ndarray,
        m: np.ndarray,
        v: np.ndarray,
        step: int,
        settings: Settings,
    ) -> None:
        """Subtract d = lr * m̂ / (√v̂ + eps), for m̂ = m / (1 - b1**step), v̂ = v / (1 - b2**step)."""
        b1, b2 = settings["betas"]
        root = math.sqrt(1 - b2**step)
        np.sqrt(v, out=d)
        d += settings["eps"] * root
        np.divide(m, d, out=d)
        d *= settings["lr"] * root / (1 - b1**step)
        p -= d


class AdamW(Adam):
    """AdamW: Adam with parameters multiplied by 1 - lr * weight_decay in each step.

    Other parameters: as `Adam`.

    Parameters
    ----------
    weight_decay : float
        Each step multiplies the parameters by 1 - lr * weight_decay; 0.01 by default.

    References
    ----------
    Loshchilov, Hutter (2019), arXiv:1711.05101.
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, **options)


def noam_schedule(d_model: int, warmup: int = 4000) -> Callable[[int], float]:
    """Return the factor d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), for lr=1.

    Parameters
    ----------
    d_model : int
        Width of the model.
    warmup : int
        The step at which the factor is largest; 4000 by default.

    Returns
    -------
    function of int
        Returns the factor of a step, from 1.

    References
    ----------
    Vaswani et al. (2017), section 5.3.
    """
    checked_count("noam_schedule", "d_model", d_model)
    checked_count("noam_schedule", "warmup", warmup)
    return lambda step: d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)

"""Adam, Adam with decoupled weight decay, and the learning rates of the paper.

Kingma, Ba (2015), arXiv:1412.6980; Loshchilov, Hutter (2019), arXiv:1711.05101.

Look at `Adam._update`, which is the algorithm, and `Adam._constants`, which corrects the bias of
its averages. `Optimizer` has everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .arguments import checked_count, checked_flag, checked_number
from .optimizer import Optimizer

__all__ = ["Adam", "AdamW", "noam_schedule"]


class Adam(Optimizer):
    """Adam: steps of lr * m / (sqrt(v) + eps), for averages m of gradients and v of their squares.

    Each parameter counts its steps, for the correction of the bias of the averages. The state
    consists of the averages before this correction, `exp_avg` and `exp_avg_sq`, as in PyTorch.

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
    amsgrad : bool
        Divide by the largest average of squares so far (Reddi, Kale, Kumar, 2018); False by
        default.
    maximize : bool
        Increase the loss instead of decreasing it; False by default.
    clip_norm : float, optional
        Scale all gradients down together if their norm is larger.
    skip_nonfinite : bool
        Skip a step whose gradients are not finite instead of raising a FloatingPointError; False
        by default.

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
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        clip_norm: float | None = None,
        skip_nonfinite: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        super().__init__(params, defaults, clip_norm=clip_norm, skip_nonfinite=skip_nonfinite)

    def _state_names(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        names = ("exp_avg", "exp_avg_sq")
        return (*names, "max_exp_avg_sq") if settings["amsgrad"] else names

    def _check(self, settings: dict[str, Any]) -> None:
        super()._check(settings)
        name, betas = type(self).__name__, settings["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ValueError(f"{name}: betas must be two numbers, got {betas!r}")
        settings["betas"] = tuple(
            checked_number(name, f"betas[{i}]", beta, high=1.0) for i, beta in enumerate(betas)
        )
        settings["eps"] = checked_number(name, "eps", settings["eps"], above=True)
        settings["amsgrad"] = checked_flag(name, "amsgrad", settings["amsgrad"])

    def is_safe(self, norm: float) -> bool:
        """Return whether no step for gradients of this norm overflows.

        Parameters
        ----------
        norm : float
            Norm of all gradients.
        """
        return super().is_safe(norm) and (
            self.decoupled
            or all(  # the squares of gradients contain those of decayed parameters
                g.settings["weight_decay"] == 0 or g.squares() < g.large**2 for g in self._groups
            )
        )

    def _constants(self, settings: dict[str, Any], steps: int) -> Any:
        (b1, b2), lr, decay = settings["betas"], settings["lr"], settings["weight_decay"]
        # lr · m̂ / (√v̂ + eps) = rate · m / (√v + small)
        root = math.sqrt(1 - b2**steps)
        rate, small = lr * root / (1 - b1**steps), settings["eps"] * root
        sign = -1.0 if settings["maximize"] else 1.0
        return b1, b2, rate, small, decay, 1 - lr * decay, sign, settings["amsgrad"]

    def _update(
        self,
        p: np.ndarray,
        g: np.ndarray,
        state: dict[str, np.ndarray],
        factor: float,
        constants: Any,
    ) -> None:
        b1, b2, rate, small, decay, shrink, sign, amsgrad = constants
        m, v = state["exp_avg"], state["exp_avg_sq"]
        t = g * (sign * factor * (1 - b1))  # (1 - β₁) g
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
        if amsgrad:
            largest = state["max_exp_avg_sq"]
            v = np.maximum(largest, v, out=largest)
        np.sqrt(v, out=t)
        t += small
        np.divide(m, t, out=t)
        t *= rate
        p -= t


class AdamW(Adam):
    """AdamW: Adam with parameters multiplied by 1 - lr * weight_decay in each step.

    Other parameters: as `Adam`.

    Parameters
    ----------
    weight_decay : float
        Each step multiplies the parameters by 1 - lr * weight_decay; 0.01 by default.
    amsgrad : bool
        Divide by the largest average of squares so far; False by default.

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
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        clip_norm: float | None = None,
        skip_nonfinite: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            clip_norm=clip_norm,
            skip_nonfinite=skip_nonfinite,
        )


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

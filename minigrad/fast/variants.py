"""Further options of optimizers: AMSGrad, Nesterov momentum, dampening, and ascent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import checked_number
from ..optimizer import SGD, Adam, Optimizer, Settings, State

OPTIONS: dict[str, tuple[type[Optimizer], Any]] = {
    "maximize": (Optimizer, False),
    "amsgrad": (Adam, False),
    "dampening": (SGD, 0.0),
    "nesterov": (SGD, False),
}
"""Class and default of each option."""


def take_options(optimizer: Optimizer, options: dict[str, Any]) -> None:
    """Move the options of an optimizer to the default settings of its groups.

    PyTorch's `foreach` and `fused` choose how it computes, and change nothing here.
    """
    for key in ("foreach", "fused"):
        options.pop(key, None)
    for key, (kind, default) in OPTIONS.items():
        if isinstance(optimizer, kind):
            default = optimizer.defaults.get(key, default)
            optimizer.defaults[key] = options.pop(key, default)


def check_options(name: str, settings: Settings) -> None:
    """Convert the options in settings, or raise an error for one that cannot be used."""
    for key in settings.keys() & {"maximize", "amsgrad", "nesterov"}:
        settings[key] = checked_flag(name, key, settings[key])
    if "dampening" in settings:
        settings["dampening"] = checked_number(name, "dampening", settings["dampening"])
    momentum, dampening = settings.get("momentum"), settings.get("dampening")
    if settings.get("nesterov") and (not momentum or dampening):
        raise ValueError(
            f"{name}: momentum must be greater than 0 and dampening 0 if nesterov is True"
        )
    if dampening and not momentum:
        raise ValueError(f"{name}: momentum must be greater than 0 if there is a dampening")


def checked_flag(owner: str, name: str, value: Any) -> bool:
    """Return a boolean as a bool, or raise an error."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{owner}: {name} must be True or False, got {value!r}")
    return bool(value)


def state_names(settings: Settings) -> tuple[str, ...]:
    """Return the names of the arrays of state that the options need."""
    return ("max_exp_avg_sq",) if settings.get("amsgrad") else ()


def update(optimizer: Any, p: np.ndarray, g: np.ndarray, state: State, settings: Settings) -> None:
    """Change `p` by the formula of the optimizer, as its options modify it; overwrites `g`."""
    if settings.get("maximize"):
        np.negative(g, out=g)
    if settings.get("amsgrad"):
        _amsgrad(optimizer, p, g, state, settings)
    elif settings.get("nesterov") or settings.get("dampening"):
        _modified_momentum(p, g, state, settings)
    else:
        optimizer._update(p, g, state, settings)


def _amsgrad(adam: Adam, p: np.ndarray, g: np.ndarray, state: State, settings: Settings) -> None:
    """Divide by the largest average of squares so far: Reddi, Kale, Kumar (2018)."""
    adam._average(p, g, state, settings)
    largest = state["max_exp_avg_sq"]
    np.maximum(largest, state["exp_avg_sq"], out=largest)
    adam._move(p, g, state["exp_avg"], largest, state["step"], settings)


def _modified_momentum(p: np.ndarray, g: np.ndarray, state: State, settings: Settings) -> None:
    """Reduce the weight of new gradients after the first, or add momentum * m to the gradient."""
    m, momentum = state["momentum_buffer"], settings["momentum"]
    g += settings["weight_decay"] * p
    m *= momentum
    m += g if state["step"] == 1 else (1 - settings["dampening"]) * g
    p -= settings["lr"] * (g + momentum * m if settings["nesterov"] else m)

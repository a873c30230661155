"""Optimizers: parameter groups, steps, and clipping.

Look at `Stepper.take`, which is a step: it clips the gradients, and changes one parameter after
another by the formula in `_update`, which `SGD` and `Adam` define. The stepper is one of the
extension points that `registry.py` lists: `Optimizer.stepper_type` may be a subclass that applies
the same formulas to other parts of the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .arguments import checked_count, checked_number
from .changes import mark_changed
from .methods import OptimizerMethods
from .modes import enable_grad
from .tensor import Tensor, grad_of, unwrap, zero_grads

__all__ = ["Adam", "AdamW", "Optimizer", "SGD", "noam_schedule"]


Settings = dict[str, Any]
State = dict[str, Any]
"""Arrays of a parameter by name, and the number of its steps, "step"."""

Parameters = Iterable[Tensor] | Iterable[Settings]
"""Leaf tensors, or groups of them."""


class Stepper:
    """Steps of an optimizer: one parameter after another is changed.

    Parameters
    ----------
    optimizer : Optimizer
    **options
        Arguments of an optimizer that are none of its own; subclasses take some.
    """

    def __init__(self, optimizer: Optimizer, **options: Any) -> None:
        if options:
            raise TypeError(f"{type(optimizer).__name__}: unknown arguments {sorted(options)}")
        self.optimizer = optimizer

    def check(self, settings: Settings) -> None:
        """Convert settings to Python numbers, or raise an error for one that cannot be used."""
        self.optimizer._check(settings)

    def state_names(self, settings: Settings) -> tuple[str, ...]:
        """Return the names of the arrays of state that parameters with these settings need."""
        return self.optimizer._state_names(settings)

    def new_state(self, p: Tensor, settings: Settings) -> State:
        """Return the state of a parameter before its first step."""
        arrays = {name: np.zeros(p.shape, p.dtype) for name in self.state_names(settings)}
        return {"step": 0, **arrays}

    def take(self) -> float:
        """Change the parameters that have a gradient, and return the norm of all gradients."""
        optimizer = self.optimizer
        changed = [
            (p, unwrap(g), optimizer.param_groups[i])
            for i, parameters in optimizer.groups()
            for p in parameters
            if (g := grad_of(p)) is not None
        ]
        norm = norm_of([g for _, g, _ in changed])
        factor = optimizer.clip_factor(norm)
        for p, g, settings in changed:
            state = optimizer.state[p]
            state["step"] += 1
            optimizer._update(p._array, np.asarray(factor * g), state, settings)
            mark_changed(p._array)
        return norm


class Optimizer(OptimizerMethods):
    """Change parameters along their gradients; base of `SGD`, `Adam` and `AdamW`.

    A step writes into the arrays of the parameters, so whatever shares their memory changes, too.
    A parameter whose array is read-only gets a copy of it.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Leaf tensors, or groups: dictionaries with "params" and settings of the group.
    defaults : dict
        Settings of groups that do not set them.
    clip_norm : float, optional
        Scale all gradients down together if their norm is larger.
    **options
        Arguments of `stepper_type`.

    Attributes
    ----------
    param_groups : list of dict
        Parameter groups. Their settings can be changed between steps; `add_param_group` adds
        parameters.
    state : dict of Tensor to dict
        For each parameter, the number of its steps ("step") and arrays of its shape.
    """

    stepper_type: type[Stepper] = Stepper
    """Takes the steps of new optimizers; a package around the book may replace it."""

    def __init__(
        self,
        params: Parameters,
        defaults: Settings,
        *,
        clip_norm: float | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        if isinstance(params, (Tensor, dict, set)) or hasattr(params, "parameters"):
            fix = "; pass model.parameters()" if hasattr(params, "parameters") else ""
            raise TypeError(
                f"{name}: params must be a list of tensors or of groups, got "
                f"{type(params).__name__}{fix}"
            )
        if clip_norm is not None:
            clip_norm = checked_number(name, "clip_norm", clip_norm, above=True)
        self.clip_norm = clip_norm
        self.defaults = defaults
        self.param_groups: list[Settings] = []
        self.state: dict[Tensor, State] = {}
        self.stepper = self.stepper_type(self, **options)
        self.stepper.check(defaults)
        listed: list[Any] = list(params)
        for group in listed if listed and isinstance(listed[0], dict) else [{"params": listed}]:
            self.add_param_group(group)
        if not self.state:
            raise ValueError(f"{name}: no parameter requires gradients")

    def add_param_group(self, param_group: Settings) -> None:
        """Add a parameter group.

        Parameters
        ----------
        param_group : dict
            "params", a list of leaf tensors, and settings that differ from the defaults.
        """
        name = type(self).__name__
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError(
                f'{name}: a parameter group must be a dict with the key "params", got '
                f"{param_group!r:.80}"
            )
        if unknown := set(param_group) - {"params", *self.defaults}:
            raise ValueError(f"{name}: unknown settings {sorted(unknown)} in a parameter group")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError(f"{name}: params must be a list, whose order is fixed, got a set")
        parameters = [params] if isinstance(params, Tensor) else list(params)
        settings = {**self.defaults, **param_group, "params": parameters}
        self.stepper.check(settings)
        seen = [p for group in self.param_groups for p in group["params"]]
        for p in parameters:
            self._check_parameter(p)
        if len({*seen, *parameters}) < len(seen) + len(parameters):
            raise ValueError(f"{name}: a parameter is given twice")
        for p in filter(is_trained, parameters):
            if not p._array.flags.writeable:
                p._array = p._array.copy()
            self.state[p] = self.stepper.new_state(p, settings)
        self.param_groups.append(settings)

    def _check(self, settings: Settings) -> None:
        name = type(self).__name__
        for key in settings.keys() & {"lr", "momentum", "weight_decay", "eps"}:
            settings[key] = checked_number(name, key, settings[key], above=key == "eps")
        if "betas" in settings:
            betas = settings["betas"]
            if not isinstance(betas, (tuple, list)) or len(betas) != 2:
                raise ValueError(f"{name}: betas must be two numbers, got {betas!r}")
            settings["betas"] = tuple(
                checked_number(name, f"betas[{i}]", beta, high=1.0) for i, beta in enumerate(betas)
            )

    def _check_parameter(self, p: object) -> None:
        name = type(self).__name__
        if not isinstance(p, Tensor) or not p.is_leaf:
            raise TypeError(f"{name}: params must be leaf tensors, got {p!r:.80}")
        if is_trained(p) and p.dtype == np.float16:
            raise TypeError(
                f"{name}: a parameter of shape {p.shape} is float16, whose steps would be rounded "
                "away: below 2e-4 of a number they vanish, and gradients below 6e-8 with them; "
                "train in float32, model.astype('float32')"
            )

    def groups(self) -> list[tuple[int, list[Tensor]]]:
        """Return the parameters by the index of their group and by dtype, without frozen ones."""
        groups: dict[Any, list[Tensor]] = {}
        for i, settings in enumerate(self.param_groups):
            for p in settings["params"]:
                if p in self.state:
                    groups.setdefault((i, p.dtype), []).append(p)
                elif is_trained(p):
                    raise RuntimeError(
                        f"{type(self).__name__}: a parameter of shape {p.shape} was frozen when "
                        "the optimizer was made, or not added by add_param_group(); make the "
                        "optimizer after requires_grad is set"
                    )
        return [(i, parameters) for (i, _), parameters in groups.items()]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters.

        Parameters
        ----------
        set_to_none : bool
            Set gradients to None, as by default, or fill existing ones with zeros.
        """
        zero_grads(self.state, set_to_none)

    def step(self, closure: Callable[[], Tensor] | None = None) -> Any:
        """Change the parameters that have a gradient, which must be finite.

        Parameters
        ----------
        closure : function, optional
            Computes the loss and its gradients; called first, with gradients recorded.

        Returns
        -------
        float or Tensor
            Norm of all gradients before clipping, or the result of `closure`.
        """
        if closure is None:
            return self.stepper.take()
        with enable_grad():
            loss = closure()
        self.stepper.take()
        return loss

    def clip_factor(self, norm: float) -> float:
        """Return the factor that clips gradients.

        Parameters
        ----------
        norm : float
            Norm of all gradients, which must be finite.
        """
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"the norm of the gradients is {norm}; detect_anomaly() finds the operation that "
                "made it so"
            )
        return 1.0 if self.clip_norm is None else min(1.0, self.clip_norm / (norm + 1e-6))

    def _state_names(self, settings: Settings) -> tuple[str, ...]:
        """Return the names of the arrays of state that parameters with these settings need."""
        return ()

    def _update(self, p: np.ndarray, g: np.ndarray, state: State, settings: Settings) -> None:
        """Change the array `p` in place, for the gradient `g`, which it may overwrite.

        The arrays are those of a parameter, or vectors with parts of some, so the formula must be
        elementwise. `state["step"]` counts from 1.
        """
        raise NotImplementedError


# -- norms of gradients


def sum_of_squares(arrays: Iterable[np.ndarray]) -> float:
    """Return Σ x² over arrays, computed in their dtype, so it may overflow or underflow."""
    return sum(float(np.vdot(x, x)) for x in arrays)


def norm_of(arrays: Sequence[np.ndarray], squares: float | None = None) -> float:
    """Return the Euclidean norm of arrays; `squares` is their `sum_of_squares`, if known.

    If the sum has overflowed, or may have lost digits by underflow, the norm is computed again from
    x / max |x| in double precision.
    """
    squares = sum_of_squares(arrays) if squares is None else squares
    if 1e-20 < squares < math.inf:
        return math.sqrt(squares)
    peak = float(np.max([np.abs(x).max(initial=0.0) for x in arrays], initial=0.0))
    if peak == 0.0 or not math.isfinite(peak):
        return peak
    return peak * math.sqrt(sum_of_squares(np.divide(x, peak, dtype=np.float64) for x in arrays))


def is_trained(p: Tensor) -> bool:
    """Return whether steps change a parameter: if it requires or has a gradient."""
    return p.requires_grad or grad_of(p) is not None


class SGD(Optimizer):
    """Stochastic gradient descent: p - lr * d for each parameter p, with d = g + weight_decay * p.

    With a momentum, m = momentum * m + d replaces d.

    Other parameters: as `Optimizer`.

    Parameters
    ----------
    lr : float
        Learning rate; 0.001 by default.
    momentum : float
        Decay of the sum m; 0, no momentum, by default.
    weight_decay : float
        Multiple of a parameter that is added to its gradient; 0 by default.
    """

    def __init__(
        self,
        params: Parameters,
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

    Other parameters: as `SGD`.

    Parameters
    ----------
    betas : tuple of two floats
        Decay of the averages of gradients, and of their squares; (0.9, 0.999) by default.
    eps : float
        Added to the root of the average of squares; 1e-8 by default.

    References
    ----------
    Kingma, Ba (2015), arXiv:1412.6980.
    """

    decoupled = False

    def __init__(
        self,
        params: Parameters,
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
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, **options)


def noam_schedule(d_model: int, warmup: int = 4000) -> Callable[[int], float]:
    """Return the factor d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), a function, for lr=1.

    Parameters
    ----------
    d_model : int
        Width of the model.
    warmup : int
        The step, counted from 1, at which the factor is largest; 4000 by default.

    References
    ----------
    Vaswani et al. (2017), section 5.3.
    """
    checked_count("noam_schedule", "d_model", d_model)
    checked_count("noam_schedule", "warmup", warmup)
    return lambda step: d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)

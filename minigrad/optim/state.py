"""State of optimizers as plain data, from which training continues, and clipping of gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..arguments import checked_count, checked_number
from ..changes import mark_changed
from ..optimizer import Optimizer, norm_of
from ..registry import add_methods
from ..tensor import Tensor, grad_of, unwrap

__all__ = ["clip_grad_norm_"]


class StateMethods:
    """Methods of Optimizer that no program of the book needs."""

    def state_dict(self: Any) -> dict[str, Any]:
        """Return copies of settings, step counts and state, each array as one vector for a group.

        The form is `{"groups": [{"steps": 10, "lr": 0.1, ...}], "arrays": {"0.exp_avg": ...}}`.
        "steps" is a list if parameters of a group have taken different numbers of steps.
        """
        groups, arrays = [], {}
        for i, (number, parameters) in enumerate(self.groups()):
            settings, states = self.param_groups[number], [self.state[p] for p in parameters]
            steps = [state["step"] for state in states]
            plain = {k: v for k, v in settings.items() if k not in ("params", "initial_lr")}
            groups.append({"steps": steps[0] if len(set(steps)) == 1 else steps, **plain})
            for name in sorted(states[0].keys() - {"step"}):
                arrays[f"{i}.{name}"] = np.concatenate([state[name].ravel() for state in states])
        return {"groups": groups, "arrays": arrays}

    def load_state_dict(self: Any, state: Mapping[str, Any]) -> None:
        """Continue from the `state_dict` of an optimizer of the same kind and parameters.

        Parameters
        ----------
        state : mapping
            Result of `state_dict`. Nothing changes if it raises a ValueError.
        """
        name, current, groups = type(self).__name__, self.state_dict(), self.groups()
        if not current.keys() <= state.keys():
            raise ValueError(
                f"{name}: state must have the keys {sorted(current)}, got {sorted(state)}"
            )
        arrays = {key: np.asarray(array) for key, array in state["arrays"].items()}
        got, expected = ({k: a.shape for k, a in x.items()} for x in (arrays, current["arrays"]))
        if expected != got or len(groups) != len(state["groups"]):
            raise ValueError(
                f"{name}: state must have the arrays {expected} of {len(groups)} groups, got {got} "
                f"of {len(state['groups'])}"
            )
        for key, array in arrays.items():
            with np.errstate(over="ignore"):
                if not np.isfinite(array.astype(current["arrays"][key].dtype)).all():
                    raise ValueError(f"{name}: state must be finite, got NaN or infinity in {key}")
        checked = []
        for (_, parameters), before, loaded in zip(groups, current["groups"], state["groups"]):
            if any({**before, **loaded}[key] for key in before.keys() ^ loaded.keys()):
                raise ValueError(
                    f"{name}: state must have the settings {sorted(before)}, got {sorted(loaded)}"
                )
            settings = {key: loaded[key] for key in before.keys() & loaded.keys()}
            steps = settings.pop("steps", None)
            steps = steps if isinstance(steps, list) else [steps] * len(parameters)
            if len(steps) != len(parameters):
                raise ValueError(
                    f"{name}: steps must be one number or {len(parameters)}, got {len(steps)}"
                )
            self.stepper.check(settings)
            checked.append((settings, [checked_count(name, "steps", n, 0) for n in steps]))
        for i, ((number, parameters), (settings, steps)) in enumerate(zip(groups, checked)):
            self.param_groups[number].update(settings)
            ends = np.cumsum([p.size for p in parameters])
            for p, step, end in zip(parameters, steps, ends):
                self.state[p]["step"] = step
                for key in self.state[p].keys() - {"step"}:
                    part = arrays[f"{i}.{key}"][end - p.size : end]
                    self.state[p][key][...] = part.reshape(p.shape)


add_methods(
    Optimizer, {name: m for name, m in vars(StateMethods).items() if not name.startswith("__")}
)


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float) -> float:
    """Return the norm of gradients, which are scaled down, in place, to at most `max_norm`.

    An optimizer's `clip_norm` does the same without an additional pass. Gradients must be finite.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Parameters without a gradient are skipped.
    max_norm : float
        Largest norm.
    """
    max_norm = checked_number("clip_grad_norm_", "max_norm", max_norm)
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    grads = [unwrap(g) for p in parameters if (g := grad_of(p)) is not None]
    norm = norm_of([g.astype(np.result_type(g, np.float32), copy=False) for g in grads])
    if not math.isfinite(norm):
        raise FloatingPointError(f"clip_grad_norm_: the norm of the gradients is {norm}")
    factor = max_norm / (norm + 1e-6)
    if factor < 1:
        for g in grads:
            g *= factor
            mark_changed(g)
    return norm

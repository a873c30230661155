"""What all optimizers share: parameters in flat arrays, and the parts of a step.

An optimizer moves the parameters of each of its groups into one flat array, of which they become
views, and their gradients into another. A step is then a few passes over those arrays, in blocks
that stay in the cache, however many parameters there are; clipping by norm
needs no pass of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..core.changes import mark_changed
from ..core.graph import notes_of
from ..core.tensor import Tensor
from ..kernels import BLOCK
from .settings import checked_count, checked_number

__all__ = ["FlatGroup", "Optimizer", "Work", "clip_grad_norm_", "has_gradient", "sum_of_squares"]


class FlatGroup:
    """Parameters of one dtype that share their settings: flat arrays of values, gradients and
    state.
    """

    def __init__(
        self, parameters: list[Tensor], settings: dict[str, Any], state_names: tuple[str, ...]
    ) -> None:
        empty = dict.fromkeys(state_names, np.zeros(0))
        self.__setstate__(
            {"parameters": parameters, "settings": settings, "steps": 0, "state": empty}
        )

    def __getstate__(self) -> dict[str, Any]:
        """What a copy needs: its flat arrays are made anew, since a copied view is a view no more."""
        return {
            "parameters": self.parameters,
            "settings": self.settings,
            "steps": self.steps,
            "state": self.state,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.parameters: list[Tensor] = state["parameters"]
        self.settings: dict[str, Any] = state["settings"]
        self.steps: int = state["steps"]
        self.state: dict[str, np.ndarray] = dict(state["state"])
        ends = list(itertools.accumulate(p.size for p in self.parameters))
        self.places = [slice(end - p.size, end) for p, end in zip(self.parameters, ends)]
        self.size = ends[-1]
        self.move(np.zeros)

    def move(self, zeros: Callable[[int, Any], np.ndarray]) -> None:
        """Move everything into flat arrays that `zeros(size, dtype)` makes."""
        dtype = self.parameters[0].dtype
        self.data = zeros(self.size, dtype)
        for p, place in zip(self.parameters, self.places):
            view = self.data[place].reshape(p.shape)
            view[...] = p.data
            p._array = view
        for name, old in self.state.items():
            self.state[name] = zeros(self.size, dtype)
            self.state[name][: len(old)] = old
        self.collect_in(zeros(self.size, dtype))

    def collect_in(self, grad: np.ndarray) -> None:
        """Let the gradients of the parameters be collected in this flat array."""
        self.grad = grad
        for p, place in zip(self.parameters, self.places):
            if p.requires_grad:  # not frozen since
                notes_of(p._needed_node("Optimizer")).grad_buffer = grad[place].reshape(p.shape)

    def gathered(self) -> list[slice]:
        """The stretches of the flat arrays whose parameters have a gradient, which is brought
        there.
        """
        runs: list[slice] = []
        for p, place in zip(self.parameters, self.places):
            if p._array.base is not self.data:
                raise RuntimeError(
                    f"a parameter of shape {p.shape} has other memory than when its optimizer was "
                    "made; make the "
                    "optimizer after what moves parameters: astype, pruning, another optimizer"
                )
            g = None if p._node is None else p._node.grad
            if g is None:
                continue
            g = g._array if isinstance(g, Tensor) else g
            if g.base is not self.grad:
                self.grad[place] = g.reshape(-1)
            if runs and runs[-1].stop == place.start:
                runs[-1] = slice(runs[-1].start, place.stop)
            else:
                runs.append(place)
        return runs

    def fill(self) -> None:
        """Bring all gradients to their places: zeros for parameters that have none."""
        self.gathered()
        for p, place in zip(self.parameters, self.places):
            if not has_gradient(p):
                self.grad[place] = 0


Work = list[
    tuple[int, slice]
]  # blocks of the flat arrays of groups, by number, to be gone through one by one


class Optimizer:
    """Changes parameters along their gradients; base of `SGD`, `Adam` and `AdamW`.

    `params` is an iterable of leaves, or of groups: dictionaries with "params" and settings of
    their own. With `clip_norm`, gradients are scaled down together where their norm is larger. A
    gradient that is not finite stops a step before it changes anything: with a FloatingPointError,
    or with `skip_nonfinite` by leaving the step out and counting it in `skipped`. A step that is
    itself too large for the dtype, as with an `lr` of 1e308, is an OverflowError.

    From then on the optimizer owns the memory of its parameters, and of their gradients.
    """

    state_names: tuple[str, ...] = ()

    def __init__(
        self,
        params: Iterable[Any],
        defaults: dict[str, Any],
        clip_norm: float | None = None,
        skip_nonfinite: bool = False,
    ) -> None:
        name = type(self).__name__
        self.clip_norm = (
            None if clip_norm is None else checked_number(name, "clip_norm", clip_norm, above=True)
        )
        self.skip_nonfinite = skip_nonfinite
        self.skipped = 0
        self.param_groups: list[dict[str, Any]] = []
        self._groups: list[FlatGroup] = []
        self._check(defaults)
        listed = list(params)
        seen: set[int] = set()
        for group in listed if listed and isinstance(listed[0], dict) else [{"params": listed}]:
            if unknown := set(group) - {"params", *defaults}:
                raise ValueError(f"{name}: unknown settings {sorted(unknown)} in a parameter group")
            settings = {**defaults, **group, "params": list(group["params"])}
            self._check(settings)
            self.param_groups.append(settings)
            by_dtype: dict[Any, list[Tensor]] = {}
            for p in settings["params"]:
                self._check_parameter(p, seen)
                if p.requires_grad:
                    by_dtype.setdefault(p.dtype, []).append(p)
            self._groups += [FlatGroup(ps, settings, self.state_names) for ps in by_dtype.values()]
        if not self._groups:
            raise ValueError(f"{name}: no parameter requires gradients")

    def _check(self, settings: Mapping[str, Any]) -> None:
        """Raise an error for a setting that cannot be used. Called before each step, since settings
        may be changed.
        """
        for name in ("lr", "weight_decay"):
            checked_number(type(self).__name__, name, settings[name])

    def _check_parameter(self, p: Any, seen: set[int]) -> None:
        name = type(self).__name__
        if not isinstance(p, Tensor) or not p.is_leaf:
            raise TypeError(f"{name}: expected leaf tensors, got {p!r:.80}")
        if id(p) in seen:
            raise ValueError(f"{name}: a parameter of shape {p.shape} is given twice")
        if p.requires_grad and p.dtype == np.float16:
            raise TypeError(
                f"{name}: a parameter of shape {p.shape} is float16, whose steps would be rounded "
                "away: below 2e-4 of "
                "a number they vanish, and gradients below 6e-8 with them; train in float32, "
                "model.astype('float32')"
            )
        seen.add(id(p))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients; with `set_to_none=False`, fill those that there are with zeros."""
        for group in self._groups:
            for p in group.parameters:
                p.grad = None if set_to_none or p.grad is None else np.zeros(p.shape, p.dtype)

    def step(self) -> float:
        """Change the parameters that have a gradient; the norm of all gradients, before it is
        clipped.

        A norm that is not finite is a FloatingPointError, or with `skip_nonfinite` a step left out.
        """
        work = self.work([group.gathered() for group in self._groups])
        norm, factor = self.clipping(self.squares(work))
        if factor is not None:
            self.update(work, factor, self.advance())
        return norm

    # The parts of a step, which `minigrad.parallel` lets several processes do.

    def work(self, runs: list[list[slice]]) -> Work:
        """The stretches of each group, in blocks."""
        return [
            (i, slice(start, min(start + BLOCK, run.stop)))
            for i, found in enumerate(runs)
            for run in found
            for start in range(run.start, run.stop, BLOCK)
        ]

    def squares(self, work: Work) -> float:
        """The sum of the squares of gradients."""
        return sum(sum_of_squares(self._groups[i].grad[block]) for i, block in work)

    def clipping(self, squares: float) -> tuple[float, float | None]:
        """The norm of all gradients, and the factor that clips them: None if the step is to be left
        out.
        """
        norm = math.sqrt(squares) if squares >= 0 else math.nan
        if not math.isfinite(norm):
            if self.skip_nonfinite:
                self.skipped += 1
                return norm, None
            raise FloatingPointError(
                f"the norm of the gradients is {norm}; detect_anomaly() finds the operation that "
                "made it so"
            )
        return norm, 1.0 if self.clip_norm is None else min(1.0, self.clip_norm / (norm + 1e-6))

    def advance(self) -> list[Any]:
        """Count a step; the constants of each group for it."""
        for settings in self.param_groups:
            self._check(settings)
        for group in self._groups:
            group.steps += 1
            mark_changed(group.data)
        return [self._constants(group.settings, group.steps) for group in self._groups]

    def update(self, work: Work, factor: float, constants: list[Any]) -> None:
        """Change parameters, for gradients times `factor`; an OverflowError where the dtype cannot
        hold the step.
        """
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                for i, block in work:
                    group = self._groups[i]
                    self._update(group, block, factor, constants[i])
        except FloatingPointError as error:
            numbers = ", ".join(
                f"{k}={v:g}" for k, v in group.settings.items() if isinstance(v, float)
            )
            raise OverflowError(
                f"{type(self).__name__}: a step that {group.data.dtype} cannot hold ({error}), "
                f"with {numbers}; "
                "parameters are changed in part: begin anew, or go on from a saved state"
            ) from None

    def _constants(self, settings: dict[str, Any], steps: int) -> Any:
        """What all blocks of a step share."""
        return settings

    def _update(self, group: FlatGroup, block: slice, factor: float, constants: Any) -> None:
        """Change one block of parameters, for gradients to be multiplied by `factor`."""
        raise NotImplementedError

    # What is written to files, and exchanged with other libraries.

    def state_dict(self) -> dict[str, Any]:
        """Settings, step counts and flat state arrays: `{"groups": [...], "arrays": {"0.exp_avg":
        ...}}`.
        """
        groups = [
            {"steps": g.steps, **{k: v for k, v in g.settings.items() if k != "params"}}
            for g in self._groups
        ]
        arrays = {
            f"{i}.{name}": array
            for i, g in enumerate(self._groups)
            for name, array in g.state.items()
        }
        return {"groups": groups, "arrays": arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict` of an optimizer of the same kind and parameters; nothing
        changes on an error.
        """
        own = self.state_dict()
        expected = {name: array.shape for name, array in own["arrays"].items()}
        got = {name: np.shape(array) for name, array in state["arrays"].items()}
        if expected != got or len(own["groups"]) != len(state["groups"]):
            raise ValueError(
                f"the optimizer's state does not fit: expected arrays {expected}, got {got}"
            )
        for ours, theirs in zip(own["groups"], state["groups"]):
            if set(ours) != set(theirs):
                raise ValueError(
                    f"the optimizer's state: expected settings {sorted(ours)}, got {sorted(theirs)}"
                )
            checked_count(type(self).__name__, "steps", theirs["steps"], 0)
            self._check(theirs)
        for name, array in state["arrays"].items():
            if not np.isfinite(array).all():
                raise ValueError(
                    f"the optimizer's state does not fit: {name} holds numbers that are not finite"
                )
        for group, settings in zip(self._groups, state["groups"]):
            group.steps = int(settings["steps"])
            group.settings.update({k: v for k, v in settings.items() if k != "steps"})
        for name, array in state["arrays"].items():
            own["arrays"][name][...] = array

    def parameter_states(self) -> dict[int, dict[str, Any]]:
        """The state of each parameter, by its number in the order they were given: as PyTorch's
        "state" has it.

        `{0: {"step": 10, "exp_avg": array, "exp_avg_sq": array}, ...}`. Arrays are views, of the
        parameter's shape.
        """
        numbers = {
            id(p): i
            for i, p in enumerate(p for group in self.param_groups for p in group["params"])
        }
        return {
            numbers[id(p)]: {"step": g.steps}
            | {name: a[place].reshape(p.shape) for name, a in g.state.items()}
            for g in self._groups
            for p, place in zip(g.parameters, g.places)
        }

    def load_parameter_states(self, states: Mapping[int, Mapping[str, Any]]) -> None:
        """Continue from the states of single parameters, such as those of PyTorch's optimizer of
        the same name.
        """
        own = self.parameter_states()
        for i, state in own.items():
            got = {name: np.shape(a) for name, a in states.get(i, {}).items() if name != "step"}
            expected = {name: np.shape(a) for name, a in state.items() if name != "step"}
            if expected != got:
                raise ValueError(
                    f"the state of parameter {i} does not fit: expected arrays {expected}, got "
                    f"{got}"
                )
        numbers = iter(own)  # which goes through the groups as they are
        for group in self._groups:
            mine = [next(numbers) for _ in group.parameters]
            steps = {int(states[i].get("step", group.steps)) for i in mine}
            if len(steps) > 1:
                raise ValueError(
                    f"parameters of one group have taken different numbers of steps: "
                    f"{sorted(steps)}"
                )
            group.steps = steps.pop()
            for i in mine:
                for name in group.state:
                    own[i][name][...] = states[i][name]


def has_gradient(p: Tensor) -> bool:
    """`p.grad is not None`, which would make a tensor of it: asked of every parameter, several
    times a step.
    """
    return p._node is not None and p._node.grad is not None


def sum_of_squares(x: np.ndarray) -> float:
    """Σ x², in double precision where single does not hold it."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(np.dot(x, x))
        if not math.isfinite(squares):
            x = x.astype(np.float64)
            squares = float(np.dot(x, x))
    return squares


def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients down together, in place, to a norm of at most `max_norm`; the norm they
    had.

    An optimizer's `clip_norm` does the same in passing. A norm that is not finite is a
    FloatingPointError.
    """
    max_norm = checked_number("clip_grad_norm_", "max_norm", max_norm)
    grads = [p.grad.data for p in parameters if p.grad is not None]
    norm = math.sqrt(sum(sum_of_squares(g.reshape(-1)) for g in grads))
    if not math.isfinite(norm):
        raise FloatingPointError(f"clip_grad_norm_: the norm of the gradients is {norm}")
    if norm > max_norm:
        for g in grads:
            g *= max_norm / (norm + 1e-6)
            mark_changed(g)
    return norm

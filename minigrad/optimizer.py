"""Optimizers: the parts of a step.

A step collects the gradients, clips their norm, and changes each parameter by the formula in
`_update`, which `SGD` and `Adam` define. Look at `Optimizer.step` first. The arrays that a step
changes are those of `Group` in `parameter_memory.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any

import numpy as np

from .arguments import checked_count, checked_flag, checked_number
from .clipping import norm_of, sum_of_squares
from .modes import enable_grad
from .parameter_memory import Group, has_gradient
from .tensor import Tensor, zero_grads

__all__ = ["Optimizer"]

Runs = list[list[slice]]
"""For each `Group`, ranges of parameters with a gradient and the same number of steps."""
Blocks = list[tuple[int, int, slice]]
"""Parts of a step: index of the group, index of its run, and slice of the elements."""


def _has_flags() -> bool:
    """Return whether an overflow sets a flag of the processor, which WebAssembly lacks."""
    try:
        with np.errstate(over="raise"):
            np.square(np.full(1, 1e300))
    except FloatingPointError:
        return True
    return False


HAS_FLAGS = _has_flags()

_OFF_BY_DEFAULT = ("amsgrad", "dampening", "maximize")  # `state_dict` omits these if they are off


class Optimizer:
    """Change parameters along their gradients; base of `SGD`, `Adam` and `AdamW`.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Leaf tensors, or groups: dictionaries with "params" and settings of the group.
    defaults : dict
        Settings of groups that do not set them.
    clip_norm : float, optional
        Scale all gradients down together if their norm is larger.
    skip_nonfinite : bool
        Skip a step whose gradients are not all finite, and count it in `skipped`, instead of
        raising a FloatingPointError. In both cases nothing changes. False by default.

    Attributes
    ----------
    param_groups : list of dict
        Parameter groups. Their settings can be changed between steps; `add_param_group` adds
        parameters.
    skipped : int
        Number of skipped steps.
    """

    group_type: type[Group] = Group
    """The memory of new optimizers, which a package around the book may replace."""

    def __init__(
        self,
        params: Iterable[Any],
        defaults: dict[str, Any],
        *,
        clip_norm: float | None = None,
        skip_nonfinite: bool = False,
    ) -> None:
        name = type(self).__name__
        if isinstance(params, (Tensor, dict, set)) or hasattr(params, "parameters"):
            fix = "; pass model.parameters()" if hasattr(params, "parameters") else ""
            raise TypeError(
                f"{name}: params must be a list of tensors or of groups, got "
                f"{type(params).__name__}{fix}"
            )
        self.clip_norm = (
            None if clip_norm is None else checked_number(name, "clip_norm", clip_norm, above=True)
        )
        self.skip_nonfinite = checked_flag(name, "skip_nonfinite", skip_nonfinite)
        self.skipped = 0
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self._groups: list[Group] = []
        self._members: list[list[Tensor]] = []  # the parameters of each of `param_groups`
        self._checked: list[dict[str, Any]] = []  # the settings of each as they were last checked
        self._frozen: list[Tensor] = []  # those of them that did not require gradients
        self._check(defaults)
        listed = list(params)
        for group in listed if listed and isinstance(listed[0], dict) else [{"params": listed}]:
            self.add_param_group(group)
        if not self._groups:
            raise ValueError(f"{name}: no parameter requires gradients")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group.

        Parameters
        ----------
        param_group : dict
            "params", a list of leaf tensors, and settings that differ from the defaults.
        """
        name = type(self).__name__
        if not isinstance(param_group, dict):
            raise TypeError(f"{name}: a parameter group must be a dict, got {param_group!r:.80}")
        if unknown := set(param_group) - {"params", *self.defaults}:
            raise ValueError(f"{name}: unknown settings {sorted(unknown)} in a parameter group")
        if "params" not in param_group:
            raise ValueError(
                f'{name}: a parameter group must have the key "params", got {sorted(param_group)}'
            )
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError(f"{name}: params must be a list, whose order is fixed, got a set")
        parameters = [params] if isinstance(params, Tensor) else list(params)
        settings = {**self.defaults, **param_group, "params": parameters}
        self._check(settings)
        seen = {id(p) for members in self._members for p in members}
        by_dtype: dict[Any, list[Tensor]] = {}
        for p in parameters:
            self._check_parameter(p, seen)
            if _is_changed_by_steps(p):
                by_dtype.setdefault(p.dtype, []).append(p)
        self._frozen += [p for p in parameters if not _is_changed_by_steps(p)]
        number = len(self.param_groups)
        state = dict.fromkeys(self._state_names(settings), np.zeros(0))
        self._groups += [
            self.group_type(ps, number, settings, [0] * len(ps), state) for ps in by_dtype.values()
        ]
        self.param_groups.append(settings)
        self._checked.append(dict(settings))
        self._members.append(list(parameters))

    def _state_names(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the arrays of state that a group with these settings needs."""
        return ()

    def _check(self, settings: dict[str, Any]) -> None:
        """Convert settings to Python numbers, or raise an error for one that cannot be used.

        Called again before a step if settings were changed. With numbers of NumPy, steps would
        be computed in their dtype, and files could not contain them.
        """
        name = type(self).__name__
        for key in ("lr", "weight_decay"):
            settings[key] = checked_number(name, key, settings[key])
        if "maximize" in settings:
            settings["maximize"] = checked_flag(name, "maximize", settings["maximize"])

    def _check_parameter(self, p: Any, seen: set[int]) -> None:
        name = type(self).__name__
        if not isinstance(p, Tensor) or not p.is_leaf:
            raise TypeError(f"{name}: params must be leaf tensors, got {p!r:.80}")
        if id(p) in seen:
            raise ValueError(f"{name}: a parameter of shape {p.shape} is given twice")
        if _is_changed_by_steps(p) and p.dtype == np.float16:
            raise TypeError(
                f"{name}: a parameter of shape {p.shape} is float16, whose steps would be rounded "
                "away: below 2e-4 of "
                "a number they vanish, and gradients below 6e-8 with them; train in float32, "
                "model.astype('float32')"
            )
        seen.add(id(p))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters.

        Parameters
        ----------
        set_to_none : bool
            Set gradients to None, as by default, or fill existing ones with zeros.
        """
        for group in self._groups:
            zero_grads(group.parameters, set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters that have a gradient.

        Parameters
        ----------
        closure : function, optional
            Computes the loss and its gradients; called first, with gradients recorded.

        Returns
        -------
        float or Tensor
            Norm of all gradients before clipping, or the result of `closure`.

        Raises
        ------
        FloatingPointError
            If a gradient is not finite, unless `skip_nonfinite`.
        OverflowError
            If the dtype cannot represent the step.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        runs = self.collect()
        blocks = self.blocks(runs)
        arrays = self.gradients(blocks)
        norm = norm_of(arrays, sum_of_squares(arrays))
        factor = self.clipping(norm)
        if factor is not None:
            with self.undone_on_error(norm * factor):
                self.update(blocks, factor, self.advance(runs))
        return norm if closure is None else loss

    # The parts of a step, which `minigrad.fast.parallel` lets several processes do.

    def collect(self) -> Runs:
        """Check the settings, and collect the gradients.

        Returns
        -------
        Runs
            For each group, the ranges of parameters to change.
        """
        self._follow()
        for i, settings in enumerate(self.param_groups):
            if not _are_same(settings, self._checked[i]):
                self._check(settings)
                self._checked[i] = dict(settings)
        for group in self._groups:
            if lacking := set(self._state_names(group.settings)) - group.state.keys():
                raise ValueError(
                    f"{type(self).__name__}: there is no {' and '.join(sorted(lacking))} for these "
                    "settings; momentum and amsgrad must be set when the optimizer is made"
                )
        return [group.collect() for group in self._groups]

    def _follow(self) -> None:
        """Copy the settings of `param_groups` to the memory; refuse other changes of it."""
        name, groups, known = type(self).__name__, self.param_groups, self.defaults.keys()
        same = len(groups) == len(self._members) and all(
            len(group["params"]) == len(members) and all(map(is_, group["params"], members))
            for group, members in zip(groups, self._members)
        )
        if not same:
            raise RuntimeError(
                f"{name}: the parameters in param_groups have changed; add some by "
                "add_param_group(), or make a new optimizer"
            )
        for group in groups:
            if wrong := (group.keys() ^ known) - {"params", "initial_lr"}:
                raise ValueError(
                    f"{name}: a group of param_groups must have the settings {sorted(known)}, "
                    f"got others or none for {sorted(wrong)}"
                )
        for memory in self._groups:
            memory.settings = groups[memory.number]
        for p in self._frozen:
            if _is_changed_by_steps(p):
                raise RuntimeError(
                    f"{name}: a parameter of shape {p.shape} was frozen when the optimizer was "
                    "made; make the optimizer after requires_grad is set"
                )

    def blocks(self, runs: Runs) -> Blocks:
        """Divide the runs of each group into blocks.

        Parameters
        ----------
        runs : Runs
            Result of `collect`.

        Returns
        -------
        Blocks
            Parts of the step, in the order of the parameters.
        """
        return [
            (i, j, block)
            for i, (group, slices) in enumerate(zip(self._groups, runs))
            for j, run in enumerate(slices)
            for block in group.blocks(run)
        ]

    def gradients(self, blocks: Blocks) -> list[np.ndarray]:
        """Return the gradients of blocks, as vectors.

        Parameters
        ----------
        blocks : Blocks
            Result of `blocks`.

        Returns
        -------
        list of ndarray
            Gradients of each block.
        """
        return [self._groups[i].arrays(block)[1] for i, _, block in blocks]

    def clipping(self, norm: float) -> float | None:
        """Return the factor that clips gradients of this norm.

        Parameters
        ----------
        norm : float
            Norm of all gradients.

        Returns
        -------
        float or None
            None if the step is skipped, because `norm` is not finite.
        """
        if not math.isfinite(norm):
            if self.skip_nonfinite:
                self.skipped += 1
                return None
            raise FloatingPointError(
                f"the norm of the gradients is {norm}; detect_anomaly() finds the operation that "
                "made it so"
            )
        return 1.0 if self.clip_norm is None else min(1.0, self.clip_norm / (norm + 1e-6))

    def advance(self, runs: Runs) -> list[list[Any]]:
        """Count a step.

        Parameters: as `blocks`.

        Returns
        -------
        list of list
            Constants of the step for each run of each group.
        """
        constants: list[list[Any]] = []
        for group, slices in zip(self._groups, runs):
            constants.append([])
            for run in slices:
                group.mark_changed(run)
                steps = group.steps[run.start] + 1
                group.steps[run] = [steps] * (run.stop - run.start)
                constants[-1].append(self._constants(group.settings, steps))
        return constants

    def update(self, blocks: Blocks, factor: float, constants: Sequence[Sequence[Any]]) -> None:
        """Change the parameters of blocks, for gradients times `factor`.

        Raise an OverflowError if the dtype cannot represent the step.

        Parameters
        ----------
        blocks : Blocks
            Result of `blocks`.
        factor : float
            Factor of the gradients.
        constants : sequence of sequences
            Values that depend on the step and the settings of the group: result of `advance`.
        """
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                for i, j, block in blocks:
                    group = self._groups[i]
                    p, g, state = group.arrays(block)
                    self._update(p, g, state, factor, constants[i][j])
                    if not HAS_FLAGS and not all(map(_is_finite, (p, *state.values()))):
                        raise FloatingPointError("overflow encountered")
        except FloatingPointError as error:
            raise OverflowError(
                f"{type(self).__name__}: {group.dtype} cannot hold the step ({error}) with "
                f"lr={group.settings['lr']:g}"
            ) from None

    def is_safe(self, norm: float) -> bool:
        """Return whether no step for gradients of this norm overflows.

        Assumes that parameters and state are not near the largest number of their dtype.

        Parameters: as `clipping`.
        """
        return all(
            norm <= group.large
            and group.settings["lr"] <= 1e6
            and group.settings["weight_decay"] <= 1e3
            and group.settings.get("momentum", 0) < 1
            and group.settings.get("eps", 1) >= 1e-15
            for group in self._groups
        )

    @contextmanager
    def undone_on_error(self, norm: float) -> Iterator[None]:
        """Undo a step that fails, within a `with` block.

        Parameters
        ----------
        norm : float
            Norm of all gradients. If `is_safe(norm)`, nothing is copied, which would take time.

        Yields
        ------
        None
            An error within the block restores parameters, state and step counts.
        """
        if self.is_safe(norm):
            yield
            return
        arrays = [array for group in self._groups for array in group.changing()]
        saved = [array.copy() for array in arrays]
        steps = [list(group.steps) for group in self._groups]
        try:
            yield
        except BaseException:
            for array, before in zip(arrays, saved):
                array[...] = before
            for group, counts in zip(self._groups, steps):
                group.steps = counts
            raise

    def _constants(self, settings: dict[str, Any], steps: int) -> Any:
        """Return the constants of a step for all blocks of a run; `steps` counts from 1."""
        raise NotImplementedError

    def _update(
        self,
        p: np.ndarray,
        g: np.ndarray,
        state: dict[str, np.ndarray],
        factor: float,
        constants: Any,
    ) -> None:
        """Change the vector `p` of parameters in place, for gradients `g` times `factor`."""
        raise NotImplementedError

    # What is written to files, and exchanged with other libraries.

    def state_dict(self) -> dict[str, Any]:
        """Return settings, step counts and the vectors of state.

        Returns
        -------
        dict
            `{"groups": [{"steps": 10, "lr": 0.1, ...}], "arrays": {"0.exp_avg": ...}}`. "steps" is
            a list if parameters of a group have taken different numbers of steps.
        """
        self._follow()
        groups = [
            {"steps": g.steps[0] if len(set(g.steps)) == 1 else list(g.steps)}
            | {
                k: v
                for k, v in g.settings.items()
                if k not in ("params", "initial_lr") and (v or k not in _OFF_BY_DEFAULT)
            }
            for g in self._groups
        ]
        arrays = {
            f"{i}.{name}": array
            for i, g in enumerate(self._groups)
            for name, array in g.flat_state().items()
        }
        return {"groups": groups, "arrays": arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state_dict` of an optimizer of the same kind and parameters.

        Parameters
        ----------
        state : mapping
            Result of `state_dict`. Nothing changes if it raises a ValueError.
        """
        name = type(self).__name__
        current = self.state_dict()
        if not current.keys() <= state.keys():
            raise ValueError(
                f"{name}: state must have the keys {sorted(current)}, got {sorted(state)}"
            )
        expected = {name: array.shape for name, array in current["arrays"].items()}
        got = {name: np.shape(array) for name, array in state["arrays"].items()}
        if expected != got or len(current["groups"]) != len(state["groups"]):
            raise ValueError(f"{name}: state must have the arrays {expected}, got {got}")
        counts: list[list[int]] = []
        for group, settings, loaded in zip(self._groups, current["groups"], state["groups"]):
            if set(settings) != set(loaded):
                raise ValueError(
                    f"{name}: state must have the settings {sorted(settings)}, got {sorted(loaded)}"
                )
            steps = loaded["steps"]
            listed = steps if isinstance(steps, list) else [steps] * len(group.parameters)
            if len(listed) != len(group.parameters):
                raise ValueError(
                    f"{name}: steps must be one number or {len(group.parameters)}, got "
                    f"{len(listed)}"
                )
            counts.append([checked_count(name, "steps", n, 0) for n in listed])
            self._check({**group.settings, **loaded})
        for key, array in state["arrays"].items():
            with np.errstate(over="ignore"):
                values = np.asarray(array).astype(current["arrays"][key].dtype)
            if not np.isfinite(values).all():
                raise ValueError(f"{name}: state must be finite, got NaN or infinity in {key}")
        for group, steps, settings in zip(self._groups, counts, state["groups"]):
            group.steps = steps
            group.settings.update({k: v for k, v in settings.items() if k != "steps"})
        for key, array in state["arrays"].items():
            index, _, name_of_state = key.partition(".")
            self._groups[int(index)].load_state(name_of_state, np.asarray(array))


def _is_finite(array: np.ndarray) -> bool:
    return bool(np.isfinite(array).all())


def _are_same(settings: dict[str, Any], checked: dict[str, Any]) -> bool:
    """Return whether two dicts contain the same objects."""
    return settings.keys() == checked.keys() and all(map(is_, settings.values(), checked.values()))


def _is_changed_by_steps(p: Tensor) -> bool:
    """Return whether steps change a parameter: if it requires or has a gradient."""
    return p.requires_grad or has_gradient(p)

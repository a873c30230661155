"""Optimizers: parameters in flat arrays, and the parts of a step.

An optimizer moves the parameters of each group into one flat array, of which they become views,
and their gradients into a second flat array. A step is a few passes over these arrays, in blocks
that fit the cache, for any number of parameters. Clipping by norm needs no additional pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any

import numpy as np

from ..core.changes import mark_changed
from ..core.graph import notes_of
from ..core.modes import enable_grad
from ..core.tensor import Tensor
from ..kernels import BLOCK
from .settings import checked_count, checked_flag, checked_number

__all__ = [
    "FlatGroup",
    "Optimizer",
    "Runs",
    "Work",
    "clip_grad_norm_",
    "has_gradient",
    "norm_of",
    "sum_of_squares",
]

Runs = list[list[slice]]
"""For each `FlatGroup`, ranges of parameters with a gradient and the same number of steps."""
Work = list[tuple[int, int, slice]]
"""Blocks of the flat arrays: index of the group, index of its run, and slice of the elements."""

_OFF_BY_DEFAULT = ("amsgrad", "dampening", "maximize")  # `state_dict` omits these if they are off


class FlatGroup:
    """Parameters of one dtype that share their settings, in flat arrays.

    Parameters
    ----------
    parameters : list of Tensor
        Leaves of one dtype that require gradients.
    number : int
        Index of their settings in `Optimizer.param_groups`.
    settings : dict
        Settings of the group.
    steps : list of int
        Number of steps that each parameter has taken.
    state : dict of arrays
        Flat arrays of state by name. Shorter arrays are filled with zeros.
    """

    def __init__(
        self,
        parameters: list[Tensor],
        number: int,
        settings: dict[str, Any],
        steps: list[int],
        state: Mapping[str, np.ndarray],
    ) -> None:
        self.parameters, self.number, self.settings = parameters, number, settings
        self.steps, self.state = list(steps), dict(state)
        ends = list(itertools.accumulate(p.size for p in parameters))
        self.slices = [slice(end - p.size, end) for p, end in zip(parameters, ends)]
        self.size = ends[-1]
        self.dtype = parameters[0].dtype
        self.large = 1e-3 * math.sqrt(np.finfo(self.dtype).max)  # squares beyond may overflow
        self.data: Any = None
        self.grad: Any = None
        self.move(np.zeros)

    def __reduce__(self) -> Any:
        """Copy without the flat arrays, because the parameters would be no views of the copies."""
        arguments = (self.parameters, self.number, self.settings, self.steps, self.state)
        return FlatGroup, arguments

    def move(self, zeros: Callable[[int, Any], np.ndarray]) -> None:
        """Move parameters, gradients and state into new flat arrays from `zeros(size, dtype)`.

        Parameters that are no longer views of the old flat array are not moved.
        """
        data, grad = self.data, self.grad
        self.data = zeros(self.size, self.dtype)
        for name, array in self.state.items():
            self.state[name] = zeros(self.size, self.dtype)
            self.state[name][: len(array)] = array
        self.collect_in(zeros(self.size, self.dtype))
        self.views = [self.data[s].reshape(p.shape) for p, s in zip(self.parameters, self.slices)]
        for p, part, view in zip(self.parameters, self.slices, self.views):
            if data is None or p._array.base is data:
                view[...] = p.data
                p._array = view
            g = None if p._node is None else p._node.grad
            if grad is not None and isinstance(g, np.ndarray) and g.base is grad:
                self.grad[part] = g.reshape(-1)
                p.grad = self.grad[part].reshape(p.shape)

    def collect_in(self, grad: np.ndarray) -> None:
        """Let the gradients of the parameters be collected in this flat array."""
        self.grad = grad
        for p, part in zip(self.parameters, self.slices):
            if p.requires_grad:  # not frozen since
                notes_of(p._needed_node("Optimizer")).grad_buffer = grad[part].reshape(p.shape)

    def gathered(self) -> list[slice]:
        """Copy gradients from outside into the flat array, and return the runs (`Runs`)."""
        data, grad = self.data, self.grad
        outside: list[tuple[slice, np.ndarray]] = []
        runs: list[slice] = []
        start = stop = 0
        for i, p in enumerate(self.parameters):
            part = self.slices[i]
            if p._array is not self.views[i] and not _is_part(p._array, data, part):
                raise RuntimeError(
                    f"a parameter of shape {p.shape} has other memory than when its optimizer was "
                    "made; make the "
                    "optimizer after what moves parameters: astype, pruning, another optimizer"
                )
            node = p._node
            if node is None or node.grad is None:
                continue
            g = node.grad._array if isinstance(node.grad, Tensor) else node.grad
            is_view = g.base is grad
            if not is_view:
                outside.append((part, g.reshape(-1)))
            elif g is not notes_of(node).grad_buffer and not _is_part(g, grad, part):
                outside.append((part, g.flatten()))  # such as p.grad = q.grad, or p.grad.T
                p.grad = grad[part].reshape(p.shape)
            if stop < i:  # there were some without a gradient
                runs.append(slice(start, stop))
                start = i
            stop = i + 1
        for part, g in outside:  # now, because one may be a view of what another one replaces
            grad[part] = g
        runs = [run for run in (*runs, slice(start, stop)) if run.start < run.stop]
        if len(set(self.steps)) > 1:
            return [part for run in runs for part in self._split(run)]
        return runs

    def _split(self, run: slice) -> Iterator[slice]:
        """Split a run where the number of steps changes."""
        for _, same in itertools.groupby(range(run.start, run.stop), self.steps.__getitem__):
            first, *rest = same
            yield slice(first, first + 1 + len(rest))

    def fill(self) -> None:
        """Copy all gradients into the flat array, and zeros for parameters without a gradient."""
        self.gathered()
        for p, part in zip(self.parameters, self.slices):
            if not has_gradient(p):
                self.grad[part] = 0


class Optimizer:
    """Change parameters along their gradients; base of `SGD`, `Adam` and `AdamW`.

    The optimizer owns the memory of its parameters, and of their gradients.

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
        self._groups: list[FlatGroup] = []
        self._members: list[list[Tensor]] = []  # the parameters of each of `param_groups`
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
            if p.requires_grad:
                by_dtype.setdefault(p.dtype, []).append(p)
        self._frozen += [p for p in parameters if not p.requires_grad]
        number = len(self.param_groups)
        state = dict.fromkeys(self._state_names(settings), np.zeros(0))
        self._groups += [
            FlatGroup(ps, number, settings, [0] * len(ps), state) for ps in by_dtype.values()
        ]
        self.param_groups.append(settings)
        self._members.append(list(parameters))

    def _state_names(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the arrays of state that a group with these settings needs."""
        return ()

    def _check(self, settings: dict[str, Any]) -> None:
        """Convert settings to Python numbers, or raise an error for one that cannot be used.

        Called before each step, since settings may be changed. With numbers of NumPy, steps would
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
        if p.requires_grad and p.dtype == np.float16:
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
            for p in group.parameters:
                p.grad = None if set_to_none or p.grad is None else np.zeros(p.shape, p.dtype)

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
        runs = self.gathered()
        work = self.work(runs)
        arrays = self.gradients(work)
        norm = norm_of(arrays, sum_of_squares(arrays))
        factor = self.clipping(norm)
        if factor is not None:
            with self.undone_on_error(norm * factor):
                self.update(work, factor, self.advance(runs))
        return norm if closure is None else loss

    # The parts of a step, which `minigrad.parallel` lets several processes do.

    def gathered(self) -> Runs:
        """Check the settings, and copy all gradients into the flat arrays.

        Returns
        -------
        Runs
            For each flat group, the ranges of parameters to change.
        """
        self._follow()
        for settings in self.param_groups:
            self._check(settings)
        for group in self._groups:
            if lacking := set(self._state_names(group.settings)) - group.state.keys():
                raise ValueError(
                    f"{type(self).__name__}: there is no {' and '.join(sorted(lacking))} for these "
                    "settings; momentum and amsgrad must be set when the optimizer is made"
                )
        return [group.gathered() for group in self._groups]

    def _follow(self) -> None:
        """Copy the settings of `param_groups` to the flat groups; refuse other changes of it."""
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
        for flat in self._groups:
            flat.settings = groups[flat.number]
        for p in self._frozen:
            if p.requires_grad:
                raise RuntimeError(
                    f"{name}: a parameter of shape {p.shape} was frozen when the optimizer was "
                    "made; make the optimizer after requires_grad is set"
                )

    def work(self, runs: Runs) -> Work:
        """Divide the runs of each group into blocks.

        Parameters
        ----------
        runs : Runs
            Result of `gathered`.

        Returns
        -------
        Work
            Blocks of the flat arrays.
        """
        blocks: Work = []
        for i, (group, slices) in enumerate(zip(self._groups, runs)):
            for j, run in enumerate(slices):
                first, stop = group.slices[run.start].start, group.slices[run.stop - 1].stop
                blocks += [
                    (i, j, slice(start, min(start + BLOCK, stop)))
                    for start in range(first, stop, BLOCK)
                ]
        return blocks

    def gradients(self, work: Work) -> list[np.ndarray]:
        """Return the gradients of blocks.

        Parameters
        ----------
        work : Work
            Blocks of the flat arrays.

        Returns
        -------
        list of ndarray
            Views of the flat arrays of gradients, one for each block.
        """
        return [self._groups[i].grad[block] for i, _, block in work]

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

        Parameters
        ----------
        runs : Runs
            Result of `gathered`.

        Returns
        -------
        list of list
            Constants of the step for each run of each group.
        """
        constants: list[list[Any]] = []
        for group, slices in zip(self._groups, runs):
            mark_changed(group.data)
            constants.append([])
            for run in slices:
                steps = group.steps[run.start] + 1
                group.steps[run] = [steps] * (run.stop - run.start)
                constants[-1].append(self._constants(group.settings, steps))
        return constants

    def update(self, work: Work, factor: float, constants: Sequence[Sequence[Any]]) -> None:
        """Change the parameters of blocks, for gradients times `factor`.

        Raise an OverflowError if the dtype cannot represent the step.

        Parameters
        ----------
        work : Work
            Blocks of the flat arrays: index of the group, index of its run, and the elements.
        factor : float
            Factor of the gradients.
        constants : sequence of sequences
            Values that depend on the step and the settings of the group.
        """
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                for i, j, block in work:
                    group = self._groups[i]
                    self._update(group, block, factor, constants[i][j])
        except FloatingPointError as error:
            raise OverflowError(
                f"{type(self).__name__}: {group.dtype} cannot hold the step ({error}) with "
                f"lr={group.settings['lr']:g}"
            ) from None

    def is_safe(self, norm: float) -> bool:
        """Return whether no step for gradients of this norm overflows.

        Assumes that parameters and state are not near the largest number of their dtype.

        Parameters
        ----------
        norm : float
            Norm of all gradients.

        Returns
        -------
        bool
            False if a copy is needed to undo the step.
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
        arrays = [array for g in self._groups for array in (g.data, *g.state.values())]
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

    def _update(self, group: FlatGroup, block: slice, factor: float, constants: Any) -> None:
        """Change one block of parameters, for gradients to be multiplied by `factor`."""
        raise NotImplementedError

    # What is written to files, and exchanged with other libraries.

    def state_dict(self) -> dict[str, Any]:
        """Return settings, step counts and flat state arrays.

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
            for name, array in g.state.items()
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
            current["arrays"][key][...] = array


def _is_part(array: np.ndarray, flat: np.ndarray, part: slice) -> bool:
    """Return whether an array has the memory of `flat[part]`, in the same order."""
    is_same = array.base is flat and array.ctypes.data == flat[part].ctypes.data
    return is_same and array.flags.c_contiguous


def has_gradient(p: Tensor) -> bool:
    """Return `p.grad is not None`, without the tensor that `p.grad` makes."""
    return p._node is not None and p._node.grad is not None


def sum_of_squares(arrays: Iterable[np.ndarray]) -> float:
    """Return Σ x² over flat arrays, computed in their dtype, so it may overflow or underflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return sum(float(np.dot(x, x)) for x in arrays)


def norm_of(arrays: Iterable[np.ndarray], squares: float) -> float:
    """Return the Euclidean norm of flat arrays; `squares` is their `sum_of_squares`.

    If the sum has overflowed, or may have lost digits by underflow, the norm is computed again from
    x / max |x| in double precision.
    """
    if 1e-20 < squares < math.inf:
        return math.sqrt(squares)
    arrays = list(arrays)
    peak = float(np.max([np.abs(x).max(initial=0.0) for x in arrays], initial=0.0))
    if peak == 0.0 or not math.isfinite(peak):
        return peak
    scaled = (np.divide(x, peak, dtype=np.float64) for x in arrays)
    return peak * math.sqrt(sum(float(np.dot(x, x)) for x in scaled))


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients down together, in place, to a norm of at most `max_norm`.

    An optimizer's `clip_norm` does the same without an additional pass.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Parameters without a gradient are skipped.
    max_norm : float
        Largest norm.

    Returns
    -------
    float
        Norm of the gradients before scaling.

    Raises
    ------
    FloatingPointError
        If a gradient is not finite.
    """
    max_norm = checked_number("clip_grad_norm_", "max_norm", max_norm)
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    grads = [p.grad.data for p in parameters if p.grad is not None]
    flat = [g.reshape(-1).astype(np.result_type(g, np.float32), copy=False) for g in grads]
    norm = norm_of(flat, sum_of_squares(flat))
    if not math.isfinite(norm):
        raise FloatingPointError(f"clip_grad_norm_: the norm of the gradients is {norm}")
    if norm > max_norm:
        for g in grads:
            g *= max_norm / (norm + 1e-6)
            mark_changed(g)
    return norm

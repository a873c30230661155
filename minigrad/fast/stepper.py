"""Steps of optimizers in blocks that fit the cache, which change nothing if they fail.

The formula of an optimizer passes several times over each block. Large parameters are changed part
by part. Small ones are copied into one vector, changed together, and copied back, so that a step
makes few calls for any number of parameters. Look at `BlockedStepper.take`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ..changes import entry_of, mark_entries
from ..optimizer import (
    SGD,
    Adam,
    Optimizer,
    Settings,
    State,
    Stepper,
    is_trained,
    norm_of,
    sum_of_squares,
)
from ..tensor import Tensor, grad_of, unwrap
from .blocks import BLOCK
from .variants import check_options, checked_flag, state_names, take_options, update


def _has_flags() -> bool:
    """Return whether an overflow sets a flag of the processor, which WebAssembly lacks."""
    try:
        with np.errstate(over="raise"):
            np.square(np.full(1, 1e300))
    except FloatingPointError:
        return True
    return False


HAS_FLAGS = _has_flags()

Zeros = Callable[[int, Any], np.ndarray]
"""Return a vector of zeros of a size and dtype."""


class Block(NamedTuple):
    """Part of a step: several parameters of a group, or elements of one."""

    group: int  # index of the group
    first: int  # indices of parameters; `last` is not included
    last: int
    start: int  # range of elements in the vectors of the group
    stop: int
    step: int  # number of the step, from 1


class Group:
    """Parameters of one dtype that share their settings, and their state in flat vectors.

    `number` is the index of their settings in `Optimizer.param_groups`. The arrays of `states`, one
    dict for each parameter, become views of the vectors, which are from `zeros(size, dtype)`.
    """

    def __init__(
        self, number: int, parameters: list[Tensor], states: list[State], zeros: Zeros
    ) -> None:
        self.number, self.parameters, self.states = number, parameters, states
        self.settings: Settings = {}
        self.starts = [0, *itertools.accumulate(p.size for p in parameters)]
        self.size = self.starts[-1]
        self.shapes = [p.shape for p in parameters]
        self.dtype = parameters[0].dtype
        self.large = 1e-3 * math.sqrt(np.finfo(self.dtype).max)  # squares beyond may overflow
        self.gradient: np.ndarray | None = None  # used for gradients, with several processes
        self.vectors: dict[str, np.ndarray] = {}
        self.check_shapes()
        for name in states[0].keys() - {"step"}:
            self.vectors[name] = vector = zeros(self.size, self.dtype)
            for state, view in zip(states, self.views(vector)):
                if state[name].any():  # memory of zeros is not used before something is written
                    view[...] = state[name]
                state[name] = view

    def check_shapes(self) -> None:
        """Raise an error if a parameter has no longer the shape and dtype of its state."""
        for p, state, shape in zip(self.parameters, self.states, self.shapes):
            arrays = [array for array in state.values() if isinstance(array, np.ndarray)]
            if p.shape != shape or any((a.shape, a.dtype) != (shape, p.dtype) for a in arrays):
                raise RuntimeError(
                    f"a parameter of shape {p.shape} and dtype {p.dtype} had another shape or "
                    "dtype when its optimizer was made; make the optimizer after what changes "
                    "parameters, such as astype or pruning"
                )

    def views(self, vector: np.ndarray) -> list[np.ndarray]:
        """Return the parts of a vector for each parameter, in its shape."""
        ranges = itertools.pairwise(self.starts)
        return [vector[a:b].reshape(s) for (a, b), s in zip(ranges, self.shapes)]

    def read_arrays(self, overlap: bool) -> None:
        """Note the arrays of the parameters, after some were replaced."""
        self.check_shapes()
        arrays = [p._array for p in self.parameters]
        self.entries = [entry_of(array) for array in arrays]
        self.flat = [a.reshape(-1) if a.flags.c_contiguous else None for a in arrays]
        self.in_place = [a.flags.c_contiguous and a.size >= BLOCK for a in arrays]
        self.alone = [overlap or in_place for in_place in self.in_place]
        self.whole = self._parts([1] * len(arrays))

    def collect(self, index: int) -> tuple[list[Block], list[np.ndarray]]:
        """Return the blocks of group `index` that have a gradient, and their gradients."""
        grads = [unwrap(grad_of(p)) for p in self.parameters]
        steps = [0 if g is None else s["step"] + 1 for g, s in zip(grads, self.states)]
        parts = self.whole if len(set(steps)) == 1 and steps[0] else self._parts(steps)
        blocks = [Block(index, *part, steps[part[0]]) for part in parts]
        if self.gradient is not None:
            return blocks, [self.gradient[block.start : block.stop] for block in blocks]
        return blocks, [self._gradient(block, grads) for block in blocks]

    def _gradient(self, block: Block, grads: list[Any]) -> np.ndarray:
        """Return the gradient of a block as a vector, from those of all parameters."""
        if not self.in_place[block.first]:
            return np.concatenate([g.ravel() for g in grads[block.first : block.last]])
        g = grads[block.first] = np.ascontiguousarray(grads[block.first])
        start = self.starts[block.first]
        return g.reshape(-1)[block.start - start : block.stop - start]

    def _parts(self, steps: list[int]) -> list[tuple[int, int, int, int]]:
        """Return `first`, `last`, `start` and `stop` of blocks for parameters that take `steps`."""
        parts: list[tuple[int, int, int, int]] = []
        for i, step in enumerate(steps):
            start, stop = self.starts[i], self.starts[i + 1]
            if not step:
                continue
            if self.alone[i]:
                size = BLOCK if self.in_place[i] else stop - start + 1
                starts = range(start, max(stop, start + 1), size)
                parts += [(i, i + 1, a, min(a + size, stop)) for a in starts]
                continue
            first, last, before, _ = parts[-1] if parts else (i, -1, start, start)
            if (
                last == i
                and not self.alone[first]
                and steps[first] == step
                and stop - before <= BLOCK
            ):
                parts[-1] = (first, i + 1, before, stop)
            else:
                parts.append((i, i + 1, start, stop))
        return parts

    def values(self, block: Block) -> np.ndarray:
        """Return the elements of a block: a view of a parameter, or a copy of some."""
        if self.in_place[block.first]:
            start = self.starts[block.first]
            flat: Any = self.flat[block.first]
            return flat[block.start - start : block.stop - start]
        parts = slice(block.first, block.last)
        both = zip(self.flat[parts], self.parameters[parts])
        return np.concatenate([p._array.ravel() if f is None else f for f, p in both])

    def write(self, block: Block, vector: np.ndarray) -> None:
        """Write back the result of `values`, if it is a copy."""
        if self.in_place[block.first]:
            return
        for i in range(block.first, block.last):
            part = vector[self.starts[i] - block.start : self.starts[i + 1] - block.start]
            if (flat := self.flat[i]) is None:
                self.parameters[i]._array[...] = part.reshape(self.shapes[i])
            else:
                flat[...] = part


class BlockedStepper(Stepper):
    """Steps of an optimizer in blocks. A step that fails changes nothing.

    With `skip_nonfinite`, steps whose gradients are not all finite are skipped and counted in
    `skipped`, instead of raising a FloatingPointError. `options` are those in `variants.OPTIONS`,
    which become settings of parameter groups.
    """

    def __init__(
        self, optimizer: Optimizer, *, skip_nonfinite: bool = False, **options: Any
    ) -> None:
        take_options(optimizer, options)
        super().__init__(optimizer, **options)
        name = type(optimizer).__name__
        self.skip_nonfinite = checked_flag(name, "skip_nonfinite", skip_nonfinite)
        self.skipped = 0
        self.groups: list[Group] = []
        self.overlap = False
        self._members: list[Tensor] = []  # all parameters, for which the groups were made
        self._frozen: list[Tensor] = []  # those of them that have no state
        self._arrays: list[np.ndarray] = []  # of the others, as the groups have noted them
        self._checked: list[list[Any]] = []  # the settings of each group as last checked

    def __getstate__(self) -> dict[str, Any]:
        """Copy without the groups, whose vectors would be no views of the copied state."""
        return {**vars(self), "groups": []}

    def check(self, settings: Settings) -> None:
        """Convert settings to Python numbers, or raise an error for one that cannot be used."""
        super().check(settings)
        check_options(type(self.optimizer).__name__, settings)

    def state_names(self, settings: Settings) -> tuple[str, ...]:
        """Return the names of the arrays of state that parameters with these settings need."""
        return (*super().state_names(settings), *state_names(settings))

    def take(self) -> float:
        """Change the parameters that have a gradient, and return the norm of all gradients."""
        blocks, gradients = self.collect()
        norm = norm_of(gradients)
        factor = self.factor(norm)
        if factor is not None:
            with self.undone_on_error(norm * factor):
                self.advance(blocks)
                self.update(blocks, gradients, factor, self.settings())
        return norm

    # The parts of a step, which `minigrad.fast.parallel` lets several processes do.

    def follow(self, zeros: Zeros = np.zeros) -> None:
        """Read which parameters the optimizer has, and where they are; new state is in `zeros`."""
        optimizer = self.optimizer
        members = [p for settings in optimizer.param_groups for p in settings["params"]]
        if (
            not self.groups
            or not _are_same(members, self._members)
            or any(map(is_trained, self._frozen))
        ):
            self.groups = [
                Group(i, parameters, [optimizer.state[p] for p in parameters], zeros)
                for i, parameters in optimizer.groups()
            ]
            self._members, self._arrays = members, []
            self._frozen = [p for p in members if p not in optimizer.state]
        arrays = [p._array for group in self.groups for p in group.parameters]
        if not _are_same(arrays, self._arrays):
            self.overlap = overlap(arrays)
            for group in self.groups:
                group.read_arrays(self.overlap)
            self._arrays = arrays
        for group in self.groups:
            group.settings = optimizer.param_groups[group.number]

    def forget(self) -> None:
        """Make new groups before the next step, with state in memory of their own."""
        self.groups = []

    def collect(self) -> tuple[list[Block], list[np.ndarray]]:
        """Check the settings; return the blocks that have a gradient, and their gradients."""
        self.follow()
        self._check_settings()
        collected = [group.collect(i) for i, group in enumerate(self.groups)]
        blocks, gradients = ([x for xs in lists for x in xs] for lists in zip(*collected))
        return blocks, gradients

    def _check_settings(self) -> None:
        """Check the settings of groups that were changed since the last step."""
        optimizer, name = self.optimizer, type(self.optimizer).__name__
        known = optimizer.defaults.keys()
        for i, settings in enumerate(optimizer.param_groups):
            if wrong := (settings.keys() ^ known) - {"params", "initial_lr"}:
                raise ValueError(
                    f"{name}: a group of param_groups must have the settings {sorted(known)}, "
                    f"got others or none for {sorted(wrong)}"
                )
            values = [settings[key] for key in known]
            if i == len(self._checked):
                self._checked.append([])
            if not _are_same(values, self._checked[i]):
                self.check(settings)
                self._checked[i] = [settings[key] for key in known]
        for group in self.groups:
            if lacking := set(self.state_names(group.settings)) - group.vectors.keys():
                raise ValueError(
                    f"{name}: there is no {' and '.join(sorted(lacking))} for these settings; "
                    "momentum and amsgrad must be set when the optimizer is made"
                )

    def factor(self, norm: float) -> float | None:
        """Return the factor that clips gradients of this norm, or None if the step is skipped."""
        if self.skip_nonfinite and not math.isfinite(norm):
            self.skipped += 1
            return None
        return self.optimizer.clip_factor(norm)

    def settings(self) -> list[Settings]:
        """Return the settings of each group, as plain data."""
        return [{k: v for k, v in g.settings.items() if k != "params"} for g in self.groups]

    def advance(self, blocks: Sequence[Block]) -> None:
        """Count a step of the parameters of blocks, and mark them as changed."""
        entries = []
        for block in blocks:
            group = self.groups[block.group]
            for i in range(block.first, block.last):
                group.states[i]["step"] = block.step
            entries += group.entries[block.first : block.last]
        mark_entries(entries)

    def update(
        self,
        blocks: Sequence[Block],
        gradients: Sequence[np.ndarray],
        factor: float,
        settings: Sequence[Settings],
    ) -> None:
        """Change the parameters of blocks, for gradients times `factor` and settings by group.

        Raise an OverflowError if the dtype cannot represent the step.
        """
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                for block, g in zip(blocks, gradients):
                    group = self.groups[block.group]
                    p = group.values(block)
                    arrays = {k: v[block.start : block.stop] for k, v in group.vectors.items()}
                    state = {"step": block.step, **arrays}
                    update(self.optimizer, p, g * factor, state, settings[block.group])
                    if not HAS_FLAGS and not all(
                        np.isfinite(a).all() for a in (p, *arrays.values())
                    ):
                        raise FloatingPointError("overflow encountered")
                    group.write(block, p)
        except FloatingPointError as error:
            raise OverflowError(
                f"{type(self.optimizer).__name__}: {group.dtype} cannot hold the step ({error}) "
                f"with lr={settings[block.group]['lr']:g}"
            ) from None

    def is_safe(self, norm: float) -> bool:
        """Return whether no step for gradients of this norm overflows.

        Assumes that parameters and state are not near the largest number of their dtype.
        """
        optimizer: Any = self.optimizer
        if type(optimizer)._update not in (SGD._update, Adam._update):
            return False
        return all(
            norm <= group.large
            and group.settings["lr"] <= 1e6
            and group.settings["weight_decay"] <= 1e3
            and group.settings.get("momentum", 0) < 1
            and group.settings.get("eps", 1) >= 1e-15
            and (
                not isinstance(optimizer, Adam)
                or optimizer.decoupled
                or group.settings["weight_decay"] == 0
                # the squares of gradients contain those of decayed parameters
                or sum_of_squares(p._array for p in group.parameters) < group.large**2
            )
            for group in self.groups
        )

    @contextmanager
    def undone_on_error(self, norm: float) -> Iterator[None]:
        """Undo a step that fails, within a `with` block.

        Nothing is copied, which would take time, if `is_safe(norm)`.
        """
        if self.is_safe(norm):
            yield
            return
        vectors = [vector for group in self.groups for vector in group.vectors.values()]
        arrays = [*self._arrays, *vectors]
        saved = [array.copy() for array in arrays]
        states = [state for group in self.groups for state in group.states]
        counts = [state["step"] for state in states]
        try:
            yield
        except BaseException:
            for array, before in zip(arrays, saved):
                array[...] = before
            for state, count in zip(states, counts):
                state["step"] = count
            raise


def _are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether two sequences contain the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


def overlap(arrays: Iterable[np.ndarray]) -> bool:
    """Return whether any two arrays share memory."""
    bounds = sorted(map(byte_bounds, arrays))
    return any(end > start for (_, end), (start, _) in itertools.pairwise(bounds))


Optimizer.stepper_type = BlockedStepper

"""Memory of optimizers: the parameters of each group in one flat array.

The parameters become views of a flat array, and their gradients are collected in a second one. A
step is a few passes over these arrays, in blocks that fit the cache, for any number of parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..changes import mark_changed
from ..clipping import sum_of_squares
from ..graph import notes_of
from ..optimizer import Optimizer
from ..parameter_memory import Arrays, Group, has_gradient
from ..tensor import Tensor, grad_of, node_of, unwrap
from .blocks import BLOCK


class FlatGroup(Group):
    """Parameters of one dtype that share their settings, in flat arrays.

    Parameters are those of `Group`.
    """

    def __init__(
        self,
        parameters: list[Tensor],
        number: int,
        settings: dict[str, Any],
        steps: list[int],
        state: Mapping[str, np.ndarray],
    ) -> None:
        super().__init__(parameters, number, settings, steps, {})
        self.state = dict(state)
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
            g = grad_of(p)
            if grad is not None and isinstance(g, np.ndarray) and g.base is grad:
                self.grad[part] = g.reshape(-1)
                self.adopt(p, part)

    def collect_in(self, grad: np.ndarray) -> None:
        """Let the gradients of the parameters be collected in this flat array."""
        self.grad = grad
        for p, part in zip(self.parameters, self.slices):
            node = node_of(p)
            if node is not None:  # None after a copy of a frozen parameter
                notes_of(node).memory = grad[part].reshape(p.shape)

    def adopt(self, p: Tensor, part: slice) -> None:
        """Let the gradient of a parameter be the one in the flat array."""
        node = node_of(p)
        if node is not None:
            node.grad = notes_of(node).memory = self.grad[part].reshape(p.shape)

    def adopt_all(self) -> None:
        """Let all existing gradients be those in the flat array, which are about to change."""
        for p, part in zip(self.parameters, self.slices):
            if has_gradient(p):
                self.adopt(p, part)

    def collect(self) -> list[slice]:
        """Copy gradients from outside into the flat array, and return the runs."""
        data, grad = self.data, self.grad
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
            g = unwrap(grad_of(p))
            if g is None:
                continue
            if g.base is not grad:
                grad[part] = g.reshape(-1)
            if stop < i:  # there were some without a gradient
                runs.append(slice(start, stop))
                start = i
            stop = i + 1
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
        self.collect()
        for p, part in zip(self.parameters, self.slices):
            if not has_gradient(p):
                self.grad[part] = 0

    def blocks(self, run: slice) -> list[slice]:
        """Return slices of the flat arrays that fit the cache."""
        elements = self._elements(run)
        starts = range(elements.start, elements.stop, BLOCK)
        return [slice(start, min(start + BLOCK, elements.stop)) for start in starts]

    def _elements(self, run: slice) -> slice:
        """Return the elements of a run of parameters in the flat arrays."""
        return slice(self.slices[run.start].start, self.slices[run.stop - 1].stop)

    def arrays(self, block: slice) -> Arrays:
        """Return the elements of a block: parameters, gradients and state."""
        state = {name: array[block] for name, array in self.state.items()}
        return self.data[block], self.grad[block], state

    def mark_changed(self, run: slice) -> None:
        """Mark the parameters of a run as changed, so that graphs that saved them raise errors."""
        mark_changed(self.data[self._elements(run)])

    def changing(self) -> list[np.ndarray]:
        """Return all arrays that a step changes."""
        return [self.data, *self.state.values()]

    def squares(self) -> float:
        """Return the sum of the squares of all parameters."""
        return sum_of_squares([self.data])

    def flat_state(self) -> dict[str, np.ndarray]:
        """Return the arrays of state by name."""
        return self.state

    def load_state(self, name: str, vector: np.ndarray) -> None:
        """Copy a vector for all parameters into the state `name`."""
        self.state[name][...] = vector


def _is_part(array: np.ndarray, flat: np.ndarray, part: slice) -> bool:
    """Return whether an array has the memory of `flat[part]`, in the same order."""
    is_same = array.base is flat and array.ctypes.data == flat[part].ctypes.data
    return is_same and array.flags.c_contiguous


Optimizer.group_type = FlatGroup

"""Memory of an optimizer: the parameters of a group, their gradients and their state.

Look at `Group.arrays`, which returns what a step reads and changes. Here each parameter has arrays
of its own. `Optimizer.group_type` may be replaced by a group with another memory, such as flat
arrays that contain all parameters (`minigrad.fast.flat`). This is one of the extension points that
`registry.py` lists.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .changes import mark_changed
from .clipping import sum_of_squares
from .tensor import Tensor, grad_of, unwrap

Arrays = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]
"""Elements of parameters, their gradients, and their state by name, as vectors."""


class Group:
    """Parameters of one dtype that share their settings, each with memory of its own.

    Parameters
    ----------
    parameters : list of Tensor
        Leaves of one dtype that require or have gradients.
    number : int
        Index of their settings in `Optimizer.param_groups`.
    settings : dict
        Settings of the group.
    steps : list of int
        Number of steps that each parameter has taken.
    state : dict of arrays
        Vectors of state by name, with the elements of all parameters; an empty one for zeros.
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
        self.steps = list(steps)
        ends = list(itertools.accumulate(p.size for p in parameters))
        self.slices = [slice(end - p.size, end) for p, end in zip(parameters, ends)]
        self.size = ends[-1]
        self.dtype = parameters[0].dtype
        self.large = 1e-3 * math.sqrt(np.finfo(self.dtype).max)  # squares beyond may overflow
        self.state: dict[str, Any] = {}
        for name, vector in state.items():
            self.state[name] = [np.zeros(p.size, self.dtype) for p in parameters]
            if len(vector):
                self.load_state(name, vector)

    def collect(self) -> list[slice]:
        """Return runs: ranges of parameters with a gradient and the same number of steps."""
        runs: list[slice] = []
        for i, p in enumerate(self.parameters):
            if not has_gradient(p):
                continue
            if runs and runs[-1].stop == i and self.steps[runs[-1].start] == self.steps[i]:
                runs[-1] = slice(runs[-1].start, i + 1)
            else:
                runs.append(slice(i, i + 1))
        return runs

    def blocks(self, run: slice) -> list[slice]:
        """Return the parts of a run in which a step is computed: here its parameters."""
        return self.slices[run]

    def arrays(self, block: slice) -> Arrays:
        """Return the elements of a block: parameters, gradients and state."""
        i = self.slices.index(block)
        p = self.parameters[i]
        if not p._array.flags.c_contiguous:
            p._array = np.ascontiguousarray(p._array)
        state = {name: arrays[i] for name, arrays in self.state.items()}
        return p._array.reshape(-1), unwrap(grad_of(p)).reshape(-1), state

    def mark_changed(self, run: slice) -> None:
        """Mark the parameters of a run as changed, so that graphs that saved them raise errors."""
        for p in self.parameters[run]:
            mark_changed(p._array)

    def changing(self) -> list[np.ndarray]:
        """Return all arrays that a step changes."""
        return [p._array for p in self.parameters] + [a for s in self.state.values() for a in s]

    def squares(self) -> float:
        """Return the sum of the squares of all parameters."""
        return sum_of_squares(p._array.reshape(-1) for p in self.parameters)

    def flat_state(self) -> dict[str, np.ndarray]:
        """Return the arrays of state by name, each as one vector for all parameters."""
        return {name: np.concatenate(arrays) for name, arrays in self.state.items()}

    def load_state(self, name: str, vector: np.ndarray) -> None:
        """Copy a vector for all parameters into the state `name`."""
        for array, part in zip(self.state[name], self.slices):
            array[...] = vector[part]


def has_gradient(p: Tensor) -> bool:
    """Return `p.grad is not None`, without the tensor that `p.grad` makes."""
    return grad_of(p) is not None

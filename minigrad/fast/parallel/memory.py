"""Memory that several processes share: parameters, gradients and state in flat arrays.

Backward passes collect the gradients of parameters in the arrays of `FlatGradients`, without
another copy. Callers of `p.grad` get copies, since the next pass overwrites these arrays.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...graph import Node, notes_of
from ...tensor import Tensor, grad_of, node_of, unwrap
from ..runtime import hold_during_fork
from ..stepper import Group, Zeros, overlap

_keeping = threading.Lock()
hold_during_fork(lambda: _keeping)


class Home:
    """Array in which backward passes collect the gradient of a leaf (see `graph.Notes`)."""

    __slots__ = ("array", "is_taken")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.is_taken = False  # since the last zero_grad, a pass has begun to collect here

    def keep(self, leaf: Node, c: np.ndarray) -> np.ndarray | None:
        """Copy the first gradient of a pass to this array, and return it; None if it is in use."""
        notes = notes_of(leaf)
        with _keeping:
            if self.is_taken or leaf.grad is not None or notes.hooks:
                return None
            self.is_taken = True
        np.copyto(self.array, c)
        return self.array

    def shown(self, grad: Any) -> Any:
        """Return a gradient that the next pass does not overwrite."""
        return grad.copy() if grad is self.array else grad


class FlatGradients:
    """Gradients of the parameters of an optimizer, in one of `vectors` for each group."""

    def __init__(self, groups: Sequence[Group], vectors: Sequence[np.ndarray]) -> None:
        self.groups, self.vectors = groups, vectors
        self.homes: list[tuple[Tensor, Home]] = []
        for group, vector in zip(groups, vectors):
            for p, array in zip(group.parameters, group.views(vector)):
                home = Home(array)
                self.homes.append((p, home))
                node = node_of(p)
                if node is not None:  # None after a copy of a frozen parameter
                    notes_of(node).home = home

    def open(self) -> None:
        """Let the next pass collect here, after the gradients were dropped."""
        for _, home in self.homes:
            home.is_taken = False

    def fill(self) -> None:
        """Copy gradients from outside into the arrays, and zeros for missing ones."""
        for p, home in self.homes:
            g = unwrap(grad_of(p))
            if g is not home.array:
                home.array[...] = 0 if g is None else g

    def adopt(self, indices: Iterable[int]) -> None:
        """Let the arrays be the gradients of some parameters, which `fill` has copied."""
        for i in indices:
            p, home = self.homes[i]
            if (node := node_of(p)) is not None:
                node.grad = home.array

    def present(self) -> list[int]:
        """Return the indices of the parameters that have a gradient."""
        return [i for i, (p, _) in enumerate(self.homes) if grad_of(p) is not None]

    def release(self) -> None:
        """Let the parameters have their gradients in memory of their own again."""
        for p, home in self.homes:
            node = node_of(p)
            if node is not None and notes_of(node).home is home:
                node.grad = home.shown(node.grad)
                notes_of(node).home = None


class FlatParameters:
    """Parameters of an optimizer in flat arrays from `zeros(size, dtype)`, until `release`.

    Parameters that share all of their memory still share it.
    """

    def __init__(self, groups: Sequence[Group], zeros: Zeros) -> None:
        parameters = [p for group in groups for p in group.parameters]
        if overlap({_place(p._array): p._array for p in parameters}.values()):
            raise ValueError(
                "DataParallel: parameters must share all of their memory or none, got some that "
                "share a part; make each a tensor of its own"
            )
        # each with its array before, which may be dropped if nothing else refers to its memory
        self.moved: list[tuple[Tensor, weakref.ref[np.ndarray], np.ndarray]] = []
        self._kept: list[np.ndarray] = []
        ties: dict[Any, np.ndarray] = {}
        for group in groups:
            for p, view in zip(group.parameters, group.views(zeros(group.size, group.dtype))):
                before = p._array
                view = ties.setdefault(_place(before), view)
                view[...] = before
                p._array = view
                self.moved.append((p, weakref.ref(before), view))
                if not before.flags.owndata:
                    self._kept.append(before)

    def are_here(self) -> bool:
        """Return whether no parameter has got another array."""
        return all(p._array is view for p, _, view in self.moved)

    def release(self) -> None:
        """Copy the parameters back to the arrays that they had before."""
        for p, reference, view in self.moved:
            before = reference()
            if p._array is not view:
                continue
            if before is None:
                p._array = view.copy()
            else:
                before[...] = view
                p._array = before


def _place(array: np.ndarray) -> Any:
    """Return a key that arrays have in common only if they have all elements in common."""
    return array.__array_interface__["data"][0], array.shape, array.strides

"""Memory that several processes share: parameters, gradients and state in flat arrays.

Backward passes collect the gradients of parameters in the arrays of `FlatGradients`, without
another copy. Callers of `p.grad` get copies, since the next pass overwrites these arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph import Node, notes_of
from ...tensor import Tensor, grad_of, node_of, unwrap
from ..stepper import Group, overlap

Zeros = Callable[[int, Any], np.ndarray]

_keeping = threading.Lock()


class Home:
    """Memory in which backward passes collect the gradient of a leaf (see `graph.Notes`).

    Parameters
    ----------
    array : ndarray
    """

    __slots__ = ("array", "is_taken")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.is_taken = False  # since the last zero_grad, a pass has begun to collect here

    def keep(self, leaf: Node, c: np.ndarray) -> np.ndarray | None:
        """Copy the first gradient of a pass to this memory, and return it; None if it is in use."""
        notes = notes_of(leaf)
        with _keeping:
            if self.is_taken or leaf.grad is not None or notes.hooks or notes.frozen:
                return None
            self.is_taken = True
        np.copyto(self.array, c)
        return self.array

    def shown(self, grad: Any) -> Any:
        """Return a gradient that the next pass does not overwrite."""
        return grad.copy() if grad is self.array else grad


class FlatGradients:
    """Gradients of the parameters of an optimizer, in a flat array for each group.

    Parameters
    ----------
    groups : list of Group
    vectors : list of ndarray
        Array of each group.
    """

    def __init__(self, groups: Sequence[Group], vectors: Sequence[np.ndarray]) -> None:
        self.groups, self.vectors = groups, vectors
        self.homes: list[tuple[Tensor, Home]] = []
        for group, vector in zip(groups, vectors):
            for p, array in zip(group.parameters, group.views(vector)):
                self.homes.append((p, Home(array)))
                node = node_of(p)
                if node is not None:  # None after a copy of a frozen parameter
                    notes_of(node).home = self.homes[-1][1]

    def open(self) -> None:
        """Let the next pass collect here, after the gradients were dropped."""
        for _, home in self.homes:
            home.is_taken = False

    def fill(self) -> None:
        """Copy gradients from outside into the arrays, and zeros for missing ones."""
        for p, home in self.homes:
            g = unwrap(grad_of(p))
            if g is None:
                home.array.fill(0)
            elif g is not home.array:
                home.array[...] = g

    def adopt(self, p: Tensor, home: Home) -> None:
        """Let the gradient of a parameter be the one in the arrays."""
        node = node_of(p)
        if node is not None:
            node.grad = home.array

    def adopt_all(self) -> None:
        """Let all existing gradients be those in the arrays, which are about to change."""
        for p, home in self.homes:
            if grad_of(p) is not None:
                self.adopt(p, home)

    def release(self) -> None:
        """Let the parameters have their gradients in memory of their own again."""
        for p, home in self.homes:
            node = node_of(p)
            if node is not None and notes_of(node).home is home:
                node.grad = home.shown(node.grad)
                notes_of(node).home = None


class FlatParameters:
    """Parameters of an optimizer in flat arrays, until `release`. Tied ones stay tied.

    Parameters
    ----------
    groups : list of Group
    zeros : callable
        Returns an array for a size and a dtype.
    """

    def __init__(self, groups: Sequence[Group], zeros: Zeros) -> None:
        parameters = [p for group in groups for p in group.parameters]
        if overlap({_place(p._array): p._array for p in parameters}.values()):
            raise ValueError(
                "DataParallel: parameters must share all of their memory or none, got some that "
                "share a part; make each a tensor of its own"
            )
        self.moved: list[tuple[Tensor, np.ndarray, np.ndarray]] = []  # with its array before
        ties: dict[Any, np.ndarray] = {}
        for group in groups:
            for p, view in zip(group.parameters, group.views(zeros(group.size, group.dtype))):
                before = p._array
                view = ties.setdefault(_place(before), view)
                view[...] = before
                p._array = view
                self.moved.append((p, before, view))

    def are_here(self) -> bool:
        """Return whether no parameter has got another array."""
        return all(p._array is view for p, _, view in self.moved)

    def release(self) -> None:
        """Copy the parameters back to the arrays that they had before."""
        for p, before, view in self.moved:
            if p._array is view:
                before[...] = view
                p._array = before


def _place(array: np.ndarray) -> Any:
    """Return a key that arrays have in common only if they have all elements in common."""
    return array.__array_interface__["data"][0] if array.size else id(array), array.strides

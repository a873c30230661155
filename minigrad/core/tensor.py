"""Tensor: an array, its gradient, and its node in the graph.

This file has construction, attributes and `backward`. `registry.py` sets operators and methods such
as `__mul__` and `sum` on Tensor, and `protocols.py` the methods that NumPy calls. The base class in
`data_model.py` has the methods that Python calls: `len(t)`, `float(t)`, `repr(t)`, copies.

On a first reading: `data`, `requires_grad`, `grad`, `backward`, and `wrap`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

from .batched import as_array
from .changes import mark_changed
from .data_model import DataModel
from .errors import GradientError
from .graph import Backward, Node, kind_of, notes_of
from .modes import MODE, set_grad_enabled

__all__ = ["Tensor"]

ndarray = np.ndarray

DISPATCH: dict[Any, Callable[..., Any]] = {}
"""Functions that `np.f(tensor)` calls, by NumPy function or by `(ufunc, "reduce")` and the like."""


class Tensor(DataModel):
    """NumPy array whose operations can be recorded for differentiation.

    Parameters
    ----------
    data : array_like
        An ndarray is shared, not copied; `tensor()` copies.
    requires_grad : bool
        Record every operation, so that `backward()` on a result computes `grad`. Requires a
        floating dtype. False by default.
    dtype : dtype, optional
        Dtype of `data` by default.
    """

    __slots__ = ("_array", "_node", "__weakref__")

    _array: ndarray
    _node: Node | None

    def __init__(self, data: Any, requires_grad: bool = False, dtype: Any = None) -> None:
        if (
            isinstance(data, Tensor)
            and data._node is not None
            and not requires_grad
            and MODE.get().record
        ):
            raise GradientError(
                "Tensor: data must not require gradients, which the new tensor would lose; write "
                "data.clone() for a copy with a gradient, or data.detach()"
            )
        array = data._array if isinstance(data, Tensor) else data
        if type(array) is not ndarray or dtype is not None:
            array = as_array(array, dtype)
        if array.dtype.kind not in "fiubc":
            raise TypeError(f"Tensor: data must be numbers or booleans, got dtype {array.dtype}")
        self._array = array
        self._node = None
        if requires_grad:
            self.requires_grad = True

    # -- the array

    @property
    def data(self) -> ndarray:
        """Values as an ndarray that shares this tensor's memory.

        After `t.data -= step`, a graph that needs the old values raises an error. A write through a
        view, such as `t.data[0] = 1`, is not noticed.
        """
        return self._array

    @data.setter
    def data(self, value: Any) -> None:
        array = np.asarray(value._array if isinstance(value, Tensor) else value)
        if array is self._array:  # t.data += ..., which wrote into the array
            mark_changed(array)
            return
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise ValueError(
                f"data must have shape {self._array.shape} and dtype {self._array.dtype}, "
                f"got shape {array.shape} and dtype {array.dtype}"
            )
        self._array = array

    def numpy(self) -> ndarray:
        """Return the values as an ndarray that shares memory.

        A tensor that requires gradients raises an error, since its gradient would be lost.

        Returns
        -------
        ndarray
            Array of this tensor.
        """
        return self.__array__()

    def item(self, *index: int) -> Any:
        """Return one element as a Python number.

        Parameters
        ----------
        *index : int
            By default the only element of a one-element tensor.

        Returns
        -------
        int, float, complex or bool
            Value of the element.
        """
        if index:
            return self._array.item(*index)
        if self._array.size != 1:
            raise ValueError(f"item: the tensor must have one element, got shape {self.shape}")
        return self._array.item()

    def tolist(self) -> Any:
        """Return the values as nested Python lists.

        Returns
        -------
        list or number
            Number for a tensor without axes.
        """
        return self._array.tolist()

    # -- the gradient

    @property
    def requires_grad(self) -> bool:
        """True if operations on this tensor are recorded; can be set on a leaf."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        node = self._node
        if node is not None and node.op is not None:
            if not value:
                raise GradientError(
                    "requires_grad: only a leaf can be changed; use detach() on a computed tensor"
                )
        elif not value:
            self._node = None
        elif node is None:
            if self._array.dtype.kind != "f":
                raise TypeError(
                    f"requires_grad: the dtype must be floating-point, got {self.dtype}; convert "
                    "the data first, as in Tensor(data, dtype=float, requires_grad=True)"
                )
            self._node = Node(None, (), (), self._array)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad` and return this tensor.

        Parameters
        ----------
        requires_grad : bool
            New value; True by default.

        Returns
        -------
        Tensor
            This tensor.
        """
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """True if no recorded operation made this tensor."""
        return self._node is None or self._node.op is None

    @property
    def grad(self) -> Tensor | None:
        """Sum of the gradients from `backward()`, or None.

        Leaves have a gradient, and tensors on which `retain_grad()` was called. It has the shape
        and dtype of the tensor.
        """
        node = self._node
        value = None if node is None else node.grad
        if type(value) is not ndarray:
            return value
        if node.notes is not None:  # type: ignore[union-attr]
            node.notes.shown = True  # type: ignore[union-attr]
        return wrap(value, None)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None and self._node is None:
            return
        node = self._needed_node("grad")
        if value is not None:
            self._check_gradient("grad", value)
        node.grad = value._array if isinstance(value, Tensor) and value._node is None else value

    def backward(
        self, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Add the gradient of this tensor into the `grad` of every leaf it was computed from.

        Parameters
        ----------
        gradient : array_like, optional
            Gradient of a final scalar with respect to this tensor, of its shape and dtype; 1 by
            default, for a tensor of one element.
        retain_graph : bool
            Keep the graph for another backward pass; False by default.
        create_graph : bool
            Record the gradients, so that they can be differentiated again; False by default.
        """
        if self._node is None:
            raise GradientError(
                "backward: this tensor does not require gradients: no operand of its operations "
                "does, or they were computed under no_grad()"
            )
        seed = self._seed("backward", gradient, create_graph)
        with set_grad_enabled(create_graph):
            Backward(wrap, retain_graph, create_graph).run([self._node], [seed])

    def _seed(self, caller: str, gradient: Any, create_graph: bool) -> Any:
        """Return the gradient that starts a backward pass, a Tensor with `create_graph`."""
        if gradient is None:
            if self._array.size != 1:
                raise GradientError(
                    f"{caller}: gradient must be given unless the tensor has one element, got "
                    f"shape {self.shape}; pass gradient= of this shape, or reduce the tensor "
                    "first, as in .sum()"
                )
            gradient = np.ones(self.shape, self.dtype)
        elif not isinstance(gradient, (Tensor, ndarray)):
            gradient = np.asarray(gradient, self.dtype)
        self._check_gradient(caller, gradient)
        if create_graph:
            return gradient if isinstance(gradient, Tensor) else wrap(gradient, None)
        return gradient._array if isinstance(gradient, Tensor) else gradient

    def _check_gradient(self, caller: str, gradient: Any) -> None:
        if (
            not isinstance(gradient, (Tensor, ndarray))
            or gradient.shape != self.shape
            or gradient.dtype != self.dtype
        ):
            raise GradientError(
                f"{caller}: gradient must have shape {self.shape} and dtype {self.dtype}, got "
                f"{kind_of(gradient)}"
            )

    def detach(self) -> Tensor:
        """Return a tensor with the same memory and no graph.

        Returns
        -------
        Tensor
            Leaf that requires no gradient.
        """
        return wrap(self._array, None)

    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in `grad`."""
        notes_of(self._needed_node("retain_grad")).retain = True

    def register_hook(self, hook: Callable[[Tensor], Any]) -> HookHandle:
        """Call `hook(gradient)` when the gradient of this tensor is complete.

        Parameters
        ----------
        hook : callable
            If it returns a tensor, that tensor replaces the gradient.

        Returns
        -------
        HookHandle
            `handle.remove()` removes the hook.
        """
        return HookHandle(notes_of(self._needed_node("register_hook")).hooks, hook)

    def _needed_node(self, caller: str) -> Node:
        if self._node is None:
            raise GradientError(f"{caller}: this tensor does not require gradients")
        return self._node

    # -- NumPy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> ndarray:
        if self._node is not None:
            raise TypeError(
                "this tensor requires gradients, which an ndarray cannot have; use .detach() or "
                ".data to leave the graph, or minigrad's function of the same name to stay in it "
                "(minigrad.matmul(A, x) if A is a scipy.sparse matrix)"
            )
        if copy is None and dtype is None:
            return np.asarray(self._array)
        return np.array(self._array, dtype, copy=copy)


for _name, _doc in {
    "shape": "Length of each axis.",
    "size": "Number of elements.",
    "ndim": "Number of axes.",
    "dtype": "NumPy dtype of the elements.",
    "itemsize": "Bytes of one element.",
    "nbytes": "Bytes that the elements take.",
    "strides": "Bytes from one element to the next along each axis.",
    "flags": "Memory layout, as in NumPy.",
}.items():
    setattr(Tensor, _name, property(attrgetter(f"_array.{_name}"), doc=_doc))


class HookHandle:
    """Handle that removes a hook."""

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        self._id = next(self._ids)
        hooks[self._id] = hook

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._hooks.pop(self._id, None)


def wrap(data: ndarray, node: Node | None) -> Tensor:
    """Return a tensor of `data` and `node`, without checks."""
    t = Tensor.__new__(Tensor)
    t._array = data
    t._node = node
    return t


def unwrap(value: Any) -> Any:
    """Return the array of a tensor, and any other value unchanged."""
    return value._array if isinstance(value, Tensor) else value


def to_array(value: Any) -> Any:
    """Return the array of a tensor or of an array_like."""
    return as_array(unwrap(value))


def as_operand(value: Any) -> Any:
    """Return a tensor unchanged, and any other array_like as an array."""
    return value if isinstance(value, Tensor) else as_array(value)

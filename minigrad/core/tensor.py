"""Tensor: an array, its gradient, and its place in the graph.

This class holds what is not an operation: construction, attributes and `backward`. Operators and
methods such as `__mul__` and `sum` are set on it by `registry.py`, for each operation that is
declared; what NumPy asks of it, by `protocols.py`. Its base in `data_model.py` has what Python
asks: `len(t)`, `float(t)`, `repr(t)`, copies.

On a first reading: `data`, `requires_grad`, `grad`, `backward`, and `wrap`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

from .changes import mark_changed
from .data_model import DataModel
from .errors import GradientError
from .graph import Backward, Node, kind_of, notes_of
from .modes import MODE, set_grad_enabled

__all__ = ["Tensor"]

ndarray = np.ndarray

DISPATCH: dict[Any, Callable[..., Any]] = {}
"""What `np.f(tensor)` runs, by NumPy function; `(ufunc, "reduce")` and the like for ufunc methods.
"""


class Tensor(DataModel):
    """A NumPy array that can remember how it was computed.

    `data` is anything `np.asarray` takes; an ndarray is shared, not copied (`tensor()` copies), and
    keeps its dtype unless `dtype` is given. With `requires_grad`, which needs a floating dtype,
    every operation on it is recorded, and `backward()` on a result fills `grad`.
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
                "Tensor: the gradient of the data would be lost; write .clone() for a copy with "
                "it, or .detach()"
            )
        array = np.asarray(data._array if isinstance(data, Tensor) else data, dtype)
        if array.dtype.kind not in "fiubc":
            raise TypeError(f"Tensor: expected numbers or booleans, got dtype {array.dtype}")
        self._array = array
        self._node = None
        if requires_grad:
            self.requires_grad = True

    # -- the array -----------------------------------------------------------------------------

    @property
    def data(self) -> ndarray:
        """The values, as an ndarray that shares this tensor's memory.

        `t.data -= step` and the like are noticed by graphs that still need the old values (they
        refuse); a write through a view, `t.data[0] = 1`, is not.
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
                f"data: expected shape {self._array.shape} and dtype {self._array.dtype}, "
                f"got shape {array.shape} and dtype {array.dtype}"
            )
        self._array = array

    def numpy(self) -> ndarray:
        """The values as an ndarray (shared memory); refused where a gradient would be lost."""
        return self.__array__()

    def item(self, *index: int) -> Any:
        """The value of a one-element tensor, or of that at `index`, as a Python number."""
        if index:
            return self._array.item(*index)
        if self._array.size != 1:
            raise ValueError(f"item: expected one element, got shape {self.shape}")
        return self._array.item()

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        return self._array.tolist()

    # -- the gradient --------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded. Can be set on a leaf."""
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
                    f"requires_grad: only floating-point tensors can have gradients, this one is "
                    f"{self.dtype}; "
                    "convert it first, as in Tensor(data, dtype=float, requires_grad=True)"
                )
            self._node = Node(None, (), (), self._array)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad` and return this tensor."""
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """True for a tensor that no recorded operation made."""
        return self._node is None or self._node.op is None

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward()` added up here, of this shape and dtype, or None.

        Leaves have one, and tensors on which `retain_grad()` was called.
        """
        node = self._node
        value = None if node is None else node.grad
        if node is not None and node.notes is not None:
            node.notes.shown = True
        return wrap(value, None) if type(value) is ndarray else value

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

        `gradient` is that of some final scalar with respect to this tensor, of its shape and dtype;
        it may be left out where this tensor has one element. The graph is freed as it is walked,
        unless `retain_graph`. With `create_graph` the gradients are themselves recorded, and can be
        differentiated again.
        """
        if self._node is None:
            raise GradientError(
                "backward: this tensor does not require gradients; nothing that it was computed "
                "from does, "
                "or it was computed under no_grad()"
            )
        seed = self._seed("backward", gradient, create_graph)
        with set_grad_enabled(create_graph):
            Backward(wrap, retain_graph, create_graph).run([self._node], [seed])

    def _seed(self, caller: str, gradient: Any, create_graph: bool) -> Any:
        """The gradient to start a backward pass from: an ndarray, or a Tensor with `create_graph`."""
        if gradient is None:
            if self._array.size != 1:
                raise GradientError(
                    f"{caller}: a gradient can be left out only for a tensor of one element, this "
                    "one has shape "
                    f"{self.shape}; pass gradient= of that shape, or reduce it first, as in .sum()"
                )
            gradient = np.ones_like(self._array)
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
                f"{caller}: expected a gradient of shape {self.shape} and dtype {self.dtype}, got "
                f"{kind_of(gradient)}"
            )

    def detach(self) -> Tensor:
        """The same values (shared memory), outside any graph."""
        return wrap(self._array, None)

    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in `grad`, as a leaf does."""
        notes_of(self._needed_node("retain_grad")).retain = True

    def register_hook(self, hook: Callable[[Tensor], Any]) -> HookHandle:
        """Call `hook(gradient)` when the gradient of this tensor is complete.

        What it returns, unless None, takes the gradient's place. `remove()` of the handle undoes
        it.
        """
        return HookHandle(notes_of(self._needed_node("register_hook")).hooks, hook)

    def _needed_node(self, caller: str) -> Node:
        if self._node is None:
            raise GradientError(f"{caller}: this tensor does not require gradients")
        return self._node

    # -- NumPy ------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> ndarray:
        if self._node is not None:
            raise TypeError(
                "this tensor requires gradients, which an ndarray cannot carry; "
                "use .detach() or .data to step out of the graph, or minigrad's function of that "
                "name, which follows it"
            )
        if copy is None and dtype is None:
            return self._array
        return np.array(self._array, dtype, copy=copy)


for _name, _doc in {
    "shape": "The length of each axis.",
    "size": "The number of elements.",
    "ndim": "The number of axes.",
    "dtype": "The NumPy dtype of the elements.",
    "itemsize": "The bytes of one element.",
    "nbytes": "The bytes that the elements take.",
    "strides": "The bytes from one element to the next along each axis.",
    "flags": "How the memory lies, as in NumPy.",
}.items():
    setattr(Tensor, _name, property(attrgetter(f"_array.{_name}"), doc=_doc))


class HookHandle:
    """Removes a hook from where it was registered."""

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        self._id = next(self._ids)
        hooks[self._id] = hook

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._hooks.pop(self._id, None)


def wrap(data: ndarray, node: Node | None) -> Tensor:
    """A tensor of `data`, whose place in the graph is `node`; no check is made."""
    t = Tensor.__new__(Tensor)
    t._array = data
    t._node = node
    return t


def unwrap(value: Any) -> Any:
    """The array of a tensor; anything else as it is."""
    return value._array if isinstance(value, Tensor) else value

"""Tensor: an array, its gradient, and its node in the graph.

This file has construction, attributes, `backward`, and the methods that Python calls. On Tensor,
`registry.py` sets operators and methods such as `__mul__` and `sum`, and `protocols.py` the methods
that NumPy calls. A tensor converts to a number only if no gradient is lost.

On a first reading: `data`, `requires_grad`, `grad`, `backward`, and `wrap`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np

from .arrays import Array, ArrayLike, DType, Function, as_array
from .changes import LOG, NEVER, logs, mark_changed, tick
from .errors import GradientError
from .graph import Backward, Node, kind_of, notes_of, shown_grad
from .methods import Methods
from .modes import MODE

__all__ = ["Tensor"]

ndarray = np.ndarray

DISPATCH: dict[Function | tuple[Function, str], Function] = {}
"""Functions that `np.f(tensor)` calls, by NumPy function or by `(ufunc, "reduce")` and the like."""

extension = SimpleNamespace(answer=DISPATCH.get, conversion=str, complex=None, size=np.size)
"""Functions that a package around the book may set, as attributes.

`answer(function)` returns what `function(tensor)` calls for a NumPy function, or None.
`conversion()` returns advice for a tensor that is converted to an ndarray, `conversion(advice)`
for one that is converted to a number.
`complex(op, operands, options)` returns the complex result of an op on real tensors.
`size(array)` returns the number of elements, `x.size`.
`write(t, index, value, name)` and `update(t, ufunc, other)` write into the memory of a tensor.
"""


_KEEP = (
    "to keep it, write NumPy's functions instead of those of math (np.sin(x), not math.sin(x)), "
    "and np.stack([...]) or a tensor such as minigrad.zeros(3) instead of an ndarray that values "
    "are written into; "
)


class Tensor(Methods):
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

    __slots__ = ("_array", "_first", "_frozen", "_last_node", "_seen", "_written", "__weakref__")

    _array: ndarray
    _last_node: Node | None  # None if operations are not recorded

    # for writes into memory and for frozen leaves; a first reader can skip these
    _first: Tensor | None  # tensor whose recorded view this is

    # most tensors have no value of these
    _frozen: Node | None  # leaf of a tensor whose `requires_grad` was True
    _seen: float  # time up to which `_last_node` describes the values in memory that is written
    _written: dict[int, Node]  # nodes of values that were written into this memory, by time

    def __init__(self, data: ArrayLike, requires_grad: bool = False, dtype: DType = None) -> None:
        if isinstance(data, Tensor) and data._node is not None and MODE.get().record:
            raise GradientError(
                "Tensor: data must not require gradients, which the new tensor would lose; write "
                "data.clone() for a copy with a gradient, or data.detach()"
            )
        array = data._array if isinstance(data, Tensor) else data
        if type(array) is not ndarray or dtype is not None:
            array = as_array(array, dtype)
        if array.dtype.kind not in "fiubc":
            as_array(array)  # names the fix for objects
            raise TypeError(f"Tensor: data must be numbers or booleans, got dtype {array.dtype}")
        self._array = array
        self._node = self._frozen = self._first = None
        if requires_grad:
            self.requires_grad = True
        elif isinstance(data, Tensor) and array is data._array:
            self._share(data)

    @property
    def _node(self) -> Node | None:
        """Node of the values, also if the memory was written since the last look."""
        if logs:
            LOG["read"]((self,))
        return self._last_node

    @_node.setter
    def _node(self, node: Node | None) -> None:
        self._last_node = node

    # -- the array

    @property
    def data(self) -> ndarray:
        """Values as an ndarray that shares this tensor's memory.

        After `t.data -= step`, a graph that needs the old values raises an error. A write through a
        view, such as `t.data[0] = 1`, is not noticed.
        """
        return self._array

    @data.setter
    def data(self, value: ArrayLike) -> None:
        array = as_array(value._array if isinstance(value, Tensor) else value)
        if array is self._array:  # t.data += ..., which wrote into the array
            mark_changed(array)
            return
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise ValueError(
                f"data must have shape {self._array.shape} and dtype {self._array.dtype}, "
                f"got shape {array.shape} and dtype {array.dtype}"
            )
        self._array, self._seen = array, tick()

    def numpy(self) -> ndarray:
        """Return the values as an ndarray that shares memory.

        A tensor that requires gradients raises an error, since its gradient would be lost.
        """
        return self.__array__()

    @property
    def size(self) -> Any:
        """Number of elements."""
        return extension.size(self._array)

    def item(self, *index: int) -> Any:
        """Return one element as a Python number.

        Parameters
        ----------
        *index : int
            By default the only element of a one-element tensor.
        """
        self._check_kept("item")
        if index:
            return self._array.item(*index)
        if self._array.size != 1:
            raise ValueError(f"item: the tensor must have one element, got shape {self.shape}")
        return self._array.item()

    def tolist(self) -> Any:
        """Return the values as nested Python lists."""
        self._check_kept("tolist")
        return self._array.tolist()

    # -- the gradient

    @property
    def requires_grad(self) -> bool:
        """True if operations on this tensor are recorded; can be set on a leaf.

        A leaf that is frozen keeps its gradient and its hooks, but collects no gradient.
        """
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if bool(value) == self.requires_grad:
            return
        node = node_of(self)
        if node is None:
            if self._array.dtype.kind != "f":
                raise TypeError(
                    f"requires_grad: the dtype must be floating-point, got {self.dtype}; convert "
                    "the data first, as in Tensor(data, dtype=float, requires_grad=True)"
                )
            self._node = Node(None, (), (), self._array)
            self._first = None
            return
        if node.op is not None:
            raise GradientError(
                "requires_grad: only a leaf can be changed; use detach() on a computed tensor"
            )
        # the same node, since graphs may refer to it
        self._node, self._frozen = (node, None) if value else (None, node)
        self._seen = tick()
        notes_of(node).frozen = not value

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Return this tensor with a new value of `requires_grad`.

        Parameters
        ----------
        requires_grad : bool
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
        node = node_of(self)
        value = None if node is None else shown_grad(node)
        return wrap(value, None) if type(value) is ndarray else value

    @grad.setter
    def grad(self, value: ArrayLike) -> None:
        node = node_of(self)
        if value is None:
            if node is not None:
                node.grad = None
            return
        if node is None:
            node = self._needed_node("grad")  # an error
        self._check_gradient("grad", value)
        node.grad = value._array if isinstance(value, Tensor) and value._node is None else value

    def backward(
        self, gradient: ArrayLike = None, retain_graph: bool = False, create_graph: bool = False
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
        Backward(wrap, retain_graph, create_graph).run([(self._node, seed)])

    def _seed(self, caller: str, gradient: Array, create_graph: bool) -> Array:
        """Return the gradient that starts a backward pass, a Tensor with `create_graph`."""
        if gradient is None:
            if self._array.size != 1:
                raise GradientError(
                    f"{caller}: gradient must be given unless the tensor has one element, got "
                    f"shape {self.shape}; pass gradient= of this shape, or reduce the tensor "
                    "first, as in .sum()"
                )
            gradient = np.ones_like(self._array)
        else:
            if not isinstance(gradient, (Tensor, ndarray)):
                gradient = as_array(gradient, self.dtype)
            self._check_gradient(caller, gradient)
        if create_graph:
            return gradient if isinstance(gradient, Tensor) else wrap(gradient, None)
        return gradient._array if isinstance(gradient, Tensor) else gradient

    def _check_gradient(self, caller: str, gradient: Array) -> None:
        if not isinstance(gradient, Tensor):
            as_array(gradient)  # checks the class
        if (
            not isinstance(gradient, (Tensor, ndarray))
            or gradient.shape != self.shape
            or gradient.dtype != self.dtype
        ):
            raise GradientError(
                f"{caller}: gradient must have shape {self.shape} and dtype {self.dtype}, got "
                f"{kind_of(gradient)}"
            )

    def _share(self, t: Tensor) -> None:
        """Make this tensor a view of `t`, or a constant if operations are not recorded."""
        if MODE.get().record:
            self._first, self._seen = t, seen_of(t)
        else:
            self._seen = NEVER

    def detach(self) -> Tensor:
        """Return a tensor with the same memory and no graph, which stays constant."""
        return wrap(self._array, None, NEVER)

    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in `grad`."""
        notes_of(self._needed_node("retain_grad")).retain = True

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Return a handle of `hook(gradient)`, called when the gradient of this tensor is complete.

        Parameters
        ----------
        hook : callable
            If it returns a tensor, that tensor replaces the gradient.
        """
        return HookHandle(notes_of(self._needed_node("register_hook")).hooks, hook)

    def _needed_node(self, caller: str) -> Node:
        node = self._node
        if node is None:
            raise GradientError(f"{caller}: this tensor does not require gradients")
        if logs:
            LOG["needed"](self)
        return node

    # -- NumPy

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> ndarray:
        if self._node is not None:
            raise TypeError(
                "this tensor requires gradients, which an ndarray cannot have; "
                f"{extension.conversion()}without them, write x.detach()"
            )
        if copy is None and dtype is None:
            return np.asarray(self._array)
        return np.array(self._array, dtype, copy=copy)

    # -- what Python calls: len(t), float(t), repr(t), copies

    def __repr__(self) -> str:
        values = np.array2string(self._array, separator=", ", prefix="tensor(")
        try:
            node = self._node
        except GradientError:  # a write cut the gradient
            node = None
        made_by = ""
        if node is not None:
            made_by = ", requires_grad=True" if node.op is None else f", op={node.op.name}"
        return f"tensor({values}, dtype={self._array.dtype}{made_by})"

    def __format__(self, spec: str) -> str:
        return (
            format(self._array.item(), spec)
            if spec and self._array.size == 1
            else format(str(self), spec)
        )

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Array) -> bool:
        return bool((self._array == (value._array if isinstance(value, Tensor) else value)).any())

    def __bool__(self) -> bool:
        return bool(self._array)

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def _check_kept(self, kind: str) -> None:
        """Raise an error if numbers would lose a gradient that a caller needs."""
        mode = MODE.get()
        if mode.traced and mode.record and self._node is not None:
            raise GradientError(
                f"{kind}() of a tensor inside a function that is being differentiated would lose "
                f"its gradient; {extension.conversion(_KEEP)}without it, write x.detach().item()"
            )

    def _number(self, kind: str) -> Any:
        """Return the value of one element as a number, which has no gradient."""
        self._check_kept(kind)
        if self._node is not None and MODE.get().record:
            warnings.warn(
                f"{kind}() of a tensor that requires gradients returns a number without a "
                f"gradient; {extension.conversion(_KEEP)}without it, write x.detach().item()",
                stacklevel=3,
            )
        return self.item()

    def __index__(self) -> int:
        return self._array.__index__()

    __hash__ = object.__hash__

    def __copy__(self) -> Tensor:
        """Return a leaf with a copy of the array, or `clone()` of a computed tensor."""
        if self.is_leaf:
            return type(self)(self._array.copy(), self.requires_grad)
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise GradientError(
                "deepcopy: only a leaf can be copied with its gradient; use detach() or clone()"
            )
        copy = object.__new__(type(self))
        copy._array = self._array.copy()
        copy._node = copy._first = None
        copy.requires_grad = self.requires_grad
        if self.grad is not None:
            copy.__setstate__(self.grad._array.copy())
        return copy

    def __reduce__(self) -> Any:
        if not self.is_leaf:
            raise GradientError("pickle: only a leaf can be pickled; use detach()")
        return (
            type(self),
            (self._array, self.requires_grad),
            None if self.grad is None else self.grad._array,
        )

    def __setstate__(self, gradient: np.ndarray) -> None:
        requires_grad = self.requires_grad
        self.requires_grad = True  # a frozen tensor can have a gradient, too
        self.grad = gradient
        self.requires_grad = requires_grad


for _name, _doc in {
    "shape": "Length of each axis.",
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

    def __init__(self, hooks: dict[int, Function], hook: Function) -> None:
        self._hooks = hooks
        self._id = next(self._ids)
        hooks[self._id] = hook

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._hooks.pop(self._id, None)


def wrap(data: ndarray, node: Node | None, seen: float = 0) -> Tensor:
    """Return a tensor of `data` and `node`, without checks."""
    t = Tensor.__new__(Tensor)
    t._array = data
    t._last_node = node
    t._first = None
    if seen:
        t._seen = seen
    return t


def seen_of(t: Tensor) -> float:
    """Return the time up to which the node of a tensor describes its values."""
    return getattr(t, "_seen", 0)


def first_of(t: Tensor) -> Tensor:
    """Return the tensor of which a tensor is a recorded view, or a view of a view; or itself."""
    first = t
    while first._first is not None:
        first = first._first
    if first is not t:
        t._first = first
    return first


def frozen_node(t: Tensor) -> Node | None:
    """Return the node of a frozen leaf, or None."""
    return getattr(t, "_frozen", None)


def node_of(t: Tensor) -> Node | None:
    """Return the node of a tensor, also of a frozen leaf, or None."""
    return t._node or frozen_node(t)


def grad_of(t: Tensor) -> Array:
    """Return the gradient of a tensor: an array, a Tensor of a graph, or None.

    Unlike `t.grad`, the array may be the memory of an optimizer, which the next backward pass
    overwrites. It must not be returned to users.
    """
    node = node_of(t)
    return None if node is None else node.grad


def zero_grads(tensors: Iterable[Tensor], set_to_none: bool) -> None:
    """Drop the gradients of tensors, or fill existing ones with zeros."""
    for t in tensors:
        g = None if set_to_none else grad_of(t)
        if type(g) is ndarray:
            g.fill(0)
            mark_changed(g)
        else:
            t.grad = None if g is None else np.zeros(t.shape, t.dtype)


def unwrap(value: ArrayLike) -> Array:
    """Return the array of a tensor, and any other value unchanged."""
    return value._array if isinstance(value, Tensor) else value


def to_array(value: ArrayLike) -> Array:
    """Return the array of a tensor or of an array_like."""
    return as_array(unwrap(value))


def as_operand(value: ArrayLike) -> Array:
    """Return a tensor unchanged, and any other array_like as an array."""
    return value if isinstance(value, Tensor) else as_array(value)

"""Tensor: an array, its gradient, and its place in the graph.

This class holds what is not an operation: construction, attributes, conversion, `backward`, and the
two NumPy protocols. Operators and methods such as `__mul__` and `sum` are set on it by the registry
in `op.py`, where each operation is defined.

On a first reading: `data`, `requires_grad`, `grad`, `backward`, and `wrap`. After "Python" come conversions, copies,
writing in place and NumPy's protocols: each says what it does, and none is needed for the others.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .errors import GradientError
from .graph import Backward, Node, mark_changed, notes_of
from .methods import Methods
from .modes import MODE, set_grad_enabled

__all__ = ["Tensor", "tensor"]

ndarray = np.ndarray

DISPATCH: dict[Any, Callable[..., Any]] = {}
"""What `np.f(tensor)` runs, by NumPy function; `(ufunc, "reduce")` and the like for ufunc methods."""


class Tensor(Methods):
    """A NumPy array that can remember how it was computed.

    `data` is anything `np.asarray` takes; an ndarray is shared, not copied (`tensor()` copies), and
    keeps its dtype unless `dtype` is given. With `requires_grad`, which needs a floating dtype,
    every operation on it is recorded, and `backward()` on a result fills `grad`.
    """

    __slots__ = ("_data", "_node", "__weakref__")

    _data: ndarray
    _node: Node | None

    def __init__(self, data: Any, requires_grad: bool = False, dtype: Any = None) -> None:
        array = np.asarray(data._data if isinstance(data, Tensor) else data, dtype)
        if array.dtype.kind not in "fiubc":
            raise TypeError(f"Tensor: expected numbers or booleans, got dtype {array.dtype}")
        self._data = array
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
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        array = np.asarray(value._data if isinstance(value, Tensor) else value)
        if array is self._data:  # t.data += ..., which wrote into the array
            mark_changed(array)
            return
        if array.shape != self._data.shape or array.dtype != self._data.dtype:
            raise ValueError(
                f"data: expected shape {self._data.shape} and dtype {self._data.dtype}, "
                f"got shape {array.shape} and dtype {array.dtype}"
            )
        self._data = array

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._data.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._data.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._data.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements."""
        return self._data.dtype

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return self._data.nbytes

    def numpy(self) -> ndarray:
        """The values as an ndarray (shared memory); refused where a gradient would be lost."""
        return self.__array__()

    def item(self) -> Any:
        """The value of a one-element tensor as a Python number."""
        if self._data.size != 1:
            raise ValueError(f"item: expected one element, got shape {self.shape}")
        return self._data.item()

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        return self._data.tolist()

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
                raise GradientError("requires_grad: only a leaf can be changed; use detach() on a computed tensor")
        elif not value:
            self._node = None
        elif node is None:
            if self._data.dtype.kind != "f":
                raise TypeError(
                    f"requires_grad: only floating-point tensors can have gradients, this one is {self.dtype}; "
                    "convert it first, as in Tensor(data, dtype=float, requires_grad=True)"
                )
            self._node = Node(None, (), (), self._data)

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
        value = None if self._node is None else self._node.grad
        return wrap(value, None) if type(value) is ndarray else value

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None:
            if self._node is not None:
                self._node.grad = None
            return
        if self._node is None:
            raise GradientError("grad: this tensor does not require gradients")
        self._check_gradient("grad", value)
        tracked = isinstance(value, Tensor) and value._node is not None
        self._node.grad = value if tracked else value._data if isinstance(value, Tensor) else value

    def backward(self, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False) -> None:
        """Add the gradient of this tensor into the `grad` of every leaf it was computed from.

        `gradient` is that of some final scalar with respect to this tensor, of its shape and dtype;
        it may be left out where this tensor has one element. The graph is freed as it is walked,
        unless `retain_graph`. With `create_graph` the gradients are themselves recorded, and can be
        differentiated again.
        """
        if self._node is None:
            raise GradientError(
                "backward: this tensor does not require gradients; nothing that it was computed from does, "
                "or it was computed under no_grad()"
            )
        seed = self._seed("backward", gradient, create_graph)
        with set_grad_enabled(create_graph):
            Backward(wrap, retain_graph, create_graph).run([self._node], [seed])

    def _seed(self, caller: str, gradient: Any, create_graph: bool) -> Any:
        """The gradient to start a backward pass from: an ndarray, or a Tensor with `create_graph`."""
        if gradient is None:
            if self.size != 1:
                raise GradientError(
                    f"{caller}: a gradient can be left out only for a tensor of one element, this one has shape "
                    f"{self.shape}; pass gradient= of that shape, or reduce it first, as in .sum()"
                )
            gradient = np.ones_like(self._data)
        elif not isinstance(gradient, (Tensor, ndarray)):
            gradient = np.asarray(gradient, self.dtype)
        self._check_gradient(caller, gradient)
        if create_graph:
            return gradient if isinstance(gradient, Tensor) else wrap(gradient, None)
        return gradient._data if isinstance(gradient, Tensor) else gradient

    def _check_gradient(self, caller: str, gradient: Any) -> None:
        if not isinstance(gradient, (Tensor, ndarray)) or gradient.shape != self.shape or gradient.dtype != self.dtype:
            got = (
                f"shape {gradient.shape} and dtype {gradient.dtype}"
                if isinstance(gradient, (Tensor, ndarray))
                else f"a {type(gradient).__name__}"
            )
            raise GradientError(
                f"{caller}: expected a gradient of shape {self.shape} and dtype {self.dtype}, got {got}"
            )

    def detach(self) -> Tensor:
        """The same values (shared memory), outside any graph."""
        return wrap(self._data, None)

    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in `grad`, as a leaf does."""
        notes_of(self._needed_node("retain_grad")).retain = True

    def register_hook(self, hook: Callable[[Tensor], Any]) -> HookHandle:
        """Call `hook(gradient)` when the gradient of this tensor is complete.

        What it returns, unless None, takes the gradient's place. `remove()` of the handle undoes it.
        """
        return HookHandle(notes_of(self._needed_node("register_hook")).hooks, hook)

    def _needed_node(self, caller: str) -> Node:
        if self._node is None:
            raise GradientError(f"{caller}: this tensor does not require gradients")
        return self._node

    # -- Python ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        values = np.array2string(self._data, separator=", ", prefix="tensor(")
        made_by = ""
        if self._node is not None:
            made_by = ", requires_grad=True" if self._node.op is None else f", op={self._node.op.name}"
        return f"tensor({values}, dtype={self.dtype}{made_by})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else format(str(self), spec)

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool((self._data == (value._data if isinstance(value, Tensor) else value)).any())

    def __bool__(self) -> bool:
        return bool(self._data)

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def _number(self, kind: str) -> Any:
        """The value of one element, where Python or NumPy asks for it; no gradient follows a number."""
        mode = MODE.get()
        if self._node is not None and mode.traced and mode.record:
            raise GradientError(
                f"{kind}() of a tensor inside a function that is being differentiated would lose its gradient; "
                "collect such values with np.stack([...]), in place of writing them into an array, or take "
                ".item() where a plain number is meant"
            )
        if self._node is not None and mode.record:
            warnings.warn(
                f"{kind}() of a tensor that requires gradients gives a number without one; write .item()", stacklevel=3
            )
        return self.item()

    def __index__(self) -> int:
        return self._data.__index__()

    def __hash__(self) -> int:
        return id(self)

    # Operators that write. A tensor that needs no gradient is written into, as an array is, and so is a leaf
    # under no_grad(). Where a gradient flows, `t += x` is `t = t + x`: a new tensor, the old one as it was.

    def __iadd__(self, other: Any) -> Tensor:
        return _in_place(self, np.add, other)

    def __isub__(self, other: Any) -> Tensor:
        return _in_place(self, np.subtract, other)

    def __imul__(self, other: Any) -> Tensor:
        return _in_place(self, np.multiply, other)

    def __itruediv__(self, other: Any) -> Tensor:
        return _in_place(self, np.divide, other)

    def __ifloordiv__(self, other: Any) -> Tensor:
        return _in_place(self, np.floor_divide, other)

    def __imod__(self, other: Any) -> Tensor:
        return _in_place(self, np.remainder, other)

    def __ipow__(self, other: Any) -> Tensor:
        return _in_place(self, np.power, other)

    def __imatmul__(self, other: Any) -> Tensor:
        return _in_place(self, np.matmul, other)

    def __iand__(self, other: Any) -> Tensor:
        return _in_place(self, np.bitwise_and, other)

    def __ior__(self, other: Any) -> Tensor:
        return _in_place(self, np.bitwise_or, other)

    def __ixor__(self, other: Any) -> Tensor:
        return _in_place(self, np.bitwise_xor, other)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "item assignment would change values that a graph may need; build a new tensor with where(), "
            "index_add() or concatenate(), or write into .data of a tensor that no graph uses"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise GradientError("deepcopy: only a leaf can be copied with its gradient; use detach() or clone()")
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        copy._data = self._data.copy()
        copy._node = None
        copy.requires_grad = self.requires_grad
        if self.grad is not None:
            copy.grad = self.grad._data.copy()
        return copy

    def __reduce__(self) -> Any:
        if not self.is_leaf:
            raise GradientError("pickle: only a leaf can be pickled; use detach()")
        return type(self), (self._data, self.requires_grad), None if self.grad is None else self.grad._data

    def __setstate__(self, gradient: ndarray) -> None:
        self.grad = gradient

    # -- NumPy ------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> ndarray:
        if self._node is not None:
            raise TypeError(
                "this tensor requires gradients, which an ndarray cannot carry; "
                "use .detach() or .data to step out of the graph, or minigrad's function of that name, which follows it"
            )
        if copy is None and dtype is None:
            return self._data
        return np.array(self._data, dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if out is not None:
            return _write_into(out, ufunc, method, inputs, options)
        function = DISPATCH.get(ufunc if method == "__call__" else (ufunc, method))
        if function is None or options:
            call = getattr(ufunc, method)
            if not needs_gradient((inputs, options)):
                y = on_arrays(call, inputs, options)
                if function is None:
                    return y
                return tuple(map(Tensor, y)) if isinstance(y, tuple) else Tensor(y)
            if function is None and method == "__call__":
                function = DISPATCH["a ufunc by its name"](ufunc)
            if function is None:
                raise TypeError(_no_rule(f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")))
            if method == "__call__" and options:
                return DISPATCH["ufunc with options"](function, ufunc, inputs, options)
        return function(*inputs, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        ours = DISPATCH.get(function)
        if ours is not None:
            return ours(*args, **kwargs)
        if not needs_gradient((args, kwargs)):  # an array like any other
            return on_arrays(function, args, kwargs)
        module = (getattr(function, "__module__", None) or "numpy").replace("numpy", "np", 1)
        raise TypeError(_no_rule(f"{module}.{function.__name__}"))


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
    t._data = data
    t._node = node
    return t


def tensor(data: Any, requires_grad: bool = False, dtype: Any = None) -> Tensor:
    """A new tensor with a copy of `data`; see `Tensor`.

    Lists and tuples may hold tensors that require gradients, beside numbers: they are stacked, gradients and all.
    """
    if isinstance(data, (list, tuple)) and needs_gradient(data):
        stacked = _stacked(data, np.result_type(*_arrays_in(data)))
        return stacked if dtype is None else stacked.astype(dtype)
    data = without_tensors(data)
    return Tensor(np.array(data, dtype), requires_grad)


def _arrays_in(data: Any) -> list[Any]:
    if isinstance(data, (list, tuple)):
        return [array for part in data for array in _arrays_in(part)]
    return [unwrap(data)] if isinstance(data, (Tensor, ndarray, np.generic)) else []


def _stacked(data: Any, dtype: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return DISPATCH[np.stack]([_stacked(part, dtype) for part in data])
    return data if isinstance(data, (Tensor, ndarray)) else np.asarray(data, dtype)


def unwrap(value: Any) -> Any:
    """The array of a tensor; anything else as it is."""
    return value._data if isinstance(value, Tensor) else value


def needs_gradient(value: Any) -> bool:
    """Whether `value` is, or holds at any depth, a tensor whose operations are being recorded."""
    return MODE.get().record and _is_tracked(value)


def _is_tracked(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value._node is not None
    if isinstance(value, (list, tuple)):
        return any(map(_is_tracked, value))
    return isinstance(value, dict) and any(map(_is_tracked, value.values()))


def on_arrays(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """The call with the arrays inside tensors, at any depth."""
    if isinstance(kwargs.get("out"), Tensor):
        raise TypeError(f"{function.__name__}: a Tensor cannot be given as out=; use the result instead")
    return function(*without_tensors(args), **without_tensors(kwargs))


def without_tensors(value: Any) -> Any:
    """The arrays inside tensors, at any depth of lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return value._data
    if isinstance(value, (list, tuple)):
        parts = [without_tensors(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return {key: without_tensors(part) for key, part in value.items()} if isinstance(value, dict) else value


def _in_place(t: Tensor, ufunc: np.ufunc, other: Any) -> Tensor:
    """`t += other` and its kind; see the note in `Tensor`."""
    if not writable(t, ufunc.__name__, other):
        return DISPATCH[ufunc](t, other)
    ufunc(t._data, unwrap(other), out=t._data)
    mark_changed(t._data)
    return t


def writable(t: Tensor, name: str, *others: Any) -> bool:
    """Whether `t` may be written into: no gradient flows into it or from it. An error for a leaf that has one."""
    recording = MODE.get().record
    if t._node is not None and recording and t._node.op is None:
        raise GradientError(
            f"{name}: a leaf that requires gradients cannot be changed in place while operations are recorded; "
            "do it under no_grad(), as in a step of training, or make a new tensor"
        )
    return t.is_leaf and not (recording and any(isinstance(x, Tensor) and x._node is not None for x in others))


def _write_into(out: tuple[Any, ...], ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: Any) -> Any:
    """`array += tensor`: fine while no gradient is lost."""
    if any(isinstance(o, Tensor) for o in out):
        raise TypeError(f"np.{ufunc.__name__}: a Tensor cannot be given as out=; use the result instead")
    if MODE.get().record and any(isinstance(x, Tensor) and x._node is not None for x in inputs):
        raise TypeError(
            f"np.{ufunc.__name__}: the result of a tensor that requires gradients cannot be written into an "
            "ndarray; use .detach() or .data, or the result as a new tensor"
        )
    result = getattr(ufunc, method)(*map(unwrap, inputs), out=out, **options)
    for array in out:
        mark_changed(array)
    return result


def _no_rule(name: str) -> str:
    return (
        f"{name} has no rule for Tensors; use .detach() or .data where no gradient is needed, or custom_op to add one"
    )

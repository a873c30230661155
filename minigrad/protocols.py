"""NumPy's protocols for Tensor: `np.f(t)`, `t > x`, `t += x` and `t[i] = x`.

`np.f(t)` calls the function that `DISPATCH` contains for `np.f`, one of the extension points that
`registry.py` lists. This is why rules are written in NumPy: with `create_graph` they get Tensors,
and record themselves. Look at `_array_ufunc` and `_array_function`.

If operations are recorded, `t += x` sets a new array and a new node of the same Tensor, and its old
array stays unchanged. Views of the tensor go on as views of the new array, and a write through a
view that an index made reaches the tensor. `t[i] = x` is in `ops/select.py`. A tensor that needs no
gradient behaves as an array, and so does every tensor under `no_grad()`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import as_array
from .changes import mark_changed
from .errors import GradientError
from .graph import move_gradient
from .modes import MODE
from .nested import needs_gradient, without_tensors
from .tensor import (
    DISPATCH,
    OTHERS,
    Tensor,
    View,
    node_of,
    record_view,
    unwrap,
    view_of,
    views_of,
    wrap,
)

# -- functions


def _array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    answer = DISPATCH.get(ufunc if method == "__call__" else (ufunc, method))
    if answer is None or options:
        return OTHERS["ufunc"](ufunc, method, inputs, options)
    return answer(*inputs)


def _array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    answer = DISPATCH.get(function)
    return OTHERS["function"](function, args, kwargs) if answer is None else answer(*args, **kwargs)


def _other_function(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a NumPy function with the arrays of tensors, if no gradient is lost."""
    if needs_gradient((args, kwargs)):
        raise TypeError(f"np.{function.__name__} has no rule for Tensors; add one with custom_op")
    return function(*without_tensors(args), **without_tensors(kwargs))


def _other_ufunc(ufunc: np.ufunc, method: str, inputs: Any, options: Any) -> Any:
    return _other_function(getattr(ufunc, method), inputs, options)


def _refuse_complex(op: Any, operands: Any, options: Any) -> Any:
    raise TypeError(f"{op.name}: the result is complex, and complex numbers have no gradients")


Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
Tensor.__array_function__ = _array_function  # type: ignore[attr-defined]
OTHERS.setdefault("ufunc", _other_ufunc)
OTHERS.setdefault("function", _other_function)
OTHERS.setdefault("complex", _refuse_complex)

# -- comparisons, which have no gradient


def _comparison(compare: Callable[..., Any], sign: str) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        return wrap(as_array(compare(self._array, without_tensors(other))), None)

    method.__doc__ = f"Compute a {sign} b for each element."
    return method


for _name, _sign in {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}.items():
    setattr(Tensor, f"__{_name}__", _comparison(getattr(operator, _name), _sign))

# -- changes in place


def writable(t: Tensor, name: str, *others: Any) -> bool:
    """Return whether `t` and `others` need no gradient, so that `t` may be written into.

    A leaf that requires gradients raises an error if operations are recorded.
    """
    recording = MODE.get().record
    if t._node is not None and recording and t._node.op is None:
        raise GradientError(
            f"{name}: a leaf that requires gradients cannot be changed in place while operations "
            "are recorded; change it under no_grad(), as in a training step, or make a new tensor"
        )
    return (t.is_leaf or not recording) and not needs_gradient(others)


def _in_place(ufunc: np.ufunc) -> Callable[[Tensor, Any], Tensor]:
    name = ufunc.__name__

    def operator(self: Tensor, other: Any) -> Tensor:
        if writable(self, name, other):
            if ufunc is np.matmul and np.ndim(other) < 2:
                raise ValueError("matmul: in place, the other operand must be a matrix")
            ufunc(self._array, unwrap(other), out=self._array)
            mark_changed(self._array)
        else:
            assign(self, name, DISPATCH[ufunc](self, other))
        return self

    operator.__doc__ = f"Compute {name} in place; the Tensor gets the new values and gradient."
    return operator


def assign(t: Tensor, name: str, y: Tensor) -> None:
    """Give `t` the array and the node of `y`; the graph may still need the old array."""
    if y.shape != t.shape or not np.can_cast(y.dtype, t.dtype, "same_kind"):
        raise ValueError(
            f"{name}: a result of shape {y.shape} and dtype {y.dtype} does not fit in place of "
            f"shape {t.shape} and dtype {t.dtype}; write t = t + u instead of t += u"
        )
    if y.dtype != t.dtype:
        y = y.astype(t.dtype)
    view = view_of(t)
    if view is None or not _has_used_base(view):
        replace(t, y)
    else:  # a write through a view reaches its base
        WRITE[0](view.base, index_of(view, name), y)


def _has_used_base(view: View | None) -> bool:
    """Return whether the base of a view, or the base of that, may be in use elsewhere."""
    while view is not None:
        if not is_unshared(view, "base"):
            return True
        view = view_of(view.base)
    return False


def index_of(view: View, name: str) -> Any:
    """Return the index of the elements of a view in its base."""
    if view.op.name == "getitem":
        return view.options["index"]
    shape = view.base.shape
    positions = view.op.forward(np.arange(view.base.size).reshape(shape), **view.options)
    if not positions.flags.writeable:
        raise GradientError(
            f"{name}: a view that repeats elements (made by {view.op.name}) cannot be changed in "
            "place; write t = t + u instead of t += u, or change a clone() of it"
        )
    return np.unravel_index(positions, shape) if shape else ...


def replace(t: Tensor, y: Tensor) -> None:
    """Let `t` go on as `y`, and the views of `t` as the same views of `y`.

    `t` keeps its gradient. Hooks stay with the old value, as in PyTorch.
    """
    views, node, made = views_of(t), node_of(t), view_of(y)
    if node is not None and y._node is not None:
        move_gradient(node, y._node)
    t._array, t._node, t._frozen = y._array, y._node, None
    if made is not None:
        record_view(t, made.base, made.op, made.options)
    elif view_of(t) is not None:
        del t._view
    for view, tensor in views:
        replace(tensor, view.op.function(t, **view.options))


def is_unshared(owner: Any, attribute: str) -> bool:
    """Return whether surely nothing but `owner` refers to the value of its attribute."""
    return hasattr(sys, "getrefcount") and _references(owner, attribute) == _ONE


def _references(owner: Any, attribute: str) -> int:
    return sys.getrefcount(getattr(owner, attribute))


_probe = wrap(np.empty(0), None)
_ONE = _references(_probe, "_array") if hasattr(sys, "getrefcount") else 0
"""Result of `_references` for a value to which only its owner refers."""


WRITE: list[Callable[[Tensor, Any, Any], None]] = []
"""The function that writes a value into a tensor at an index, from `ops/select.py`."""


for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "matmul": np.matmul,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift,
}.items():  # fmt: skip
    setattr(Tensor, f"__i{_name}__", _in_place(_ufunc))

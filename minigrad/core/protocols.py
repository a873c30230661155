"""NumPy's protocols for Tensor: `np.f(t)`, `t += x` and `t[i] = x`.

A tensor that needs no gradient behaves as an array, and so does every tensor under `no_grad()`.
If operations are recorded, `t += x` sets a new array and a new node of the same Tensor, and its old
array stays unchanged. An operation that would lose a gradient raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .changes import mark_changed
from .errors import GradientError
from .forms import check_ufunc_options
from .modes import MODE
from .nested import needs_gradient, numpy_name, on_arrays, without_tensors
from .tensor import DISPATCH, Tensor, unwrap


def _array_ufunc(
    self: Tensor, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any
) -> Any:
    if out is not None:
        return _write_into(out, ufunc, method, inputs, options)
    if method == "at":
        return DISPATCH["at"](ufunc, *inputs)
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
            raise TypeError(
                _no_rule(f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}"))
            )
        if method == "__call__":
            check_ufunc_options(ufunc, options)
            return function(*inputs)
    return function(*inputs, **options)


def _array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    handler = DISPATCH.get(function)
    if handler is not None:
        return handler(*args, **kwargs)
    if not needs_gradient((args, kwargs)):
        return on_arrays(function, args, kwargs)
    raise TypeError(_no_rule(numpy_name(function)))


def _no_rule(name: str) -> str:
    return (
        f"{name} has no rule for Tensors; use .detach() or .data if no gradient is needed, or "
        "add a rule with custom_op"
    )


def _write_into(
    out: tuple[Any, ...], ufunc: Any, method: str, inputs: tuple[Any, ...], options: Any
) -> Any:
    """Run a ufunc that writes into arrays, as in `array += tensor`, if no gradient is lost."""
    if needs_gradient(inputs) and any(o is not None and o.dtype.kind not in "iub" for o in out):
        raise TypeError(
            f"np.{ufunc.__name__}: the result of a tensor that requires gradients cannot be "
            "written into an ndarray (by out= or +=); use .detach() or .data, or the result as a "
            "new tensor"
        )
    call = ufunc if method == "__call__" else getattr(ufunc, method)
    return on_arrays(call, inputs, {**options, "out": out})


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
            ufunc(self._array, unwrap(other), out=self._array)
            mark_changed(self._array)
        else:
            _replace(self, name, DISPATCH[ufunc](self, other))
        return self

    operator.__doc__ = f"Compute {name} in place; the Tensor gets the new values and gradient."
    return operator


def _replace(t: Tensor, name: str, y: Tensor) -> None:
    """Give `t` the array and the node of `y`; the graph may still need the old array."""
    advice = "write t = t + u instead of t += u"
    if y.shape != t.shape or not np.can_cast(y.dtype, t.dtype, "same_kind"):
        raise ValueError(
            f"{name}: a result of shape {y.shape} and dtype {y.dtype} does not fit in place of "
            f"shape {t.shape} and dtype {t.dtype}; {advice}"
        )
    node = t._node
    if node is not None and node.op.view and t._array.base is not None:
        raise GradientError(
            f"{name}: a view (made by {node.op.name}) cannot be changed in place while operations "
            f"are recorded, since its base would not change; {advice}"
        )
    if y.dtype != t.dtype:
        y = y.astype(t.dtype)
    if node is not None and node.notes is not None and node.notes.retain:
        node.notes.retain = False
        y.retain_grad()
    t._array, t._node = y._array, y._node


def _set_item(self: Tensor, index: Any, value: Any) -> None:
    """Write into this tensor if it needs no gradient; graphs that need the old values notice it."""
    if not writable(self, "item assignment", value):
        raise GradientError(
            "item assignment: the gradient of a computed tensor, or of the value, would be lost; "
            "build a new tensor with where(), index_add() or concatenate()"
        )
    self._array[without_tensors(index)] = unwrap(value)
    mark_changed(self._array)


Tensor.__setitem__ = _set_item  # type: ignore[method-assign, assignment]
for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "matmul": np.matmul,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}.items():  # fmt: skip
    setattr(Tensor, f"__i{_name}__", _in_place(_ufunc))
Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
Tensor.__array_function__ = _array_function  # type: ignore[attr-defined]

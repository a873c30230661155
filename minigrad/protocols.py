"""NumPy's protocols for Tensor: `np.f(t)`, `t > x`, `t += x` and `t[i] = x`.

`np.f(t)` calls the function that `DISPATCH` contains for `np.f`, one of the extension points that
`registry.py` lists. This is why rules are written in NumPy: with `create_graph` they get Tensors,
and record themselves. Look at `_array_ufunc` and `_array_function`.

`t += x` and `t[i] = x` write into the memory of `t`, as in NumPy. A tensor that needs no gradient
behaves as an array, and so does every tensor under `no_grad()`. Without a package around the book,
other writes raise an error (`extension.write`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import as_array
from .changes import mark_changed
from .errors import GradientError
from .modes import MODE
from .nested import needs_gradient, without_tensors
from .tensor import DISPATCH, Tensor, extension, first_of, unwrap, wrap

# -- functions


def _array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    answer = DISPATCH.get(ufunc if method == "__call__" else (ufunc, method))
    if answer is None or options:
        return _other(ufunc, method, inputs, options)
    return answer(*inputs)


def _array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    answer = DISPATCH.get(function)
    return _other(function, "__call__", args, kwargs) if answer is None else answer(*args, **kwargs)


ANSWERS: list[Callable[..., Any]] = []
"""Answers to calls that `DISPATCH` lacks: `answer(function, method, args, kwargs)`.

`method` is that of a ufunc, such as "reduce", or "__call__". An answer may return NotImplemented.
"""


def _other(function: Any, method: str, args: Any, kwargs: Any) -> Any:
    """Call a function by its answer, or with the arrays of tensors if no gradient is lost."""
    for answer in ANSWERS:
        result = answer(function, method, args, kwargs)
        if result is not NotImplemented:
            return result
    if needs_gradient((args, kwargs)):
        module = (getattr(function, "__module__", None) or "numpy").replace("numpy", "np", 1)
        name = f"{module}.{function.__name__}" + ("" if method == "__call__" else f".{method}")
        raise TypeError(
            f"{name} has no rule for Tensors; use .detach() or .data if no gradient is needed, or "
            "add a rule with custom_op"
        )
    return getattr(function, method)(*without_tensors(args), **without_tensors(kwargs))


def _refuse_complex(op: Any, operands: Any, options: Any) -> Any:
    raise TypeError(f"{op.name}: the result is complex, and complex numbers have no gradients")


Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
Tensor.__array_function__ = _array_function  # type: ignore[attr-defined]
extension.complex = _refuse_complex

# -- comparisons, which have no gradient


def _comparison(compare: Callable[..., Any], sign: str) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        return wrap(as_array(compare(self._array, without_tensors(other))), None)

    method.__doc__ = f"Compute a {sign} b for each element."
    return method


for _name, _sign in {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}.items():
    setattr(Tensor, f"__{_name}__", _comparison(getattr(operator, _name), _sign))

# -- writes


def _in_place(ufunc: np.ufunc) -> Callable[[Tensor, Any], Tensor]:
    name = ufunc.__name__

    def in_place(self: Tensor, other: Any) -> Tensor:
        check_writable(self, name)
        if needs_gradient((self, other)):
            y = fitting(self, name, DISPATCH[ufunc](self, other))
            extension.write(self, ..., y, name, True)
            return self
        if ufunc is np.matmul and np.ndim(other) < 2:
            raise ValueError("matmul: in place, the other operand must be a matrix")
        extension.change(self, lambda: ufunc(self._array, unwrap(other), out=self._array))
        return self

    in_place.__doc__ = f"Compute {name} in place."
    return in_place


def check_writable(t: Tensor, name: str) -> None:
    """Raise a GradientError for a leaf, or a view of a leaf, if operations are recorded."""
    first = first_of(t)
    if MODE.get().record and first._last_node is not None and first._last_node.op is None:
        raise GradientError(
            f"{name}: a leaf that requires gradients cannot be changed in place while operations "
            "are recorded; change it under no_grad(), as in a training step, or make a new tensor"
        )


def fitting(t: Tensor, name: str, y: Tensor) -> Tensor:
    """Return the result of an operation in the dtype of `t`, in whose place it is written."""
    if y.shape != t.shape or not np.can_cast(y.dtype, t.dtype, "same_kind"):
        raise ValueError(
            f"{name}: a result of shape {y.shape} and dtype {y.dtype} does not fit in place of "
            f"shape {t.shape} and dtype {t.dtype}; write t = t + u instead of t += u"
        )
    return y if y.dtype == t.dtype else y.astype(t.dtype)


def _set_item(self: Tensor, index: Any, value: Any) -> None:
    """Write a value at an index."""
    check_writable(self, "item assignment")
    extension.write(self, index, value, "item assignment")


def _change(t: Tensor, write: Callable[[], Any]) -> None:
    """Call `write`, which writes values without a gradient into the memory of `t`."""
    write()
    mark_changed(t._array)


def _write(t: Tensor, index: Any, value: Any, name: str, is_new: bool = False) -> None:
    """Write a value at an index; `is_new` if nothing else refers to the value."""
    if needs_gradient((t, value)):
        raise GradientError(
            f"{name}: a tensor that requires gradients, or a value that does, cannot be written "
            "in place; write t = t + u instead of t += u, and np.where(mask, u, t) instead of "
            "t[mask] = u"
        )
    t._array[without_tensors(index)] = unwrap(value)
    mark_changed(t._array)


extension.change, extension.write = _change, _write
Tensor.__setitem__ = _set_item  # type: ignore[method-assign, assignment]

for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "matmul": np.matmul,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift,
}.items():  # fmt: skip
    setattr(Tensor, f"__i{_name}__", _in_place(_ufunc))

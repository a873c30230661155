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
from typing import Any

import numpy as np

from .arrays import Array, ArrayLike, Function, Index, Options, Tree, as_array, as_result, is_number
from .changes import mark_changed
from .errors import GradientError
from .modes import MODE
from .nested import needs_gradient, numpy_name, without_tensors
from .tensor import DISPATCH, Tensor, extension, first_of, unwrap, wrap

# -- functions


def _array_ufunc(
    self: Tensor, ufunc: np.ufunc, method: str, *inputs: ArrayLike, **options: Any
) -> Array:
    answer = DISPATCH.get(ufunc if method == "__call__" else (ufunc, method))
    if answer is None or options:
        return _other(ufunc, method, inputs, options)
    return answer(*inputs)


def _array_function(
    self: Tensor, function: Function, types: object, args: tuple[Tree, ...], kwargs: Options
) -> Array:
    answer = extension.answer(function)
    return _other(function, "__call__", args, kwargs) if answer is None else answer(*args, **kwargs)


ANSWERS: list[Function] = []
"""Answers to calls that `DISPATCH` lacks: `answer(function, method, args, kwargs)`.

`method` is that of a ufunc, such as "reduce", or "__call__". An answer may return NotImplemented.
"""


def _other(function: Function, method: str, args: tuple[Tree, ...], kwargs: Options) -> Array:
    """Call a function by its answer, or with the arrays of tensors if no gradient is lost."""
    for answer in ANSWERS:
        result = answer(function, method, args, kwargs)
        if result is not NotImplemented:
            return result
    if needs_gradient((args, kwargs)):
        name = numpy_name(function) + ("" if method == "__call__" else f".{method}")
        raise TypeError(
            f"{name} has no rule for Tensors; use .detach() or .data if no gradient is needed, or "
            "add a rule with custom_op"
        )
    return getattr(function, method)(*without_tensors(args), **without_tensors(kwargs))


Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
Tensor.__array_function__ = _array_function  # type: ignore[attr-defined]

# -- comparisons, which have no gradient


for _compare_arrays, _sign in (
    (operator.lt, "<"), (operator.le, "<="), (operator.eq, "=="), (operator.ne, "!="),
    (operator.gt, ">"), (operator.ge, ">="),
):  # fmt: skip

    def _compare(self: Tensor, other: Array, /, compare: Function = _compare_arrays) -> Tensor:
        return wrap(as_result(compare(self._array, without_tensors(other))), None)

    _compare.__doc__ = f"Compute a {_sign} b for each element."
    setattr(Tensor, f"__{_compare_arrays.__name__}__", _compare)

# -- writes

LEAVES: set[Any] = {None}
"""`Node.op` of leaves, and of inputs of a derivative inside another one."""


def check_writable(t: Tensor, name: str) -> None:
    """Raise a GradientError for a leaf, or a view of a leaf, if operations are recorded."""
    node = first_of(t)._last_node
    if node is not None and node.op in LEAVES and MODE.get().record:
        raise GradientError(
            f"{name}: a leaf that requires gradients cannot be changed in place while operations "
            "are recorded; write x = x.copy() before, or change a parameter under no_grad()"
        )


def _check_class(value: Array) -> None:
    """Raise a TypeError for an array of a class whose meaning an ndarray does not have."""
    if not isinstance(value, (Tensor, list, tuple, int, float)):
        as_array(value)


def _set_item(self: Tensor, index: Index, value: Array) -> None:
    """Write a value at an index."""
    check_writable(self, "item assignment")
    _check_class(value)
    if is_number(self._array):  # whose values other tensors and the graph keep
        self._array = self._array.copy()
    extension.write(self, index, value, "item assignment")


def _check_constant(t: Tensor, value: Array, name: str) -> None:
    """Raise a GradientError if a write would lose a gradient."""
    if needs_gradient((t, value)):
        raise GradientError(
            f"{name}: a tensor that requires gradients, or a value that does, cannot be written "
            "in place; write t = t + u instead of t += u, and np.where(mask, u, t) instead of "
            "t[mask] = u"
        )


def _write(t: Tensor, index: Index, value: Array, name: str) -> None:
    """Write a value at an index."""
    _check_constant(t, value, name)
    t._array[without_tensors(index)] = unwrap(value)
    mark_changed(t._array)


def _update(t: Tensor, ufunc: np.ufunc, other: Array) -> None:
    """Write ufunc(t, other) into t."""
    _check_constant(t, other, ufunc.__name__)
    ufunc(t._array, unwrap(other), out=t._array)
    mark_changed(t._array)


extension.write, extension.update = _write, _update
Tensor.__setitem__ = _set_item  # type: ignore[method-assign, assignment]

for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "matmul": np.matmul,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift,
}.items():  # fmt: skip

    def _in_place(self: Tensor, other: Array, /, ufunc: np.ufunc = _ufunc) -> Tensor:
        if is_number(self._array):
            return ufunc(self, other)
        check_writable(self, ufunc.__name__)
        _check_class(other)
        if ufunc is np.matmul and np.ndim(other) < 2:
            raise ValueError("matmul: in place, the other operand must be a matrix")
        extension.update(self, ufunc, other)
        return self

    _in_place.__doc__ = f"Compute {_ufunc.__name__} in place."
    setattr(Tensor, f"__i{_name}__", _in_place)

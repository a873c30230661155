"""What NumPy asks of a Tensor: to answer `np.f(t)`, and to be written into by `t += x` and by
`out=`.

A tensor that needs no gradient is an array like any other, and so is every tensor under
`no_grad()`. Where a gradient flows, `t += x` is `t = t + x`, a new tensor with the old one as it
was; and what would lose the gradient is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .changes import mark_changed
from .errors import GradientError
from .forms import ufunc_form
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
        if method == "__call__" and options:
            return ufunc_form(function, ufunc, inputs, options)
    return function(*inputs, **options)


def _array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    ours = DISPATCH.get(function)
    if ours is not None:
        return ours(*args, **kwargs)
    if not needs_gradient((args, kwargs)):
        return on_arrays(function, args, kwargs)
    raise TypeError(_no_rule(numpy_name(function)))


def _no_rule(name: str) -> str:
    return f"{name} has no rule for Tensors; use .detach() or .data where no gradient is needed, or custom_op to add one"


def _write_into(
    out: tuple[Any, ...], ufunc: Any, method: str, inputs: tuple[Any, ...], options: Any
) -> Any:
    """`array += tensor`: fine while no gradient is lost."""
    if any(isinstance(o, Tensor) for o in out):
        raise TypeError(
            f"np.{ufunc.__name__}: a Tensor cannot be given as out=; use the result instead"
        )
    if needs_gradient(inputs) and any(o is not None and o.dtype.kind not in "iub" for o in out):
        raise TypeError(
            f"np.{ufunc.__name__}: the result of a tensor that requires gradients cannot be "
            "written into an "
            "ndarray (by out= or +=); use .detach() or .data, or the result as a new tensor"
        )
    result = getattr(ufunc, method)(*map(unwrap, inputs), out=out, **without_tensors(options))
    for array in out:
        mark_changed(array)
    return result


def writable(t: Tensor, name: str, *others: Any) -> bool:
    """Whether `t` may be written into, since no gradient flows into it or from it; a leaf that has
    one is an error.
    """
    recording = MODE.get().record
    if t._node is not None and recording and t._node.op is None:
        raise GradientError(
            f"{name}: a leaf that requires gradients cannot be changed in place while operations "
            "are recorded; "
            "do it under no_grad(), as in a step of training, or make a new tensor"
        )
    return (t.is_leaf or not recording) and not needs_gradient(others)


def _in_place(ufunc: np.ufunc) -> Callable[[Tensor, Any], Tensor]:
    def operator(self: Tensor, other: Any) -> Tensor:
        if not writable(self, ufunc.__name__, other):
            y = DISPATCH[ufunc](self, other)
            if y.shape != self.shape:
                raise ValueError(
                    f"{ufunc.__name__}: a result of shape {y.shape} does not fit in place of "
                    f"shape {self.shape}; "
                    "write t = t + u, with the operator that is meant"
                )
            return y
        ufunc(self._array, unwrap(other), out=self._array)
        mark_changed(self._array)
        return self

    operator.__doc__ = f"{ufunc.__name__}, into this tensor where no gradient flows through it."
    return operator


for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}.items():  # fmt: skip
    setattr(Tensor, f"__i{_name}__", _in_place(_ufunc))
Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
Tensor.__array_function__ = _array_function  # type: ignore[attr-defined]

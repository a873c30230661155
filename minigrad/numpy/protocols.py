"""NumPy's functions and ufuncs for tensors that the dispatch table does not list.

A tensor that needs no gradient behaves as an array: NumPy itself computes the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..nested import needs_gradient
from ..protocols import ANSWERS
from ..tensor import DISPATCH, Tensor
from .forms import check_ufunc_options
from .nested import as_tensors, numpy_name, on_arrays, write_out
from .scipy_special import by_name
from .writing import at


def _answer(function: Any, method: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what a function returns, or NotImplemented if it would lose a gradient."""
    if isinstance(function, np.ufunc):
        return _of_ufunc(function, method, args, kwargs)
    if isinstance(out := kwargs.get("out"), Tensor):
        y = function(*args, **{key: x for key, x in kwargs.items() if key != "out"})
        return write_out(numpy_name(function), out, Tensor(y))
    return NotImplemented if needs_gradient((args, kwargs)) else on_arrays(function, args, kwargs)


def _of_ufunc(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    out = options.pop("out", None)
    if out is not None:
        return _write_into(out, ufunc, method, inputs, options)
    if method == "at":
        return at(ufunc, *inputs)
    function = DISPATCH.get(ufunc if method == "__call__" else (ufunc, method))
    if function is None or options:
        call = getattr(ufunc, method)
        if not needs_gradient((inputs, options)):
            y = on_arrays(call, inputs, options)
            return y if function is None else as_tensors(y)
        if function is None and method == "__call__":
            function = by_name(ufunc)
        if function is None:
            return NotImplemented
        if method == "__call__":
            return function(*inputs, **check_ufunc_options(ufunc, options))
    return function(*inputs, **options)


def _write_into(
    out: tuple[Any, ...], ufunc: Any, method: str, inputs: tuple[Any, ...], options: Any
) -> Any:
    """Run a ufunc that writes into arrays, as in `array += tensor`, if no gradient is lost."""
    if any(isinstance(o, Tensor) for o in out):
        y = getattr(ufunc, method)(*inputs, **options)
        ys = [y] if len(out) == 1 else y
        name = numpy_name(ufunc)
        ys = [part if o is None else write_out(name, o, part) for o, part in zip(out, ys)]
        return ys[0] if len(out) == 1 else tuple(ys)
    if needs_gradient(inputs) and any(o is not None and o.dtype.kind not in "iub" for o in out):
        raise TypeError(
            f"{numpy_name(ufunc)}: the result of a tensor that requires gradients cannot be "
            "written into an ndarray (by out= or +=); write y = a + x instead of a += x, make a "
            "a tensor by minigrad.tensor(a), or write x.detach() if no gradient is needed"
        )
    call = ufunc if method == "__call__" else getattr(ufunc, method)
    return on_arrays(call, inputs, {**options, "out": out})


ANSWERS.append(_answer)

"""NumPy's functions that write into their first argument, which here may be a tensor that no
gradient flows through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.changes import mark_changed
from ..core.errors import GradientError
from ..core.nested import needs_gradient, on_arrays
from ..core.protocols import writable
from ..core.tensor import DISPATCH, Tensor, unwrap


def _writes(name: str, numpy: Callable[..., Any], first: str) -> Callable[..., Any]:
    """`numpy`, which writes into its argument `first`: graphs that saved it will notice, and no
    gradient is lost.
    """

    def call(*args: Any, **options: Any) -> None:
        target, *rest = args or (options.pop(first),)
        values = [*rest, *options.values()]
        allowed = (
            writable(target, name, *values)
            if isinstance(target, Tensor)
            else not needs_gradient(values)
        )
        if not allowed:
            shown = (
                f"{name}, which np.full and np.full_like use too" if numpy is np.copyto else name
            )
            raise GradientError(
                f"{shown}: what is written would lose its gradient; write np.where(mask, source, "
                "target), "
                "np.broadcast_to(value, shape), or index_add(target, index, values)"
            )
        on_arrays(numpy, (target, *rest), options)
        mark_changed(unwrap(target))

    return call


for _name, _first in {
    "copyto": "dst", "put": "a", "place": "arr", "putmask": "a", "fill_diagonal": "a", "put_along_axis": "arr",
}.items():  # fmt: skip
    _numpy = getattr(np, _name)
    DISPATCH[_numpy] = _writes(f"np.{_name}", _numpy, _first)

DISPATCH["at"] = lambda ufunc, *args: _writes(f"np.{ufunc.__name__}.at", ufunc.at, "a")(*args)


def _in_place(name: str, otherwise: str) -> Any:
    """A method of NumPy's that writes into x, and returns None; where a gradient flows it is
    refused.
    """

    def method(self: Tensor, *args: Any, **options: Any) -> None:
        if options.keys() & {"dim", "descending"}:
            raise TypeError(
                f"{name}: PyTorch returns a pair, NumPy sorts in place; write np.sort(x) and "
                "np.argsort(x)"
            )
        if not writable(self, name, args, options):
            raise GradientError(
                f"{name}: in place, the gradient of x would be lost; write {otherwise}"
            )
        on_arrays(getattr(self.data, name), args, options)
        mark_changed(self.data)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"As NumPy's, in place, where no gradient flows through x; otherwise write {otherwise}."
    )
    return method


for _name, _otherwise in {
    "sort": "np.sort(x)",
    "partition": "np.partition(x, kth)",
    "fill": "np.full_like(x, value)",
}.items():
    setattr(Tensor, _name, _in_place(_name, _otherwise))

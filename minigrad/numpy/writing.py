"""NumPy's functions that write into their first argument, for tensors without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..changes import mark_changed
from ..errors import GradientError
from ..nested import needs_gradient
from ..protocols import writable
from ..tensor import DISPATCH, Tensor, unwrap
from .nested import on_arrays


def _writes(name: str, numpy: Callable[..., Any], first: str) -> Callable[..., Any]:
    """Return a function that calls `numpy` if no gradient is lost, and marks the change."""

    def call(*args: Any, **options: Any) -> None:
        target, *rest = args or (options.pop(first),)
        values = [*rest, *options.values()]
        allowed = (
            writable(target, name, *values)
            if isinstance(target, Tensor)
            else not needs_gradient(values)
        )
        if not allowed:
            shown = f"{name}, which np.full and np.full_like call" if numpy is np.copyto else name
            raise GradientError(
                f"{shown}: the written values would lose their gradient; use np.where(mask, "
                "source, target), np.broadcast_to(value, shape), or index_add(target, "
                "index=index, values=values)"
            )
        on_arrays(numpy, (target, *rest), options)
        mark_changed(unwrap(target))

    return call


for _name, _first in {
    "copyto": "dst", "put": "a", "place": "arr", "putmask": "a", "fill_diagonal": "a",
    "put_along_axis": "arr",
}.items():  # fmt: skip
    _numpy = getattr(np, _name)
    DISPATCH[_numpy] = _writes(f"np.{_name}", _numpy, _first)

DISPATCH["at"] = lambda ufunc, *args: _writes(f"np.{ufunc.__name__}.at", ufunc.at, "a")(*args)

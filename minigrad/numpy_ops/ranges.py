"""Ranges whose ends are tensors, and arrays filled with one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.tensor import Tensor, unwrap
from ..ops.axes import shape_of
from ..ops.shape import astype, broadcast_to, clone, moveaxis


def _weak(x: Any) -> Any:
    """The array of x; a number of Python's as it is, since it changes no dtype."""
    return x if isinstance(x, (int, float)) else np.asarray(unwrap(x))


@numpy_form(np.linspace)
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` numbers, evenly spaced from `start` to `stop` along a new `axis`; without `endpoint`
    `stop` is left out.
    """
    steps = int(num) - 1 if endpoint else int(num)
    if num < 0:
        raise ValueError(f"linspace: expected num >= 0, got {num}")
    shape = np.broadcast_shapes(shape_of(start), shape_of(stop))
    fraction = (np.arange(num) / (steps or 1)).reshape(-1, *[1] * len(shape))
    fraction = fraction.astype(np.result_type(*map(_weak, (start, stop)), 0.0))
    y = (1 - fraction) * start + fraction * stop
    y = moveaxis(y if dtype is None else astype(y, dtype), 0, axis)
    return (y, (stop - start) / steps if steps > 0 else np.nan) if retstep else y


@numpy_form(np.full_like)
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Tensor:
    """`fill_value`, which may be a tensor, in the shape and the dtype of a, unless others are
    given.
    """
    like = np.empty_like(unwrap(a), dtype, order, shape=shape)  # type: ignore[call-overload]  # refuses other orders
    return clone(broadcast_to(astype(fill_value, like.dtype), like.shape))

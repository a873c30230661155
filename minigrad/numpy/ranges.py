"""Ranges and constant arrays made from tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import checked_count, shape_of
from ..ops.shape import astype, broadcast_to, clone
from ..tensor import Tensor, to_array, unwrap
from .creation import check_fill_value
from .forms import numpy_form
from .shape import moveaxis


def _weak(x: Any) -> Any:
    """Return the array of x, or a Python number unchanged, so that it changes no dtype."""
    return x if isinstance(x, (int, float)) else to_array(x)


@numpy_form(np.linspace)
def linspace(start: Any, stop: Any, num: int = 50, *, dtype: Any = None, axis: int = 0) -> Tensor:
    """Return `num` values from `start` to `stop`, evenly spaced along a new axis."""
    checked_count("linspace", "num", num, 0)
    shape = np.broadcast_shapes(shape_of(start), shape_of(stop))
    fraction = (np.arange(num) / max(num - 1, 1)).reshape(-1, *[1] * len(shape))
    fraction = fraction.astype(np.result_type(*map(_weak, (start, stop)), 0.0))
    y = moveaxis((1 - fraction) * start + fraction * stop, 0, axis)
    return y if dtype is None else astype(y, dtype)


@numpy_form(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None) -> Tensor:
    """Return `fill_value`, which may be a tensor, in the shape and dtype of `a` by default."""
    like = np.empty_like(unwrap(a), dtype, shape=shape)
    check_fill_value("full_like", fill_value, like.dtype)
    return clone(broadcast_to(astype(fill_value, like.dtype), like.shape))

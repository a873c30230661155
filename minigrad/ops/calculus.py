"""Differences, integrals and interpolation of sampled functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.op import function
from ..core.tensor import Tensor
from .axes import one_axis, shape_of
from .elementwise import subtract
from .indexing import getitem
from .joining import concatenate
from .shape import clone

__all__ = ["diff"]


@function(numpy=np.diff, methods="diff")
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """The differences of neighbours along `axis`, taken `n` times; of x with `prepend` before and `append` after it."""
    if n < 0:
        raise ValueError(f"diff: expected n >= 0, got {n}")
    if n == 0:
        return clone(x)
    if np.ndim(x) == 0:
        raise ValueError("diff: expected at least one axis, got a scalar")
    axis = one_axis("diff", axis, np.ndim(x))
    ends = [_end(value, x, axis) for value in (prepend, append)]
    parts = [part for part in (ends[0], x, ends[1]) if part is not None]
    if len(parts) > 1:
        x = concatenate(parts, axis)
    before = (slice(None),) * axis
    for _ in range(n):
        x = subtract(getitem(x, (*before, slice(1, None))), getitem(x, (*before, slice(None, -1))))
    return x


def _end(value: Any, x: Any, axis: int) -> Any:
    """What is put at an end of x: a number stands for one at each place."""
    if value is None or np.ndim(value):
        return value
    return np.broadcast_to(value, [1 if i == axis else k for i, k in enumerate(shape_of(x))])

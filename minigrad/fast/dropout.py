"""Kernels of dropout, alone or after relu."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fuse import fuse
from ..ops import network
from .blocks import BLOCK, row_blocks


def _apply_mask(x: Any, mask: Any, scale: float) -> Any:
    """Compute x · mask · scale, the result of dropout and its rule."""
    if type(x) is not np.ndarray or x.dtype.kind != "f":
        return x * mask * scale
    if x.size <= BLOCK:
        y = np.multiply(x, mask)
        y *= scale
        return y
    y = np.empty(x.shape, x.dtype)
    source, chosen, target = (np.ascontiguousarray(a).reshape(-1) for a in (x, mask, y))
    for block in row_blocks(y.size, 1):
        part = np.multiply(source[block], chosen[block], out=target[block])
        part *= scale
    return y


@fuse(network._dropout, x=_apply_mask)
def _dropout(x, /, mask, scale):
    return _apply_mask(x, mask, scale)


# The rule needs no mask: the result is 0 exactly where the gradient is 0.
@fuse(network._relu_dropout, x=lambda g, y, scale: _apply_mask(g, y != 0, scale))
def _relu_dropout(x, /, mask, scale):
    y = np.empty_like(x, order="C")
    source, chosen, target = (np.ascontiguousarray(a).reshape(-1) for a in (x, mask, y))
    zero = np.zeros(1, y.dtype)  # faster than the number 0
    for block in row_blocks(y.size, 1):
        part = np.maximum(source[block], zero, out=target[block])
        part *= chosen[block]
        part *= scale
    return y

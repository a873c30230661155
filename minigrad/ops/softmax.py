"""Softmax and its relatives, without overflow."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.registry import function, op
from ..core.tensor import Tensor
from .axes import booleans
from .reduction import largest, total

__all__ = ["softmax", "log_softmax"]


@op(x=lambda g, y, axis: y * (g - np.sum(g * y, axis=axis, keepdims=True)))
def _softmax(x, /, axis=-1, where=None):
    x = np.asarray(x)
    if where is None:
        y = np.asarray(np.exp(x - largest(x, axis)))
        return np.divide(y, total(y, axis), out=y)
    top = largest(x, axis, where)
    y = np.where(where, np.exp(np.where(where, x - np.where(np.isfinite(top), top, 0), -np.inf)), 0)
    sums = total(y, axis)
    return np.divide(y, np.where(sums == 0, 1, sums), out=y)


@function(methods="softmax")
def softmax(x: Any, axis: int = -1, *, where: Any = None) -> Tensor:
    """eˣ, divided by its sum over `axis`.

    With `where` (booleans, broadcast to x; True = counts) the other elements get weight 0, and a
    slice with none that counts gets zeros, with zero gradient.
    """
    if where is not None:
        where = np.broadcast_to(booleans("softmax: where=", where), np.shape(x))
    return _softmax(x, axis=axis, where=where)


@op(methods="log_softmax", x=lambda g, y, axis: g - np.exp(y) * np.sum(g, axis=axis, keepdims=True))
def log_softmax(x, /, axis=-1):
    """log(softmax(x)) over `axis`, without underflow."""
    x = np.asarray(x)
    x = np.asarray(x - largest(x, axis))
    with np.errstate(divide="ignore"):  # the sum over an axis of length 0 is 0
        return np.subtract(x, np.log(total(np.exp(x), axis)), out=x)

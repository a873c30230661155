"""Softmax and its logarithm, without overflow."""

from __future__ import annotations

import numpy as np

from ..core.batched import as_array
from ..core.registry import op
from .axes import booleans
from .reduction import largest, total

__all__ = ["softmax", "log_softmax"]


@op(methods="softmax", x=lambda g, y, axis: y * (g - (g * y).sum(axis=axis, keepdims=True)))
def softmax(x, /, axis: int = -1, *, where=None):
    """Compute exp(x) / sum(exp(x)) over `axis`.

    Parameters
    ----------
    x : array_like
    axis : int
        The last by default.
    where : array of bool, broadcastable to x, optional
        True = the element counts; the others get 0. A slice without a True gets zeros, and zero
        gradients.

    Returns
    -------
    Tensor
        Values in the shape of x that sum to 1 over `axis`.
    """
    x = as_array(x)
    if where is None:
        y = as_array(np.exp(x - largest(x, axis)))
        return np.divide(y, total(y, axis), out=y)
    where = np.broadcast_to(booleans("where", where), x.shape)
    top = largest(x, axis, where)
    y = np.where(where, np.exp(np.where(where, x - np.where(np.isfinite(top), top, 0), -np.inf)), 0)
    sums = total(y, axis)
    return np.divide(y, np.where(sums == 0, 1, sums), out=y)


@op(methods="log_softmax", x=lambda g, y, axis: g - np.exp(y) * g.sum(axis=axis, keepdims=True))
def log_softmax(x, /, axis=-1):
    """Compute log(softmax(x)) over `axis`, without underflow.

    Parameters
    ----------
    x : array_like
    axis : int
        The last by default.

    Returns
    -------
    Tensor
        Log-probabilities in the shape of x.
    """
    x = as_array(x)
    x = as_array(x - largest(x, axis))
    with np.errstate(divide="ignore"):  # the sum over an axis of length 0 is 0
        return np.subtract(x, np.log(total(np.exp(x), axis)), out=x)

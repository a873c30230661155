"""Activation functions: relu, sigmoid, softmax and its logarithm.

Look at the rules. Softmax subtracts the largest element first, so that no exponential overflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import booleans
from ..arrays import as_array
from ..op import either
from ..registry import op
from .arithmetic import over_cosh_squared
from .reduce import largest, total

__all__ = ["relu", "sigmoid", "softmax", "log_softmax"]


@op(methods="relu", x=lambda g, y: g * (y != 0.0))  # passes the gradient at NaN
def relu(x, /):
    """Compute max(x, 0); the derivative at 0 is 0.

    Parameters
    ----------
    x : array_like
    """
    return np.maximum(x, 0)


def as_floats(x: Any) -> Any:
    """Return an array of integers or booleans as float64."""
    x = as_array(x)
    return x.astype(float) if x.dtype.kind in "iub" else x


@op(methods="sigmoid", x=lambda g, x: over_cosh_squared(g * 0.25, x * 0.5))  # g · y · (1 - y)
def sigmoid(x, /):
    """Compute 1 / (1 + exp(-x)).

    Parameters: as `relu`.
    """
    with np.errstate(over="ignore"):  # where e⁻ˣ is infinite, the result is 0
        y = as_array(np.exp(-as_floats(x)))
        y += 1
        return np.reciprocal(y, out=y)


logistic: Any = either(sigmoid)  # for rules

# -- softmax


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
    """
    x = as_array(x)
    if where is None:
        y = as_array(np.exp(x - largest(x, axis)))
        return np.divide(y, total(y, axis), out=y)
    where = np.broadcast_to(booleans("where", where), x.shape)
    top = largest(x, axis, where)
    y = as_array(np.exp(np.where(where, x - np.where(top == -np.inf, 0, top), -np.inf)))
    sums = total(y, axis)
    return np.divide(y, np.where(sums == 0, 1, sums), out=y)


@op(methods="log_softmax", x=lambda g, y, axis: g - np.exp(y) * g.sum(axis=axis, keepdims=True))
def log_softmax(x, /, axis=-1):
    """Compute log(softmax(x)) over `axis`, without underflow.

    Parameters: as `softmax`.
    """
    x = as_array(x)
    x = as_array(x - largest(x, axis))
    with np.errstate(divide="ignore"):  # the sum over an axis of length 0 is 0
        return np.subtract(x, np.log(total(np.exp(x), axis)), out=x)

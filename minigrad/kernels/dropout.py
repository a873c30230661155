"""Dropout, alone or after a relu: Srivastava et al. (2014), JMLR 15, 1929-1958."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.random import random_words
from ..core.registry import function, op
from ..core.tensor import Tensor
from ..ops.activations import relu
from .blocks import BLOCK, row_blocks
from .definitions import kernel

__all__ = ["dropout", "relu_dropout"]

_LEVELS = 256  # a random byte for each element


def dropout_mask(
    shape: tuple[int, ...], p: float, generator: np.random.Generator | None
) -> tuple[np.ndarray, float]:
    """Booleans, True with probability 1 - p' for the p' = k / 256 nearest to p, 0 < k < 256, and 1
    / (1 - p').
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout: expected 0 <= p < 1, got {p}")
    dropped = min(max(1, round(p * _LEVELS)), _LEVELS - 1) if p else 0
    n = math.prod(shape)
    words = random_words(-(-n // 8), generator)
    return (words.view(np.uint8)[:n] >= dropped).reshape(shape), _LEVELS / (_LEVELS - dropped)


def _masked(x: Any, mask: Any, scale: float) -> Any:
    """x · mask · scale: the result of dropout, and its rule."""
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


@op(x=_masked)
def _dropout(x, /, mask, scale):
    return _masked(x, mask, scale)


@function()
def dropout(
    x: Any, p: float = 0.5, training: bool = True, *, generator: np.random.Generator | None = None
) -> Tensor:
    """x with each element set to 0 with probability `p`, and the others divided by 1 - p.

    The probability is rounded to the nearest 1/256, never to 1 (a random byte decides), and the
    division is by what it was rounded to, so the expectation is exact. With `training=False` x is
    returned as it is.
    """
    x = x if isinstance(x, Tensor) else Tensor(x)
    if not training or p == 0:
        return x
    mask, scale = dropout_mask(x.shape, p, generator)
    return _dropout(x, mask=mask, scale=scale)


def relu_dropout_definition(x: Any, mask: Any, scale: float) -> Tensor:
    """dropout(relu(x))."""
    return relu(x) * mask * scale


# What is not 0 in the result was neither cut off nor left out.
@kernel(definition=relu_dropout_definition, x=lambda g, y, scale: _masked(g, y != 0, scale))
def _relu_dropout(x, /, mask, scale):
    y = np.empty_like(x, order="C")
    source, chosen, target = (np.ascontiguousarray(a).reshape(-1) for a in (x, mask, y))
    zero = np.zeros(1, y.dtype)  # faster than the number 0
    for block in row_blocks(y.size, 1):
        part = np.maximum(source[block], zero, out=target[block])
        part *= chosen[block]
        part *= scale
    return y


@function()
def relu_dropout(
    x: Any, *, p: float = 0.5, training: bool = True, generator: np.random.Generator | None = None
) -> Tensor:
    """dropout(relu(x), p, training, generator), of which only the result is saved for the gradient."""
    if not training or p == 0:
        return relu(x)
    x = x if isinstance(x, Tensor) else Tensor(x)
    mask, scale = dropout_mask(x.shape, p, generator)
    return _relu_dropout(x, mask=mask, scale=scale)

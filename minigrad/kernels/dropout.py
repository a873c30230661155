"""Dropout, alone or after relu: Srivastava et al. (2014), JMLR 15, 1929-1958."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.random import random_words
from ..core.registry import function, op
from ..core.tensor import Tensor
from ..ops.activations import relu
from ..ops.shape import floating
from .blocks import BLOCK, row_blocks
from .definitions import kernel

__all__ = ["dropout", "relu_dropout"]

_LEVELS = 256  # a random byte for each element


def dropout_mask(
    shape: tuple[int, ...], p: float, generator: np.random.Generator | None
) -> tuple[np.ndarray, float]:
    """Return a mask that is True with probability 1 - q, and 1 / (1 - q).

    q = k / 256 is the nearest to p with 0 < k < 256.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p must be at least 0 and less than 1, got {p}")
    dropped = min(max(1, round(p * _LEVELS)), _LEVELS - 1) if p else 0
    n = math.prod(shape)
    words = random_words(-(-n // 8), generator)
    return (words.view(np.uint8)[:n] >= dropped).reshape(shape), _LEVELS / (_LEVELS - dropped)


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


@op(x=_apply_mask)
def _dropout(x, /, mask, scale):
    return _apply_mask(x, mask, scale)


@function()
def dropout(
    x: Any, p: float = 0.5, training: bool = True, *, generator: np.random.Generator | None = None
) -> Tensor:
    """Set each element to 0 with probability `p`, and divide the others by 1 - p.

    Parameters
    ----------
    x : Tensor
    p : float
        At least 0 and less than 1; 0.5 by default. It is rounded to the nearest k / 256 with
        0 < k < 256, and the elements are divided by 1 - k / 256, so the expectation is exact.
    training : bool
        Drop elements, as by default; False returns x unchanged.
    generator : numpy.random.Generator, optional
        Source of random numbers; the default generator by default.

    Returns
    -------
    Tensor
        Shape of x, with 0 for dropped elements.
    """
    x = x if isinstance(x, Tensor) else Tensor(x)
    if not training or p == 0:
        return x
    mask, scale = dropout_mask(x.shape, p, generator)
    return _dropout(x, mask=mask, scale=scale)


def relu_dropout_definition(x: Any, mask: Any, scale: float) -> Tensor:
    """Compute dropout(relu(x))."""
    return relu(x) * mask * scale


# The rule needs no mask: the result is 0 exactly where the gradient is 0.
@kernel(definition=relu_dropout_definition, x=lambda g, y, scale: _apply_mask(g, y != 0, scale))
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
    """Compute dropout(relu(x)), and save only the result for the gradient.

    Parameters
    ----------
    x : Tensor
    p : float
        Probability of dropping an element, as in `dropout`; 0.5 by default.
    training : bool
        Drop elements, as by default; False returns relu(x).
    generator : numpy.random.Generator, optional
        Source of random numbers; the default generator by default.

    Returns
    -------
    Tensor
        Result in the shape of x.
    """
    if not training or p == 0:
        return relu(x)
    x = floating(x)
    mask, scale = dropout_mask(x.shape, p, generator)
    return _relu_dropout(x, mask=mask, scale=scale)

"""Dropout, alone or after relu: Srivastava et al. (2014), JMLR 15, 1929-1958.

The mask is drawn once, outside the operations that it multiplies, so the forward and the backward
pass use the same mask. Look at `dropout_mask`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..fuse import fusible
from ..random import random_words
from ..registry import function
from ..tensor import Tensor
from .activation import relu
from .shape import floating

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


@fusible(any_dtype=True)
def _dropout(x: Any, mask: Any, scale: float) -> Tensor:
    return x * mask * scale


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


@fusible(any_dtype=True)
def _relu_dropout(x: Any, mask: Any, scale: float) -> Tensor:
    return relu(x) * mask * scale


@function()
def relu_dropout(
    x: Any, *, p: float = 0.5, training: bool = True, generator: np.random.Generator | None = None
) -> Tensor:
    """Compute dropout(relu(x)). A kernel saves only the result for the gradient.

    Parameters: as `dropout`.
    """
    if not training or p == 0:
        return relu(x)
    x = floating(x)
    mask, scale = dropout_mask(x.shape, p, generator)
    return _relu_dropout(x, mask=mask, scale=scale)

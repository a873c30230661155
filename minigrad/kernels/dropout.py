"""Dropout: Srivastava et al. (2014), JMLR 15, 1929-1958."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.op import function, op
from ..core.random import default_generator
from ..core.tensor import Tensor

__all__ = ["dropout"]

_LEVELS = 256  # a random byte for each element


def checked_p(p: float) -> float:
    """A probability to leave out with, or an error."""
    if not 0 <= p < 1:
        raise ValueError(f"dropout: expected 0 <= p < 1, got {p}")
    return p


def keep_mask(shape: tuple[int, ...], p: float, generator: np.random.Generator | None) -> tuple[np.ndarray, float]:
    """Booleans, True with probability 1 - p' for the p' = k / 256 nearest to p, and 1 / (1 - p')."""
    dropped = max(1, round(checked_p(p) * _LEVELS)) if p else 0
    n = int(np.prod(shape))
    words = default_generator(generator).integers(0, 2**64 - 1, -(-n // 8), np.uint64, endpoint=True)
    return (words.view(np.uint8)[:n] >= dropped).reshape(shape), _LEVELS / (_LEVELS - dropped)


@op(x=lambda g, mask, scale: g * mask * scale)
def _dropout(x, /, mask, scale):
    y = np.multiply(x, mask)
    y *= scale
    return y


@function()
def dropout(x: Any, p: float = 0.5, training: bool = True, generator: np.random.Generator | None = None) -> Tensor:
    """x with each element set to 0 with probability `p`, and the others divided by 1 - p.

    The probability is rounded to the nearest 1/256 (a random byte decides), and the division is by
    what it was rounded to, so the expectation is exact. With `training=False` x is returned as it is.
    """
    if not training or p == 0:
        return x if isinstance(x, Tensor) else Tensor(x)
    mask, scale = keep_mask(np.shape(x), p, generator)
    return _dropout(x, mask=mask, scale=scale)

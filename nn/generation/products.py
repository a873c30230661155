"""Products of a few rows with a large weight: how the weight lies in memory, and who is left factor."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.runtime import has_blas

__all__ = ["in_fast_layout", "product"]

FEW = 64  # rows


def in_fast_layout(weight: np.ndarray) -> np.ndarray:
    """Return the weight (out, in) as `product` reads it fastest, in new read-only memory.

    A step of decoding multiplies a few rows by every weight, and mostly waits for memory. OpenBLAS
    reads a weight that is at least as high as wide sooner if it lies column by column, and another
    one sooner as the left factor.
    """
    order: Any = "F" if has_blas() and weight.shape[0] >= weight.shape[1] else "C"
    weight = np.array(weight, order=order)
    weight.flags.writeable = False
    return weight


def product(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return rows (n, in) @ weight.T for a weight (out, in)."""
    if 1 < len(rows) <= FEW and weight.flags.c_contiguous and has_blas():
        return np.ascontiguousarray((weight @ rows.T).T)
    return rows @ weight.T

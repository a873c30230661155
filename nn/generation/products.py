"""How products are taken where a few rows meet a large weight.

A step of decoding multiplies a few rows by every weight, and mostly waits for memory. OpenBLAS
reads a weight (out, in) that is at least as high as wide sooner where it lies column by column;
another, as the left factor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.runtime import has_blas

__all__ = ["in_fast_layout", "product"]

FEW = 64  # rows


def in_fast_layout(weight: np.ndarray) -> np.ndarray:
    """The weight (out, in) as `product` reads it fastest, in new memory that cannot be written."""
    order: Any = "F" if has_blas() and weight.shape[0] >= weight.shape[1] else "C"
    weight = np.array(weight, order=order)
    weight.flags.writeable = False
    return weight


def product(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """rows (n, in) @ weight.T, for weight (out, in)."""
    if 1 < len(rows) <= FEW and weight.flags.c_contiguous and has_blas():
        return np.ascontiguousarray((weight @ rows.T).T)
    return rows @ weight.T

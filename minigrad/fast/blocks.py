"""Blocks of rows that fit the cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

BLOCK = 32768  # elements: 128 KB of float32; a few such blocks fit the second-level cache


def row_blocks(rows: int, width: int, elements: int = BLOCK) -> Sequence[slice]:
    """Return slices of consecutive rows, each of about `elements` values."""
    step = elements // width if 0 < width < elements else 1
    if 0 < rows <= step:
        return (slice(0, rows),)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def as_rows(x: Any) -> np.ndarray:
    """Reshape (..., d) to a contiguous (rows, d), a view if x is contiguous."""
    x = np.ascontiguousarray(x)
    return x.reshape(-1 if x.size else math.prod(x.shape[:-1]), x.shape[-1])


@lru_cache(64)
def ones(n: int, dtype: Any) -> np.ndarray:
    """Return a column of ones: `x @ ones(d)` sums rows four times as fast as `x.sum(-1)`."""
    column = np.ones((n, 1), dtype)
    column.flags.writeable = False
    return column


def row_sums(rows: np.ndarray) -> np.ndarray:
    """Return the sums of rows (n, d) as a column (n, 1)."""
    with np.errstate(invalid="ignore"):  # OpenBLAS (AVX-512) flags unset lanes beside 5 columns
        return rows @ ones(rows.shape[1], rows.dtype)


@lru_cache(64)
def mean_column(n: int, dtype: Any) -> np.ndarray:
    """Return a column of 1 / n: `x @ mean_column(d)` are the means of rows."""
    column = ones(n, dtype) / n
    column.flags.writeable = False
    return column


def needs_shift(low: Any, high: Any, dtype: Any) -> bool:
    """Return whether sums of eˣ, for x from `low` to `high`, can overflow or underflow."""
    return not (dtype.itemsize >= 4 and low > -60 and high < 60)

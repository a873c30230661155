"""How products are taken where a few rows meet a large weight, and work that is shared out to the cores.

A step of decoding multiplies a few rows by every weight, and mostly waits for memory. OpenBLAS reads a weight
(out, in) that is at least as high as wide sooner where it lies column by column; another, as the left
factor.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from minigrad.runtime import has_blas, threads

__all__ = ["in_parallel", "in_fast_layout", "product"]

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


def in_parallel(run: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any] | None:
    """run(part) for each, on a thread each and with one BLAS thread each; None where another call is doing so."""
    if not _ALONE.acquire(blocking=False):
        return None
    try:
        with threads(1):  # BLAS's own threads would wait for each other
            jobs = [_pool(len(parts)).submit(contextvars.copy_context().run, run, part) for part in parts]
            return [job.result() for job in jobs]
    finally:
        _ALONE.release()


_ALONE = threading.Lock()


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, "nn-inference")

"""Products of a few rows by a weight, in the way that is fastest on this machine.

A decoding step multiplies a row for each sequence or hypothesis. OpenBLAS copies ("packs") the
whole weight for a product of 2 rows or more, which can take longer than the product. The ways to
avoid it depend on the processor, the shape and the threads, so they are timed at the first product
of a shape. In a block of `OwnThreads`, threads share a large product. Results of different ways
differ in the last bits. The environment variable MINIGRAD_PRODUCT selects one of `WAYS` without
timing.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad.fast.blocks import row_blocks
from minigrad.fast.runtime import (
    OwnThreads,
    get_num_threads,
    has_blas,
    has_small_kernels,
    in_parallel,
)
from minigrad.io.mapped import copy_and_release

if TYPE_CHECKING:
    from .int8 import Int8Matrix, Int8Stack

LARGE_WEIGHT = 1 << 17  # values of a weight from which on ways are timed
MAX_ROWS = 64
MAX_SINGLE_ROWS = 8  # one after the other
SAMPLE = 1 << 23  # values of a weight that are multiplied for timing
ROUNDS = 3
SHARED = 1 << 23  # multiplications of a product from which on threads share it
MIN_ROWS = 4  # fewer rows take as long: the time is spent on reading the weight
MAX_SMALL_PRODUCT = 10**6  # multiplications of a product that OpenBLAS computes without packing
MAX_PANEL = 1024  # values of such a product
CACHED = 1 << 17  # values of a weight that stay in the second-level cache between two rows


def product(rows: np.ndarray, weight: np.ndarray | Int8Matrix | Int8Stack) -> np.ndarray:
    """Return rows (n, in) @ weight.T for a weight (out, in), in new memory."""
    if not isinstance(weight, np.ndarray):
        return weight.product(rows)
    y = np.empty((len(rows), len(weight)), weight.dtype)
    way = WAYS[fastest_way(rows, weight)]
    if OwnThreads.entered and is_shared(len(rows), weight.size):
        parts = row_blocks(len(weight), 1, math.ceil(len(weight) / get_num_threads()))
        in_parallel(lambda part: way(rows, weight[part], y[:, part]), parts)
    else:
        way(rows, weight, y)
    return y


def is_shared(n: int, size: int) -> bool:
    """Return whether threads share a product of n rows by a weight of `size` values.

    The product must take much longer than another thread takes to begin, about 30 µs.
    """
    return size * max(n, MIN_ROWS) >= SHARED


def in_fast_layout(weight: np.ndarray) -> np.ndarray:
    """Return a weight (out, in) in the order of memory in which it is multiplied fastest.

    OpenBLAS multiplies few rows by a tall weight fastest if it lies column by column, unless it
    can multiply them by slices, which are rows. The result is `weight` itself if it has this order.
    """
    is_sliced = has_small_kernels() and weight.size >= LARGE_WEIGHT
    by_columns = weight.shape[0] >= weight.shape[1] and has_blas() and not is_sliced
    if weight.flags.f_contiguous if by_columns else weight.flags.c_contiguous:
        return weight
    copy = np.empty(weight.shape, weight.dtype, order="F" if by_columns else "C")
    copy_and_release(weight, copy)
    return copy


def whole(rows: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """Multiply by the whole weight."""
    np.matmul(rows, weight.T, out=y)


def flipped(rows: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """Multiply the whole weight by the transposed rows."""
    y[...] = (weight @ rows.T).T


def panels(rows: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """Multiply small slices, which OpenBLAS reads in place on processors with AVX-512."""
    n, size = rows.shape
    most = min(MAX_PANEL // n, MAX_SMALL_PRODUCT // (n * size))
    height = 1 << (max(1, most).bit_length() - 1)
    end = len(weight) // height * height
    columns = np.empty((len(weight), n), weight.dtype)
    slices = weight[:end].reshape(-1, height, size)
    np.matmul(slices, rows.T, out=columns[:end].reshape(-1, height, n))
    np.matmul(weight[end:], rows.T, out=columns[end:])
    y[...] = columns.T


def single_rows(rows: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """Multiply one row after another by a slice of the weight, which packs nothing."""
    height = max(1, CACHED // weight.shape[1])
    for start in range(0, len(weight), height):
        part = slice(start, start + height)
        np.matmul(rows[:, None], weight[part].T, out=y[:, None, part])


WAYS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], None]] = {
    "whole": whole,
    "flipped": flipped,
    "panels": panels,
    "single": single_rows,
}
"""Functions that write rows (n, in) @ weight.T, for a weight (out, in), to y (n, out), by name."""

PINNED = os.environ.get("MINIGRAD_PRODUCT")
if PINNED not in (None, *WAYS):
    raise ValueError(f"MINIGRAD_PRODUCT must be one of {', '.join(WAYS)}, got {PINNED!r:.60}")

_FASTEST: dict[Any, str] = {}


def fastest_way(rows: np.ndarray, weight: np.ndarray) -> str:
    """Return the fastest way for this shape, which is timed once in the process with these arrays.

    One row, many rows and a small weight are multiplied as a whole. The environment can select
    another way for the rest.
    """
    n = len(rows)
    if not 1 < n <= MAX_ROWS or weight.size < LARGE_WEIGHT or not has_blas():
        return "whole"
    if PINNED:
        return PINNED
    size = (n - 1).bit_length()  # of 2, 3 to 4, 5 to 8 rows ...
    threads = 1 if OwnThreads.entered else get_num_threads()
    key = (weight.shape, weight.flags.c_contiguous, weight.dtype.char, size, threads)
    if key not in _FASTEST:
        names = ["whole", "flipped"]
        if has_small_kernels() and weight.flags.c_contiguous:
            names.append("panels")
        if n <= MAX_SINGLE_ROWS:
            names.append("single")
        _FASTEST[key] = fastest(names, rows, weight[: max(1, SAMPLE // weight.shape[1])])
    return _FASTEST[key]


def fastest(names: list[str], rows: np.ndarray, weight: np.ndarray) -> str:
    """Return the way with the shortest time; slow ways are timed only once."""
    times = dict.fromkeys(names, math.inf)
    y = np.empty((len(rows), len(weight)), weight.dtype)
    for _ in range(ROUNDS):
        limit = 1.5 * min(times.values())
        for name in names:
            if times[name] <= limit:
                start = time.perf_counter()
                WAYS[name](rows, weight, y)
                times[name] = min(times[name], time.perf_counter() - start)
    return min(names, key=lambda name: times[name])

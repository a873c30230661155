"""Copies of arrays in mapped files, whose pages leave memory after they are copied."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

_BLOCK = 1 << 24  # bytes that are copied at once


def copy_and_release(array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return a copy of an array, and drop the pages of a mapped file from memory meanwhile.

    Copying a large mapped file needs little more memory than the size of the file.
    """
    copy = np.empty_like(array) if out is None else out
    height = max(1, _BLOCK // max(1, array[:1].nbytes)) if array.ndim else 1
    for start in range(0, len(array) if array.ndim else 1, height):
        part = slice(start, start + height) if array.ndim else ...
        copy[part] = array[part]
        release(array[part])
    return copy


def release(array: np.ndarray) -> None:
    """Drop the pages of an array of a page or more in a mapped file, if none was written to."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, mmap.mmap) or array.nbytes < mmap.PAGESIZE:
        return
    begin, end = np.lib.array_utils.byte_bounds(array)
    first, last = begin // mmap.PAGESIZE, -(-end // mmap.PAGESIZE)
    try:  # one value of 64 bits for each page of the process, only on Linux
        pages = np.fromfile("/proc/self/pagemap", np.uint64, last - first, offset=8 * first)
    except OSError:
        return
    is_in_use, is_of_file = pages >> 62 != 0, (pages >> 61) & 1 != 0  # in memory or swapped
    if len(pages) == last - first and np.all(is_of_file | ~is_in_use):
        start = first * mmap.PAGESIZE - np.frombuffer(base, np.uint8).ctypes.data
        base.madvise(mmap.MADV_DONTNEED, start, (last - first) * mmap.PAGESIZE)

"""Matrices in a quarter of the memory of float32: integers of 8 bits, and scales.

A value is an integer from -127 to 127 times the scale of its part of a row. A product widens a
block of rows to floating point in a buffer that stays in the cache, and multiplies it there.
Threads share the blocks, each with a buffer of its own.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.fast.blocks import row_blocks
from minigrad.fast.runtime import OwnThreads, get_num_threads, in_parallel
from minigrad.io.mapped import copy_and_release, release

from .products import WAYS, fastest_way, is_shared

BLOCK = 3 << 18  # values that are widened at once: 3 MB of float32
BUFFER = 3 << 20  # bytes for the widened values of a thread
QUANTIZED_BLOCK = 1 << 18  # values that are rounded at once

Block = tuple[np.ndarray, np.ndarray, slice]
"""Values and scales of consecutive rows, and which rows they are."""


class Blocks:
    """Base of the matrices, which are multiplied block by block."""

    shape: tuple[int, int]
    dtype: np.dtype
    factors: np.ndarray  # of the results (out,): scales of whole rows

    def __init__(self) -> None:
        self._blocks: dict[int, list[Block]] = {}

    def cut(self, height: int) -> list[Block]:
        """Return blocks of at most `height` rows."""
        raise NotImplementedError

    def product(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (n, in) @ self.T, in new memory."""
        y = np.empty((len(rows), self.shape[0]), self.dtype)

        def run(block: Block) -> None:
            values, scales, columns = block
            wide = widened(values, scales)
            WAYS[fastest_way(rows, wide)](rows, wide, y[:, columns])

        size = math.prod(self.shape)
        with OwnThreads():
            threads = get_num_threads() if is_shared(len(rows), size) else 1
            count = threads * math.ceil(max(size, 1) / (threads * BLOCK))
            height = math.ceil(self.shape[0] / count)
            if height not in self._blocks:
                self._blocks[height] = self.cut(height)
            if threads > 1:
                in_parallel(run, self._blocks[height])
            else:
                for block in self._blocks[height]:
                    run(block)
        y *= self.factors
        return y


class Int8Matrix(Blocks):
    """Read-only matrix of 8-bit integers (out, in) with scales (out, parts) of parts of each row.

    The dtype of the scales is the dtype of the matrix.
    """

    ndim = 2

    def __init__(self, values: np.ndarray, scales: np.ndarray) -> None:
        super().__init__()
        self.values, self.scales = values, scales
        self.shape, self.size, self.dtype = values.shape, values.size, scales.dtype
        values.flags.writeable = scales.flags.writeable = False
        self.factors = scales[:, 0] if scales.shape[1] == 1 else np.ones(len(scales), scales.dtype)

    @classmethod
    def rounded(cls, weight: np.ndarray) -> Int8Matrix:
        """Round a matrix (out, in). Pages of a mapped file leave memory as they are read."""
        if not weight.flags.c_contiguous:  # each block of rows would touch all of its pages
            copy = np.empty(weight.shape, weight.dtype)
            copy_and_release(weight, copy)
            weight = copy
        matrix = cls.from_rows(lambda rows: weight[rows], weight.shape, weight.dtype)
        release(weight)  # Linux maps pages again that lie beside those of the next block
        return matrix

    @classmethod
    def from_rows(
        cls, read: Callable[[slice], np.ndarray], shape: tuple[int, ...], dtype: Any
    ) -> Int8Matrix:
        """Round a matrix block by block, with one scale for each row: max |row| / 127.

        The error of a value is at most half the scale. `read` returns the given rows, as floats.
        """
        values, scales = np.empty(shape, np.int8), np.empty((shape[0], 1), dtype)
        for rows in row_blocks(shape[0], shape[1], QUANTIZED_BLOCK):
            part = read(rows)
            scale = np.abs(part).max(-1, keepdims=True, initial=0) / scales.dtype.type(127)
            if not np.isfinite(scale).all():
                raise ValueError(
                    "model must have finite weights to be stored in 8 bits, got NaN or infinity"
                )
            scales[rows] = scale
            scale[scale == 0] = 1
            values[rows] = np.rint(part / scale)
            release(part)
        return cls(values, scales)

    def cut(self, height: int) -> list[Block]:
        """Return blocks of at most `height` rows."""
        parts = row_blocks(len(self.values), 1, height)
        return [(self.values[rows], self.scales[rows], rows) for rows in parts]

    def __getitem__(self, rows: slice) -> Int8Matrix:
        return Int8Matrix(self.values[rows], self.scales[rows])

    def take(self, indices: Any) -> np.ndarray:
        """Return the rows (..., in) at indices (...), as floats."""
        values, scales = self.values[indices], self.scales[indices]
        width = self.shape[1] // self.scales.shape[1]
        parts = values.reshape(*scales.shape, width) * scales[..., None]
        return parts.reshape(values.shape)

    @property
    def data(self) -> np.ndarray:
        """The whole matrix as floats, in new memory."""
        return self.take(slice(None))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("copy must be None or True to convert an Int8Matrix, got False")
        return self.data.astype(dtype or self.dtype, copy=False)


class Int8Stack(Blocks):
    """Matrices of equal width, one below the other, that are multiplied at once."""

    def __init__(self, matrices: Sequence[Int8Matrix]) -> None:
        super().__init__()
        *starts, end = itertools.accumulate((len(m.values) for m in matrices), initial=0)
        self.matrices, self.starts = matrices, starts
        self.shape, self.dtype = (end, matrices[0].shape[1]), matrices[0].dtype
        self.factors = np.concatenate([m.factors for m in matrices])

    def cut(self, height: int) -> list[Block]:
        """Return blocks of at most `height` rows, each of one matrix."""
        return [
            (values, scales, slice(start + rows.start, start + rows.stop))
            for matrix, start in zip(self.matrices, self.starts)
            for values, scales, rows in matrix.cut(height)
        ]


def widened(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return a block as floats in a buffer of this thread, without scales of whole rows."""
    wide = buffer(values.shape, scales.dtype)
    np.copyto(wide, values)
    if scales.shape[1] > 1:
        parts = wide.reshape(*scales.shape, -1)
        parts *= scales[..., None]
    return wide


_BUFFERS = threading.local()


def buffer(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Return a matrix in the buffer of this thread, behind the previous matrix or at the start.

    Values are widened faster to memory that is no longer in the second-level cache.
    """
    size = math.prod(shape) * dtype.itemsize
    start, memory = getattr(_BUFFERS, "next", (0, np.empty(0, np.uint8)))
    if len(memory) < size:
        memory = np.empty(max(size, BUFFER), np.uint8)
    end = start + size if start + size <= len(memory) else size
    _BUFFERS.next = end, memory
    return memory[end - size : end].view(dtype).reshape(shape)

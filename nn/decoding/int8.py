"""Matrices in a quarter of the memory of float32: integers of 8 bits, and scales.

A value is an integer from -127 to 127 times the scale of its part of a row. A product widens a
block of rows to floating point in a buffer that stays in the cache, and multiplies it there.
Threads share the blocks, each with a buffer of its own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.fast.blocks import row_blocks
from minigrad.fast.runtime import get_num_threads, in_parallel, own_threads
from minigrad.io.mapped import copy_and_release, release

from .products import WAYS, fastest_way

__all__ = ["Int8Matrix", "Int8Stack"]

BLOCK = 3 << 18  # values that are widened at once: 3 MB of float32
QUANTIZED_BLOCK = 1 << 18  # values that are rounded at once
SHARED = 1 << 19  # values of a matrix from which on threads share a product


class Int8Matrix:
    """Read-only matrix of 8-bit integers with scales.

    Parameters
    ----------
    values : array of int8, shape (out, in)
    scales : array of float, shape (out, parts)
        Factors of the equal parts of each row. Their dtype is the dtype of the matrix.
    """

    ndim = 2

    def __init__(self, values: np.ndarray, scales: np.ndarray) -> None:
        self.values, self.scales = values, scales
        self.shape, self.size, self.dtype = values.shape, values.size, scales.dtype
        values.flags.writeable = scales.flags.writeable = False

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

        The error of a value is at most half the scale.

        Parameters
        ----------
        read : callable
            Returns the given rows, as floats.
        shape : (int, int)
        dtype : dtype
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

    def product(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (n, in) @ self.T, in new memory."""
        return Int8Stack([self]).product(rows)

    def widened(self, part: slice) -> np.ndarray:
        """Return rows as floats in the buffer of this thread, without scales of whole rows."""
        values, scales = self.values[part], self.scales[part]
        wide = _buffer(values.shape, self.dtype)
        np.copyto(wide, values)
        if scales.shape[1] > 1:
            parts = wide.reshape(*scales.shape, -1)
            parts *= scales[..., None]
        return wide


class Int8Stack:
    """Matrices of equal width, one below the other, that are multiplied at once.

    Parameters
    ----------
    matrices : sequence of Int8Matrix
    """

    def __init__(self, matrices: Sequence[Int8Matrix]) -> None:
        self.matrices, self.dtype = matrices, matrices[0].dtype
        self.shape = (sum(len(m.values) for m in matrices), matrices[0].shape[1])

    def product(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (n, in) @ self.T, in new memory."""
        total, threads = math.prod(self.shape), get_num_threads()
        shares = threads * max(1, math.ceil(total / (threads * BLOCK)))
        blocks, start = [], 0
        for matrix in self.matrices:
            for part in row_blocks(len(matrix.values), self.shape[1], math.ceil(total / shares)):
                blocks.append((matrix, part, slice(start + part.start, start + part.stop)))
            start += len(matrix.values)
        y = np.empty((len(rows), start), self.dtype)

        def run(block: tuple[Int8Matrix, slice, slice]) -> None:
            matrix, part, columns = block
            out = way(rows, matrix.widened(part))
            if matrix.scales.shape[1] == 1:
                np.multiply(out, matrix.scales[part, 0], out=y[:, columns])
            else:
                y[:, columns] = out

        with own_threads:
            height = blocks[0][1].stop if blocks else 0
            buffer = _buffer((height, self.shape[1]), self.dtype)  # only timed, with any values
            way = WAYS[fastest_way(rows, buffer)[0]]
            if total >= SHARED:
                in_parallel(run, blocks)
            else:
                for block in blocks:
                    run(block)
        return y


_BUFFERS = threading.local()


def _buffer(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Return a matrix in the buffer of this thread."""
    size = math.prod(shape) * dtype.itemsize
    memory = getattr(_BUFFERS, "memory", None)
    if memory is None or len(memory) < size:
        memory = _BUFFERS.memory = np.empty(size, np.uint8)
    return memory[:size].view(dtype).reshape(shape)

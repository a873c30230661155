"""Sums over ranks of numbers that travel in 16 bits: bfloat16, the upper half of a float32.

It has the range of float32, so that no gradient overflows or vanishes, and 8 bits of precision.
Numbers are rounded when they are sent, summed in 32 bits by the rank that is in charge of them, and
rounded once more on the way back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..io.safetensors import from_bfloat16, to_bfloat16

__all__ = ["add_up_in_bfloat16"]


def add_up_in_bfloat16(comm: Any, array: np.ndarray) -> None:
    """Make a flat array the sum over all ranks: each sums a stretch of it, and all get what it
    found.
    """
    length = -(-len(array) // comm.size)
    sent = np.zeros((comm.size, length), np.uint16)
    sent.reshape(-1)[: len(array)] = to_bfloat16(array)
    received = np.empty_like(sent)
    comm.Alltoall(sent, received)
    comm.Allgather(to_bfloat16(from_bfloat16(received).sum(0)), sent)
    array[...] = from_bfloat16(sent.reshape(-1)[: len(array)])

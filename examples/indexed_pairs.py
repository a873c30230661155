"""Files of pairs of token ids, for corpora larger than memory.

    pairs = IndexedPairs.write("train.pairs", ((encode(a), encode(b)) for a, b in lines), 32_000)
    batches = nn.text.PairBatches(pairs, 4096)

A safetensors file has three arrays: `ids`, source and target of one pair after another; `starts`,
the start of each pair in `ids`, and the end of the last one; `source_lengths`.
"""

from __future__ import annotations

import itertools
import zlib
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from minigrad.io.safetensors import SafetensorsFile, write_safetensors

BLOCK = 1 << 12  # pairs to write at a time
SLICE = 1 << 20  # bytes
DTYPES = {"ids": "<u4", "starts": "<i8", "source_lengths": "<i4"}


class IndexedPairs:
    """Sequence of pairs (source ids, target ids) in a file, which is mapped into memory."""

    def __init__(self, path):
        self.path = Path(path)
        file = SafetensorsFile(path)
        self._ids, self._starts, self._source_lengths = map(file.map, DTYPES)

    @classmethod
    def write(cls, path, pairs, vocab_size):
        """Write pairs one by one, and open the file.

        Temporary files of the same size are in the directory of `path` meanwhile.
        """
        directory = Path(path).parent
        dtypes = {**DTYPES, "ids": "<u2"} if vocab_size <= 1 << 16 else DTYPES
        with ExitStack() as stack:
            files = {name: stack.enter_context(TemporaryFile(dir=directory)) for name in dtypes}
            count = end = 0
            files["starts"].write(np.zeros(1, "<i8").tobytes())
            rest = iter(pairs)
            while block := list(itertools.islice(rest, BLOCK)):
                sizes = np.array([[len(a), len(b)] for a, b in block])
                ids = np.concatenate([side for pair in block for side in pair])
                check(sizes, ids, vocab_size, count)
                starts = end + np.cumsum(sizes.sum(1))
                for name, values in zip(dtypes, (ids, starts, sizes[:, 0])):
                    files[name].write(values.astype(dtypes[name]).tobytes())
                count += len(block)
                end = int(starts[-1])
            if count == 0:
                raise ValueError("pairs must contain at least one pair, got none")
            for file in files.values():
                file.flush()
            arrays = {name: np.memmap(file, dtypes[name], "r") for name, file in files.items()}
            write_safetensors(path, arrays)
        return cls(path)

    def __len__(self):
        return len(self._source_lengths)

    def __getitem__(self, i):
        """Return the source ids (L_s,) and target ids (L_t,) of pair i, as read-only views."""
        if not 0 <= i < len(self):
            raise IndexError(f"{self.path}: the pair must be from 0 to {len(self) - 1}, got {i}")
        start = self._starts[i]
        end = self._starts[i + 1]
        middle = start + self._source_lengths[i]
        return self._ids[start:middle], self._ids[middle:end]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def fingerprint(self):
        """Return the size and CRC-32 of the file, or of 64 slices of a file over 64 MB.

        A trainer that resumes a run compares them.
        """
        data = np.memmap(self.path, np.uint8, "r")
        starts = range(0, len(data), SLICE)
        if len(data) > 64 * SLICE:
            starts = np.linspace(0, len(data) - SLICE, 64).astype(int)
        checksum = 0
        for start in starts:
            checksum = zlib.crc32(data[start : start + SLICE].data, checksum)
        return len(data), checksum


def check(sizes, ids, vocab_size, before):
    """Raise an error that names the first pair with an empty side or an id out of range."""
    if (empty := (sizes == 0).any(1)).any():
        raise ValueError(f"both sides of pair {before + empty.argmax()} must have at least one id")
    if ids.dtype.kind not in "iu":
        raise ValueError(
            f"ids of pairs {before} to {before + len(sizes) - 1} must be integers, got {ids.dtype}"
        )
    if (wrong := (ids < 0) | (ids >= vocab_size)).any():
        i = int(wrong.argmax())
        pair = before + np.searchsorted(sizes.sum(1).cumsum(), i, side="right")
        raise ValueError(f"ids of pair {pair} must be from 0 to {vocab_size - 1}, got {ids[i]}")

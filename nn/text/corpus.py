"""Files of pairs of token ids, for corpora larger than memory.

A safetensors file has three arrays: `ids`, source and target of one pair after another; `starts`,
the start of each pair in `ids`, and the end of the last one; `source_lengths`. Its metadata
contains the length of the longest side and a CRC-32 of the other two arrays.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from minigrad.io.reading import require_file
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

__all__ = ["IndexedPairs"]

FORMER_MAGIC = b"MGPAIRS2"
BLOCK = 1 << 12  # pairs to write at a time
SLICE = 1 << 20  # bytes
DTYPES = {"ids": "<u4", "starts": "<i8", "source_lengths": "<i4"}

Ids = Sequence[int]


class IndexedPairs:
    """Sequence of pairs (source ids, target ids) in a file, which is mapped into memory.

    Parameters
    ----------
    path : str or Path
        A file that `write` made.

    Raises
    ------
    ValueError
        If the file is incomplete or its index was changed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = require_file(path)
        try:
            file = SafetensorsFile(path)
            self._ids, self._starts, self._source_lengths = map(file.map, DTYPES)
            self.longest = int(file.metadata["longest"])
            checksum = int(file.metadata["index_crc32"])
        except (KeyError, ValueError) as error:
            with self.path.open("rb") as data:
                former = data.read(len(FORMER_MAGIC)) == FORMER_MAGIC
            why = "it is one of version 0.2; write it again" if former else error
            raise ValueError(
                f"{path}: not a file of indexed pairs, as IndexedPairs.write makes one ({why})"
            ) from None
        if checksum != _index_checksum(self.longest, self._starts, self._source_lengths):
            raise ValueError(
                f"{path}: the index of pairs was changed since it was written; write the file again"
            )
        self.num_ids = len(self._ids)

    @classmethod
    def write(
        cls, path: str | Path, pairs: Iterable[tuple[Ids, Ids]], vocab_size: int
    ) -> IndexedPairs:
        """Write pairs one by one, and open the file.

        Parameters
        ----------
        path : str or Path
            Its directory also contains temporary files of the same size while it is written.
        pairs : iterable of (source ids, target ids)
            Both sides must have at least one id.
        vocab_size : int
            All ids must be from 0 to `vocab_size` - 1.

        Returns
        -------
        IndexedPairs
            The pairs in the new file.
        """
        directory = Path(path).parent
        directory.mkdir(parents=True, exist_ok=True)
        dtypes = {**DTYPES, "ids": "<u2"} if vocab_size <= 1 << 16 else DTYPES
        with ExitStack() as stack:
            files = {name: stack.enter_context(TemporaryFile(dir=directory)) for name in dtypes}
            count = end = longest = 0
            files["starts"].write(np.zeros(1, "<i8").tobytes())
            rest = iter(pairs)
            while block := list(itertools.islice(rest, BLOCK)):
                sizes = np.array([[len(a), len(b)] for a, b in block])
                sides = [np.asarray(side) for pair in block for side in pair]
                for i, side in enumerate(sides):
                    if len(side) and side.dtype.kind not in "iu":
                        raise ValueError(
                            f"IndexedPairs.write: ids of pair {count + i // 2} must be integers, "
                            f"got {side.dtype}"
                        )
                ids = np.concatenate(sides, dtype=np.int64, casting="unsafe")
                _check(sizes, ids, vocab_size, count)
                starts = end + np.cumsum(sizes.sum(1))
                for name, values in zip(dtypes, (ids, starts, sizes[:, 0])):
                    files[name].write(values.astype(dtypes[name]).tobytes())
                count += len(block)
                end = int(starts[-1])
                longest = max(longest, int(sizes.max()))
            if count == 0:
                raise ValueError(
                    "IndexedPairs.write: pairs must contain at least one pair, got none"
                )
            for file in files.values():
                file.flush()
            arrays = {name: np.memmap(file, dtypes[name], "r") for name, file in files.items()}
            checksum = _index_checksum(longest, arrays["starts"], arrays["source_lengths"])
            metadata = {"longest": str(longest), "index_crc32": str(checksum)}
            write_safetensors(path, arrays, metadata)
        return cls(path)

    def __len__(self) -> int:
        return len(self._source_lengths)

    def __getitem__(self, i: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the source ids (L_s,) and target ids (L_t,) of pair i, as read-only views."""
        if not 0 <= i < len(self):
            raise IndexError(f"{self.path}: the pair must be from 0 to {len(self) - 1}, got {i}")
        start = self._starts[i]
        end = self._starts[i + 1]
        middle = start + self._source_lengths[i]
        return self._ids[start:middle], self._ids[middle:end]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (self[i] for i in range(len(self)))

    def fingerprint(self) -> tuple[int, int]:
        """Return the file's size and checksum. For files over 64 MB, 64 slices are read.

        Returns
        -------
        (int, int)
            Number of bytes, and CRC-32.
        """
        data = np.memmap(self.path, np.uint8, "r")
        starts: Any = range(0, len(data), SLICE)
        if len(data) > 64 * SLICE:
            starts = np.linspace(0, len(data) - SLICE, 64).astype(int)
        checksum = 0
        for start in starts:
            checksum = zlib.crc32(data[start : start + SLICE].data, checksum)
        return len(data), checksum

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Return the length of the longer side of each pair.

        Parameters
        ----------
        indices : array of int
            Indices of pairs.

        Returns
        -------
        array of int
            Numbers of ids.
        """
        sources = self._source_lengths[indices]
        return np.maximum(sources, self._starts[indices + 1] - self._starts[indices] - sources)

    def mean_length(self) -> float:
        """Return the mean length of a side.

        Returns
        -------
        float
            Number of ids of a side, on average.
        """
        return self.num_ids / (2 * len(self))


def _index_checksum(longest: int, starts: np.ndarray, source_lengths: np.ndarray) -> int:
    return zlib.crc32(source_lengths.data, zlib.crc32(starts.data, longest))


def _check(sizes: np.ndarray, ids: np.ndarray, vocab_size: int, before: int) -> None:
    """Raise an error that names the first pair with an empty side or an id out of range."""
    if (empty := (sizes == 0).any(1)).any():
        raise ValueError(
            f"IndexedPairs.write: both sides of pair {before + empty.argmax()} must have at least "
            "one id"
        )
    if (wrong := (ids < 0) | (ids >= vocab_size)).any():
        i = int(wrong.argmax())
        pair = before + np.searchsorted(sizes.sum(1).cumsum(), i, side="right")
        raise ValueError(
            f"IndexedPairs.write: ids of pair {pair} must be from 0 to {vocab_size - 1}, got "
            f"{ids[i]}"
        )

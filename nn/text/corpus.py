"""Pairs of token ids in a file, for corpora that do not fit into memory.

The file is a safetensors file with three arrays: `ids`, the source and the target of one pair after
another; `starts`, where each pair begins in `ids`, and where the last one ends; `source_lengths`.
Its metadata contains the length of the longest side and a CRC-32 of all but the ids.
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

from minigrad.io.reading import found_file
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

__all__ = ["IndexedPairs"]

FORMER_MAGIC = b"MGPAIRS2"
BLOCK = 1 << 12  # pairs to write at a time
SLICE = 1 << 20  # bytes

Ids = Sequence[int]


class IndexedPairs:
    """The pairs (source ids, target ids) of a file that `write` made.

    Parameters
    ----------
    path : str or Path
        It is mapped into memory: the system reads the pages that are used, and drops them when it
        needs the memory. A file that is incomplete, or whose index was changed, is a ValueError.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = found_file(path)
        try:
            file = SafetensorsFile(path)
            arrays = [file.map(name) for name in ("ids", "starts", "source_lengths")]
            longest, checksum = (int(file.metadata[name]) for name in ("longest", "index_crc32"))
        except (KeyError, ValueError) as error:
            with self.path.open("rb") as data:
                former = data.read(len(FORMER_MAGIC)) == FORMER_MAGIC
            why = "it is one of version 0.2; write it again" if former else error
            raise ValueError(
                f"{path}: not a file of indexed pairs, as IndexedPairs.write makes one ({why})"
            ) from None
        self._ids, self._starts, self._source_lengths = arrays
        if checksum != _index_checksum(longest, *arrays[1:]):
            raise ValueError(
                f"{path}: the index of pairs was changed since it was written; write the file again"
            )
        self.longest, self.num_ids = longest, len(self._ids)

    @classmethod
    def write(
        cls, path: str | Path, pairs: Iterable[tuple[Ids, Ids]], vocab_size: int
    ) -> IndexedPairs:
        """Write pairs one by one as they come, and open the file.

        Parameters
        ----------
        path : str or Path
            Beside it, temporary files take as much room again while it is written.
        pairs : iterable of (source ids, target ids)
            A pair with an empty side, or an id out of range, is a ValueError.
        vocab_size : int
            All ids are less.
        """
        directory = Path(path).parent
        directory.mkdir(parents=True, exist_ok=True)
        names = ("ids", "starts", "source_lengths")
        with ExitStack() as stack:
            files = {name: stack.enter_context(TemporaryFile(dir=directory)) for name in names}
            dtypes = dict(zip(names, ("<u2" if vocab_size <= 1 << 16 else "<u4", "<i8", "<i4")))
            count = end = longest = 0
            files["starts"].write(np.zeros(1, "<i8").tobytes())
            rest = iter(pairs)
            while block := list(itertools.islice(rest, BLOCK)):
                sizes = np.array([[len(a), len(b)] for a, b in block])
                ids = np.concatenate(
                    [np.asarray(side, np.int64) for pair in block for side in pair]
                )
                _check(block, sizes, ids, vocab_size, count)
                starts = end + np.cumsum(sizes.sum(1))
                for name, values in zip(names, (ids, starts, sizes[:, 0])):
                    files[name].write(values.astype(dtypes[name]).tobytes())
                count, end = count + len(block), int(starts[-1])
                longest = max(longest, int(sizes.max()))
            if count == 0:
                raise ValueError("IndexedPairs.write: no pairs")
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
            raise IndexError(f"{self.path}: expected a pair from 0 to {len(self) - 1}, got {i}")
        start, end = self._starts[i], self._starts[i + 1]
        middle = start + self._source_lengths[i]
        return self._ids[start:middle], self._ids[middle:end]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (self[i] for i in range(len(self)))

    def fingerprint(self) -> tuple[int, int]:
        """Return the file's size and checksum; for files over 64 MB of 64 slices of 1 MB."""
        data = np.memmap(self.path, np.uint8, "r")
        starts: Any = range(0, len(data), SLICE)
        if len(data) > 64 * SLICE:
            starts = np.linspace(0, len(data) - SLICE, 64).astype(int)
        checksum = 0
        for start in starts:
            checksum = zlib.crc32(data[start : start + SLICE].data, checksum)
        return len(data), checksum

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """Return the length of the longer side of each of these pairs."""
        sources = self._source_lengths[numbers]
        return np.maximum(sources, self._starts[numbers + 1] - self._starts[numbers] - sources)

    def mean_length(self) -> float:
        """Return the mean length of a side."""
        return self.num_ids / (2 * len(self))


def _index_checksum(longest: int, starts: np.ndarray, source_lengths: np.ndarray) -> int:
    return zlib.crc32(source_lengths.data, zlib.crc32(starts.data, longest))


def _check(
    block: list[tuple[Ids, Ids]], sizes: np.ndarray, ids: np.ndarray, vocab_size: int, before: int
) -> None:
    """Raise an error about the first pair that has an empty side or an id out of range."""
    if (empty := (sizes == 0).any(1)).any():
        raise ValueError(
            f"IndexedPairs.write: pair {before + int(empty.argmax())} has an empty side"
        )
    wrong = (ids < 0) | (ids >= vocab_size)
    if wrong.any():
        place = int(wrong.argmax())
        pair = before + int(np.searchsorted(sizes.sum(1).cumsum(), place, side="right"))
        raise ValueError(
            f"IndexedPairs.write: pair {pair}: expected ids from 0 to {vocab_size - 1}, got "
            f"{int(ids[place])}"
        )

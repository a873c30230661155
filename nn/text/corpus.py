"""Pairs of ids in a file: for corpora that are not to be held in memory.

The file, little-endian: a header of 48 bytes (the magic word, then as uint64 the pairs, the ids,
the longest side, the bytes of an id, 2 or 4, and the CRC-32 of all this and the index); the ids,
source and target of one pair after the other, filled up to a multiple of 8 bytes; then the index:
where each pair begins among the ids, int64 (pairs + 1), and the lengths of the sources, int32
(pairs).
"""

from __future__ import annotations

import itertools
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from minigrad.io import write_atomically
from minigrad.io.reading import found_file

__all__ = ["IndexedPairs"]

_MAGIC = b"MGPAIRS2"
_HEADER = struct.Struct("<8s5Q")
_BLOCK = 1 << 12  # pairs to write, or to index, at a time
_STRETCH = 1 << 20  # bytes to sum up at a time

Ids = Sequence[int]


class IndexedPairs:
    """The (source ids, target ids) of a file that `write` made, read when they are asked for.

    The file is mapped into memory: the system reads the pages that are needed, and drops them when
    it needs the memory. A file that is not whole, or whose index was changed, is a ValueError.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with found_file(path).open("rb") as file:
            header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            raise ValueError(f"{path}: not a file of indexed pairs; IndexedPairs.write makes one")
        _, self.count, self.num_ids, self.longest, width, checksum = _HEADER.unpack(header)
        places = _places(self.count, self.num_ids, width) if width in (2, 4) else [-1]
        if self.path.stat().st_size != places[-1]:
            raise ValueError(
                f"{path}: not a whole file of indexed pairs: {self.path.stat().st_size} bytes"
            )
        data = np.memmap(self.path, np.uint8, "r")
        part = lambda i, dtype: data[places[i] : places[i + 1]].view(dtype)
        self._ids = part(0, f"<u{width}")[: self.num_ids]
        self._starts, self._source_lengths = part(1, "<i8"), part(2, "<i4")
        if checksum != _checksum(zlib.crc32(header[:-8]), _stretches(data[places[1] :])):
            raise ValueError(
                f"{path}: the index of pairs was changed since it was written; write the file again"
            )

    @classmethod
    def write(
        cls, path: str | Path, pairs: Iterable[tuple[Ids, Ids]], vocab_size: int
    ) -> IndexedPairs:
        """Write pairs of ids below `vocab_size`, one by one as they come; the pairs, opened.

        A pair with an empty side, or an id out of range, is a ValueError that tells which.
        """
        write_atomically(path, lambda part: _write(part, pairs, vocab_size))
        return cls(path)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: Any) -> tuple[np.ndarray, np.ndarray]:
        """Source ids (L_s,) and target ids (L_t,) of pair i, as read-only views of the file."""
        if not 0 <= i < self.count:
            raise IndexError(f"{self.path}: expected a pair from 0 to {self.count - 1}, got {i}")
        start, end = self._starts[i], self._starts[i + 1]
        middle = start + self._source_lengths[i]
        return self._ids[start:middle], self._ids[middle:end]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (self[i] for i in range(self.count))

    def fingerprint(self) -> tuple[int, int]:
        """The size of the file, and a checksum of it, or of 64 of its stretches if it is longer
        than 64 MB.
        """
        data = np.memmap(self.path, np.uint8, "r")
        starts = np.linspace(0, max(0, len(data) - _STRETCH), 64).astype(int).tolist()
        some = (data[start : start + _STRETCH] for start in starts)
        return len(data), _checksum(0, _stretches(data) if len(data) <= 64 * _STRETCH else some)

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """The length of the longer side of each of these pairs."""
        sources = self._source_lengths[numbers]
        return np.maximum(sources, self._starts[numbers + 1] - self._starts[numbers] - sources)

    def mean_length(self) -> float:
        """The mean length of a side."""
        return self.num_ids / (2 * self.count)


def _stretches(data: np.ndarray) -> Iterator[np.ndarray]:
    return (data[start : start + _STRETCH] for start in range(0, len(data), _STRETCH))


def _checksum(checksum: int, parts: Iterable[np.ndarray]) -> int:
    for part in parts:
        checksum = zlib.crc32(part.data, checksum)
    return checksum


def _places(pairs: int, ids: int, width: int) -> list[int]:
    """Where ids, starts and source lengths begin, and the file ends."""
    ends = [_HEADER.size, -(-ids * width // 8) * 8, 8 * (pairs + 1), 4 * pairs]
    return list(itertools.accumulate(ends))


def _write(path: Path, pairs: Iterable[tuple[Ids, Ids]], vocab_size: int) -> None:
    width = 2 if vocab_size <= 1 << 16 else 4
    ids = longest = 0
    with path.open("wb") as file, tempfile.TemporaryFile(dir=path.parent) as lengths:
        file.write(bytes(_HEADER.size))
        count, rest = 0, iter(pairs)
        while block := list(itertools.islice(rest, _BLOCK)):
            sizes = np.array([[len(a), len(b)] for a, b in block], "<i4")
            flat = np.concatenate([np.asarray(side, np.int64) for pair in block for side in pair])
            _check(block, sizes, flat, vocab_size, count)
            file.write(flat.astype(f"<u{width}").tobytes())
            lengths.write(sizes.tobytes())
            count, ids, longest = (
                count + len(block),
                ids + len(flat),
                max(longest, int(sizes.max())),
            )
        if count == 0:
            raise ValueError("IndexedPairs.write: no pairs")
        file.write(bytes(-(ids * width) % 8))
        header = _HEADER.pack(_MAGIC, count, ids, longest, width, 0)[:-8]
        place = file.tell()
        _write_index(file, lengths)
        file.flush()
        checksum = _checksum(zlib.crc32(header), _stretches(np.memmap(path, np.uint8, "r")[place:]))
        file.seek(0)
        file.write(header + checksum.to_bytes(8, "little"))


def _check(
    block: list[tuple[Ids, Ids]], sizes: np.ndarray, flat: np.ndarray, vocab_size: int, before: int
) -> None:
    """An error for the first pair that is not what it should be."""
    if (empty := (sizes == 0).any(1)).any():
        raise ValueError(
            f"IndexedPairs.write: pair {before + int(empty.argmax())} has an empty side"
        )
    wrong = (flat < 0) | (flat >= vocab_size)
    if wrong.any():
        place = int(wrong.argmax())
        pair = before + int(np.searchsorted(sizes.sum(1).cumsum(), place, side="right"))
        raise ValueError(
            f"IndexedPairs.write: pair {pair}: expected ids from 0 to {vocab_size - 1}, got "
            f"{int(flat[place])}"
        )


def _write_index(file: BinaryIO, lengths: Any) -> None:
    """The index, from the lengths (pairs, 2) in a temporary file."""

    def blocks() -> Iterator[np.ndarray]:
        lengths.seek(0)
        while data := lengths.read(8 * _BLOCK):
            yield np.frombuffer(data, "<i4").reshape(-1, 2)

    starts = np.zeros(1, "<i8")
    file.write(starts.tobytes())
    for sizes in blocks():
        starts = starts[-1] + np.cumsum(sizes.sum(1, dtype="<i8"), dtype="<i8")
        file.write(starts.tobytes())
    for sizes in blocks():
        file.write(sizes[:, 0].tobytes())

"""Header of files in the GGUF format: metadata, and the types, shapes and places of arrays.

Every size is checked against the size of the file before memory is allocated. The package `gguf`
names the types.

References
----------
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .reading import printable, require_file

__all__ = ["GGUFHeader", "GGUFTensor"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Formats of `struct` by the types of metadata."""
STRING, ARRAY = 8, 9
MOST_ENTRIES = 100_000  # of metadata, or arrays
LARGEST_ALIGNMENT = 1 << 20


class GGUFTensor(NamedTuple):
    """An array of the file: its type, its shape, and its bytes."""

    kind: int
    shape: tuple[int, ...]
    start: int
    end: int


class _Header:
    """Reads the header of a file from its mapped bytes."""

    def __init__(self, data: np.ndarray) -> None:
        self.bytes, self.position = data.data, 0

    def take(self, size: int) -> memoryview:
        """Return the next bytes."""
        start, self.position = self.position, self.position + size
        if self.position > len(self.bytes):
            raise ValueError(f"it must have {self.position:,} bytes, got {len(self.bytes):,}")
        return self.bytes[start : self.position]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0]

    def count(self, what: str) -> int:
        count = self.number("Q")
        if count > MOST_ENTRIES:
            raise ValueError(f"it must have at most {MOST_ENTRIES:,} {what}, got {count:,}")
        return int(count)

    def string(self) -> str:
        return str(self.take(self.number("Q")), "utf-8")

    def value(self, kind: int) -> Any:
        """Return a value of the metadata; an array of numbers as an ndarray."""
        if kind == STRING:
            return self.string()
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind != ARRAY:
            raise ValueError(f"types of metadata must be from 0 to 12, got {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in SCALARS:
            dtype = np.dtype(f"<{SCALARS[inner]}")
            return np.frombuffer(self.take(count * dtype.itemsize), dtype)
        if inner != STRING:
            raise ValueError(f"arrays of metadata must hold numbers or strings, got type {inner}")
        if 8 * count > len(self.bytes) - self.position:
            raise ValueError(f"an array of {count:,} strings does not fit into the file")
        return [self.string() for _ in range(count)]


class GGUFHeader:
    """Header of a mapped GGUF file.

    Parameters
    ----------
    path : Path
        A damaged file raises a ValueError.
    library : module
        The package `gguf`.

    Attributes
    ----------
    bytes : array of uint8
        The mapped file.
    metadata : dict of str to Any
        Arrays of numbers are ndarrays.
    tensors : dict of GGUFTensor
        Arrays by name.
    """

    def __init__(self, path: Path, library: Any) -> None:
        self.library = library
        self.bytes = np.empty(0, np.uint8)
        if require_file(path).stat().st_size:
            self.bytes = np.memmap(path, np.uint8, "r").view(np.ndarray)
        try:
            self.metadata, self.tensors = self._read()
        except (ValueError, OverflowError, struct.error) as error:
            raise ValueError(f"{printable(path, 500)}: not a whole GGUF file ({error})") from None

    def _read(self) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
        header = _Header(self.bytes)
        if (magic := bytes(header.take(4))) != MAGIC:
            raise ValueError(f"it must begin with {MAGIC!r}, got {magic!r}")
        if (version := header.number("I")) not in VERSIONS:
            raise ValueError(f"its version must be 2 or 3, little-endian, got {version}")
        num_tensors, num_keys = header.count("arrays"), header.count("keys")
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = header.string()
            metadata[key] = header.value(header.number("I"))
        infos: dict[str, tuple[int, tuple[int, ...], int]] = {}
        for _ in range(num_tensors):
            name, num_axes = header.string(), header.number("I")
            if num_axes > 4:
                raise ValueError(f"{printable(name)}: it must have at most 4 axes, got {num_axes}")
            shape = tuple(header.number("Q") for _ in range(num_axes))[::-1]
            infos[name] = header.number("I"), shape, header.number("Q")
        if len(infos) < num_tensors or len(metadata) < num_keys:
            raise ValueError("the names of its arrays and keys must be different")
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= LARGEST_ALIGNMENT:
            raise ValueError(f"general.alignment must be a small integer, got {alignment!r:.40}")
        begin = -(-header.position // alignment) * alignment
        tensors = {name: self._placed(name, *info, begin) for name, info in infos.items()}
        last = 0
        for name, tensor in sorted(tensors.items(), key=lambda item: item[1].start):
            if tensor.start < last or tensor.end > len(self.bytes):
                raise ValueError(
                    f"{printable(name)}: its bytes must be from {last:,} to {len(self.bytes):,}, "
                    f"got {tensor.start:,} to {tensor.end:,}"
                )
            last = tensor.end
        return metadata, tensors

    def _placed(
        self, name: str, kind: int, shape: tuple[int, ...], offset: int, begin: int
    ) -> GGUFTensor:
        """Return an array with its place in the file, if its type and shape are supported."""
        try:
            kind_name = self.library.GGMLQuantizationType(kind).name
        except ValueError:
            raise ValueError(f"{printable(name)}: unknown type {kind}") from None
        height, size = self.library.GGML_QUANT_SIZES[kind]
        if not shape or shape[-1] % height or not 0 < math.prod(shape) < 1 << 48:
            raise ValueError(
                f"{printable(name)}: {kind_name} needs rows of a multiple of {height} values, got "
                f"shape {shape}"
            )
        start = begin + offset
        return GGUFTensor(kind, shape, start, start + math.prod(shape) // height * size)

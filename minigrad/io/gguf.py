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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .reading import naming, printable, require_file

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}
"""Formats of `struct` by the types of metadata."""
STRING, ARRAY = 8, 9
MAX_ENTRIES = 100_000  # of metadata, or arrays
MAX_ITEMS = 4_000_000  # of all arrays of metadata together
MAX_VALUE = 1 << 26  # bytes of a value of metadata
MAX_NAME = 1000


class GGUFTensor(NamedTuple):
    """An array of the file: its type, its shape, and its bytes."""

    kind: Any  # an integer with the name of the type
    shape: tuple[int, ...]
    start: int
    end: int


class _Reader:
    """Reads values from the mapped bytes of a file."""

    def __init__(self, data: np.ndarray, position: int = 0) -> None:
        self.bytes, self.position, self.items = data.data, position, 0

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
        if count > MAX_ENTRIES:
            raise ValueError(f"it must have at most {MAX_ENTRIES:,} {what}, got {count:,}")
        return int(count)

    def name(self) -> str:
        size = self.number("Q")
        if size > MAX_NAME:
            raise ValueError(f"names must have at most {MAX_NAME:,} bytes, got {size:,}")
        return str(self.take(size), "utf-8")

    def skip(self, kind: int) -> None:
        """Go to the end of a value of metadata."""
        if kind == STRING:
            self.take(self.number("Q"))
        elif kind in SCALARS:
            self.take(struct.calcsize(SCALARS[kind]))
        elif kind != ARRAY:
            raise ValueError(f"types of metadata must be from 0 to 12, got {kind}")
        else:
            inner, count = self.number("I"), self.number("Q")
            self.items += count
            if self.items > MAX_ITEMS:
                raise ValueError(
                    f"arrays of metadata must have at most {MAX_ITEMS:,} items, got {self.items:,}"
                )
            if inner in SCALARS:
                self.take(count * struct.calcsize(SCALARS[inner]))
            elif inner == STRING:
                for _ in range(count):
                    self.take(self.number("Q"))
            else:
                raise ValueError(
                    f"arrays of metadata must hold numbers or strings, got type {inner}"
                )

    def value(self, kind: int) -> Any:
        """Return a value of metadata that `skip` has checked."""
        if kind == STRING:
            return str(self.take(self.number("Q")), "utf-8")
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        inner, count = self.number("I"), self.number("Q")
        if inner == STRING:
            return [self.value(STRING) for _ in range(count)]
        code = SCALARS[inner]
        return list(struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(code))))


class Metadata(Mapping[str, Any]):
    """Numbers, strings and lists of them by key. A value is read when it is used.

    `places` contains the type, start and end of each value in the mapped `data` of the file.
    """

    def __init__(
        self, path: Path, data: np.ndarray, places: dict[str, tuple[int, int, int]]
    ) -> None:
        self.path, self.bytes, self.places = path, data, places
        self.cache: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        kind, start, end = self.places[key]
        where = f"{printable(self.path, 500)}: {printable(key)} must"
        if end - start > MAX_VALUE:
            raise ValueError(f"{where} have at most {MAX_VALUE:,} bytes, got {end - start:,}")
        if key not in self.cache:
            try:
                self.cache[key] = _Reader(self.bytes, start).value(kind)
            except UnicodeDecodeError as error:
                raise ValueError(f"{where} be UTF-8 ({error.reason})") from None
        return self.cache[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class GGUFHeader:
    """Header of a mapped GGUF file: `bytes`, `metadata`, and `tensors` by name.

    A damaged file raises a ValueError. `library` is the package `gguf`.
    """

    def __init__(self, path: Path, library: Any) -> None:
        self.path, self.library = path, library
        self.bytes = np.empty(0, np.uint8)
        with naming(require_file(path)):
            if path.stat().st_size:
                self.bytes = np.memmap(path, np.uint8, "r").view(np.ndarray)
        try:
            self.metadata, self.tensors = self._read()
        except (ValueError, OverflowError, struct.error) as error:
            raise ValueError(f"{printable(path, 500)}: not a whole GGUF file ({error})") from None

    def _read(self) -> tuple[Metadata, dict[str, GGUFTensor]]:
        reader = _Reader(self.bytes)
        if (magic := bytes(reader.take(4))) != MAGIC:
            raise ValueError(f"it must begin with {MAGIC!r}, got {magic!r}")
        if (version := reader.number("I")) not in VERSIONS:
            raise ValueError(f"its version must be 2 or 3, little-endian, got {version}")
        num_tensors, num_keys = reader.count("arrays"), reader.count("keys")
        places: dict[str, tuple[int, int, int]] = {}
        for _ in range(num_keys):
            key, kind, start = reader.name(), reader.number("I"), reader.position
            reader.skip(kind)
            places[key] = kind, start, reader.position
        infos: dict[str, tuple[int, tuple[int, ...], int]] = {}
        for _ in range(num_tensors):
            name, num_axes = reader.name(), reader.number("I")
            if num_axes > 4:
                raise ValueError(f"{printable(name)}: it must have at most 4 axes, got {num_axes}")
            shape = tuple(reader.number("Q") for _ in range(num_axes))[::-1]
            infos[name] = reader.number("I"), shape, reader.number("Q")
        if len(infos) < num_tensors or len(places) < num_keys:
            raise ValueError("the names of its arrays and keys must be different")
        metadata = Metadata(self.path, self.bytes, places)
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment.bit_count() != 1 or alignment < 1:
            raise ValueError(
                f"general.alignment must be a power of 2, got {printable(alignment, 40)}"
            )
        place, tensors = reader.position, dict[str, GGUFTensor]()
        begin = aligned = -(-place // alignment) * alignment
        for name, info in infos.items():
            tensor = tensors[name] = self._placed(name, *info, begin)
            if tensor.start != aligned or self.bytes[place:aligned].any():
                raise ValueError(
                    f"{printable(name)}: its offset must be {aligned - begin:,}, behind zeros, got "
                    f"{tensor.start - begin:,}"
                )
            place, aligned = tensor.end, -(-tensor.end // alignment) * alignment
        if not place <= len(self.bytes) <= aligned or self.bytes[place:].any():
            raise ValueError(f"its arrays must end at {len(self.bytes):,}, got {place:,}")
        return metadata, tensors

    def _placed(
        self, name: str, kind: int, shape: tuple[int, ...], offset: int, begin: int
    ) -> GGUFTensor:
        """Return an array with its place in the file, if its type and shape are supported."""
        try:
            quantization = self.library.GGMLQuantizationType(kind)
        except ValueError:
            raise ValueError(f"{printable(name)}: unknown type {kind}") from None
        height, size = self.library.GGML_QUANT_SIZES[kind]
        if not shape or shape[-1] % height or not 0 < math.prod(shape) < 1 << 48:
            raise ValueError(
                f"{printable(name)}: {quantization.name} needs rows of a multiple of {height} "
                f"values, got shape {shape}"
            )
        start = begin + offset
        return GGUFTensor(quantization, shape, start, start + math.prod(shape) // height * size)

"""Safetensors format, read and written by NumPy alone.

A file consists of the length of its header (8 bytes, little-endian), the header, and the bytes of
the arrays. The header is a JSON object that contains the dtype, the shape and the range of bytes of
each array. Nothing in a file is executed. The header is checked against the size of the file before
memory is allocated for an array.

References
----------
https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import math
import mmap
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .atomic import write_atomically
from .json import as_json, parse_json, read_json, write_json
from .mapped import release
from .reading import LFS_POINTER, is_lfs_pointer, listed, naming, printable, require_file

# From narrow to wide, as in the reference library. For alignment, files begin with the widest.
DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "BF16": "<u2",
    "I32": "<i4", "U32": "<u4", "F32": "<f4", "C64": "<c8", "F64": "<f8", "I64": "<i8",
    "U64": "<u8",
}  # fmt: skip
BITS = {name: 8 * np.dtype(code).itemsize for name, code in DTYPES.items()} | {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
}  # fmt: skip
"""Bits of a value, also for dtypes that NumPy does not have."""
_NAMES = {np.dtype(code): name for name, code in DTYPES.items() if name != "BF16"}
_MAX_HEADER = 100_000_000
_MAX_ARRAYS = 100_000
_MAX_AXES = 64  # as in NumPy
_MAX_NAME = 1000
_MAX_START = 64  # bytes in which a file shows its kind
_BLOCK = 1 << 22  # values that are checked at once


class Entry(NamedTuple):
    """Entry of one array in the header; `start` and `end` count bytes from the header's end."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile(Mapping[str, Entry]):
    """Entries of a safetensors file by name; `read` and `map` return an array.

    The file is opened once. If another file replaces it, the arrays remain those of the first file.

    Parameters
    ----------
    path : str or Path
        A file that is incomplete or not a safetensors file raises a ValueError.

    Attributes
    ----------
    metadata : dict of str to str
        Strings in the header.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = require_file(path)
        self._descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._descriptor)
        self._lock = threading.Lock()
        try:
            size = os.fstat(self._descriptor).st_size
            self._offset = 8 + _header(self._read_at(0, min(size, _MAX_START)).tobytes(), size)
            self._bytes: np.ndarray | None = None  # the mapped file, after the first call of map()
            text = self._read_at(8, self._offset - 8).tobytes()
            self._entries, self.metadata = _entries(text)
            _check_layout(self._entries, size - self._offset)
        except ValueError as error:
            raise ValueError(f"{self.path}: not a whole safetensors file ({error})") from None

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, name: str, dtype: Any = None) -> np.ndarray:
        """Return a copy of an array in new memory; bfloat16 becomes float32.

        Parameters
        ----------
        name : str
            Name of the array.
        dtype : dtype, optional
            Dtype of a floating-point array; the dtype in the file by default. The dtypes of other
            arrays do not change.
        """
        entry, code = self._entries[name], self._code(name)
        start, end = self._offset + entry.start, self._offset + entry.end
        array = self._read_at(start, end - start).view(code)
        array = (from_bfloat16(array) if entry.dtype == "BF16" else array).reshape(entry.shape)
        target = array.dtype if dtype is None or array.dtype.kind != "f" else np.dtype(dtype)
        return array.astype(target.newbyteorder("="), copy=False)

    def map(self, name: str, writable: bool = False) -> np.ndarray:
        """Map an array: return a view of the file, whose pages are read when they are used.

        The file may be replaced while the view is in use, as `write_safetensors` does. It must not
        be written into, as by `cp NEW FILE`: this changes the values of the view. If the file
        becomes shorter, the system may end the process.

        Parameters
        ----------
        name : str
            Name of the array.
        writable : bool
            Allow writing, which changes a copy of the page and never the file. False by default.

        Returns
        -------
        ndarray
            View of the file. bfloat16 and arrays that are not aligned are read instead.
        """
        entry, code = self._entries[name], np.dtype(self._code(name))
        start, end = self._offset + entry.start, self._offset + entry.end
        if entry.dtype == "BF16" or start % code.itemsize:
            array = self.read(name)
        else:
            if self._bytes is None:
                with naming(self.path):
                    memory = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY)
                self._bytes = np.ndarray(len(memory), np.uint8, memory)
            if len(self._bytes) < end:
                raise ValueError(f"{self.path}: the file became shorter while it was read")
            array = self._bytes[start:end].view(code).reshape(entry.shape)
        array.flags.writeable = writable
        return array

    def _read_at(self, start: int, size: int) -> np.ndarray:
        """Return bytes of the file; threads may call this at the same time."""
        with naming(self.path):
            array = np.empty(size, np.uint8)
        rest = memoryview(array.data)
        while rest:
            if hasattr(os, "preadv"):
                count = os.preadv(self._descriptor, [rest], start)
            else:
                with self._lock:  # on Windows a descriptor has one position
                    os.lseek(self._descriptor, start, os.SEEK_SET)
                    data = os.read(self._descriptor, min(len(rest), 1 << 30))
                count = len(data)
                rest[:count] = data
            if not count:
                raise ValueError(f"{self.path}: the file became shorter while it was read")
            start += count
            rest = rest[count:]
        return array

    def _code(self, name: str) -> str:
        dtype = self._entries[name].dtype
        if dtype not in DTYPES:
            raise ValueError(f"{self.path}: {name} is {dtype}, a dtype that NumPy does not have")
        return DTYPES[dtype]


def _header(first: bytes, size: int) -> int:
    """Return the length of the header, given the first bytes of a file."""
    if len(first) < 8:
        raise ValueError(f"it has {size} bytes")
    if is_lfs_pointer(first):
        raise ValueError(LFS_POINTER)
    length = int.from_bytes(first[:8], "little")
    if length > _MAX_HEADER:
        raise ValueError(f"a header of {length:,} bytes")
    if 8 + length > size:
        raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
    return length


def _entries(text: bytes) -> tuple[dict[str, Entry], dict[str, str]]:
    """Return the entries in the order of their bytes, and the metadata."""
    if (count := text.count(b'"data_offsets"')) > _MAX_ARRAYS:  # parsing millions takes long
        raise ValueError(f"its header must have at most {_MAX_ARRAYS:,} arrays, got {count:,}")
    header = parse_json(text, "its header")
    if not isinstance(header, dict):
        raise ValueError(f"its header must be an object, got {type(header).__name__}")
    metadata = header.pop("__metadata__", None)
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):
        raise ValueError("its __metadata__ must be an object of strings")
    entries = {name: _entry(name, data) for name, data in header.items()}
    return dict(sorted(entries.items(), key=lambda item: (item[1].start, item[1].end))), metadata


def _is_name(name: str) -> bool:
    return len(name) <= _MAX_NAME and name.isprintable()


def _entry(name: str, data: Any) -> Entry:
    if not _is_name(name):
        raise ValueError(
            f"the name of an array must have at most {_MAX_NAME:,} printable characters, got "
            f"'{printable(name)}'"
        )
    try:
        dtype, shape, (start, end) = data["dtype"], data["shape"], data["data_offsets"]
        if not isinstance(shape, list):
            raise TypeError
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{name} must have dtype, shape and two data_offsets, got {printable(data, 80)}"
        ) from None
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ValueError(f"{name}: unknown dtype '{printable(dtype)}'")
    if len(shape) > _MAX_AXES:
        raise ValueError(f"{name}: an array has at most {_MAX_AXES} axes, got {len(shape):,}")
    sizes = *shape, start, end
    if not all(type(size) is int and 0 <= size < 1 << 63 for size in sizes):
        raise ValueError(f"{name}: sizes must be from 0 to 2^63, got {printable(sizes, 80)}")
    if math.prod(size or 1 for size in shape) >= 1 << 60:
        raise ValueError(f"{name}: shape {printable(shape)} is larger than any array")
    return Entry(dtype, tuple(shape), start, end)


def _check_layout(entries: Mapping[str, Entry], size: int) -> None:
    """Check that arrays follow one another, have the bytes of their shapes, and fill the file."""
    begin = 0  # the end of the array before
    for name, entry in entries.items():
        if entry.start != begin or entry.end < entry.start:
            raise ValueError(
                f"{name}: data_offsets must begin at {begin}, got {entry.start} to {entry.end}"
            )
        bits = math.prod(entry.shape) * BITS[entry.dtype]
        if bits != 8 * (entry.end - entry.start):
            raise ValueError(
                f"{name}: {entry.dtype} {entry.shape} must have {bits // 8:,} bytes, got "
                f"{entry.end - entry.start:,}"
            )
        begin = entry.end
    if begin != size:
        raise ValueError(f"there must be {begin:,} bytes after the header, got {size:,}")


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return the float32 values of bfloat16 bits in uint16."""
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """Return the bits of the nearest bfloat16 values, in uint16.

    Ties are rounded to even, and NaN stays NaN.
    """
    array = np.asarray(array, np.float32, order="C")
    bits = array.view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def write_safetensors(
    path: str | Path,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    dtype: Any = None,
) -> None:
    """Write named arrays into one file, atomically; equal data always give equal bytes.

    Parameters
    ----------
    path : str or Path
        File to write.
    arrays : mapping of str to ndarray
    metadata : mapping of str to str, optional
        Strings in the header.
    dtype : str or dtype, optional
        Dtype of floating-point arrays in the file, such as "float16" or "bfloat16"; the dtype of
        each array by default. Arrays are converted one by one.
    """
    for pair in (metadata or {}).items():
        if not all(isinstance(part, str) for part in pair):
            raise TypeError(
                f"write_safetensors: metadata must be strings by name, got {pair!r:.60}"
            )
    kinds = {name: stored_as(name, np.asarray(array), dtype) for name, array in arrays.items()}
    order = list(DTYPES)
    names = sorted(arrays, key=lambda name: (-order.index(kinds[name]), name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    begin = 0
    for name in names:
        shape = np.shape(arrays[name])
        end = begin + math.prod(shape) * np.dtype(DTYPES[kinds[name]]).itemsize
        header[name] = {"dtype": kinds[name], "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = as_json(header, path, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)

    def write(part: Path) -> None:
        with part.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                array = to_bfloat16(arrays[name]) if kinds[name] == "BF16" else arrays[name]
                array = np.asarray(array, DTYPES[kinds[name]], order="C")
                file.write(array.reshape(-1).view(np.uint8).data)

    write_atomically(path, write)


def stored_as(name: str, array: np.ndarray, dtype: Any) -> str:
    """Return the name of the dtype in which an array is stored, such as "F32" or "BF16".

    `dtype` is that of floating-point arrays in the file; by default that of the array.
    """
    if not isinstance(name, str) or name == "__metadata__" or not _is_name(name):
        raise ValueError(f"write_safetensors: {name!r:.60} cannot be the name of an array")
    if dtype is not None and array.dtype.kind == "f":
        if dtype == "bfloat16":
            return "BF16"
        array = np.empty(0, dtype)
        if array.dtype.kind != "f":
            raise TypeError(
                f"write_safetensors: dtype must be floating-point or 'bfloat16', got {array.dtype}"
            )
    stored = _NAMES.get(array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype)
    if stored is None:
        raise TypeError(
            f"write_safetensors: {name} must have a dtype of the safetensors format, got "
            f"{array.dtype}"
        )
    return stored


def misfit(name: str, array: np.ndarray, dtype: np.dtype) -> str:
    """Return the reason that an array cannot be a parameter of a dtype, or "" if it can.

    A parameter of a floating-point dtype must be finite in this dtype. The pages of an array in a
    mapped file leave memory after they are checked.
    """
    if (array.dtype.kind == "f") != (dtype.kind == "f"):
        return f"{name} must be {dtype}, got {array.dtype}"
    if dtype.kind != "f":
        return ""
    values, bad = array.reshape(-1), 0
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, values.size, _BLOCK):
            part = values[start : start + _BLOCK]
            block = part.astype(dtype, copy=False)
            if dtype.itemsize < 4 or not np.isfinite(np.dot(block, block)):
                bad += block.size - np.count_nonzero(np.isfinite(block))
            release(part)
    if not bad:
        return ""
    return f"{name}: {bad:,} of its {array.size:,} values are NaN or infinite in {dtype}"


# -- several files

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
WEIGHT_FILES = (WHOLE, INDEX, "model-*-of-*.safetensors")
"""Patterns of all files that `write_shards` writes."""
_OTHERS = ("*.bin", "*.pt", "*.gguf", "*.h5", "*.msgpack")
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


class SafetensorsFolder(dict[str, Entry]):
    """Header entries of all arrays of a directory by name; `array` reads an array.

    The directory contains `model.safetensors`, or an index and the files that it names. Files that
    are missing, damaged or contradict the index raise a ValueError or an OSError. The error for a
    directory without weights ends with `expected`. `where` is the path of the file or of the index.
    """

    def __init__(self, directory: Path, expected: str = "") -> None:
        whole, index = directory / WHOLE, directory / INDEX
        if index.is_file() and not whole.is_file():
            self.where, self.files = index, _indexed(index)
        else:
            others = sorted(path.name for pattern in _OTHERS for path in directory.glob(pattern))
            if others and not whole.is_file():
                raise ValueError(
                    f"{directory}: {printable(others[0])} is not read, since it is not safetensors "
                    "(a pickle can run any code); convert it with transformers' from_pretrained "
                    "and save_pretrained"
                )
            file = SafetensorsFile(require_file(whole, expected))
            self.where, self.files = whole, dict.fromkeys(file, file)
        super().__init__({name: file[name] for name, file in self.files.items()})

    def array(self, name: str, dtype: Any = None) -> np.ndarray:
        """Return a writable array, with floating-point values in another dtype if one is given.

        Values too large for the dtype are infinite. If the file has this dtype, the array is a
        private view of the file, except on Windows, where a mapped file cannot be replaced.
        """
        if os.name != "nt" and dtype in (None, np.dtype(DTYPES.get(self[name].dtype, "V"))):
            return self.files[name].map(name, writable=True)
        with np.errstate(over="ignore", invalid="ignore"):
            return self.files[name].read(name, dtype)

    def checked(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Return a writable array, or raise a ValueError if a value is not finite in this dtype."""
        array = self.array(name, dtype)
        if wrong := misfit(name, array, dtype):
            raise ValueError(f"{self.files[name].path}: {wrong}")
        return array.astype(dtype, copy=False)


def _indexed(index: Path) -> dict[str, SafetensorsFile]:
    """Return the file of each array of an index."""
    shards = read_json(index).object("weight_map")
    names = {name: shards.text(name) for name in shards}
    if outside := [n for n in set(names.values()) if not _is_file_name(n)]:
        raise ValueError(
            f"{index}: weight_map must be names of files of this directory, got "
            f"'{printable(outside[0])}'"
        )
    expected = f"{INDEX} lists it as a file of weights"
    files = {
        n: SafetensorsFile(require_file(index.with_name(n), expected))
        for n in sorted(set(names.values()))
    }
    if missing := [name for name, file in names.items() if name not in files[file]]:
        raise ValueError(
            f"{index}: the files of weight_map must contain its arrays, but lack {listed(missing)}"
        )
    if extra := [name for file in files for name in files[file] if names.get(name) != file]:
        raise ValueError(
            f"{index}: weight_map must contain all arrays of its files, but lacks {listed(extra)}"
        )
    return {name: files[file] for name, file in names.items()}


def _is_file_name(name: str) -> bool:
    is_inside = Path(name).name == name and name not in ("", "..")
    return is_inside and name.isprintable() and len(name) <= 255


def write_shards(
    directory: Path, arrays: Mapping[str, np.ndarray], dtype: str | None, max_shard_size: int | str
) -> None:
    """Write named arrays as safetensors files of at most `max_shard_size` bytes.

    An array that is larger gets a separate file. If all arrays fit, one file is written, otherwise
    several files and an index. Old weights are not removed: write into the directory that
    `replace_together` yields.
    """
    most, shards, sizes = _bytes(max_shard_size), [dict[str, np.ndarray]()], [0]
    for name, array in arrays.items():
        size = array.size * np.dtype(DTYPES[stored_as(name, array, dtype)]).itemsize
        if shards[-1] and sizes[-1] + size > most:
            shards.append({})
            sizes.append(0)
        shards[-1][name] = array
        sizes[-1] += size
    if len(shards) == 1:
        write_safetensors(directory / WHOLE, arrays, {"format": "pt"}, dtype)
        return
    file_of = dict[str, str]()
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_safetensors(directory / file, shard, {"format": "pt"}, dtype)
        file_of |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": sum(sizes)}, "weight_map": file_of}
    write_json(directory / INDEX, index, 2)


def _bytes(size: int | str) -> int:
    """Return a number of bytes from an int or a string such as "200MB" or "5GB"."""
    if isinstance(size, str) and size[:-2].isdecimal() and size[-2:] in _UNITS:
        size = int(size[:-2]) * _UNITS[size[-2:]]
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(
            f'max_shard_size must be a number of bytes or a string such as "5GB", got {size!r}'
        )
    return size

"""Arrays in files, with plain data beside them; by NumPy alone."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .io.atomic import write_atomically
from .io.json import as_json, read_json, unique, write_json
from .io.reading import printable
from .io.safetensors import SafetensorsFile, write_safetensors

__all__ = ["load_arrays", "read_json", "save_arrays", "write_atomically", "write_json"]

_CHECKSUM = "minigrad.crc32"


def save_arrays(
    path: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write named arrays, and plain data beside them, into one safetensors file, atomically.

    Each value of `metadata` is stored as JSON. A checksum of all of it, in the metadata too, lets
    `load_arrays` notice any later change.
    """
    notes = {key: as_json(value, path) for key, value in (metadata or {}).items()}
    write_safetensors(path, arrays, {**notes, _CHECKSUM: _checksum(arrays, notes)})


def load_arrays(
    path: str | Path, mmap: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the plain data of a file from `save_arrays`, or of any safetensors file.

    bfloat16 becomes float32. With `mmap`, the arrays are read-only views of the file, read where
    they are looked at. A file that is no safetensors file, or not a whole one, is a ValueError; so
    is one that was changed since `save_arrays` wrote it (not asked with `mmap`, since that would
    read all of it).
    """
    file = SafetensorsFile(path)
    arrays = {name: file.map(name) if mmap else file.read(name) for name in file}
    notes = dict(file.metadata)
    written = notes.pop(_CHECKSUM, None)
    if written is not None and not mmap and written != (found := _checksum(arrays, notes)):
        raise ValueError(
            f"{path}: changed since it was written: its checksum is {found}, expected "
            f"{printable(written, 20)}; "
            f"take a copy of it, or remove {_CHECKSUM} from its metadata if the change is meant"
        )
    data = {}
    for key, value in notes.items():
        try:
            data[key] = json.loads(value, object_pairs_hook=unique)
        except (ValueError, RecursionError):
            data[key] = value  # written by others
    return arrays, data


def _checksum(arrays: Mapping[str, np.ndarray], notes: Mapping[str, str]) -> str:
    """CRC-32 of names, dtypes, shapes, numbers and metadata: for damage, not against a forger."""
    found = zlib.crc32(json.dumps(sorted(notes.items())).encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        found = zlib.crc32(json.dumps([name, array.dtype.str, array.shape]).encode(), found)
        found = zlib.crc32(array.reshape(-1).view(np.uint8).data, found)
    return f"{found:08x}"

"""Arrays and plain data in one safetensors file, with a checksum of both."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .json import as_json, unique
from .reading import printable
from .safetensors import SafetensorsFile, write_safetensors

__all__ = ["load_arrays", "save_arrays"]

_CHECKSUM = "minigrad.crc32"


def save_arrays(
    path: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write named arrays and plain data into one safetensors file, atomically.

    Each value of `metadata` is stored as JSON. The metadata also contains a checksum, by which
    `load_arrays` notices any later change.
    """
    notes = {key: as_json(value, path) for key, value in (metadata or {}).items()}
    write_safetensors(path, arrays, {**notes, _CHECKSUM: _checksum(arrays, notes)})


def load_arrays(
    path: str | Path, mmap: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the plain data of a safetensors file.

    Parameters
    ----------
    path : str or Path
        A file from `save_arrays` or from another program.
    mmap : bool
        Return read-only views of the file, which are read when they are used. The checksum is not
        verified, since that would read the whole file.

    Returns
    -------
    tuple of (dict of str to ndarray, dict of str to Any)
        bfloat16 becomes float32.

    Raises
    ------
    ValueError
        If the file is incomplete, or was changed since `save_arrays` wrote it.
    """
    file = SafetensorsFile(path)
    arrays = {name: file.map(name) if mmap else file.read(name) for name in file}
    notes = dict(file.metadata)
    written = notes.pop(_CHECKSUM, None)
    if written is not None and not mmap and written != (actual := _checksum(arrays, notes)):
        raise ValueError(
            f"{path}: changed since it was written: its checksum is {actual}, expected "
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
    """Return the CRC-32 of names, dtypes, shapes, values and metadata.

    It finds damage; it does not protect against forgery.
    """
    checksum = zlib.crc32(json.dumps(sorted(notes.items())).encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        checksum = zlib.crc32(json.dumps([name, array.dtype.str, array.shape]).encode(), checksum)
        checksum = zlib.crc32(array.reshape(-1).view(np.uint8).data, checksum)
    return f"{checksum:08x}"

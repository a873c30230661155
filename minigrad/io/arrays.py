"""Arrays and plain data in one safetensors file, with a checksum of both."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .json import as_json, decode_json
from .reading import printable
from .safetensors import SafetensorsFile, stored_as, write_safetensors

__all__ = ["load", "load_arrays", "save", "save_arrays"]

_CHECKSUM = "minigrad.crc32"
_OBJECT, _PATHS = "minigrad.object", "minigrad.paths"


def save_arrays(
    path: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write named arrays and plain data into one safetensors file, atomically.

    Each value of `metadata` is stored as JSON. The metadata also contains a checksum, by which
    `load_arrays` notices any later change.

    Parameters
    ----------
    path : str or Path
        File to write.
    arrays : mapping of str to array
    metadata : mapping of str, optional
        Plain data.
    """
    notes = {key: as_json(value, path) for key, value in (metadata or {}).items()}
    if _CHECKSUM in notes:
        raise ValueError(
            f"save_arrays: metadata must not contain {_CHECKSUM!r}, the name of the checksum"
        )
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
        Return read-only views of the file, whose pages are read when they are used. The checksum
        is not verified, because this would read the whole file. False by default.

    Returns
    -------
    tuple of (dict of str to ndarray, dict of str to Any)
        Arrays and plain data by name. bfloat16 becomes float32.

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
            f"{path} was changed since it was written: its checksum must be "
            f"{printable(written, 20)}, got {actual}. Restore the file from a copy, or remove "
            f"{_CHECKSUM} from its metadata to keep the change"
        )
    data = {}
    for key, value in notes.items():
        try:
            data[key] = decode_json(value)
        except (ValueError, RecursionError):
            data[key] = value  # written by another program
    return arrays, data


def save(obj: Any, f: str | Path) -> None:
    """Write nested dicts and lists of tensors, arrays and plain data into one file.

    Parameters
    ----------
    obj : dict or list
        Nested dicts with string keys, lists and tuples (which `load` returns as lists) of tensors,
        arrays, numbers, strings, booleans and None, such as state_dicts of models, optimizers and
        schedules.
    f : str or Path
        File in safetensors format, replaced atomically.

    Raises
    ------
    TypeError
        If `obj` contains another object, such as a model.

    Examples
    --------
    >>> save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "run.safetensors")
    >>> model.load_state_dict(load("run.safetensors")["model"])
    """
    arrays: dict[str, np.ndarray] = {}
    paths: dict[str, list[str | int]] = {}

    def without_arrays(value: Any, at: list[str | int]) -> Any:
        """Return `value` with None in place of arrays, which are collected by their paths."""
        name = ".".join(map(str, at))
        if isinstance(value, dict):
            if others := [key for key in value if not isinstance(key, str)]:
                raise TypeError(f"save: keys must be strings, got {others[0]!r:.60} in '{name}'")
            return {key: without_arrays(item, [*at, key]) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [without_arrays(item, [*at, i]) for i, item in enumerate(value)]
        if isinstance(value, np.ndarray) or hasattr(value, "detach"):
            name = name or "array"
            if name in arrays:
                raise ValueError(
                    f"save: two arrays must not have the same path, got '{name}' twice"
                )
            arrays[name] = value if isinstance(value, np.ndarray) else value.data
            paths[name] = at
            return None
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (str, int, float)):
            return value
        raise TypeError(
            f"save: '{name}' must consist of dicts, lists, arrays and plain data, got a "
            f"{type(value).__name__}; save its state_dict()"
        )

    text = json.dumps(without_arrays(obj, []))  # inf and nan are allowed, such as a best loss
    save_arrays(f, arrays, {_OBJECT: text, _PATHS: paths})


def load(path: str | Path) -> Any:
    """Read a file that `save` wrote.

    Parameters
    ----------
    path : str or Path
        File that `save` wrote.

    Returns
    -------
    dict or list
        The saved object. Tensors are returned as arrays, and tuples as lists.

    Raises
    ------
    ValueError
        If the file was not written by `save`, is incomplete, or was changed.
    """
    arrays, data = load_arrays(path)
    try:
        root = [decode_json(data[_OBJECT])]
        for name, at in data[_PATHS].items():
            container: Any = root
            keys = [0, *at]
            for key in keys[:-1]:
                container = container[key]
            container[keys[-1]] = arrays[name]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
        raise ValueError(
            f"{path}: must be a file that minigrad.save wrote; read other safetensors files with "
            "minigrad.io.load_arrays"
        ) from None
    return root[0]


def _checksum(arrays: Mapping[str, np.ndarray], notes: Mapping[str, str]) -> str:
    """Return the CRC-32 of names, dtypes, shapes, values and metadata.

    It detects damage. It does not protect against forgery.
    """
    checksum = zlib.crc32(json.dumps(sorted(notes.items())).encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        stored_as(name, array, None)  # raises an error for dtypes that files cannot contain
        array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        checksum = zlib.crc32(json.dumps([name, array.dtype.str, array.shape]).encode(), checksum)
        checksum = zlib.crc32(array.reshape(-1).view(np.uint8).data, checksum)
    return f"{checksum:08x}"

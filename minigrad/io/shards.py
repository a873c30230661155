"""The arrays of a directory: in one safetensors file, or in several files and an index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .json import read_json, write_json
from .reading import found_file, listed, printable
from .safetensors import (
    DTYPES,
    Entry,
    SafetensorsFile,
    misfit,
    stored_as,
    write_safetensors,
)

__all__ = ["WEIGHT_FILES", "SafetensorsFolder", "write_shards"]

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
WEIGHT_FILES = (WHOLE, INDEX, "model-*-of-*.safetensors")
"""Patterns of all files that `write_shards` writes."""
_OTHERS = ("*.bin", "*.pt", "*.gguf", "*.h5", "*.msgpack")
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


class SafetensorsFolder(dict[str, Entry]):
    """The header entries of all arrays of a directory by name; `array` reads an array.

    Parameters
    ----------
    directory : Path
        With `model.safetensors`, or an index and the files that it names. Missing or damaged
        files, and those that contradict the index, are a ValueError or an OSError.
    expected : str
        The end of the error about a directory without weights.

    Attributes
    ----------
    where : Path
        The file, or the index.
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
            file = SafetensorsFile(found_file(whole, expected))
            self.where, self.files = whole, dict.fromkeys(file, file)
        super().__init__({name: file[name] for name, file in self.files.items()})

    def _is_mapped(self, name: str, dtype: Any) -> bool:
        """Return whether an array can stay in the file: it has this dtype there.

        On Windows, a file that is mapped cannot be replaced.
        """
        return os.name != "nt" and dtype in (None, np.dtype(DTYPES.get(self[name].dtype, "V")))

    def array(self, name: str, dtype: Any = None) -> np.ndarray:
        """Return a writable array; values too large for the dtype are infinite."""
        if self._is_mapped(name, dtype):
            return self.files[name].map(name, writable=True)
        with np.errstate(over="ignore"):
            return self.files[name].read(name, dtype)

    def checked(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Return a writable array, or raise a ValueError if a value is not finite in this dtype."""
        array, file = self.array(name, dtype), self.files[name]
        is_finite = self._is_mapped(name, dtype) and file.is_finite(name)  # maps no pages
        if not is_finite and (wrong := misfit(name, array, dtype)):
            raise ValueError(f"{file.path}: {wrong}")
        return array.astype(dtype, copy=False)


def _indexed(index: Path) -> dict[str, SafetensorsFile]:
    """Return the file of each array of an index."""
    shards = read_json(index).object("weight_map")
    names = {name: shards.text(name) for name in shards}
    if outside := [n for n in set(names.values()) if not _is_file_name(n)]:
        raise ValueError(
            f"{index}: weight_map: expected names of files of this folder, got "
            f"'{printable(outside[0])}'"
        )
    expected = f"{INDEX} says that it holds some of the weights"
    files = {
        n: SafetensorsFile(found_file(index.with_name(n), expected))
        for n in sorted(set(names.values()))
    }
    if absent := [name for name, file in names.items() if name not in files[file]]:
        raise ValueError(f"{index}: {listed(absent)} not in the files that it names")
    if others := [name for file in files for name in files[file] if names.get(name) != file]:
        raise ValueError(
            f"{index}: {listed(others)} in the files that it names, but not in its weight_map"
        )
    return {name: files[file] for name, file in names.items()}


def _is_file_name(name: str) -> bool:
    return (
        name.isprintable()
        and len(name) <= 255
        and Path(name).name == name
        and name not in ("", ".", "..")
    )


def write_shards(
    directory: Path, arrays: Mapping[str, np.ndarray], dtype: str | None, max_shard_size: int | str
) -> None:
    """Write named arrays as safetensors files of at most `max_shard_size` bytes.

    Old weights are not removed: write into the directory that `replace_together` gives.

    Parameters
    ----------
    directory : Path
        A directory without weights.
    arrays : mapping of str to ndarray
        An array that is larger than `max_shard_size` gets a file of its own.
    dtype : str or None
        See `write_safetensors`.
    max_shard_size : int or str
        A number of bytes, or a string such as "5GB". If all arrays fit, there is one file, else
        several and an index.
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
    places = dict[str, str]()
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_safetensors(directory / file, shard, {"format": "pt"}, dtype)
        places |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": sum(sizes)}, "weight_map": places}
    write_json(directory / INDEX, index, 2)


def _bytes(size: int | str) -> int:
    """A number of bytes, also as "200MB" or "5GB"."""
    if isinstance(size, str) and size[:-2].isdecimal() and size[-2:] in _UNITS:
        size = int(size[:-2]) * _UNITS[size[-2:]]
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(
            f'max_shard_size: expected a number of bytes or a text such as "5GB", got {size!r}'
        )
    return size

"""The files of a model's folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.found import found_file
from minigrad.files.json import read_json
from minigrad.files.safetensors import DTYPES, Entry, SafetensorsFile

from ..weights import misfit
from .tables import Place

__all__ = ["HOW", "INDEX", "WHOLE", "Origin", "Weights", "listed"]

HOW = (
    "expected a folder with config.json and model.safetensors, such as transformers' save_pretrained writes, or "
    "`hf download NAME --local-dir FOLDER`"
)
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass
class Origin:
    """Where a model was loaded from, as far as saving it needs to know.

    `settings` are those of its config.json; `places` tells, by the names of the file, which parameters its arrays
    hold, `kept` has those that the model does not use, `files` those beside the weights. `generation` are
    options for `generate`.
    """

    family: str
    settings: dict[str, Any]
    head: str
    places: dict[str, Place]
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)


class Weights(dict[str, Entry]):
    """The arrays of a folder, in one safetensors file or in several with an index: what is said of each."""

    def __init__(self, directory: Path) -> None:
        self.where = directory / WHOLE
        if self.where.is_file() or not (directory / INDEX).is_file():
            self.files = dict.fromkeys(file := _single(self.where), file)
        else:
            self.where = directory / INDEX
            self.files = _several(self.where)
        super().__init__({name: file[name] for name, file in self.files.items()})

    def _is_mapped(self, name: str, dtype: Any) -> bool:
        """Whether an array can stay in the file: it is of this dtype there, and the file can be replaced meanwhile."""
        return os.name != "nt" and dtype in (None, np.dtype(DTYPES.get(self[name].dtype, "V")))

    def array(self, name: str, dtype: Any = None) -> np.ndarray:
        """An array to be written to, in its own memory or mapped; what is too large for the dtype is infinite."""
        if self._is_mapped(name, dtype):
            return self.files[name].map(name, writable=True)
        with np.errstate(over="ignore"):
            return self.files[name].read(name, dtype)

    def checked(self, name: str, dtype: np.dtype) -> np.ndarray:
        """The array as a parameter of this dtype: a ValueError unless its numbers are finite."""
        array, file = self.array(name, dtype), self.files[name]
        looked_at = self._is_mapped(name, dtype) and file.is_finite(name)  # without its pages being mapped
        if not looked_at and (wrong := misfit(name, array, dtype)):
            raise ValueError(f"{file.path}: {wrong}")
        return array.astype(dtype, copy=False)


def _several(index: Path) -> dict[str, SafetensorsFile]:
    """Which of the files that an index names has which array."""
    shards = read_json(index).object("weight_map")
    names = {name: shards.text(name) for name in shards}
    if outside := [n for n in names.values() if Path(n).name != n or n in ("", ".", "..")]:
        raise ValueError(f"{index}: weight_map: expected names of files of this folder, got {outside[0]!r}")
    expected = f"{INDEX} says that it holds some of the weights"
    files = {n: SafetensorsFile(found_file(index.with_name(n), expected)) for n in sorted(set(names.values()))}
    if absent := [name for name, file in names.items() if name not in files[file]]:
        raise ValueError(f"{index}: {listed(absent)} not in the files that it names")
    if others := [name for file in files for name in files[file] if names.get(name) != file]:
        raise ValueError(f"{index}: {listed(others)} in the files that it names, but not in its weight_map")
    return {name: files[file] for name, file in names.items()}


def _single(path: Path) -> SafetensorsFile:
    patterns = ("*.bin", "*.pt", "*.gguf", "*.h5", "*.msgpack")
    others = sorted(p.name for pattern in patterns for p in path.parent.glob(pattern))
    if not path.is_file() and others:
        raise ValueError(
            f"{path.parent}: {others[0]} is not read, since it is not safetensors (a pickle can run any code); "
            "convert it with transformers' from_pretrained and save_pretrained"
        )
    return SafetensorsFile(found_file(path, HOW))


def listed(names: Iterable[str], most: int = 8) -> str:
    """The first of the names, and how many more there are."""
    names = sorted(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

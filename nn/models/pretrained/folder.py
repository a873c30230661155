"""The files of a model's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.json import read_json
from minigrad.files.safetensors import Entry, SafetensorsFile

from .tables import renamed

__all__ = ["HOW", "Origin", "Weights", "listed"]

HOW = (
    "expected a folder with config.json and model.safetensors, such as transformers' save_pretrained writes, or "
    "`hf download NAME --local-dir FOLDER`"
)


@dataclass
class Origin:
    """Where a model was loaded from, as far as saving it needs to know.

    `settings` are those of its config.json, `prefix` that of its names; `kept` are arrays that the model does
    not use, `copies` names of arrays that are others once more, `spelled` names that the file writes in an
    older way, `files` those beside the weights.
    `generation` are options for `generate`; `native`: the head is that of the folder.
    """

    family: str
    settings: dict[str, Any]
    head: str
    prefix: str
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    copies: tuple[str, ...] = ()
    spelled: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    native: bool = True


class Weights(Mapping[str, Entry]):
    """The arrays of a folder, in one safetensors file or in several with an index."""

    def __init__(self, directory: Path) -> None:
        index = directory / "model.safetensors.index.json"
        if index.is_file() and not (directory / "model.safetensors").is_file():
            self.where, shards = index, read_json(index).object("weight_map")
            names = {name: shards.text(name) for name in shards}
            if outside := [n for n in names.values() if Path(n).name != n or n in ("", ".", "..")]:
                raise ValueError(f"{index}: weight_map: expected names of files in the same folder, got {outside[0]!r}")
            files = {name: SafetensorsFile(directory / name) for name in sorted(set(names.values()))}
            if absent := [name for name, file in names.items() if name not in files[file]]:
                raise ValueError(f"{index}: {listed(absent)} not in the files that it names")
            self.files = {name: files[file] for name, file in names.items()}
        else:
            self.where = directory / "model.safetensors"
            self.files = dict.fromkeys(file := _single(directory), file)
        self.spelled = renamed(self.files)

    def __getitem__(self, name: str) -> Entry:
        return self.files[self.spelled[name]][self.spelled[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.spelled)

    def __len__(self) -> int:
        return len(self.spelled)

    def read(self, name: str, dtype: Any = None) -> np.ndarray:
        """An array in memory of its own."""
        name = self.spelled[name]
        return self.files[name].read(name, dtype)


def _single(directory: Path) -> SafetensorsFile:
    path = directory / "model.safetensors"
    if not path.is_file():
        others = sorted(
            p.name for pattern in ("*.bin", "*.pt", "*.gguf", "*.h5", "*.msgpack") for p in directory.glob(pattern)
        )
        if others:
            raise ValueError(
                f"{directory}: {others[0]} is not read, since it is not safetensors (a pickle can run any code); "
                "convert it with transformers' from_pretrained and save_pretrained"
            )
        raise FileNotFoundError(f"{path}: no such file; {HOW}")
    return SafetensorsFile(path)


def listed(names: Iterable[str], most: int = 8) -> str:
    """The first of the names, and how many more there are."""
    names = sorted(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

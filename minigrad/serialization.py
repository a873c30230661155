"""Arrays in files: safetensors, written so that a file is either whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from .extras import require

__all__ = ["load_arrays", "save_arrays", "write_atomically", "write_json"]


def write_atomically(path: str | Path, write: Callable[[Path], Any]) -> None:
    """Let `write` make a file beside `path`, and put it there in one step once it is whole and on disk.

    Whenever the process is killed, `path` holds the old file or the new one, never a part.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    with suppress(OSError):  # the directory's entry too, where the system lets us
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def write_json(path: str | Path, data: Any) -> None:
    """Write plain data as a JSON file, atomically."""
    text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def save_arrays(path: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None) -> None:
    """Write named arrays, and plain data beside them, into one safetensors file, atomically.

    Needs the `train` extra. Each value of `metadata` is kept as JSON.
    """
    safetensors = require("safetensors.numpy", "train", "saving weights")
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    notes = {key: json.dumps(value, ensure_ascii=False) for key, value in (metadata or {}).items()}
    write_atomically(path, lambda part: safetensors.save_file(whole, str(part), notes or None))


def load_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the plain data of a file from `save_arrays`, or of any safetensors file.

    A file that is no safetensors file, or not a whole one, is a ValueError.
    """
    library = require("safetensors", "train", "loading weights")
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with library.safe_open(str(path), "numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            notes = file.metadata() or {}
    except library.SafetensorError as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error})") from None
    data = {}
    for key, value in notes.items():
        try:
            data[key] = json.loads(value)
        except json.JSONDecodeError:
            data[key] = value  # written by others
    return arrays, data

"""Arrays in files, with plain data beside them; by NumPy alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .files.atomic import write_atomically
from .files.json import read_json, write_json
from .files.safetensors import SafetensorsFile, write_safetensors

__all__ = ["load_arrays", "read_json", "save_arrays", "write_atomically", "write_json"]


def save_arrays(path: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None) -> None:
    """Write named arrays, and plain data beside them, into one safetensors file, atomically.

    Each value of `metadata` is kept as JSON.
    """
    notes = {key: json.dumps(value, ensure_ascii=False) for key, value in (metadata or {}).items()}
    write_safetensors(path, arrays, notes)


def load_arrays(path: str | Path, mmap: bool = False) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the plain data of a file from `save_arrays`, or of any safetensors file.

    bfloat16 becomes float32. With `mmap`, the arrays are read-only views of the file, read where they are
    looked at. A file that is no safetensors file, or not a whole one, is a ValueError.
    """
    file = SafetensorsFile(path)
    arrays = {name: file.map(name) if mmap else file.read(name) for name in file}
    data = {}
    for key, value in file.metadata.items():
        try:
            data[key] = json.loads(value)
        except json.JSONDecodeError:
            data[key] = value  # written by others
    return arrays, data

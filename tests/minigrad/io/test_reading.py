"""Errors name the file: what is in its place, and a lack of memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minigrad.io import safetensors
from minigrad.io.reading import read_bytes, require_file
from minigrad.io.safetensors import SafetensorsFile, write_safetensors


@pytest.mark.parametrize(
    "name, error, message",
    [
        ("nothing", FileNotFoundError, ": no such file"),
        ("broken", FileNotFoundError, ": a link to a missing file"),
        ("folder", IsADirectoryError, " must be a file, got a directory"),
        ("pipe", OSError, " must be a file, got a pipe or a device"),
    ],
)
def test_require_file_of_other_path_raises(
    tmp_path: Path, name: str, error: type[OSError], message: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink("nothing", tmp_path / "broken")
    (tmp_path / "folder").mkdir()
    with pytest.raises(error, match=f"^{tmp_path / name}{message}; one of a kind$"):
        require_file(tmp_path / name, "one of a kind")


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")], ids=repr)
def test_read_without_memory_names_the_file(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise error

    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"a": np.ones(3)})
    file = SafetensorsFile(path)
    for module, name, read in (
        (safetensors.mmap, "mmap", lambda: file.map("a")),
        (np, "empty", lambda: file.read("a")),
        (os, "fstat", lambda: read_bytes(path)),
    ):
        with monkeypatch.context() as patch, pytest.raises(type(error), match=str(path)):
            patch.setattr(module, name, refuse)
            read()

"""Checkpoints, and a run that is killed and taken up again."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from minigrad.io import load_arrays, save_arrays, write_atomically

# -- files -------------------------------------------------------------------------------------------


def test_arrays_go_round(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3).T, "b": np.ones(2, np.float32)}
    save_arrays(tmp_path / "x.safetensors", arrays, {"notes": {"π": [1, None]}})
    found, data = load_arrays(tmp_path / "x.safetensors")
    assert data == {"notes": {"π": [1, None]}}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_a_broken_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_arrays(path, {"a": np.ones(100)})
    whole = path.read_bytes()
    for data in (whole[:-8], whole[:20], b"", b"garbage" * 30):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="x.safetensors: not a whole safetensors file"):
            load_arrays(path)
    with pytest.raises(FileNotFoundError, match="y.safetensors: no such file"):
        load_arrays(tmp_path / "y.safetensors")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")

    def fails(part: Path) -> None:
        part.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fails)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x.txt"]

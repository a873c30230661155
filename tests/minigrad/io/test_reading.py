"""`require_file` names what is in the place of a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minigrad.io.reading import require_file


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

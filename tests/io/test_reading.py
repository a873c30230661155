"""`require_file` accepts files and links to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minigrad.io.reading import require_file


def test_require_file_returns_path_of_file_or_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.symlink("file", tmp_path / "link")
    for name in ("file", "link"):
        assert require_file(str(tmp_path / name)) == tmp_path / name


@pytest.mark.parametrize(
    "name, error, message",
    [
        ("nothing", FileNotFoundError, ": no such file"),
        ("broken", FileNotFoundError, ": a link to a missing file"),
        ("loop", OSError, ": a link to a missing file"),
        ("folder", IsADirectoryError, " must be a file, got a directory"),
        ("pipe", OSError, " must be a file, got a pipe or a device"),
    ],
)
def test_require_file_of_other_path_raises(
    tmp_path: Path, name: str, error: type[OSError], message: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink("nothing", tmp_path / "broken")
    os.symlink("loop", tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    with pytest.raises(error, match=f"^{tmp_path / name}{message}; one of a kind$"):
        require_file(tmp_path / name, "one of a kind")

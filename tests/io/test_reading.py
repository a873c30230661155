"""What is to be read must be a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minigrad.io.reading import found_file


def test_only_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.symlink("file", tmp_path / "link")
    for name in ("file", "link"):
        assert found_file(str(tmp_path / name)) == tmp_path / name
    os.mkfifo(tmp_path / "pipe")
    os.symlink("nothing", tmp_path / "broken")
    os.symlink("loop", tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    for name, kind, message in (
        ("nothing", FileNotFoundError, "no such file"),
        ("broken", FileNotFoundError, "a link to nothing"),
        ("loop", OSError, "a link to nothing"),
        ("folder", IsADirectoryError, "a folder, expected a file"),
        ("pipe", OSError, "a pipe or a device, expected a file"),
    ):
        with pytest.raises(kind, match=f"^{tmp_path / name}: {message}; one of a kind$"):
            found_file(tmp_path / name, "one of a kind")

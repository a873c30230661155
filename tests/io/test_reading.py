"""`found_file` finds files and links to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minigrad.io.reading import require_file


def test_found_file_refuses_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.symlink("file", tmp_path / "link")
    for name in ("file", "link"):
        assert require_file(str(tmp_path / name)) == tmp_path / name
    os.mkfifo(tmp_path / "pipe")
    os.symlink("nothing", tmp_path / "broken")
    os.symlink("loop", tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    for name, kind, message in (
        ("nothing", FileNotFoundError, ": no such file"),
        ("broken", FileNotFoundError, ": a link to a missing file"),
        ("loop", OSError, ": a link to a missing file"),
        ("folder", IsADirectoryError, " must be a file, got a directory"),
        ("pipe", OSError, " must be a file, got a pipe or a device"),
    ):
        with pytest.raises(kind, match=f"^{tmp_path / name}{message}; one of a kind$"):
            require_file(tmp_path / name, "one of a kind")

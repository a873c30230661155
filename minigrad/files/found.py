"""A file that is to be read: that it is there, and a file."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["found_file"]


def found_file(path: str | Path, expected: str = "") -> Path:
    """The path, if a file is there; else an OSError that begins with it, and ends in what was `expected`.

    A folder is refused, and so is a pipe, which could be waited for without end.
    """
    path = Path(path)
    if path.is_file():
        return path
    end = f"; {expected}" if expected else ""
    if path.is_dir():
        raise IsADirectoryError(f"{path}: a folder, expected a file{end}")
    if path.exists():
        raise OSError(f"{path}: a pipe or a device, expected a file{end}")
    raise FileNotFoundError(f"{path}: {'a link to nothing' if os.path.islink(path) else 'no such file'}{end}")

"""A file that is to be read: that it is there, and a file; and the text in it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["found_file", "read_text"]


def found_file(path: str | Path, expected: str = "") -> Path:
    """The path, if a file is there; else an OSError that begins with it, and ends in what was
    `expected`.

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
    raise FileNotFoundError(
        f"{path}: {'a link to nothing' if os.path.islink(path) else 'no such file'}{end}"
    )


def read_text(path: str | Path, expected: str = "") -> str:
    """The text of a UTF-8 file; errors (ValueError, OSError) begin with its path."""
    path = found_file(path, expected)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None
    if "\0" in text:
        raise ValueError(f"{path}: a zero byte; this is no text")
    return text

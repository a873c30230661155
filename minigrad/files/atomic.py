"""A file is either whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["write_atomically"]


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

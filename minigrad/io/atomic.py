"""A file is either whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["write_atomically", "write_bytes"]


def write_atomically(path: str | Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a new file beside `path`, and put it there in one step once it is whole and
    on disk.

    Whenever the process is killed, `path` holds the old file or the new one, never a part; a part
    that is left is named `.NAME.RANDOM.part`. The permissions are those of the file that is
    replaced, or else those that the umask leaves. An OSError names `path`.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _new_part(path)
        try:
            write(part)
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()
        _sync_directory(path.parent)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None  # a full disk names no file


def _new_part(path: Path) -> Path:
    """An empty file that nobody had made before: not one that is there already, nor a link to
    another.
    """
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")
    descriptor = os.open(
        part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666
    )
    try:
        with suppress(OSError):  # there is no old file, or the system has no permissions
            os.chmod(part, os.stat(path).st_mode & 0o777)
    finally:
        os.close(descriptor)
    return part


def _sync_directory(directory: Path) -> None:
    """Put the directory's entries on disk too, where the system lets us."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes as a file, atomically."""
    write_atomically(path, lambda part: part.write_bytes(data))

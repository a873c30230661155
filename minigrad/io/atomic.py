"""Atomic writing: of one file, or of several files of a directory that belong together.

`write_atomically` replaces one file. `replace_together` replaces several files, such as a
configuration and its weights:

1. All new files are written to `DIRECTORY/.RANDOM.part`.
2. That directory is renamed to `DIRECTORY/.LAST.exchange`. The new files are now valid.
3. The file `LAST` is removed, each new file is linked to its name, and `LAST` comes last.
4. `.LAST.exchange` is removed.

After an interruption in step 1 the old files are complete. After one in step 3, `read_together`
reads the files of `.LAST.exchange`, other programs miss `LAST`, and the next `replace_together`
repeats step 3. `read_together` raises an error if `LAST` was replaced while it was reading.
"""

from __future__ import annotations

import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["read_together", "replace_together", "write_atomically", "write_bytes"]


def write_atomically(path: str | Path, write: Callable[[Path], Any]) -> None:
    """Write a file through a new one beside it, which replaces it when it is complete.

    If the process is killed, `path` is the old file or the complete new file. Incomplete files are
    named `.NAME.RANDOM.part`. Permissions are kept.

    Parameters
    ----------
    path : str or Path
        File to write. Its directory is created if it does not exist.
    write : function
        Takes the path of the new file and writes its content.

    Raises
    ------
    OSError
        If writing fails. The message contains `path`.
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
        # the error of a full disk contains no file name
        raise OSError(error.errno, error.strerror, str(path)) from None


def _new_part(path: Path) -> Path:
    """Create an empty file that did not exist before, and return its path."""
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
    """Write the entries of a directory to disk, if the system allows it."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes as a file, atomically.

    Parameters
    ----------
    path : str or Path
        File to write; see `write_atomically`.
    data : bytes
        Content of the file.
    """
    write_atomically(path, lambda part: part.write_bytes(data))


@contextmanager
def replace_together(directory: str | Path, last: str, stale: Iterable[str] = ()) -> Iterator[Path]:
    """Replace several files of a directory: all of them, or none.

    Parameters
    ----------
    directory : str or Path
        Created if it does not exist. Its other files do not change.
    last : str
        The file that every reader needs, such as "config.json". It must be among the new files.
    stale : iterable of str
        Patterns of old files that are removed unless they are replaced.

    Yields
    ------
    Path
        An empty directory for the new files. If the block raises, nothing is replaced.
    """
    directory, stale = Path(directory), tuple(stale)
    part = directory / f".{secrets.token_hex(6)}.part"
    pending = _pending(directory, last)
    try:
        part.mkdir(parents=True)
        try:
            yield part
            for path in part.rglob("*"):
                with suppress(OSError):  # no old file, or a system without permissions
                    os.chmod(path, os.stat(directory / path.relative_to(part)).st_mode & 0o777)
            _sync_directory(part)
            while pending.is_dir():  # left by an interrupted call
                _install(pending, directory, last, stale)
            os.rename(part, pending)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        _sync_directory(directory)
        _install(pending, directory, last, stale)
    except OSError as error:
        if error.errno is None:
            raise
        name = str(error.filename or directory).replace(str(part), str(directory), 1)
        raise OSError(error.errno, error.strerror, name) from None


def _pending(directory: Path, last: str) -> Path:
    return directory / f".{last}.exchange"


def _install(pending: Path, directory: Path, last: str, stale: Iterable[str]) -> None:
    """Install complete new files. It can be interrupted and called again."""
    files = [path for path in pending.rglob("*") if path.is_file() and not path.is_symlink()]
    files.sort(key=lambda path: path == pending / last)
    targets = {path: directory / path.relative_to(pending) for path in files}
    (directory / last).unlink(missing_ok=True)
    for pattern in stale:
        for path in set(directory.glob(pattern)) - set(targets.values()):
            path.unlink(missing_ok=True)
    for path, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(directory.resolve()):
            raise OSError(0, "a link leads out of the directory", str(target.parent))
        link = target.with_name(f".{secrets.token_hex(6)}.part")
        try:
            try:
                os.link(path, link)
            except (AttributeError, OSError):  # a system or a file system without links
                shutil.copy2(path, link)
            os.replace(link, target)
        finally:
            link.unlink(missing_ok=True)
    _sync_directory(directory)
    done = directory / f".{secrets.token_hex(6)}.part"
    try:
        os.rename(pending, done)
    except OSError as error:  # the new files are complete
        warnings.warn(f"{pending} must be deleted, which failed: {error.strerror}", stacklevel=5)
    shutil.rmtree(done, ignore_errors=True)


@contextmanager
def read_together(directory: str | Path, last: str, files: Iterable[str] = ()) -> Iterator[Path]:
    """Read several files of a directory: all old ones or all new ones, or raise an OSError.

    Parameters
    ----------
    directory : str or Path
        A directory that `replace_together` may be writing to.
    last : str
        Argument `last` of `replace_together`.
    files : iterable of str
        The files to read; `last` by default.

    Yields
    ------
    Path
        Directory to read from. After an interrupted `replace_together` it contains the new files.
    """
    directory = Path(directory)
    pending = _pending(directory, last)
    is_pending = any((pending / name).is_file() for name in tuple(files) or (last,))
    source = pending if is_pending and not pending.is_symlink() else directory
    if source is pending and not pending.is_dir():  # installed in this moment
        source = directory
    before = _identity(source / last)
    try:
        yield source
    except (OSError, ValueError):
        if _identity(source / last) == before:
            raise
    if _identity(source / last) != before:
        raise OSError(f"{directory}: the files were replaced while they were read; read them again")


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return attributes that change if a file is replaced; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

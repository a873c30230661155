"""Atomic writing: of one file, or of several files of a directory that belong together.

`write_atomically` replaces one file. `replace_together` replaces several files, such as a
configuration and its weights:

1. All new files are written to `DIRECTORY/.RANDOM.part`.
2. With the lock `.LAST.lock`, that directory is renamed to `DIRECTORY/.LAST.exchange`. The new
   files are now valid.
3. The file `LAST` is removed, the other files are linked to their names, and `LAST` is moved.
4. `.LAST.exchange` is removed, and the lock released.

After an interruption in step 1 the old files are complete. After one in step 3, `read_together`
reads the files of `.LAST.exchange`, other programs miss `LAST`, and the next `replace_together`
repeats step 3. `read_together` raises an error if `LAST` was replaced while it was reading. Of
several processes that write to a directory, the last one replaces the files of the others.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .locks import FileLock


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
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with _naming(path, part):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(part, flags, 0o666))
        try:
            _keep_mode(part, path)
            write(part)
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        _sync_directory(path.parent)


@contextmanager
def _naming(path: Path, part: Path) -> Iterator[None]:
    """Name `path` in errors of the system that name no file, or `part`."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        name = str(error.filename or path).replace(str(part), str(path), 1)
        raise OSError(error.errno, error.strerror, name) from None


def _keep_mode(new: Path, old: Path) -> None:
    """Give a new file the permissions of the old one, if there is one and the system has any."""
    with suppress(OSError):
        os.chmod(new, os.stat(old).st_mode & 0o777)


def _sync_directory(directory: Path) -> None:
    """Write the entries of a directory to disk, if the system allows it."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes as a file, atomically."""
    write_atomically(path, lambda part: part.write_bytes(data))


@contextmanager
def replace_together(
    directory: str | Path, last: str, groups: Iterable[Collection[str]] = ()
) -> Iterator[Path]:
    """Replace several files of a directory, which is made if it is missing: all of them, or none.

    Yields an empty directory for the new files. If the block raises, nothing is replaced. `last` is
    the file that every reader needs, such as "config.json"; it must be among the new files.
    `groups` are patterns of files that belong together, such as those of a tokenizer: if there is a
    new file of a group, all old ones are removed.
    """
    directory, groups = Path(directory), [*groups]
    part, pending = directory / f".{secrets.token_hex(6)}.part", _pending(directory, last)
    with _naming(directory, part):
        try:
            part.mkdir(parents=True)
            yield part
            for path in part.rglob("*"):
                _keep_mode(path, directory / path.relative_to(part))
            _sync_directory(part)
            with FileLock(directory / f".{last}.lock"):
                _install(pending, directory, last, groups)  # left by an interrupted call
                for path in _old_files(part, directory, groups):
                    os.rename(path, path)  # fails on Windows, if the file is open or mapped
                os.rename(part, pending)
                _sync_directory(directory)
                _install(pending, directory, last, groups)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _pending(directory: Path, last: str) -> Path:
    return directory / f".{last}.exchange"


def _new_files(source: Path) -> list[str]:
    """Return the names of new files, without links."""
    paths = [] if source.is_symlink() else source.rglob("*")
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    return [path.relative_to(source).as_posix() for path in files]


def _old_files(source: Path, directory: Path, groups: Iterable[Collection[str]]) -> list[Path]:
    """Return the files of a directory that are replaced or removed for the new ones in `source`."""
    old = {directory / name for name in _new_files(source)}
    for parent in {path.parent for path in old}:
        if not parent.resolve().is_relative_to(directory.resolve()):
            raise OSError(0, "a link leads out of the directory", str(parent))
    for group in groups:
        if any(any(source.glob(pattern)) for pattern in group):
            for pattern in group:  # older versions of `glob` find no links to missing files
                old.update([directory / pattern, *directory.glob(pattern)])
    return [path for path in old if os.path.lexists(path)]


def _install(pending: Path, directory: Path, last: str, groups: Iterable[Collection[str]]) -> None:
    """Install complete new files. It can be interrupted and called again."""
    names = _new_files(pending)
    if last in names:
        (directory / last).unlink(missing_ok=True)
        for path in _old_files(pending, directory, groups):
            path.unlink()
        for name in names:
            if name != last:
                _link(pending / name, directory / name)
        os.replace(pending / last, directory / last)
        _sync_directory(directory)
    shutil.rmtree(pending, ignore_errors=True)


def _link(path: Path, target: Path) -> None:
    """Give a file another name, or copy it on a system without links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)
    except (AttributeError, OSError):
        write_atomically(target, lambda copy: shutil.copy2(path, copy))


@contextmanager
def read_together(directory: str | Path, last: str, files: Iterable[str] = ()) -> Iterator[Path]:
    """Read several files of a directory: all old ones or all new ones, or raise an OSError.

    Yields the directory to read `files` from, by default `last`. After an interrupted
    `replace_together` it contains the new files.
    """
    directory = Path(directory)
    source = _pending(directory, last)
    before = None if source.is_symlink() else _identity(source / last)
    if before is None or not any((source / name).is_file() for name in tuple(files) or (last,)):
        source, before = directory, _identity(directory / last)
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

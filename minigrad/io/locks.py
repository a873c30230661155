"""Exclusive locks of files, which the system releases when the process ends."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
import warnings
import weakref
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # not Windows
    msvcrt = None  # type: ignore[assignment]

_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # file systems without locks
_held: weakref.WeakSet[io.FileIO] = weakref.WeakSet()


def _forget() -> None:
    """Close a forked process's copies: else it would hold the locks after this process died."""
    for file in list(_held):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class FileLock:
    """Exclusive lock of a file, which is created for the lock and removed with it.

    A file that a killed process left there is used again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: io.FileIO | None = None  # closed when it is freed, which releases the lock

    def acquire(self, wait: bool = True) -> None:
        """Lock the file, or warn on a system without locks.

        Without `wait`, a lock that another process or object holds is a BlockingIOError.
        """
        while not self._try():
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "locked by another process", str(self.path))
            time.sleep(0.01)

    def release(self) -> None:
        """Remove the file and release the lock, if it is held."""
        file, self._file = self._file, None
        if file is None or file.closed:  # in a forked process
            return
        if os.name != "nt":
            self._remove()
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)  # in forked processes too
        file.close()
        if os.name == "nt":  # Windows does not remove open files
            self._remove()

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def is_lost(self) -> bool:
        """Return whether the locked file was removed or replaced."""
        return self._file is not None and not self._is_at_path(self._file)

    def _try(self) -> bool:
        """Lock the file, and return whether this succeeded."""
        flags = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        file = io.FileIO(self.path, "r+", opener=lambda path, f: os.open(path, f | flags, 0o666))
        try:
            if not _lock(file):
                self._remove()
                if sys.platform != "emscripten":  # which has one process
                    warnings.warn(
                        f"{self.path.parent}: this system has no file locks; let only one process "
                        "write to this directory",
                        RuntimeWarning,
                        stacklevel=5,
                    )
                return True
            if self._is_at_path(file):
                _held.add(file)
                self._file = file
        except BlockingIOError:
            pass
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        finally:
            if self._file is None:
                file.close()
        return self._file is not None

    def _is_at_path(self, file: io.FileIO) -> bool:
        """Return whether the file was not removed, as by the process that held the lock before."""
        with suppress(OSError):  # of a network file system, if another machine removed the file
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self.path))
        return False

    def _remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()


def _lock(file: io.FileIO) -> bool:
    """Lock a file; return False on a system without locks, and raise OSError if it is locked."""
    if fcntl is None and msvcrt is None:
        return False
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        if fcntl is None:  # Windows raises PermissionError if the file is locked
            raise BlockingIOError(errno.EAGAIN, error.strerror) from None
        raise
    return True

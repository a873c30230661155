"""Reading of untrusted files: bounded sizes, printable messages, no links."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import listed as listed
from ..errors import printable as printable
from .atomic import write_bytes

MAX_FILE = 100_000_000
"""Largest size in bytes of a file that is read into memory.

The largest published tokenizer has about 40,000,000 bytes.
"""

MAX_LINE = 10_000_000
"""Largest size of a line: bytes of a file of text, or characters of standard input."""

LFS_POINTER = "a Git LFS pointer to the file; run `git lfs pull`, or download the file"
"""Description of a file that `is_lfs_pointer`."""


def is_lfs_pointer(data: bytes) -> bool:
    """Return whether the content of a file is a pointer of Git LFS to another file."""
    return data.startswith(b"version https://git-lfs.github.com/spec/")


def require_file(path: str | Path, expected: str = "") -> Path:
    """Return a path as a Path, or raise an OSError if it is not a file.

    A directory, a pipe or a device is refused; reading a pipe may never end. The message ends with
    `expected`.
    """
    path = Path(path)
    if path.is_file():
        return path
    name, end = printable(path, 500), f"; {expected}" if expected else ""
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be a file, got a directory{end}")
    if path.exists():
        raise OSError(f"{name} must be a file, got a pipe or a device{end}")
    reason = "a link to a missing file" if path.is_symlink() else "no such file"
    raise FileNotFoundError(f"{name}: {reason}{end}")


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name the file `path` in errors of the system that name none, such as for a lack of memory."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"{printable(path, 500)}: {error or 'out of memory'}") from None
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def read_bytes(path: str | Path, expected: str = "", most: int = MAX_FILE) -> bytes:
    """Return the content of a file of at most `most` bytes.

    Errors for a missing file end with `expected`.
    """
    path = require_file(path, expected)
    with naming(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1) if size <= most else b""
    if max(size, len(data)) > most:
        name, size = printable(path, 500), max(size, len(data))
        raise ValueError(f"{name}: the file must have at most {most:,} bytes, got {size:,}")
    if is_lfs_pointer(data):
        raise ValueError(f"{printable(path, 500)}: {LFS_POINTER}")
    return data


def read_text(path: str | Path, expected: str = "") -> str:
    r"""Return the text of a UTF-8 file, with "\n" at the end of each line; see `read_bytes`."""
    data = read_bytes(path, expected)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        name = printable(path, 500)
        raise ValueError(f"{name}: not UTF-8 ({error.reason} at byte {error.start})") from None
    if "\0" in text:
        raise ValueError(f"{printable(path, 500)}: a zero byte; this is no text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


class FileCopies(dict[str, bytes]):
    """Contents of files of a directory, to be written unchanged to another directory.

    `names` are paths relative to `directory`. A link to a file outside of the directory is read,
    but `write` refuses to copy it, because the file may be private. The links to `blobs` in the
    cache of huggingface_hub are copied.
    """

    def __init__(self, directory: str | Path, names: Iterable[str] = ()) -> None:
        super().__init__()
        directory = Path(directory)
        self.links: list[str] = []
        for name in names:
            path = directory / name
            self[name] = read_bytes(path)
            if not _is_inside(path, directory):
                self.links.append(printable(path, 500))

    def write(self, directory: str | Path) -> None:
        """Write the files to a directory; a link out of its directory is a ValueError."""
        if self.links:
            raise ValueError(
                f"{self.links[0]}: a link to a file outside the directory is not copied; "
                "replace it with the file"
            )
        for name, data in self.items():
            write_bytes(Path(directory) / name, data)


def _is_inside(path: Path, directory: Path) -> bool:
    """Return whether a file is inside a directory, after all links are followed."""
    file, root = path.resolve(), directory.resolve()
    if file.is_relative_to(root):
        return True
    for parent in (root, *root.parents):  # models--NAME/snapshots/REVISION and models--NAME/blobs
        if parent.parent.name == "snapshots" and parent.parent.parent.name.startswith("models--"):
            return file.parent == parent.parent.parent / "blobs"
    return False

"""Errors name the file: what is in its place, and a lack of memory."""

from __future__ import annotations

import io
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad.io import safetensors
from minigrad.io.reading import FileCopies, naming, read_bytes, read_text, require_file
from minigrad.io.safetensors import SafetensorsFile, write_safetensors


@pytest.mark.parametrize(
    "name, error, message",
    [
        ("nothing", FileNotFoundError, ": no such file"),
        ("broken", FileNotFoundError, ": a link to a missing file"),
        ("folder", IsADirectoryError, " must be a file, got a directory"),
        ("pipe", OSError, " must be a file, got a pipe or a device"),
    ],
)
def test_require_file_of_other_path_raises(
    tmp_path: Path, name: str, error: type[OSError], message: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink("nothing", tmp_path / "broken")
    (tmp_path / "folder").mkdir()
    with pytest.raises(error, match=f"^{tmp_path / name}{message}; one of a kind$"):
        require_file(tmp_path / name, "one of a kind")


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")], ids=repr)
def test_read_without_memory_names_the_file(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise error

    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"a": np.ones(3)})
    file = SafetensorsFile(path)
    for module, name, read in (
        (safetensors.mmap, "mmap", lambda: file.map("a")),
        (np, "empty", lambda: file.read("a")),
        (os, "fstat", lambda: read_bytes(path)),
    ):
        with monkeypatch.context() as patch, pytest.raises(type(error), match=str(path)):
            patch.setattr(module, name, refuse)
            read()


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11])
def test_read_bytes_takes_files_up_to_its_limit(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * size)
    if size <= 10:
        assert read_bytes(path, most=10) == b"x" * size
    else:
        with pytest.raises(
            ValueError, match=f"{path}: the file must have at most 10 bytes, got 11"
        ):
            read_bytes(path, most=10)


def test_read_bytes_of_a_file_that_grows_meanwhile_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is that of before, as of the files in /proc, which have 0."""
    path = tmp_path / "a"
    path.write_bytes(b"x" * 4)
    monkeypatch.setattr(os, "fstat", lambda number: os.stat_result((0,) * 6 + (3,) + (0,) * 3))
    with pytest.raises(ValueError, match="must have at most 3 bytes, got 4"):
        read_bytes(path, most=3)
    assert read_bytes(path, most=4) == b"x" * 4


@given(st.text(st.sampled_from("a\r\n\u2028é"), max_size=8))
def test_lines_of_text_end_with_line_feeds(text: str) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "a"
        path.write_bytes(text.encode())
        expected = io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8").read()
        assert read_text(path) == expected
        for data, message in (
            (b"a\0b", "a zero byte; this is no text"),
            (b"ab\xff", "not UTF-8 .* at byte 2"),
        ):
            path.write_bytes(data)
            with pytest.raises(ValueError, match=f"{path}: {message}"):
                read_text(path)


def test_pointers_of_lfs_are_no_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    for read in (read_bytes, read_text):
        with pytest.raises(ValueError, match=f"{path}: a Git LFS pointer to the file; run"):
            read(path)


def test_links_out_of_a_directory_are_read_but_not_copied(tmp_path: Path) -> None:
    """Except those of a cache of the Hub, from a snapshot to the blobs of the same model."""
    model = tmp_path / "models--a--b"
    snapshot, blobs, other = model / "snapshots" / "1", model / "blobs", tmp_path / "other"
    for directory in (snapshot / "sub", blobs, other):
        directory.mkdir(parents=True)
        (directory / "x").write_text(directory.name)
    links = {"in": "x", "blob": "../../blobs/x", "sub/blob": "../../../blobs/x"}
    outside = {"out": "../../../other/x", "up": "../../x"}
    (model / "x").write_text("model")
    (snapshot / "x").write_text("1")
    for name, target in (links | outside).items():
        (snapshot / name).symlink_to(target)
    copies = FileCopies(snapshot, [*links, "x"])
    assert copies == {"in": b"1", "blob": b"blobs", "sub/blob": b"blobs", "x": b"1"}
    (tmp_path / "alias").symlink_to(snapshot)
    assert not FileCopies(tmp_path / "alias", [*links, "x"]).links
    copies.write(tmp_path / "to")
    assert (tmp_path / "to" / "sub" / "blob").read_text() == "blobs"
    assert not (tmp_path / "to" / "blob").is_symlink()
    for name in outside:
        with pytest.raises(ValueError, match=f"{snapshot / name}: a link to a file outside"):
            FileCopies(snapshot, [name]).write(tmp_path / "no")
    (snapshot / "linked").symlink_to(other)  # a directory
    with pytest.raises(ValueError, match=f"{snapshot}/linked/x: a link to a file outside"):
        FileCopies(snapshot, ["linked/x"]).write(tmp_path / "no")
    assert not (tmp_path / "no").exists()
    for plain, target in (
        (model / "plain", "../blobs/x"),
        (other / "snapshots/1", "../../blobs/x"),
    ):
        plain.mkdir(parents=True)
        (plain / "blob").symlink_to(target)
        (plain / target).parent.mkdir(exist_ok=True)
        (plain / target).touch()
        assert FileCopies(plain, ["blob"]).links == [str(plain / "blob")]


def test_system_errors_without_a_file_name_it() -> None:
    for error in (OSError("text"), OSError(5, "text", "other")):
        with pytest.raises(OSError) as caught, naming("a"):
            raise error
        assert caught.value is error
    with pytest.raises(OSError, match=r"\[Errno 5\] text: 'a'"), naming("a"):
        raise OSError(5, "text")

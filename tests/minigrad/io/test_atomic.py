"""Atomic writing: permissions, links in the way, and full disks."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from minigrad.io import load_arrays, save_arrays, write_atomically, write_json
from minigrad.io.atomic import replace_together


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the size of files, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_written_file_has_permissions_of_umask_and_keeps_them(tmp_path: Path) -> None:
    path, before = tmp_path / "c.json", os.umask(0o027)
    try:
        write_json(path, {})
    finally:
        os.umask(before)
    write_json(path, {"a": 1})
    assert path.stat().st_mode & 0o777 == 0o640 and path.read_text() != "{}\n"


def test_write_with_link_in_place_of_its_part_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if somebody has guessed its name."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda n: "guessed")
    os.symlink(victim, tmp_path / ".c.json.guessed.part")
    with pytest.raises(FileExistsError, match="c.json"):
        write_json(tmp_path / "c.json", {})
    assert victim.read_text() == "precious" and not (tmp_path / "c.json").exists()


def test_write_on_full_disk_raises_with_name_and_keeps_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_arrays(path, {"a": np.ones(3)})
    with largest_file(1000), pytest.raises(OSError) as error:
        save_arrays(path, {"a": np.ones(1000)})
    assert error.value.errno == errno.EFBIG and error.value.filename == str(path)
    assert len(load_arrays(path)[0]["a"]) == 3 and os.listdir(tmp_path) == ["w.safetensors"]


def test_write_with_long_name_creates_file(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 250 + ".json")
    write_json(path, {})
    assert path.exists()


def test_write_to_impossible_path_raises_with_name(tmp_path: Path) -> None:
    with pytest.raises(OSError) as error:
        write_atomically(tmp_path / ("a" * 300), lambda part: part.write_text("x"))
    assert error.value.errno == errno.ENAMETOOLONG
    assert error.value.filename == str(tmp_path / ("a" * 300))


@pytest.mark.parametrize("has_link", [True, False])
def test_replace_together_without_hard_links_copies_the_files(
    has_link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser has no os.link, and some file systems refuse it."""

    def refuse(*paths: Path) -> None:
        raise OSError(errno.EPERM, "no links")

    if has_link:
        monkeypatch.setattr(os, "link", refuse, raising=False)
    else:
        monkeypatch.delattr(os, "link", raising=False)
    for text in ("old", "new"):
        with replace_together(tmp_path, "config.json") as part:
            (part / "config.json").write_text(text)
            (part / "weights").write_text(text * 2)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "weights"]
    assert (tmp_path / "weights").read_text() == "newnew"

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


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the size of files, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("mask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_written_file_has_the_permissions_of_the_umask(
    tmp_path: Path, mask: int, mode: int
) -> None:
    with umask(mask):
        save_arrays(tmp_path / "w.safetensors", {"a": np.ones(3)})
        write_json(tmp_path / "c.json", {})
    assert {os.stat(path).st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


def test_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write_json(path, {})
    os.chmod(path, 0o640)
    write_json(path, {"a": 1})
    assert os.stat(path).st_mode & 0o777 == 0o640 and path.read_text() != "{}\n"


def test_write_refuses_a_link_with_the_name_of_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where somebody has guessed its name."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda n: "guessed")
    os.symlink(victim, tmp_path / ".c.json.guessed.part")
    with pytest.raises(FileExistsError, match="c.json"):
        write_json(tmp_path / "c.json", {})
    assert victim.read_text() == "precious" and not (tmp_path / "c.json").exists()


def test_full_disk_names_the_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_arrays(path, {"a": np.ones(3)})
    with largest_file(1000), pytest.raises(OSError) as found:
        save_arrays(path, {"a": np.ones(1000)})
    assert found.value.errno == errno.EFBIG and found.value.filename == str(path)
    assert len(load_arrays(path)[0]["a"]) == 3 and os.listdir(tmp_path) == ["w.safetensors"]


def test_write_to_an_impossible_path_names_it(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 250 + ".json")
    write_json(path, {})
    assert path.exists()
    for bad, number in [(tmp_path / ("a" * 300), errno.ENAMETOOLONG), (Path("/proc/nothing"), errno.ENOENT), (path / "b", errno.ENOTDIR)]:  # fmt: skip
        with pytest.raises(OSError) as found:
            write_atomically(bad, lambda part: part.write_text("x"))
        assert found.value.errno in (number, errno.EEXIST) and found.value.filename == str(bad)


def test_arrays_without_axes_or_elements_keep_their_shape(tmp_path: Path) -> None:
    save_arrays(tmp_path / "w", {"a": np.array(2.5), "b": np.float32(1), "c": np.zeros((0, 3))})
    found, _ = load_arrays(tmp_path / "w")
    assert {name: a.shape for name, a in found.items()} == {"a": (), "b": (), "c": (0, 3)}
    assert found["a"] == 2.5


def test_former_module_names_its_replacement() -> None:
    with pytest.raises(ImportError, match="minigrad.serialization is now minigrad.io"):
        import minigrad.serialization  # noqa: F401

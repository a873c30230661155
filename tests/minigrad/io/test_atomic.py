"""Atomic writing: permissions, links in the way, full disks, and several writers."""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.children import exit_code, fork

from minigrad.io import load_arrays, locks, save_arrays, write_atomically, write_json
from minigrad.io.atomic import read_together, replace_together
from minigrad.io.locks import FileLock


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


def write_both(directory: Path, text: str, *groups: tuple[str, ...]) -> None:
    """Replace two files, which belong together."""
    with replace_together(directory, "config.json", groups) as part:
        (part / "weights").write_text(text)
        (part / "config.json").write_text(text)


def write_after(begin: int, end: int, directory: Path, text: str) -> None:
    """Replace two files once all processes have closed the end of a pipe."""
    os.close(end)
    os.read(begin, 1)
    write_both(directory, text)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("is_new", [True, False])
def test_replace_together_by_several_processes_leaves_the_files_of_one(
    count: int, is_new: bool, tmp_path: Path
) -> None:
    for trial in range(4):
        directory = tmp_path / str(trial)
        if not is_new:
            write_both(directory, "old")
        begin, end = os.pipe()
        work = partial(write_after, begin, end, directory)
        processes = [fork(partial(work, str(i))) for i in range(count)]
        os.close(end)
        os.close(begin)
        assert [exit_code(process) for process in processes] == [0] * count
        assert sorted(os.listdir(directory)) == ["config.json", "weights"]
        config = (directory / "config.json").read_text()
        assert config == (directory / "weights").read_text() != "old"


def test_replace_together_waits_for_another_one(tmp_path: Path) -> None:
    """A lock that a killed process left is no obstacle."""
    (tmp_path / ".config.json.lock").touch()
    with FileLock(tmp_path / ".config.json.lock"):
        process = fork(lambda: write_both(tmp_path, "new"))
        time.sleep(0.1)
        assert not (tmp_path / "config.json").exists()
    assert exit_code(process) == 0 and (tmp_path / "config.json").read_text() == "new"


@pytest.mark.parametrize("name", ["weights", "config.json", "weights-2"])
def test_replace_together_of_a_file_that_windows_has_open_replaces_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows neither replaces, renames nor removes a file that is open or mapped."""
    for file in ("weights", "config.json", "weights-2"):
        (tmp_path / file).write_text("old")

    def refuse(function: Any, path: Any, *args: Any, **options: Any) -> Any:
        if tmp_path / name in (Path(path), *map(Path, args)):
            raise PermissionError(errno.EACCES, "used by another process", str(path))
        return function(path, *args, **options)

    with monkeypatch.context() as patch:
        for function in ("replace", "rename", "unlink", "remove"):
            patch.setattr(os, function, partial(refuse, getattr(os, function)))
        with pytest.raises(PermissionError, match=name):
            write_both(tmp_path, "new", ("weights*",))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ["weights", "config.json", "weights-2"], "old"
    )


def test_replace_together_after_an_interrupted_one_removes_the_files_of_both_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call has no file of the group that the first one replaced."""
    for file in ("config.json", "vocab.txt"):
        (tmp_path / file).write_text("old")
    words = ("vocab.*",)

    def fail(*paths: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "link", fail)
        with replace_together(tmp_path, "config.json", [words]) as part:
            (part / "vocab.json").write_text("first")
            (part / "config.json").write_text("first")
    with read_together(tmp_path, "config.json", ["vocab.txt", "vocab.json"]) as source:
        assert (source / "vocab.json").read_text() == "first"
    (tmp_path / "notes").write_text("old")  # no file of the call
    with read_together(tmp_path, "config.json", ["notes"]) as source:
        assert (source / "notes").read_text() == "old"
    (tmp_path / "notes").unlink()
    write_both(tmp_path, "second", words)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "vocab.json", "weights"]
    assert (tmp_path / "vocab.json").read_text() == "first"


def test_replace_together_does_not_follow_links_out_of_the_directory(tmp_path: Path) -> None:
    other, directory = tmp_path / "other", tmp_path / "directory"
    for path in (other, directory):
        path.mkdir()
    (other / "config.json").write_text("precious")
    os.symlink(other, directory / "templates")
    with pytest.raises(OSError, match="a link leads out of the directory"):
        with replace_together(directory, "config.json") as part:
            (part / "templates").mkdir()
            for name in ("config.json", "templates/config.json"):
                (part / name).write_text("new")
    os.unlink(directory / "templates")
    os.symlink(other, directory / ".config.json.exchange")
    with pytest.raises(OSError, match=str(directory)):
        write_both(directory, "new")
    assert (other / "config.json").read_text() == "precious" and os.listdir(other)


def replace_by_new_file(path: Path) -> None:
    path.rename(path.with_name("old"))
    path.touch()


@pytest.mark.parametrize("remove", [Path.unlink, replace_by_new_file])
def test_file_lock_whose_file_was_removed_is_lost(tmp_path: Path, remove: Any) -> None:
    path = tmp_path / "lock"
    with FileLock(path) as lock:
        assert not lock.is_lost()
        with pytest.raises(BlockingIOError, match=str(path)):
            FileLock(path).acquire(wait=False)
        remove(path)
        assert lock.is_lost()
        with FileLock(path) as other:
            assert not other.is_lost()
    assert not lock.is_lost() and not path.exists()


def test_file_lock_of_a_file_removed_before_it_was_locked_is_of_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock_file = tmp_path / "lock", locks._lock
    removals = iter([path.unlink])

    def locked(file: Any) -> bool:
        for remove in removals:  # once, as by the process that held it
            remove()
        return lock_file(file)

    monkeypatch.setattr(locks, "_lock", locked)
    with FileLock(path) as lock:
        assert path.exists() and not lock.is_lost()


def test_file_lock_on_a_disk_with_errors_names_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: Any) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(locks, "_lock", fail)
    with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/lock'"):
        FileLock(tmp_path / "lock").acquire()


def test_file_lock_released_in_a_forked_process_stays_with_the_first(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path) as lock:
        locks._forget()  # as in the forked process
        lock.release()
        assert path.exists() and not lock.is_lost()


def test_file_lock_on_file_system_without_locks_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: Any, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    with pytest.warns(
        RuntimeWarning, match=f"^{tmp_path}: this system has no file locks; let only"
    ):
        write_both(tmp_path, "new")
    assert sorted(os.listdir(tmp_path)) == ["config.json", "weights"]


def files_of(directory: Path) -> dict[str, str]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory).as_posix(): path.read_text() for path in paths}


OLD = dict.fromkeys(["config.json", "a.json", "a.txt", "b.json", "b.txt", "sub/c.txt"], "old")
GROUPS = [("a.*",), ("b.json", "b.txt"), ("sub/*",)]


def test_links_are_removed_with_their_group_and_not_read_as_new_files(tmp_path: Path) -> None:
    """A link to a missing file is an old file, and a link is no directory of new files."""
    directory = tmp_path / "model"
    directory.mkdir()
    for name in ("a.txt", "a.json", "config.json"):
        (directory / name).symlink_to(tmp_path / "missing")
    with replace_together(directory, "config.json", [("a.txt", "a.json")]) as part:
        for name in ("config.json", "a.txt"):
            (part / name).write_text("new")
    assert files_of(directory) == {"config.json": "new", "a.txt": "new"}
    assert not (directory / "a.json").is_symlink()
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("other")
    (directory / ".config.json.exchange").symlink_to(other)
    with read_together(directory, "config.json") as source:
        assert source == directory


def test_replaced_files_keep_their_permissions_if_the_system_has_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files in directories below keep them too. Some network drives refuse to set them."""
    names = ("config.json", "sub/a", "sub/deep/b")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
        (tmp_path / name).chmod(0o604)

    def replace_all(text: str) -> None:
        with replace_together(tmp_path, "config.json") as part:
            for name in names:
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                (part / name).write_text(text)

    names = (*names, "new/deep/c")
    replace_all("new")
    (tmp_path / "new/deep/c").chmod(0o604)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in names} == {0o604}

    def refuse(*arguments: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    replace_all("newer")
    write_atomically(tmp_path / "sub/a", lambda path: path.write_text("newest"))
    texts = [(tmp_path / name).read_text() for name in names]
    assert texts == ["newer", "newest", "newer", "newer"]


def test_directory_of_new_files_without_the_last_one_is_removed(tmp_path: Path) -> None:
    """Another program may have removed it. The other new files are not installed."""
    write_both(tmp_path, "old")
    (tmp_path / ".config.json.exchange").mkdir()
    (tmp_path / ".config.json.exchange/weights").write_text("odd")
    with read_together(tmp_path, "config.json") as source:
        assert source == tmp_path
    with replace_together(tmp_path, "config.json") as part:
        (part / "config.json").write_text("new")
    assert files_of(tmp_path) == {"config.json": "new", "weights": "old"}


@pytest.mark.parametrize(
    ("new", "removed"),
    [
        ({"config.json"}, set()),
        ({"config.json", "a.json"}, {"a.txt"}),
        ({"config.json", "a.bin"}, {"a.txt", "a.json"}),
        ({"config.json", "b.txt", "sub/d.txt"}, {"b.json", "sub/c.txt"}),
        ({"config.json", "sub/deep/d.txt", "other"}, set()),
    ],
)
def test_replace_together_removes_old_files_of_the_groups_of_new_ones(
    new: set[str], removed: set[str], tmp_path: Path
) -> None:
    removed = removed | ({"sub/c.txt"} if "sub/deep/d.txt" in new else set())
    (tmp_path / "sub").mkdir()
    for name, text in OLD.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "config.json").chmod(0o640)
    with replace_together(tmp_path, "config.json", GROUPS) as part:
        for name in new:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_text("new")
    expected = {**OLD, **dict.fromkeys(new, "new")}
    assert files_of(tmp_path) == {k: v for k, v in expected.items() if k not in removed}
    assert (tmp_path / "config.json").stat().st_mode & 0o777 == 0o640
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("where", ["before", "after"])
def test_replace_together_whose_block_raises_replaces_nothing(where: str, tmp_path: Path) -> None:
    directory = tmp_path / "new" / "directory"
    if where == "after":
        write_both(directory, "old")
    with pytest.raises(ZeroDivisionError), replace_together(directory, "config.json") as part:
        for name in ("config.json", "weights"):
            (part / name).write_text("new")
        _ = 1 / 0
    expected = {"config.json": "old", "weights": "old"} if where == "after" else {}
    assert files_of(directory) == expected


def test_read_together_notices_files_that_are_replaced(tmp_path: Path) -> None:
    """Expect the error of the block only if the files stayed as they were, or it is no error of reading."""
    write_both(tmp_path, "old")
    with read_together(tmp_path, "config.json") as source:
        assert source == tmp_path
    for error in (OSError("gone"), ValueError("damaged")):
        with pytest.raises(type(error)) as caught, read_together(tmp_path, "config.json"):
            raise error
        assert caught.value is error
    for error in (None, OSError("gone"), ValueError("damaged")):
        with pytest.raises(OSError, match="the files were replaced while they were read"):
            with read_together(tmp_path, "config.json"):
                write_both(tmp_path, "new")
                if error:
                    raise error
    with pytest.raises(ZeroDivisionError), read_together(tmp_path, "config.json"):
        write_both(tmp_path, "new")
        _ = 1 / 0


def test_errors_of_a_write_name_the_file_and_leave_no_parts(tmp_path: Path) -> None:
    path = tmp_path / "new" / "c.json"
    write_atomically(path, lambda part: part.write_text("old"))
    for error in (ValueError("text"), OSError("text"), OSError(5, "text", "other")):

        def write(part: Path, error: Exception = error) -> None:
            part.write_text("half")
            raise error

        with pytest.raises(type(error), match="text"):
            write_atomically(path, write)
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, lambda part: part.with_name(part.name + "x").read_text())
    assert caught.value.filename == str(path) + "x"
    assert files_of(tmp_path) == {"new/c.json": "old"}
    path.chmod(0o604)
    write_atomically(path, lambda part: part.write_text("new"))
    assert path.stat().st_mode & 0o777 == 0o604

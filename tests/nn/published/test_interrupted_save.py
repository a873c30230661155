"""Saving over a model: a full disk, a kill or a reader at any file operation finds one whole model."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.environment import needs
from support.tiny_folders import text_files

import nn

pytestmark = pytest.mark.slow
FILE_EVENTS = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}
Model = nn.LanguageModel


def model(seed: int, norm_eps: float) -> Model:
    """Return a model whose configuration differs from others in norm_eps, which no shape shows."""
    config = nn.DecoderOnlyConfig(19, 8, 2, 2, 16, max_len=10, dropout=0.0, norm_eps=norm_eps)
    return Model(config, np.random.default_rng(seed))


def fingerprint(model: Model) -> tuple[float, bytes]:
    """Return the epsilon of the norms and the bytes of all weights."""
    weights = b"".join(array.tobytes() for array in model.state_dict().values())
    return model.config.norm_eps, weights


OLD_MODEL, NEW_MODEL = model(0, 1e-5), model(1, 1e-3)
OLD, NEW = fingerprint(OLD_MODEL), fingerprint(NEW_MODEL)


class FileOperations:
    """Call `act` at the operation of this number on a file in `directory`; count all of them."""

    def __init__(self) -> None:
        self.directory: str | None = None
        self.opens_only = False
        self.count = self.number = 0
        self.act: Callable[[], Any] = lambda: None
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.directory is None or event not in FILE_EVENTS:
            return
        mode = str(arguments[1] or "w") if event == "open" else "w"
        is_counted = event == "open" if self.opens_only else "r" not in mode or "+" in mode
        if is_counted and str(arguments[0]).startswith(self.directory):
            self.count += 1
            if self.count == self.number:
                self.directory = None
                self.act()

    @contextmanager
    def at(self, directory: Path, number: int, act: Callable[[], Any]) -> Iterator[None]:
        self.directory, self.number, self.act, self.count = str(directory), number, act, 0
        try:
            yield
        finally:
            self.directory = None


@pytest.fixture(scope="module")
def operations() -> FileOperations:
    return FileOperations()


def in_child(work: Callable[[], Any]) -> int:
    """Run `work` in a forked process and return its exit code, 0 at the end of `work`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the test runner
        process = os.fork()
    if process == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def save(directory: Path, model: Model, **options: Any) -> None:
    """Save in several shards."""
    nn.save(directory, model, max_shard_size=3000, **options)


def no_space() -> None:
    """Fail as a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def count_operations(operations: FileOperations, directory: Path) -> int:
    """Return how many file operations it takes to save over an older model."""
    save(directory, OLD_MODEL)
    with operations.at(directory, 0, lambda: None):
        save(directory, NEW_MODEL)
    assert operations.count > 20
    return operations.count


def save_with_kill(operations: FileOperations, directory: Path, number: int) -> None:
    """Save in a child process that is killed before operation `number`."""

    def killed() -> None:
        with operations.at(directory, number, lambda: os._exit(9)):
            save(directory, NEW_MODEL)

    assert in_child(killed) == 9


def save_on_full_disk(operations: FileOperations, directory: Path, number: int) -> None:
    """Save on a disk that is full from operation `number` on."""
    try:
        with operations.at(directory, number, no_space):
            save(directory, NEW_MODEL)
        assert fingerprint(nn.load(directory)) == NEW
    except OSError as error:
        assert error.errno == errno.ENOSPC and str(directory) in str(error)
        assert ".part" not in str(error)


@pytest.mark.parametrize("interrupted_save", [save_with_kill, save_on_full_disk])
def test_save_interrupted_at_any_file_operation_leaves_one_whole_model(
    tmp_path: Path, operations: FileOperations, interrupted_save: Callable[..., None]
) -> None:
    results = set()
    for number in range(1, count_operations(operations, tmp_path / "all") + 1):
        directory = tmp_path / str(number)
        save(directory, OLD_MODEL)
        interrupted_save(operations, directory, number)
        results.add(result := fingerprint(nn.load(directory)))
        other = OLD_MODEL if result == NEW else NEW_MODEL
        save(directory, other)
        assert fingerprint(nn.load(directory)) == fingerprint(other)
        assert not (directory / ".config.json.exchange").exists()
    assert results == {OLD, NEW}  # no mixture


def test_save_whose_clean_up_fails_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, OLD_MODEL)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", lambda *args, **options: no_space())
        save(tmp_path, NEW_MODEL)
    assert (tmp_path / ".config.json.exchange").exists()
    assert fingerprint(nn.load(tmp_path)) == NEW
    save(tmp_path, OLD_MODEL)
    assert fingerprint(nn.load(tmp_path)) == OLD
    assert not (tmp_path / ".config.json.exchange").exists()


def test_load_at_any_file_operation_of_a_save_gives_one_whole_model(
    tmp_path: Path, operations: FileOperations
) -> None:
    count, results = count_operations(operations, tmp_path), set[Any]()

    def load() -> None:
        results.add(fingerprint(nn.load(tmp_path)))

    for number in range(1, count + 1):
        save(tmp_path, OLD_MODEL)
        with operations.at(tmp_path, number, load):
            save(tmp_path, NEW_MODEL)
    assert results == {OLD, NEW}


def test_load_while_another_save_runs_is_refused(tmp_path: Path) -> None:
    """A save runs at each file that the reader opens."""
    opened = FileOperations()
    opened.opens_only = True
    save(tmp_path, OLD_MODEL)
    with opened.at(tmp_path, 0, lambda: None):
        nn.load(tmp_path)
    for number in range(1, opened.count + 1):
        save(tmp_path, OLD_MODEL)
        with pytest.raises(OSError, match=f"^{tmp_path}: the files were replaced while they were"):
            with opened.at(tmp_path, number, lambda: save(tmp_path, NEW_MODEL)):
                nn.load(tmp_path)
    assert opened.count > 3


def test_save_with_text_replaces_the_tokenizer_of_another_kind(tmp_path: Path) -> None:
    needs("tokenizers")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\ncat")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    text, directory = nn.text.load(tmp_path), tmp_path / "model"
    directory.mkdir()
    text_files(directory)
    for options in ({"text": text}, {}):  # a save without text keeps the tokenizer
        save(directory, NEW_MODEL, **options)
        assert not (directory / "tokenizer.json").exists() and (directory / "vocab.txt").exists()


def test_save_keeps_other_files_and_permissions(tmp_path: Path) -> None:
    save(tmp_path, OLD_MODEL)
    (tmp_path / "README.md").write_text("mine")
    os.chmod(tmp_path / "config.json", 0o640)
    nn.save(tmp_path, NEW_MODEL)
    assert (tmp_path / "README.md").read_text() == "mine"
    assert (tmp_path / "config.json").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["README.md", "config.json", "model.safetensors"]

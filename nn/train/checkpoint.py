"""The directory of a run: its last state, its best weights, its metrics, and the lock that keeps
others out.

`last.safetensors` holds weights, optimizer and where the run stands, in one file that is replaced
in one step; `best.safetensors` the weights of the best validation; `weights-0000123.safetensors`
those after a step beside it; `metrics.jsonl` a line for each entry of the history; `facts.json`
what else is to stay.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io import load_arrays, save_arrays, write_atomically
from minigrad.io.atomic import write_bytes
from minigrad.io.json import checksum, read_json, write_json
from minigrad.io.reading import found_file
from minigrad.launcher import launched

from ..layers.module import Module
from ..models.weights import save_weights

try:
    import fcntl
except ImportError:  # not a Unix: runs are not locked there
    fcntl = None  # type: ignore[assignment]

__all__ = ["RunDirectory"]

FORMAT = 1
_CHECKPOINT = r"weights-(\d{7}|[1-9]\d{7,})\.safetensors"
_PART = (
    rf"\.(last\.safetensors|best\.safetensors|metrics\.jsonl|facts\.json|{_CHECKPOINT})"
    r"\.[0-9a-f]{12}\.part"
)
"""Names of files that a run writes and deletes; files with other names are never touched."""
_locked: set[int] = set()  # descriptors of locks that this process holds


def _forget_locks() -> None:
    """A forked process gives its copies back: else it would hold the lock when the run is dead."""
    for descriptor in _locked:
        with suppress(OSError):
            os.close(descriptor)
    _locked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


class RunDirectory:
    """The directory of a run; `with` locks it, so that a second run in it is refused.

    The system releases the lock when the process ends, however that happens. Of the ranks of a job
    the first locks it, and `writes`. `facts` are what weights do not tell, such as the letters that
    ids stand for: they are noted at first, and others are a ValueError later.
    """

    def __init__(self, path: str | Path, **facts: Any) -> None:
        self.path, self.facts = Path(path), facts
        self.last = self.path / "last.safetensors"
        self.best = self.path / "best.safetensors"
        self.metrics = self.path / "metrics.jsonl"
        place = launched()
        self.writes = place is None or place.rank == 0  # a Trainer knows better
        self._lock: int | None = None
        self._entered = 0

    # -- the lock --------------------------------------------------------------------------------

    def __enter__(self) -> RunDirectory:
        if self._entered == 0 and self.writes:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path / ".lock")
            for part in self.path.iterdir():
                if re.fullmatch(_PART, part.name):  # left by a run that was killed while it wrote
                    with suppress(OSError):
                        part.unlink()
            try:
                self._check_facts()
            except BaseException:
                self._unlock()
                raise
        self._entered += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            _locked.discard(self._lock)
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # in forked processes too
            os.close(self._lock)
            self._lock = None

    def check(self) -> None:
        """An error if the directory is no longer the one that was locked."""
        if self._lock is None:
            return
        try:
            same = os.path.samestat(os.fstat(self._lock), os.stat(self.path / ".lock"))
        except FileNotFoundError:
            same = False
        if not same:
            raise FileNotFoundError(
                errno.ENOENT, "the directory was removed or replaced in mid-run", str(self.path)
            )

    def _check_facts(self) -> None:
        path = self.path / "facts.json"
        if self.facts and not os.path.lexists(path):
            write_json(path, self.facts)
        found = read_json(path) if self.facts else {}
        for name, fact in self.facts.items():
            if checksum(found.get(name)) != checksum(fact):
                raise ValueError(
                    f"{path}: the run began with other {name}; give it the same, or take another "
                    "folder"
                )

    # -- the state -------------------------------------------------------------------------------

    def save_state(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Replace the last state."""
        self.check()
        save_arrays(self.last, arrays, {"trainer": {"format": FORMAT, **state}})

    def load_state(self) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
        """The arrays of the last state, by part ("model", "optimizer", "average") and name, and its
        numbers.
        """
        arrays, metadata = load_arrays(self.last)
        state = metadata.get("trainer")
        if not isinstance(state, dict):
            raise ValueError(f"{self.last}: not the state of a run, which holds an optimizer too")
        if (found := state.get("format")) != FORMAT:
            raise ValueError(
                f"{self.last}: the state of another version: expected format {FORMAT}, got "
                f"{found!r}"
            )
        parts: dict[str, dict[str, np.ndarray]] = {"model": {}, "optimizer": {}, "average": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            if part not in parts:
                raise ValueError(
                    f"{self.last}: {name} belongs to no part of a state ({', '.join(parts)})"
                )
            parts[part][rest] = array
        return parts, state

    # -- weights ---------------------------------------------------------------------------------

    def save_best(self, model: Module, **metadata: Any) -> None:
        """Replace the best weights."""
        self.check()
        save_weights(self.best, model, **metadata)

    def save_checkpoint(self, model: Module, step: int, most: int) -> None:
        """Write the weights of this step, and keep those of `most` steps up to it."""
        self.check()
        save_weights(self.path / f"weights-{step:07}.safetensors", model, step=step)
        steps = self._checkpoints()
        for earlier in sorted(s for s in steps if s <= step)[:-most]:
            steps[earlier].unlink()

    def _checkpoints(self) -> dict[int, Path]:
        """Return the files with the weights of single steps, by step."""
        matches = [(re.fullmatch(_CHECKPOINT, path.name), path) for path in self.path.glob("*")]
        return {int(match[1]): path for match, path in matches if match}

    def checkpoints(self) -> list[Path]:
        """Return the files with the weights of single steps, the oldest first."""
        return [path for _, path in sorted(self._checkpoints().items())]

    def forget_after(self, step: int) -> None:
        """Delete checkpoints of later steps, which a run that goes on from `step` writes again."""
        for later, path in self._checkpoints().items():
            if later > step:
                path.unlink()

    def earlier_files(self) -> list[Path]:
        """Return the files of an earlier run in this directory that a new run would replace."""
        metrics = [self.metrics] if self.metrics.exists() and self.metrics.stat().st_size else []
        best = [self.best] if self.best.exists() else []
        return [*metrics, *best, *self.checkpoints()]

    # -- the metrics -----------------------------------------------------------------------------

    def log(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        self.check()
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, allow_nan=False) + "\n")
        except OSError as error:  # a full disk names no file
            raise OSError(error.errno, error.strerror, str(self.metrics)) from None

    def write_metrics(self, history: list[dict[str, Any]]) -> None:
        """Replace the metrics."""
        text = "".join(json.dumps(entry) + "\n" for entry in history)
        write_atomically(self.metrics, lambda part: part.write_text(text, encoding="utf-8"))

    def read_metrics(self, count: int | None = None) -> list[dict[str, Any]]:
        """Return the first `count` entries (None: all), without lines that cannot be read."""
        return [entry for entry in self._metrics(count) if entry is not None]

    def cut_metrics(self, count: int) -> list[dict[str, Any]]:
        """Keep only the first `count` entries in the file, and return them.

        A file with lines among them that cannot be read is copied beside first.
        """
        entries = self._metrics(count)
        history = [entry for entry in entries if entry is not None]
        if broken := len(entries) - len(history):
            names = (f"metrics-damaged-{number}.jsonl" for number in itertools.count(1))
            copy = next(p for name in names if not os.path.lexists(p := self.path / name))
            write_bytes(copy, self.metrics.read_bytes())
            warnings.warn(
                f"{self.metrics}: {broken} line{'s' * (broken > 1)} cannot be read; the file is "
                f"kept as {copy.name}, and the other lines stay",
                stacklevel=4,
            )
        self.write_metrics(history)
        return history

    def _metrics(self, count: int | None) -> list[dict[str, Any] | None]:
        """Return the first `count` entries, None for a line that cannot be read."""
        if not os.path.lexists(self.metrics):
            return []
        return [_entry(line) for line in found_file(self.metrics).read_bytes().splitlines()[:count]]


def checked_values(values: Any, taken: set[str]) -> dict[str, Any]:
    """Return what `on_validation` returned, as JSON gives it back; NaN and infinity are None."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise TypeError(f"on_validation must return a dict or None, got {type(values).__name__}")
    checked = {}
    for name, value in values.items():
        if not isinstance(name, str) or name in taken:
            raise ValueError(
                f"on_validation: names must be strings other than {taken}, got {name!r:.40}"
            )
        try:
            text = json.dumps(value, default=_item)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"on_validation: {name!r} must contain numbers, strings, booleans, None, lists "
                f"and dicts, got {error}; convert it first"
            ) from None
        checked[name] = json.loads(text, parse_constant=lambda name: None)
    return checked


def _item(value: Any) -> Any:
    """Return a NumPy number as a Python number."""
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):
        return value.item()
    raise TypeError(type(value).__name__)


def _entry(line: bytes) -> dict[str, Any] | None:
    """Return the entry in a line of metrics; None if the line contains none."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    numbers = (entry.get("step"), entry.get("seconds"))
    whole = all(isinstance(n, (int, float)) and abs(n) < 1e15 for n in numbers)
    return entry if whole else None


def _lock(path: Path) -> int | None:
    """Lock a file, and return its descriptor; None where the system cannot."""
    if fcntl is None:
        return None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BlockingIOError(
            errno.EAGAIN,
            "another run is at work in this directory; wait for it, or take another",
            str(path.parent),
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise OSError(error.errno, error.strerror, str(path)) from None
    _locked.add(descriptor)
    return descriptor

"""The directory of a run: its last state, its best weights, its metrics, and the lock that keeps
others out.

`last.safetensors` holds weights, optimizer and where the run stands, in one file that is replaced
in one step; `best.safetensors` the weights of the best validation; `weights-0000123.safetensors`
those after a step beside it; `metrics.jsonl` a line for each entry of the history; `facts.json`
what else is to stay.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.json import checksum, read_json, write_json
from minigrad.io.paths import found_file
from minigrad.launcher import launched
from minigrad.serialization import load_arrays, save_arrays, write_atomically

from ..layers.module import Module
from ..models.weights import save_weights
from .settings import is_number

try:
    import fcntl
except ImportError:  # not a Unix: runs are not locked there
    fcntl = None  # type: ignore[assignment]

__all__ = ["RunDirectory"]

FORMAT = 1
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
            for part in self.path.glob(".*.part"):  # left by a run that was killed while it wrote
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
        """The weights of this step, beside those of the last steps before it: `most` in all."""
        self.check()
        save_weights(self.path / f"weights-{step:07}.safetensors", model, step=step)
        for path in self.checkpoints()[:-most]:
            path.unlink()

    def checkpoints(self) -> list[Path]:
        """The weights of single steps, the oldest first."""
        return sorted(self.path.glob("weights-*.safetensors"))

    def forget_after(self, step: int) -> None:
        """Remove checkpoints of later steps, which a run that goes on from here will take again."""
        for path in self.checkpoints():
            if path.name > f"weights-{step:07}.safetensors":
                path.unlink()

    # -- the metrics -----------------------------------------------------------------------------

    def log(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        self.check()
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:  # a full disk names no file
            raise OSError(error.errno, error.strerror, str(self.metrics)) from None

    def write_metrics(self, history: list[dict[str, Any]]) -> None:
        """Replace the metrics."""
        text = "".join(json.dumps(entry) + "\n" for entry in history)
        write_atomically(self.metrics, lambda part: part.write_text(text, encoding="utf-8"))

    def read_metrics(self, count: int | None = None) -> list[dict[str, Any]]:
        """The first `count` entries (None: all); fewer, where lines are missing or broken."""
        if not os.path.lexists(self.metrics):
            return []
        lines = found_file(self.metrics).read_bytes().splitlines()[:count]
        history = []
        for line in lines:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                break
            if not isinstance(entry, dict) or not all(
                is_number(entry.get(name)) for name in ("step", "seconds")
            ):
                break
            history.append(entry)
        return history


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

"""Run directories: the last state, the best weights, the metrics, and a lock.

- `last.safetensors`: weights, optimizer, random states and counters, replaced in one step.
- `best.safetensors`: weights of the best validation.
- `weights-0000123.safetensors`: weights after a step.
- `metrics.jsonl`: a line for each entry of the history.
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

from minigrad.fast.launcher import launched
from minigrad.io import load_arrays, save_arrays, write_atomically
from minigrad.io.atomic import write_bytes
from minigrad.io.json import decode_json
from minigrad.io.locks import FileLock
from minigrad.io.reading import require_file

from ..module import Module
from ..published.weights import save_weights

__all__ = ["RunDirectory"]

FORMAT = 1
_CHECKPOINT = r"weights-(\d{7}|[1-9]\d{7,})\.safetensors"
_PART = (
    rf"\.(last\.safetensors|best\.safetensors|metrics\.jsonl|{_CHECKPOINT})\.[0-9a-f]{{12}}\.part"
)
"""Names of files that a run writes and deletes; files with other names are never touched."""


class RunDirectory:
    """Directory of a run. `with` locks it, so that a second run in it is refused.

    The system releases the lock when the process ends, however that happens. Of the ranks of a job
    the first one locks the directory and writes.

    Parameters
    ----------
    path : str or Path
        Made if it does not exist.
    **facts : plain data
        What must stay as it was when the run began but is not in the weights, such as the letters
        that ids stand for. A run with other facts is not resumed.
    """

    def __init__(self, path: str | Path, **facts: Any) -> None:
        self.path = Path(path)
        self.facts = facts
        self.last = self.path / "last.safetensors"
        self.best = self.path / "best.safetensors"
        self.metrics = self.path / "metrics.jsonl"
        job = launched()
        self.writes = job is None or job.rank == 0  # a Trainer sets it by its ranks
        self._lock: FileLock | None = None
        self._entered = 0

    # -- the lock --------------------------------------------------------------------------------

    def __enter__(self) -> RunDirectory:
        if self._entered == 0 and self.writes:
            self.path.mkdir(parents=True, exist_ok=True)
            # a copy of the directory by hard links has another inode
            lock = FileLock(self.path / f".run-{self.path.stat().st_ino}.lock")
            try:
                lock.acquire(wait=False)
            except BlockingIOError as error:
                message = "another run is at work in this directory; wait for it, or take another"
                raise BlockingIOError(error.errno, message, str(self.path)) from None
            self._lock = lock
            try:
                self._prepare()
            except BaseException:
                lock.release()
                raise
        self._entered += 1
        return self

    def _prepare(self) -> None:
        if self.metrics.is_file() and self.metrics.stat().st_nlink > 1:
            write_bytes(self.metrics, self.metrics.read_bytes())  # lines are added in place
        for part in self.path.iterdir():
            if re.fullmatch(_PART, part.name):  # of a run that was killed while it wrote
                with suppress(OSError):
                    part.unlink()

    def __exit__(self, *error: object) -> None:
        self._entered -= 1
        if self._entered == 0 and self._lock is not None:
            self._lock.release()
            self._lock = None

    def check(self) -> None:
        """Raise FileNotFoundError if the directory is no longer the one that was locked."""
        if self._lock is not None and self._lock.is_lost():
            raise FileNotFoundError(
                errno.ENOENT, "the directory was removed or replaced in mid-run", str(self.path)
            )

    # -- the state -------------------------------------------------------------------------------

    def save_state(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Replace the last state.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            Named `part.name`.
        state : mapping
            Everything else, as plain data.
        """
        self.check()
        save_arrays(self.last, arrays, {"trainer": {"format": FORMAT, **state}})

    def load_state(self) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
        """Return the last state: its arrays by part and name, and all else as plain data."""
        arrays, metadata = load_arrays(self.last)
        state = metadata.get("trainer")
        if not isinstance(state, dict):
            raise ValueError(f"{self.last}: not the state of a run, which holds an optimizer too")
        if (version := state.get("format")) != FORMAT:
            raise ValueError(
                f"{self.last}: format must be {FORMAT}, got {version!r}; the state was written by "
                "another version"
            )
        parts: dict[str, dict[str, np.ndarray]] = {"model": {}, "optimizer": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = array
        return parts, state

    # -- weights ---------------------------------------------------------------------------------

    def save_best(self, model: Module, **metadata: Any) -> None:
        """Replace the best weights.

        Parameters: as `save_weights`.
        """
        self.check()
        save_weights(self.best, model, **metadata)

    def save_checkpoint(self, model: Module, step: int, max_files: int) -> None:
        """Write the weights of this step, and keep those of the last `max_files` steps.

        Parameters
        ----------
        model : Module
            The model whose weights are written.
        step : int
            Steps done.
        max_files : int
            Number of files that are kept.
        """
        self.check()
        save_weights(self.path / f"weights-{step:07}.safetensors", model, step=step)
        for path in [p for p in self.checkpoints() if _step_of(p) <= step][:-max_files]:
            path.unlink()

    def checkpoints(self) -> list[Path]:
        """Return the files with the weights of single steps, the oldest first."""
        paths = (path for path in self.path.glob("*") if re.fullmatch(_CHECKPOINT, path.name))
        return sorted(paths, key=_step_of)

    def forget_after(self, step: int) -> None:
        """Delete checkpoints of later steps, which a run that continues from `step` writes again.

        Parameters: as `save_checkpoint`.
        """
        for path in self.checkpoints():
            if _step_of(path) > step:
                path.unlink()

    def earlier_files(self) -> list[Path]:
        """Return the files of an earlier run that a new run would replace."""
        files = [p for p in (self.metrics, self.best) if p.exists() and p.stat().st_size]
        return [*files, *self.checkpoints()]

    # -- the metrics -----------------------------------------------------------------------------

    def log(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the metrics.

        Parameters
        ----------
        entry : mapping
            Plain data.
        """
        self.check()
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, allow_nan=False) + "\n")
        except OSError as error:  # a full disk names no file
            raise OSError(error.errno, error.strerror, str(self.metrics)) from None

    def write_metrics(self, history: list[dict[str, Any]]) -> None:
        """Replace the metrics.

        Parameters
        ----------
        history : list of dict
            All entries.
        """
        text = "".join(json.dumps(entry) + "\n" for entry in history)
        write_atomically(self.metrics, lambda part: part.write_text(text, encoding="utf-8"))

    def read_metrics(self, count: int | None = None, repair: bool = False) -> list[dict[str, Any]]:
        """Return the entries of the metrics, without lines that cannot be read.

        Parameters
        ----------
        count : int, optional
            Number of lines that are read; all by default.
        repair : bool
            True = keep only these entries in the file. If lines among them cannot be read, the file
            is first copied to `metrics-damaged-N.jsonl`.
        """
        is_present = os.path.lexists(self.metrics)
        data = require_file(self.metrics).read_bytes() if is_present else b""
        entries = [_entry(line) for line in data.splitlines()[:count]]
        history = [entry for entry in entries if entry is not None]
        if not repair:
            return history
        if broken := len(entries) - len(history):
            names = (f"metrics-damaged-{number}.jsonl" for number in itertools.count(1))
            copy = next(p for name in names if not os.path.lexists(p := self.path / name))
            write_bytes(copy, data)
            warnings.warn(
                f"{self.metrics}: {broken} line{'s' * (broken > 1)} cannot be read; the file is "
                f"kept as {copy.name}, and the other lines stay",
                stacklevel=4,
            )
        self.write_metrics(history)
        return history


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.stem.partition("-")[2])


def checked_values(values: Any, reserved: set[str]) -> dict[str, Any]:
    """Return the values of `on_validation` as JSON gives them back; NaN and infinity are None."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise TypeError(f"on_validation must return a dict or None, got {type(values).__name__}")
    checked = {}
    for name, value in values.items():
        if not isinstance(name, str) or name in reserved:
            raise ValueError(
                f"on_validation: names must be strings other than {reserved}, got {name!r:.40}"
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
        entry = decode_json(line)
        return entry if float(entry["step"]) + float(entry["seconds"]) < 1e15 else None
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        return None

"""What a trainer's settings and a stored state must be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from minigrad.optim import ReduceLROnPlateau, Schedule

__all__ = ["as_schedule", "check_arrays", "check_settings", "check_state", "is_number"]

_OPTIONAL = ("max_epochs", "max_steps", "validate_every", "patience", "save_every")
_COUNTS = {"accumulate": 1, "log_every": 1, "keep_last": 0, "skip_nonfinite": 0}


def check_settings(trainer: Any) -> None:
    """An error for settings of a `Trainer` that cannot be."""
    for name in (*_OPTIONAL, *_COUNTS):
        value, low = getattr(trainer, name), _COUNTS.get(name, 1)
        if value is None and name in _OPTIONAL:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"Trainer: {name}: expected a whole number, got {value!r}")
        if value < low:
            raise ValueError(f"Trainer: {name}: expected at least {low}, got {value}")
    if trainer.max_epochs is None and trainer.max_steps is None:
        raise ValueError("Trainer: expected max_epochs or max_steps")
    own = {id(p) for p in trainer.model.parameters()}
    for group in trainer.optimizer.param_groups:
        for p in group["params"]:
            if id(p) not in own:
                raise ValueError(
                    f"Trainer: the optimizer has a parameter of shape {p.shape} that is not one of the model's; "
                    "make it from model.parameters(), after the model has its final form"
                )


def as_schedule(schedule: Any, trainer: Any) -> Schedule | ReduceLROnPlateau | None:
    """A schedule of the trainer's optimizer, from one or from a function step -> factor of the learning rate."""
    if schedule is None or isinstance(schedule, (Schedule, ReduceLROnPlateau)):
        if schedule is not None and schedule.optimizer is not trainer.optimizer:
            raise ValueError("Trainer: the schedule was made for another optimizer")
        if isinstance(schedule, ReduceLROnPlateau):
            _check_plateau(schedule, trainer)
        return schedule
    if not callable(schedule):
        raise TypeError(f"Trainer: schedule: expected a function step -> factor or a Schedule, got {schedule!r}")
    return Schedule(trainer.optimizer, schedule)


def _check_plateau(schedule: ReduceLROnPlateau, trainer: Any) -> None:
    if trainer.valid is None and trainer.score is None:
        raise ValueError("Trainer: a ReduceLROnPlateau needs validations: pass valid= or score=")
    better, mode = ("score(model) larger", "max") if trainer.score else ("losses smaller", "min")
    if schedule.mode != mode:
        waits = {"min": "smaller", "max": "larger"}[schedule.mode]
        raise ValueError(
            f"Trainer: the schedule waits for {waits} values, but of {better} ones are better; pass mode={mode!r}"
        )


def check_state(state: dict[str, Any], trainer: Any, path: Path) -> None:
    """An error, which begins with the path, for the numbers of a state that this trainer cannot go on from."""

    def fail(name: str, expected: str) -> NoReturn:
        raise ValueError(f"{path}: {name}: expected {expected}, got {state.get(name)!r:.60}")

    for name in ("step", "epoch", "batch", "best_step", "worse", "skipped", "entries"):
        if not _is_count(state.get(name)):
            fail(name, "a whole number of at least 0")
    if not _is_count(state.get("validated"), -1):
        fail("validated", "a whole number of at least -1")
    for name in ("loss_sum", "loss_count"):
        if not is_number(state.get(name)):
            fail(name, "a number")
    if state.get("best", "") is not None and not is_number(state.get("best")):
        fail("best", "a number or null")
    _check_schedule(state, trainer, fail)
    _check_optimizer(state, trainer, fail)
    if not isinstance(state.get("random"), dict):
        fail("random", "the state of the random generator")
    inner = state["random"].get("state")
    words = inner.get("state") if isinstance(inner, dict) else None
    if not isinstance(words, list) or not all(map(_is_word, words)):
        raise ValueError(f"{path}: random: not a state of the random generator")
    ranks = state.get("ranks", [1, 1])
    if not isinstance(ranks, list) or len(ranks) != 2 or not all(_is_count(n, 1) and n < 1 << 24 for n in ranks):
        fail("ranks", "how many ranks there were, and processes of each")
    if state.get("accumulate") != trainer.accumulate:
        fail("accumulate", f"{trainer.accumulate}, as this trainer has")
    if state["epoch"] > state["step"] or (state["step"] and not state["epoch"] + state["batch"]):
        raise ValueError(
            f"{path}: expected another epoch and batch after step {state['step']}, got epoch {state['epoch']} and "
            f"batch {state['batch']}"
        )
    if state["batch"] > state["step"] * trainer.accumulate or state["best_step"] > state["step"]:
        raise ValueError(
            f"{path}: expected batch and best_step to be reached by step {state['step']} of {trainer.accumulate} "
            f"batches, got batch {state['batch']} and best_step {state['best_step']}"
        )


def _check_schedule(state: dict[str, Any], trainer: Any, fail: Callable[[str, str], NoReturn]) -> None:
    found, schedule = state.get("schedule"), trainer.schedule
    if schedule is None:
        if found is not None:
            fail("schedule", "null, as this trainer has no schedule")
        return
    own = schedule.state_dict()
    if not isinstance(found, dict) or set(found) != set(own):
        fail("schedule", f"{', '.join(own)} of a schedule")
    if isinstance(schedule, Schedule):
        if found["base"] != own["base"] or not all(map(is_number, found["base"])):
            fail("schedule", f"the learning rates {own['base']} that this trainer begins with")
        if found["count"] != state["step"] + 1 or not _is_count(found["count"]):
            fail("schedule", f"count {state['step'] + 1} after step {state['step']}")


def _check_optimizer(state: dict[str, Any], trainer: Any, fail: Callable[[str, str], NoReturn]) -> None:
    found, own = state.get("optimizer"), json.loads(json.dumps(trainer.optimizer.state_dict()["groups"]))
    if not isinstance(found, list) or not all(isinstance(group, dict) for group in found):
        fail("optimizer", "a list of settings")
    for group, mine in zip(found, own):
        for name in mine:
            if name == "steps" and not (_is_count(group.get(name)) and group[name] == state["step"] - state["skipped"]):
                fail("optimizer", f"as many steps as the run, {state['step'] - state['skipped']}")
            if name not in ("steps", "lr") and group.get(name) != mine[name]:
                fail("optimizer", f"{name}={mine[name]}, as this trainer's has")


def check_arrays(arrays: dict[str, np.ndarray], own: dict[str, np.ndarray], path: Path) -> None:
    """An error for arrays of an optimizer that hold no finite numbers of its dtypes."""
    for name, array in arrays.items():
        if name in own and array.dtype.kind != own[name].dtype.kind:
            raise ValueError(f"{path}: optimizer.{name}: expected {own[name].dtype}, got {array.dtype}")
        with np.errstate(over="ignore"):
            if name in own and not np.isfinite(array.astype(own[name].dtype, copy=False)).all():
                raise ValueError(f"{path}: optimizer.{name} has numbers that are NaN or infinite in {own[name].dtype}")


def _is_word(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def _is_count(value: Any, low: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < 1 << 53


def is_number(value: Any) -> bool:
    """Whether a value from a file is a number of a sensible size."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15

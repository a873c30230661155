"""What a trainer's settings and a stored state must be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from minigrad.optim import Optimizer, ReduceLROnPlateau, Schedule

__all__ = ["as_schedule", "check_settings", "check_state"]

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


def as_schedule(schedule: Any, optimizer: Optimizer) -> Schedule | ReduceLROnPlateau | None:
    """A schedule of this optimizer, from one or from a function step -> factor of the learning rate."""
    if schedule is None or isinstance(schedule, (Schedule, ReduceLROnPlateau)):
        if schedule is not None and schedule.optimizer is not optimizer:
            raise ValueError("Trainer: the schedule was made for another optimizer")
        return schedule
    if not callable(schedule):
        raise TypeError(f"Trainer: schedule: expected a function step -> factor or a Schedule, got {schedule!r}")
    return Schedule(optimizer, schedule)


def check_state(state: dict[str, Any], trainer: Any, path: Path) -> None:
    """An error, which begins with the path, for the numbers of a state that this trainer cannot go on from."""

    def fail(name: str, expected: str) -> None:
        raise ValueError(f"{path}: {name}: expected {expected}, got {state.get(name)!r:.60}")

    for name in ("step", "epoch", "batch", "best_step", "worse", "skipped", "entries"):
        if not _is_count(state.get(name)):
            fail(name, "a whole number of at least 0")
    if not _is_count(state.get("validated"), -1):
        fail("validated", "a whole number of at least -1")
    for name in ("loss_sum", "loss_count"):
        if not _is_number(state.get(name)):
            fail(name, "a number")
    if state.get("best") is not None and not _is_number(state["best"]):
        fail("best", "a number or null")
    if trainer.schedule is None and state.get("schedule") is not None:
        fail("schedule", "null, as this trainer has no schedule")
    if trainer.schedule is not None and not isinstance(state.get("schedule"), dict):
        fail("schedule", "the state of a schedule")
    groups = state.get("optimizer")
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        fail("optimizer", "a list of settings")
    if not isinstance(state.get("random"), dict):
        fail("random", "the state of the random generator")
    if state.get("accumulate") != trainer.accumulate:
        fail("accumulate", f"{trainer.accumulate}, as this trainer has")
    if state["batch"] > state["step"] * trainer.accumulate or state["best_step"] > state["step"]:
        raise ValueError(
            f"{path}: expected batch and best_step to be reached by step {state['step']} of {trainer.accumulate} "
            f"batches, got batch {state['batch']} and best_step {state['best_step']}"
        )


def _is_count(value: Any, low: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < 1 << 53


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)

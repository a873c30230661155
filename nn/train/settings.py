"""What a trainer's settings must be."""

from __future__ import annotations

from typing import Any

from minigrad.optim import ReduceLROnPlateau, Schedule
from minigrad.optim.settings import checked_count

__all__ = ["as_schedule", "check_settings", "is_count", "is_number"]

_OPTIONAL = ("max_epochs", "max_steps", "validate_every", "patience", "save_every")
COUNTS = {
    **dict.fromkeys(_OPTIONAL, 1),
    "accumulate": 1,
    "log_every": 1,
    "keep_last": 0,
    "skip_nonfinite": 0,
}
"""Settings that are whole numbers, and the least of each."""


def check_settings(trainer: Any) -> None:
    """An error for settings of a `Trainer` that cannot be."""
    for name, low in COUNTS.items():
        value = getattr(trainer, name)
        if value is not None or name not in _OPTIONAL:
            setattr(trainer, name, checked_count("Trainer", name, value, low))
    if trainer.max_epochs is None and trainer.max_steps is None:
        raise ValueError("Trainer: expected max_epochs or max_steps")
    own = {id(p) for p in trainer.model.parameters()}
    if others := [
        p for group in trainer.optimizer.param_groups for p in group["params"] if id(p) not in own
    ]:
        raise ValueError(
            f"Trainer: the optimizer has a parameter of shape {others[0].shape} that is not one "
            "of the model's; "
            "make it from model.parameters(), after the model has its final form"
        )


def as_schedule(schedule: Any, trainer: Any) -> Schedule | ReduceLROnPlateau | None:
    """A schedule of the trainer's optimizer, from one or from a function step -> factor of the
    learning rate.
    """
    if schedule is None or isinstance(schedule, (Schedule, ReduceLROnPlateau)):
        if schedule is not None and schedule.optimizer is not trainer.optimizer:
            raise ValueError("Trainer: the schedule was made for another optimizer")
        if isinstance(schedule, ReduceLROnPlateau):
            _check_plateau(schedule, trainer)
        return schedule
    if not callable(schedule):
        raise TypeError(
            f"Trainer: schedule: expected a function step -> factor or a Schedule, got {schedule!r}"
        )
    return Schedule(trainer.optimizer, schedule)


def _check_plateau(schedule: ReduceLROnPlateau, trainer: Any) -> None:
    if trainer.valid is None and trainer.score is None:
        raise ValueError("Trainer: a ReduceLROnPlateau needs validations: pass valid= or score=")
    better, mode = ("score(model) larger", "max") if trainer.score else ("losses smaller", "min")
    if schedule.mode != mode:
        waits = {"min": "smaller", "max": "larger"}[schedule.mode]
        raise ValueError(
            f"Trainer: the schedule waits for {waits} values, but of {better} ones are better; "
            f"pass mode={mode!r}"
        )


def is_count(value: Any, low: int = 0) -> bool:
    """Whether a value from a file is a whole number of at least `low`, and of a sensible size."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < 1 << 53


def is_number(value: Any) -> bool:
    """Whether a value from a file is a number of a sensible size."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15

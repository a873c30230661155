"""Checks of a trainer's arguments."""

from __future__ import annotations

from typing import Any

from minigrad.optim import Optimizer, ReduceLROnPlateau, Schedule
from minigrad.optim.settings import checked_count

from ..layers.module import Module

__all__ = ["as_schedule", "check_parameters", "checked_limit"]


def checked_limit(name: str, value: Any) -> int | None:
    """Return a whole number of at least 1, or None for no limit."""
    return None if value is None else checked_count("Trainer", name, value)


def check_parameters(model: Module, optimizer: Optimizer) -> None:
    """Refuse an optimizer of parameters that are not the model's."""
    own = {id(p) for p in model.parameters()}
    for group in optimizer.param_groups:
        for p in group["params"]:
            if id(p) not in own:
                raise ValueError(
                    f"Trainer: the optimizer has a parameter of shape {p.shape} that is not one "
                    "of the model's; make it from model.parameters(), after the model has its "
                    "final form"
                )


def as_schedule(
    schedule: Any, optimizer: Optimizer, goal: str | None
) -> Schedule | ReduceLROnPlateau | None:
    """Return a schedule of `optimizer`, from one or from a function step -> factor.

    `goal` is "max" or "min", as validations are compared; None if there are none.
    """
    if schedule is None:
        return None
    if not isinstance(schedule, (Schedule, ReduceLROnPlateau)):
        if not callable(schedule):
            raise TypeError(
                "Trainer: schedule must be a function step -> factor or a Schedule, got "
                f"{schedule!r}"
            )
        return Schedule(optimizer, schedule)
    if schedule.optimizer is not optimizer:
        raise ValueError("Trainer: the schedule was made for another optimizer")
    if isinstance(schedule, ReduceLROnPlateau):
        if goal is None:
            raise ValueError(
                "Trainer: a ReduceLROnPlateau needs validations: pass valid= or score="
            )
        if schedule.mode != goal:
            raise ValueError(
                f"Trainer: mode of the ReduceLROnPlateau must be {goal!r}, since "
                f"{'larger scores' if goal == 'max' else 'smaller losses'} are better, got "
                f"{schedule.mode!r}"
            )
    return schedule

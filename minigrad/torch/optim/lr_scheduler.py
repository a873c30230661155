"""Schedules of `torch.optim.lr_scheduler`: those of `minigrad.optim`, and four more."""

from __future__ import annotations

import math
import typing as _typing
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from minigrad.arguments import check_choice, checked_count, checked_number
from minigrad.optim import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    Optimizer,
    ReduceLROnPlateau,
    Schedule,
    StepLR,
)

__all__ = [
    "CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip


def MultiStepLR(optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """Return a schedule that multiplies the rate by `gamma` at each milestone.

    Parameters
    ----------
    optimizer : Optimizer
    milestones : sequence of int
        Epochs from which on the rate is lower; an epoch that occurs twice counts twice.
    gamma : float
        Factor; 0.1 by default.
    """
    checked_number("MultiStepLR", "gamma", gamma)
    epochs = sorted([checked_count("MultiStepLR", "milestones", epoch, 0) for epoch in milestones])
    return Schedule(optimizer, lambda step: gamma ** bisect_right(epochs, step - 1))


def ExponentialLR(optimizer: Optimizer, gamma: float) -> Schedule:
    """Return a schedule that multiplies the rate by `gamma` in each epoch.

    Parameters: as `MultiStepLR`.
    """
    checked_number("ExponentialLR", "gamma", gamma)
    return Schedule(optimizer, lambda step: gamma ** (step - 1))


class OneCycleLR(Schedule):
    """Schedule that rises to `max_lr` and falls far below its start, with momentum against it.

    Parameters: as `torch.optim.lr_scheduler.OneCycleLR`.

    References
    ----------
    Smith, Topin (2018), arXiv:1708.07120.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        name, groups = "OneCycleLR", optimizer.param_groups
        check_choice(name, "anneal_strategy", anneal_strategy, "cos", "linear")
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError(
                    f"{name}: total_steps must be given, or epochs and steps_per_epoch, got "
                    f"{epochs} and {steps_per_epoch}"
                )
            total_steps = checked_count(name, "epochs", epochs)
            total_steps *= checked_count(name, "steps_per_epoch", steps_per_epoch)
        self.total_steps = checked_count(name, "total_steps", total_steps)
        checked_number(name, "pct_start", pct_start, high=1.0)
        if not 1 < pct_start * total_steps < total_steps:
            raise ValueError(
                f"{name}: pct_start * total_steps must be between 1 and {total_steps}, got "
                f"{pct_start * total_steps}"
            )
        rates = [max_lr] * len(groups) if isinstance(max_lr, (int, float)) else list(max_lr)
        if len(rates) != len(groups):
            raise ValueError(f"{name}: max_lr must have {len(groups)} rates, got {len(rates)}")
        if cycle_momentum and not all(group.get("momentum", 1) for group in groups):
            raise ValueError(
                f"{name}: optimizer must have momentum with cycle_momentum, got momentum 0; make "
                "the optimizer with momentum=0.9, or pass cycle_momentum=False"
            )
        for group, rate in zip(groups, rates):
            group["lr"] = group["initial_lr"] = checked_number(name, "max_lr", rate)
        self.is_linear, self.cycle_momentum = anneal_strategy == "linear", cycle_momentum
        first, top, end = 1 / div_factor, pct_start * total_steps - 1, self.total_steps - 1
        last = first / final_div_factor
        base, high = base_momentum, max_momentum
        self.points = [(0.0, first, high), (top, 1.0, base), (end, last, high)]
        if three_phase:
            self.points[2:] = [(2 * top, first, high), (end, last, high)]
        super().__init__(optimizer, lambda step: self._at(step)[0], is_absolute=True)

    def _at(self, step: int) -> tuple[float, float]:
        """Return the factor of the rate, and the momentum."""
        if step > self.total_steps:
            raise ValueError(
                f"OneCycleLR: total_steps must be at least the number of steps, got "
                f"{self.total_steps} and step {step}"
            )
        ends = [point[0] for point in self.points[1:-1]]
        i = bisect_left(ends, step - 1)
        (start, *low), (end, *high) = self.points[i : i + 2]
        done = (step - 1 - start) / (end - start)
        if not self.is_linear:
            done = (1 - math.cos(math.pi * done)) / 2
        factor, momentum = (a + (b - a) * done for a, b in zip(low, high))
        return factor, momentum

    def _apply(self, count: int, rates: Sequence[float]) -> None:
        super()._apply(count, rates)
        for group in self.optimizer.param_groups if self.cycle_momentum else ():
            momentum = self._at(count)[1]
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            else:
                group["momentum"] = momentum


class SequentialLR:
    """Schedules that follow each other.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : sequence of Schedule
        Schedules of this optimizer.
    milestones : sequence of int
        Epochs at which the next schedule begins, counted from 0.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[Schedule], milestones: Sequence[int]
    ) -> None:
        self.optimizer, self.schedulers = optimizer, list(schedulers)
        self.milestones, self.count = list(milestones), 1
        if len(self.milestones) != len(self.schedulers) - 1:
            raise ValueError(
                f"SequentialLR: milestones must have {len(self.schedulers) - 1} epochs for "
                f"{len(self.schedulers)} schedulers, got {self.milestones}"
            )
        self.schedulers[0].set(1)

    def get_last_lr(self) -> list[float]:
        """Return the current learning rate of each parameter group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self) -> None:
        """Set the learning rates of the next epoch."""
        self._set(self.count + 1)

    def _set(self, count: int) -> None:
        i = bisect_right(self.milestones, count - 1)
        begin = self.milestones[i - 1] if i else 0
        self.schedulers[i].set(count - begin)
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the epoch, from 1, as plain data."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Parameters
        ----------
        state : dict
            Result of `state_dict`.
        """
        self._set(state["count"])


if not _typing.TYPE_CHECKING:  # type checkers report a missing name

    def __getattr__(name: str) -> _typing.NoReturn:
        from ...check.missing import missing

        missing(__name__, name)

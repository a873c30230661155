"""Learning rates that change from step to step.

A schedule sets the learning rates of its optimizer for the step to come: `step()` is called after
the optimizer's. Those that PyTorch has too bear its names and take its arguments; what it calls an
epoch is whatever passes between two calls of `step`.
"""

from __future__ import annotations

import math
import typing as _typing
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..ops.axes import check_choice
from .optimizer import Optimizer
from .settings import checked_count, checked_number

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "Schedule",
    "SequentialLR",
    "StepLR",
    "cosine_schedule",
    "inverse_sqrt_schedule",
    "linear_schedule",
    "noam_schedule",
]


class Schedule:
    """Sets the learning rate of every group to its own times `factor(step)`, for steps 1, 2, 3, ..."""

    def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]) -> None:
        self.factor: Any = factor  # of ConstantLR a number
        self._begin(optimizer)

    def _begin(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.base = [group["lr"] for group in optimizer.param_groups]
        self.set(1)

    @property
    def lr(self) -> float:
        """The learning rate of the first group."""
        return self.optimizer.param_groups[0]["lr"]

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self) -> None:
        """Go on to the next step: call it after the optimizer's."""
        self.set(self.count + 1)

    def set(self, count: int) -> None:
        """Go to this step, of 1, 2, 3, ..."""
        self.count = checked_count(type(self).__name__, "count", count)
        for group, rate in zip(self.optimizer.param_groups, self.rates(count)):
            group["lr"] = checked_number(
                type(self).__name__, f"learning rate at step {count}", rate
            )

    def rates(self, count: int) -> list[float]:
        """The learning rate of each group at a step, of 1, 2, 3, ..."""
        return [base * self.factor(count) for base in self.base]

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule is."""
        return {"count": self.count, "base": list(self.base)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.base = list(state["base"])
        self.set(state["count"])


# -- factors for `Schedule` and `Trainer`
# --------------------------------------------------------------


def noam_schedule(d_model: int, warmup: int = 4000) -> Callable[[int], float]:
    """d_model^-½ · min(step^-½, step · warmup^-1½): the paper's section 5.3; use it with lr=1."""
    checked_count("noam_schedule", "d_model", d_model)
    checked_count("noam_schedule", "warmup", warmup)
    return partial(_noam, d_model, warmup)


def _noam(d_model: int, warmup: int, step: int) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def inverse_sqrt_schedule(warmup: int = 4000) -> Callable[[int], float]:
    """Up to 1 in `warmup` steps, then down as the inverse of the root of the step."""
    checked_count("inverse_sqrt_schedule", "warmup", warmup)
    return partial(_inverse_sqrt, warmup)


def _inverse_sqrt(warmup: int, step: int) -> float:
    return min(step / warmup, (warmup / step) ** 0.5)


def cosine_schedule(total: int, warmup: int = 0, final: float = 0.0) -> Callable[[int], float]:
    """Up to 1 in `warmup` steps, then down half a cosine to `final` at step `total`."""
    return _warmed_up("cosine_schedule", total, warmup, final, _half_cosine)


def linear_schedule(total: int, warmup: int = 0, final: float = 0.0) -> Callable[[int], float]:
    """Up to 1 in `warmup` steps, then straight down to `final` at step `total`."""
    return _warmed_up("linear_schedule", total, warmup, final, _line)


def _warmed_up(
    name: str, total: int, warmup: int, final: float, shape: Callable[..., float]
) -> Callable[[int], float]:
    checked_count(name, "total", total)
    checked_count(name, "warmup", warmup, 0)
    checked_number(name, "final", final)
    if warmup >= total:
        raise ValueError(
            f"{name}: expected a warmup shorter than total, got warmup={warmup} and total={total}"
        )
    return partial(_up_and_down, total, warmup, final, shape)


def _up_and_down(
    total: int, warmup: int, final: float, shape: Callable[..., float], step: int
) -> float:
    if step < warmup:
        return step / warmup
    return final + (1 - final) * shape(1.0, 0.0, min(1.0, (step - warmup) / (total - warmup)))


def _half_cosine(start: float, end: float, done: float) -> float:
    """From `start` to `end`, as `done` goes from 0 to 1, and back."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * done))


def _line(start: float, end: float, done: float) -> float:
    return start + (end - start) * done


# -- by the names that PyTorch gave them
# -----------------------------------------------------------------


class LambdaLR(Schedule):
    """The group's own learning rate times `lr_lambda(epoch)`, or one function for each group;
    epochs from 0.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
    ):
        many = len(optimizer.param_groups)
        self.lambdas = [lr_lambda] * many if callable(lr_lambda) else list(lr_lambda)
        if len(self.lambdas) != many:
            raise ValueError(
                f"LambdaLR: expected one function, or {many} for {many} groups, got "
                f"{len(self.lambdas)}"
            )
        self._begin(optimizer)

    def rates(self, count: int) -> list[float]:
        return [base * factor(count - 1) for base, factor in zip(self.base, self.lambdas)]


class _ByEpoch(Schedule):
    """A schedule given by a formula of the group's own learning rate and the epoch, from 0."""

    def rates(self, count: int) -> list[float]:
        return [self._rate(base, count - 1) for base in self.base]

    def _rate(self, base: float, epoch: int) -> float:
        raise NotImplementedError


class StepLR(_ByEpoch):
    """Times `gamma` every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size = checked_count("StepLR", "step_size", step_size)
        self.gamma = checked_number("StepLR", "gamma", gamma)
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        return base * self.gamma ** (epoch // self.step_size)


class MultiStepLR(_ByEpoch):
    """Times `gamma` at each of the epochs `milestones`."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones = sorted(
            checked_count("MultiStepLR", "milestones", m, 0) for m in milestones
        )
        self.gamma = checked_number("MultiStepLR", "gamma", gamma)
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, epoch)


class ExponentialLR(_ByEpoch):
    """Times `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = checked_number("ExponentialLR", "gamma", gamma)
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        return base * self.gamma**epoch


class LinearLR(_ByEpoch):
    """The factor goes in a line from `start_factor` to `end_factor` in `total_iters` epochs, and
    stays.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:
        self.start_factor = checked_number("LinearLR", "start_factor", start_factor, above=True)
        self.end_factor = checked_number("LinearLR", "end_factor", end_factor)
        self.total_iters = checked_count("LinearLR", "total_iters", total_iters)
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        return base * _line(self.start_factor, self.end_factor, min(1.0, epoch / self.total_iters))


class ConstantLR(_ByEpoch):
    """Times `factor` in the first `total_iters` epochs, then as it is."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        self.factor = checked_number("ConstantLR", "factor", factor)
        self.total_iters = checked_count("ConstantLR", "total_iters", total_iters, 0)
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        return base * (self.factor if epoch < self.total_iters else 1.0)


class PolynomialLR(_ByEpoch):
    """Down to 0 as (1 - epoch / total_iters)^power."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        self.total_iters = checked_count("PolynomialLR", "total_iters", total_iters)
        self.power = checked_number("PolynomialLR", "power", power)
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        return base * (1 - min(1.0, epoch / self.total_iters)) ** self.power


class CosineAnnealingLR(_ByEpoch):
    """Down half a cosine to `eta_min` in `T_max` epochs, and up again: Loshchilov, Hutter (2017),
    arXiv:1608.03983.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max = checked_count("CosineAnnealingLR", "T_max", T_max)
        self.eta_min = checked_number("CosineAnnealingLR", "eta_min", eta_min)
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        return _half_cosine(base, self.eta_min, epoch / self.T_max)


class CosineAnnealingWarmRestarts(_ByEpoch):
    """Half a cosine down to `eta_min` in `T_0` epochs, then anew, each `T_mult` times as long:
    arXiv:1608.03983.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0
    ) -> None:
        self.T_0 = checked_count("CosineAnnealingWarmRestarts", "T_0", T_0)
        self.T_mult = checked_count("CosineAnnealingWarmRestarts", "T_mult", T_mult)
        self.eta_min = checked_number("CosineAnnealingWarmRestarts", "eta_min", eta_min)
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        length = self.T_0
        if self.T_mult == 1:
            epoch %= length
        while epoch >= length:
            epoch, length = epoch - length, length * self.T_mult
        return _half_cosine(base, self.eta_min, epoch / length)


class OneCycleLR(_ByEpoch):
    """Up to `max_lr`, then down to nearly nothing, in `total_steps`: Smith, Topin (2017),
    arXiv:1708.07120.

    From max_lr / div_factor up in the fraction `pct_start` of the steps, then down to that start
    divided by `final_div_factor`; "cos" or "linear". PyTorch's moves the momentum the other way as
    well, by default; this one leaves it alone.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> None:
        check_choice("OneCycleLR", "anneal_strategy", anneal_strategy, "cos", "linear")
        self.anneal = _line if anneal_strategy == "linear" else _half_cosine
        self.total_steps = checked_count("OneCycleLR", "total_steps", total_steps, 2)
        self.max_lr = checked_number("OneCycleLR", "max_lr", max_lr)
        self.first = self.max_lr / checked_number(
            "OneCycleLR", "div_factor", div_factor, above=True
        )
        self.last = self.first / checked_number(
            "OneCycleLR", "final_div_factor", final_div_factor, above=True
        )
        self.peak = checked_number("OneCycleLR", "pct_start", pct_start, high=1.0) * total_steps - 1
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        if epoch > self.total_steps:
            raise ValueError(
                f"OneCycleLR: epoch {epoch} is past the {self.total_steps} steps it was made for"
            )
        if epoch <= self.peak:
            return self.anneal(self.first, self.max_lr, epoch / self.peak if self.peak > 0 else 1.0)
        done = (epoch - self.peak) / (self.total_steps - 1 - self.peak)
        return self.anneal(
            self.max_lr, self.last, min(done, 1.0)
        )  # one call of `step` comes after the last step


class SequentialLR(Schedule):
    """One schedule after another: `schedulers[i]` until the epoch `milestones[i]`, each counting
    from its own start.

    The schedules are to be made in this order: the first knows the learning rates that all begin
    with.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[Schedule], milestones: Sequence[int]
    ) -> None:
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        if len(self.schedulers) != len(self.milestones) + 1:
            many = f"{len(self.milestones)} for {len(self.schedulers)}"
            raise ValueError(
                f"SequentialLR: expected one milestone less than schedulers, got {many}"
            )
        if any(s.optimizer is not optimizer for s in self.schedulers):
            raise ValueError("SequentialLR: a schedule belongs to another optimizer")
        for group, base in zip(optimizer.param_groups, self.schedulers[0].base):
            group["lr"] = base
        for schedule in self.schedulers:
            schedule.base = list(self.schedulers[0].base)
        self._begin(optimizer)

    def rates(self, count: int) -> list[float]:
        i = bisect_right(self.milestones, count - 1)
        return self.schedulers[i].rates(count - (self.milestones[i - 1] if i else 0))


class ReduceLROnPlateau:
    """Times `factor` when what `step(metric)` is given has not become better for more than
    `patience` calls.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        check_choice("ReduceLROnPlateau", "mode", mode, "min", "max")
        check_choice("ReduceLROnPlateau", "threshold_mode", threshold_mode, "rel", "abs")
        self.optimizer, self.mode, self.threshold_mode = optimizer, mode, threshold_mode
        self.factor = checked_number("ReduceLROnPlateau", "factor", factor, high=1.0)
        self.patience = checked_count("ReduceLROnPlateau", "patience", patience, 0)
        self.threshold = checked_number("ReduceLROnPlateau", "threshold", threshold)
        self.cooldown = checked_count("ReduceLROnPlateau", "cooldown", cooldown, 0)
        self.min_lr = checked_number("ReduceLROnPlateau", "min_lr", min_lr)
        self.best = math.inf if mode == "min" else -math.inf
        self.bad = self.resting = 0

    def step(self, metric: float) -> None:
        """Note a new value of the metric, and lower the learning rates if it is time."""
        if math.isnan(metric):
            raise ValueError("ReduceLROnPlateau: the metric is NaN")
        known = 0.0 if math.isinf(self.best) else self.best
        margin = self.threshold * (known if self.threshold_mode == "rel" else 1.0)
        better = metric < self.best - margin if self.mode == "min" else metric > self.best + margin
        self.best = float(metric) if better else self.best
        self.bad = 0 if better else self.bad + 1
        if self.resting:
            self.resting, self.bad = self.resting - 1, 0
        if self.bad > self.patience:
            for group in self.optimizer.param_groups:
                group["lr"] = max(group["lr"] * self.factor, self.min_lr)
            self.resting, self.bad = self.cooldown, 0

    def state_dict(self) -> dict[str, Any]:
        """The best metric and the counts."""
        return {"best": self.best, "bad": self.bad, "resting": self.resting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.best, self.bad, self.resting = state["best"], state["bad"], state["resting"]


if not _typing.TYPE_CHECKING:  # for type checkers a name that is not here is an error

    def __getattr__(name: str) -> _typing.NoReturn:
        from ..missing import missing

        missing("minigrad.optim.lr_scheduler", name)

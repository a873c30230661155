"""Learning rates that change from step to step.

A schedule sets the learning rates of its optimizer for the step to come: call its `step()` after
the optimizer's. Schedules that PyTorch has too have its names, its arguments and its rates; an
epoch is whatever passes between two calls of `step()`.
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
    """Learning rates that follow `factor(step)`, for steps 1, 2, 3, ...

    Each step multiplies the learning rate of every group by factor(step) / factor(step - 1). So
    several schedules of one optimizer multiply, and a rate that was set by hand is the one that
    they go on from. `initial_lr` in a group is the rate that it had before its first schedule.

    Parameters
    ----------
    optimizer : Optimizer
        Its `param_groups` are changed, by this call for the first step.
    factor : function
        Takes the number of a step, from 1, and returns a float.
    """

    floor = 0.0  # what the rates approach, and factors are relative to
    factor: Any

    def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]) -> None:
        self.factor = factor
        self._begin(optimizer)

    def _begin(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        groups = optimizer.param_groups
        self.base = [group.setdefault("initial_lr", group["lr"]) for group in groups]
        self.count, self._last = 0, 1.0  # the factor of the step before
        self.step()

    def _at(self, epoch: int) -> float:
        """Return the factor at an epoch, from 0."""
        return self.factor(epoch + 1)

    @property
    def lr(self) -> float:
        """The learning rate of the first group."""
        return self.optimizer.param_groups[0]["lr"]

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self) -> None:
        """Go on to the next step."""
        last, now = self._last, self._at(self.count)
        rates = [
            # from the floor there is no way back by a ratio
            rate + (base - self.floor) * now
            if last == 0
            else self.floor + (rate - self.floor) * (now / last)
            for rate, base in zip(self.get_last_lr(), self.base)
        ]
        self._apply(self.count + 1, rates)
        self._last = now

    def set(self, count: int) -> None:
        """Go to this step, of 1, 2, 3, ...: to the rates that one schedule alone has there."""
        self._apply(count, self.rates(count))
        self._last = self._at(count - 1)

    def rates(self, count: int) -> list[float]:
        """Return the rate of each group at a step, of 1, 2, 3, ..., for one schedule alone."""
        factor = self._at(count - 1)
        return [self.floor + (base - self.floor) * factor for base in self.base]

    def _apply(self, count: int, rates: Sequence[float]) -> None:
        name = type(self).__name__
        self.count = checked_count(name, "count", count)
        rates = [checked_number(name, f"learning rate at step {count}", rate) for rate in rates]
        groups = self.optimizer.param_groups
        if len(groups) != len(rates):
            raise ValueError(
                f"{name}: expected {len(rates)} parameter groups, got {len(groups)}; make the "
                "schedule after add_param_group()"
            )
        for group, rate in zip(groups, rates):
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        """Return the step, the rates of the groups, and their rates before any schedule."""
        return {"count": self.count, "base": list(self.base), "lr": self.get_last_lr()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`, before or after the optimizer's state is loaded."""
        self.base = list(state["base"])
        self.set(state["count"])
        self._apply(self.count, state.get("lr", self.get_last_lr()))  # version 0.2 saved no rates
        for group, base in zip(self.optimizer.param_groups, self.base):
            group["initial_lr"] = base


# -- factors for `Schedule` and `Trainer`


def noam_schedule(d_model: int, warmup: int = 4000) -> Callable[[int], float]:
    """Return d_model^-½ · min(step^-½, step · warmup^-1½), the paper's section 5.3, for lr=1."""
    checked_count("noam_schedule", "d_model", d_model)
    checked_count("noam_schedule", "warmup", warmup)
    return partial(_noam, d_model, warmup)


def _noam(d_model: int, warmup: int, step: int) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def inverse_sqrt_schedule(warmup: int = 4000) -> Callable[[int], float]:
    """Return a factor that rises to 1 in `warmup` steps, and falls as the root of the step."""
    checked_count("inverse_sqrt_schedule", "warmup", warmup)
    return partial(_inverse_sqrt, warmup)


def _inverse_sqrt(warmup: int, step: int) -> float:
    return min(step / warmup, (warmup / step) ** 0.5)


def cosine_schedule(total: int, warmup: int = 0, final: float = 0.0) -> Callable[[int], float]:
    """Return a factor that rises to 1 in `warmup` steps, and falls by half a cosine to `final`."""
    return _warmed_up("cosine_schedule", total, warmup, final, _half_cosine)


def linear_schedule(total: int, warmup: int = 0, final: float = 0.0) -> Callable[[int], float]:
    """Return a factor that rises to 1 in `warmup` steps, and falls in a line to `final`."""
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
    """Return the value between `start` and `end` as `done` goes from 0 to 1, and back."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * done))


def _line(start: float, end: float, done: float) -> float:
    return start + (end - start) * done


# -- schedules whose factors multiply, by the names that PyTorch gave them


class StepLR(Schedule):
    """Multiply the rate by `gamma` every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size = checked_count("StepLR", "step_size", step_size)
        self.gamma = checked_number("StepLR", "gamma", gamma)
        self._begin(optimizer)

    def _at(self, epoch: int) -> float:
        return self.gamma ** (epoch // self.step_size)


class MultiStepLR(Schedule):
    """Multiply the rate by `gamma` at each of the epochs `milestones`."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        name = "MultiStepLR"
        self.milestones = sorted(checked_count(name, "milestones", m, 0) for m in milestones)
        self.gamma = checked_number(name, "gamma", gamma)
        self._begin(optimizer)

    def _at(self, epoch: int) -> float:
        return self.gamma ** bisect_right(self.milestones, epoch)


class ExponentialLR(Schedule):
    """Multiply the rate by `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = checked_number("ExponentialLR", "gamma", gamma)
        self._begin(optimizer)

    def _at(self, epoch: int) -> float:
        return self.gamma**epoch


class LinearLR(Schedule):
    """Change the factor in a line from `start_factor` to `end_factor` in `total_iters` epochs."""

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

    def _at(self, epoch: int) -> float:
        return _line(self.start_factor, self.end_factor, min(1.0, epoch / self.total_iters))


class ConstantLR(Schedule):
    """Multiply the rate by `factor` in the first `total_iters` epochs, then no longer."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        self.factor = checked_number("ConstantLR", "factor", factor)
        self.total_iters = checked_count("ConstantLR", "total_iters", total_iters, 0)
        self._begin(optimizer)

    def _at(self, epoch: int) -> float:
        return self.factor if epoch < self.total_iters else 1.0


class PolynomialLR(Schedule):
    """Lower the factor to 0 as (1 - epoch / total_iters)^power."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        self.total_iters = checked_count("PolynomialLR", "total_iters", total_iters)
        self.power = checked_number("PolynomialLR", "power", power)
        self._begin(optimizer)

    def _at(self, epoch: int) -> float:
        return (1 - min(1.0, epoch / self.total_iters)) ** self.power


class CosineAnnealingLR(Schedule):
    """Lower the rate by half a cosine to `eta_min` in `T_max` epochs, and raise it again.

    References
    ----------
    Loshchilov, Hutter (2017), arXiv:1608.03983.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max = checked_count("CosineAnnealingLR", "T_max", T_max)
        self.eta_min = self.floor = checked_number("CosineAnnealingLR", "eta_min", eta_min)
        self._begin(optimizer)

    def _at(self, epoch: int) -> float:
        return _half_cosine(1.0, 0.0, epoch / self.T_max)


# -- schedules that set the rate, whatever it was: they do so in PyTorch too


class _Absolute(Schedule):
    """A schedule whose rates are formulas of `initial_lr` and the epoch alone."""

    def step(self) -> None:
        self.set(self.count + 1)

    def set(self, count: int) -> None:
        self._apply(count, self.rates(count))

    def rates(self, count: int) -> list[float]:
        return [self._rate(base, count - 1) for base in self.base]

    def _rate(self, base: float, epoch: int) -> float:
        raise NotImplementedError


class LambdaLR(_Absolute):
    """Set the rate to `initial_lr` times `lr_lambda(epoch)`, or one function for each group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
    ) -> None:
        size = len(optimizer.param_groups)
        self.lambdas = [lr_lambda] * size if callable(lr_lambda) else list(lr_lambda)
        if len(self.lambdas) != size:
            raise ValueError(
                f"LambdaLR: expected one function, or {size} for {size} groups, got "
                f"{len(self.lambdas)}"
            )
        self._begin(optimizer)

    def rates(self, count: int) -> list[float]:
        return [base * factor(count - 1) for base, factor in zip(self.base, self.lambdas)]


class CosineAnnealingWarmRestarts(_Absolute):
    """Lower the rate by half a cosine to `eta_min` in `T_0` epochs, then anew.

    Each time takes `T_mult` times as long as the one before.

    References
    ----------
    Loshchilov, Hutter (2017), arXiv:1608.03983.
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


class OneCycleLR(_Absolute):
    """Raise the rate to `max_lr`, then lower it to nearly 0, in `total_steps`.

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float
        The largest rate.
    total_steps : int
    pct_start : float
        The fraction of the steps in which the rate rises.
    anneal_strategy : {"cos", "linear"}
    div_factor, final_div_factor : float
        The first rate is max_lr / div_factor; the last is that / final_div_factor.
    cycle_momentum : bool
        Must be False: the momentum is left as it is. (True is PyTorch's default.)

    References
    ----------
    Smith, Topin (2017), arXiv:1708.07120.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        *,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        cycle_momentum: bool = True,
    ) -> None:
        name = "OneCycleLR"
        if cycle_momentum:
            raise ValueError(
                f"{name}: cycle_momentum must be False, got {cycle_momentum!r}; this schedule "
                "leaves the momentum as it is: pass cycle_momentum=False"
            )
        check_choice(name, "anneal_strategy", anneal_strategy, "cos", "linear")
        self.anneal = _line if anneal_strategy == "linear" else _half_cosine
        self.total_steps = checked_count(name, "total_steps", total_steps, 2)
        self.max_lr = checked_number(name, "max_lr", max_lr)
        first = self.max_lr / checked_number(name, "div_factor", div_factor, above=True)
        self.last = first / checked_number(name, "final_div_factor", final_div_factor, above=True)
        self.peak = checked_number(name, "pct_start", pct_start, high=1.0) * total_steps - 1
        for group in optimizer.param_groups:
            group["initial_lr"] = first
        self._begin(optimizer)

    def _rate(self, base: float, epoch: int) -> float:
        if epoch > self.total_steps:
            raise ValueError(
                f"OneCycleLR: epoch {epoch} is past the {self.total_steps} steps it was made for"
            )
        if epoch <= self.peak:
            return self.anneal(base, self.max_lr, epoch / self.peak if self.peak > 0 else 1.0)
        done = (epoch - self.peak) / (self.total_steps - 1 - self.peak)
        return self.anneal(
            self.max_lr, self.last, min(done, 1.0)
        )  # one call of `step` comes after the last step


class SequentialLR(Schedule):
    """One schedule after another: `schedulers[i]` until the epoch `milestones[i]`.

    Each begins with `initial_lr` and counts from its own start.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[Schedule], milestones: Sequence[int]
    ) -> None:
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        if len(self.schedulers) != len(self.milestones) + 1:
            sizes = f"{len(self.milestones)} for {len(self.schedulers)}"
            raise ValueError(
                f"SequentialLR: expected one milestone less than schedulers, got {sizes}"
            )
        for schedule in self.schedulers:
            if not isinstance(schedule, Schedule):
                raise TypeError(f"SequentialLR: expected schedules, got {schedule!r:.80}")
            if schedule.optimizer is not optimizer:
                raise ValueError("SequentialLR: a schedule belongs to another optimizer")
        self.optimizer, self.base = optimizer, self.schedulers[0].base
        self.set(1)

    def step(self) -> None:
        i, start = self._place(self.count + 1)
        if start == self.count:  # its first step
            self.schedulers[i].set(1)
        else:
            self.schedulers[i].step()
        self.count += 1

    def set(self, count: int) -> None:
        i, start = self._place(count)
        self.schedulers[i].set(count - start)
        self.count = count

    def rates(self, count: int) -> list[float]:
        i, start = self._place(count)
        return self.schedulers[i].rates(count - start)

    def _place(self, count: int) -> tuple[int, int]:
        """Return which schedule a step belongs to, and how many steps there were before it."""
        i = bisect_right(self.milestones, count - 1)
        return i, self.milestones[i - 1] if i else 0

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for schedule in self.schedulers:
            schedule.base = list(state["base"])
        super().load_state_dict(state)


class ReduceLROnPlateau:
    """Multiply the rate by `factor` if a metric has not improved for `patience` calls of `step`.

    Parameters
    ----------
    optimizer : Optimizer
    mode : {"min", "max"}
        Whether smaller or larger metrics are better.
    factor : float
    patience : int
        The number of calls without improvement that are allowed.
    threshold : float
        The least improvement that counts.
    threshold_mode : {"rel", "abs"}
        Whether `threshold` is a fraction of the best metric.
    cooldown : int
        The number of calls after a reduction in which nothing is counted.
    min_lr : float
        The rate does not go below this.
    eps : float
        A reduction by no more than this is left out.
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
        eps: float = 1e-8,
    ) -> None:
        name = "ReduceLROnPlateau"
        check_choice(name, "mode", mode, "min", "max")
        check_choice(name, "threshold_mode", threshold_mode, "rel", "abs")
        self.optimizer, self.mode, self.threshold_mode = optimizer, mode, threshold_mode
        self.factor = checked_number(name, "factor", factor, high=1.0)
        self.patience = checked_count(name, "patience", patience, 0)
        self.threshold = checked_number(name, "threshold", threshold)
        self.cooldown = checked_count(name, "cooldown", cooldown, 0)
        self.min_lr = checked_number(name, "min_lr", min_lr)
        self.eps = checked_number(name, "eps", eps)
        self.best = math.inf if mode == "min" else -math.inf
        self.bad = self.resting = 0

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

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
                lower = max(group["lr"] * self.factor, self.min_lr)
                if group["lr"] - lower > self.eps:
                    group["lr"] = lower
            self.resting, self.bad = self.cooldown, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the best metric (None before the first) and the counts."""
        best = None if math.isinf(self.best) else self.best
        return {"best": best, "bad": self.bad, "resting": self.resting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        worst = math.inf if self.mode == "min" else -math.inf
        self.best = worst if state["best"] is None else state["best"]
        self.bad, self.resting = state["bad"], state["resting"]


if not _typing.TYPE_CHECKING:  # for type checkers a name that is not here is an error

    def __getattr__(name: str) -> _typing.NoReturn:
        from ..advice import missing

        missing("minigrad.optim.lr_scheduler", name)

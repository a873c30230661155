"""Learning-rate schedules: functions of the step, and their application to an optimizer.

A `Schedule` sets the learning rates of its optimizer for the next step. Call its `step()` after
`step()` of the optimizer. Functions with PyTorch's names, such as `StepLR`, return a `Schedule`
with PyTorch's arguments and rates. An epoch is the time between two calls of `step()`, counted
from 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from ..arguments import check_choice, checked_count, checked_number
from ..optimizer import Optimizer
from ..optimizer import noam_schedule as noam_schedule

__all__ = [
    "CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR",
    "ReduceLROnPlateau", "Schedule", "SequentialLR", "StepLR", "cosine_schedule",
    "inverse_sqrt_schedule", "linear_schedule", "noam_schedule",
]  # fmt: skip

Factor = Callable[[int], float]


class _Rates:
    optimizer: Optimizer

    def get_last_lr(self) -> list[float]:
        """Return the current learning rate of each parameter group."""
        return [group["lr"] for group in self.optimizer.param_groups]


class Schedule(_Rates):
    """Learning rates floor + (initial_lr - floor) * factor(step), for steps 1, 2, 3, ...

    By default each call of `step` multiplies the distance of the learning rates from `floor` by
    factor(step) / factor(step - 1). So the factors of several schedules of one optimizer multiply,
    and a rate that was set by hand is scaled afterwards. `initial_lr` of a parameter group is its
    learning rate before its first schedule.

    Parameters
    ----------
    optimizer : Optimizer
        The learning rates of its `param_groups` are set for step 1 at once.
    factor : function of int, or list of functions
        Returns the factor of a step, from 1; a list has a function for each parameter group.
    floor : float
        Learning rate for the factor 0; 0 by default.
    is_absolute : bool
        Compute the rates from `initial_lr` alone, not from the current rates; False by default.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: Factor | Sequence[Factor],
        *,
        floor: float = 0.0,
        is_absolute: bool = False,
    ) -> None:
        groups = optimizer.param_groups
        self.optimizer, self.floor, self.is_absolute = optimizer, floor, is_absolute
        self.factors = [factor] * len(groups) if callable(factor) else list(factor)
        for group in groups:
            group.setdefault("initial_lr", group["lr"])
        self.base = [group["initial_lr"] for group in groups]
        if len(self.factors) != len(groups):
            raise ValueError(
                f"Schedule: factor must be one function, or {len(groups)} for {len(groups)} "
                f"parameter groups, got {len(self.factors)}"
            )
        self.count = 0
        self._last = [1.0] * len(groups)  # the factors of the step before
        self.step()

    @property
    def lr(self) -> float:
        """Learning rate of the first parameter group."""
        return self.optimizer.param_groups[0]["lr"]

    def step(self) -> None:
        """Set the learning rates of the next step."""
        count = self.count + 1
        if self.is_absolute:
            self.set(count)
            return
        factors = [factor(count) for factor in self.factors]
        rates = [
            # a ratio cannot change a rate at the floor
            rate + (base - self.floor) * factor
            if last == 0
            else self.floor + (rate - self.floor) * (factor / last)
            for rate, base, factor, last in zip(self.get_last_lr(), self.base, factors, self._last)
        ]
        self._apply(count, rates)
        self._last = factors

    def set(self, count: int) -> None:
        """Set the rates that this schedule alone has at a step.

        Parameters
        ----------
        count : int
            Number of the step, from 1.
        """
        self._apply(count, self.rates(count))
        self._last = [factor(count) for factor in self.factors]

    def rates(self, count: int) -> list[float]:
        """Return the rates that this schedule alone has at a step.

        Parameters: as `set`.
        """
        pairs = zip(self.base, self.factors)
        return [self.floor + (base - self.floor) * factor(count) for base, factor in pairs]

    def _apply(self, count: int, rates: Sequence[float]) -> None:
        count = checked_count("Schedule", "count", count)
        groups = self.optimizer.param_groups
        if len(groups) != len(rates):
            raise ValueError(
                f"Schedule: optimizer must have {len(rates)} parameter groups, got {len(groups)}. "
                "Make the schedule after add_param_group()"
            )
        name = f"the learning rate at step {count}"
        for group, rate in zip(groups, [checked_number("Schedule", name, r) for r in rates]):
            group["lr"] = rate
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        """Return the step, and the rates of the groups now and before any schedule, as data."""
        return {"count": self.count, "base": list(self.base), "lr": self.get_last_lr()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`, before or after the optimizer continues.

        Parameters
        ----------
        state : dict
            Result of `state_dict`.
        """
        last = [factor(state["count"]) for factor in self.factors]
        self._apply(state["count"], state["lr"])  # raises an error for other groups
        self.base, self._last = list(state["base"]), last
        for group, base in zip(self.optimizer.param_groups, self.base):
            group["initial_lr"] = base


# -- factors for `Schedule` and `Trainer`


def inverse_sqrt_schedule(warmup: int = 4000) -> Factor:
    """Return a function of the step: it rises to 1 in a line, then falls as 1 / sqrt(step).

    Parameters
    ----------
    warmup : int
        The step at which the factor is 1; 4000 by default.
    """
    checked_count("inverse_sqrt_schedule", "warmup", warmup)
    return lambda step: min(step / warmup, (warmup / step) ** 0.5)


def cosine_schedule(total: int, warmup: int = 0, final: float = 0.0) -> Factor:
    """Return a function of the step: it rises to 1 in a line, then falls by half a cosine.

    Parameters
    ----------
    total : int
        Number of steps. After the last one the factor is `final`.
    warmup : int
        Steps in which the factor rises; 0 by default.
    final : float
        Factor after the last step; 0 by default.
    """
    return _warmed_up("cosine_schedule", total, warmup, final, _half_cosine)


def linear_schedule(total: int, warmup: int = 0, final: float = 0.0) -> Factor:
    """Return a function of the step: it rises to 1 in a line, then falls to `final` in a line.

    Parameters: as `cosine_schedule`.
    """
    return _warmed_up("linear_schedule", total, warmup, final, _line)


def _warmed_up(
    name: str, total: int, warmup: int, final: float, curve: Callable[..., float]
) -> Factor:
    checked_count(name, "total", total)
    checked_count(name, "warmup", warmup, 0)
    checked_number(name, "final", final)
    if warmup >= total:
        raise ValueError(f"{name}: warmup must be less than total ({total}), got {warmup}")

    def factor(step: int) -> float:
        if step <= warmup:
            return step / warmup
        done = min(1.0, (step - 1 - warmup) / (total - warmup))
        return curve(1.0, final, done)

    return factor


def _half_cosine(start: float, end: float, done: float) -> float:
    """Return the value of half a cosine from `start` (for `done` = 0) to `end` (for 1)."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * done))


def _line(start: float, end: float, done: float) -> float:
    return start + (end - start) * done


# -- schedules by PyTorch's names; their epoch is step - 1


def StepLR(optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> Schedule:
    """Return a schedule that multiplies the rate by `gamma` every `step_size` epochs.

    Parameters
    ----------
    optimizer : Optimizer
    step_size : int
        Number of epochs between reductions.
    gamma : float
        Factor of each reduction; 0.1 by default.
    """
    checked_count("StepLR", "step_size", step_size)
    checked_number("StepLR", "gamma", gamma)
    return Schedule(optimizer, lambda step: gamma ** ((step - 1) // step_size))


def MultiStepLR(optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """Return a schedule that multiplies the rate by `gamma` at each milestone.

    Other parameters: as `StepLR`.

    Parameters
    ----------
    milestones : sequence of int
        Epochs from which on the rate is lower; an epoch that occurs twice counts twice.
    """
    checked_number("MultiStepLR", "gamma", gamma)
    epochs = sorted([checked_count("MultiStepLR", "milestones", epoch, 0) for epoch in milestones])
    return Schedule(optimizer, lambda step: gamma ** bisect_right(epochs, step - 1))


def ExponentialLR(optimizer: Optimizer, gamma: float) -> Schedule:
    """Return a schedule that multiplies the rate by `gamma` in each epoch.

    Parameters: as `StepLR`.
    """
    checked_number("ExponentialLR", "gamma", gamma)
    return Schedule(optimizer, lambda step: gamma ** (step - 1))


def LinearLR(
    optimizer: Optimizer,
    start_factor: float = 1 / 3,
    end_factor: float = 1.0,
    total_iters: int = 5,
) -> Schedule:
    """Return a schedule whose factor changes in a line.

    Other parameters: as `StepLR`.

    Parameters
    ----------
    start_factor : float
        Factor at epoch 0; 1/3 by default.
    end_factor : float
        Factor from epoch `total_iters` on; 1 by default.
    total_iters : int
        Number of epochs between them; 5 by default.
    """
    checked_number("LinearLR", "start_factor", start_factor, above=True)
    checked_number("LinearLR", "end_factor", end_factor)
    checked_count("LinearLR", "total_iters", total_iters)
    return Schedule(
        optimizer,
        lambda step: _line(start_factor, end_factor, min(1.0, (step - 1) / total_iters)),
    )


def CosineAnnealingLR(optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> Schedule:
    """Return a schedule that follows a cosine to `eta_min` in `T_max` epochs, and back.

    Other parameters: as `StepLR`.

    Parameters
    ----------
    T_max : int
        Number of epochs until the lowest rate.
    eta_min : float
        Lowest rate; 0 by default.

    References
    ----------
    Loshchilov, Hutter (2017), arXiv:1608.03983.
    """
    checked_count("CosineAnnealingLR", "T_max", T_max)
    checked_number("CosineAnnealingLR", "eta_min", eta_min)
    return Schedule(
        optimizer, lambda step: _half_cosine(1.0, 0.0, (step - 1) / T_max), floor=eta_min
    )


def LambdaLR(optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor]) -> Schedule:
    """Return a schedule that sets the rate to `initial_lr` times `lr_lambda(epoch)`.

    Other parameters: as `StepLR`.

    Parameters
    ----------
    lr_lambda : function of int, or list of functions
        Returns the factor of an epoch, from 0; a list has a function for each parameter group.
    """

    def of_step(function: Factor) -> Factor:
        return lambda step: function(step - 1)

    factor = of_step(lr_lambda) if callable(lr_lambda) else list(map(of_step, lr_lambda))
    return Schedule(optimizer, factor, is_absolute=True)


class ReduceLROnPlateau(_Rates):
    """Schedule that lowers the rate when a metric has stopped improving.

    Parameters
    ----------
    optimizer : Optimizer
    mode : {"min", "max"}
        "min", the default, if smaller metrics are better, or "max".
    factor : float
        Factor of the learning rate; 0.1 by default.
    patience : int
        Number of calls of `step` without improvement that are allowed; 10 by default.
    threshold : float
        Smallest improvement that counts; 0.0001 by default.
    threshold_mode : {"rel", "abs"}
        "rel", the default, if `threshold` is a fraction of the best metric, or "abs".
    cooldown : int
        Number of calls after a reduction in which nothing is counted; 0 by default.
    min_lr : float
        Lowest rate; 0 by default.
    eps : float
        Reductions by at most `eps` are skipped; 1e-8 by default.
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

    def step(self, metric: float) -> None:
        """Record a value of the metric, and lower the learning rates if it is time.

        Parameters
        ----------
        metric : float
            NaN raises a ValueError.
        """
        if math.isnan(metric):
            raise ValueError("ReduceLROnPlateau: metric must be a number, got nan")
        best = 0.0 if math.isinf(self.best) else self.best
        margin = self.threshold * (best if self.threshold_mode == "rel" else 1.0)
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
        """Return the state as plain data: the best metric, and counts of calls of `step`."""
        best = None if math.isinf(self.best) else self.best
        return {"best": best, "bad": self.bad, "resting": self.resting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`.

        Parameters: as `Schedule.load_state_dict`.
        """
        worst = math.inf if self.mode == "min" else -math.inf
        self.best = worst if state["best"] is None else state["best"]
        self.bad, self.resting = state["bad"], state["resting"]


class OneCycleLR(Schedule):
    """Schedule that rises to `max_lr` and falls far below its start, with momentum against it.

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float or sequence of float
        Highest rate, or that of each parameter group.
    total_steps, epochs, steps_per_epoch : int
        Number of steps, or its two factors.
    pct_start : float
        Part of the steps in which the rate rises; 0.3 by default.
    anneal_strategy : {"cos", "linear"}
        Curve of the rate; "cos" by default.
    cycle_momentum : bool
        Let the momentum fall while the rate rises; True by default.
    base_momentum, max_momentum : float
        Ends of the momentum; 0.85 and 0.95 by default.
    div_factor, final_div_factor : float
        The first rate is max_lr / div_factor, the last is the first / final_div_factor.
    three_phase : bool
        Fall to the first rate, then to the last one; False by default.

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
        rates = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * len(groups)
        rates = [checked_number(name, "max_lr", rate) for rate in rates]
        if len(rates) != len(groups):
            raise ValueError(f"{name}: max_lr must have {len(groups)} rates, got {len(rates)}")
        if cycle_momentum and not all(group.get("momentum", 1) for group in groups):
            raise ValueError(
                f"{name}: optimizer must have momentum with cycle_momentum, got momentum 0; make "
                "the optimizer with momentum=0.9, or pass cycle_momentum=False"
            )
        for group, rate in zip(groups, rates):
            group["lr"] = group["initial_lr"] = rate
        self.curve = _line if anneal_strategy == "linear" else _half_cosine
        self.cycle_momentum = cycle_momentum
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
        factor, momentum = (self.curve(a, b, done) for a, b in zip(low, high))
        return factor, momentum

    def _apply(self, count: int, rates: Sequence[float]) -> None:
        super()._apply(count, rates)
        for group in self.optimizer.param_groups if self.cycle_momentum else ():
            momentum = self._at(count)[1]
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            else:
                group["momentum"] = momentum


class SequentialLR(_Rates):
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
        number = len(self.schedulers)
        if len(self.milestones) != number - 1 or self.milestones != sorted(self.milestones):
            raise ValueError(
                f"SequentialLR: milestones must have {number - 1} epochs for {number} schedulers, "
                f"in order, got {self.milestones}"
            )
        self.schedulers[0].set(1)

    def step(self) -> None:
        """Set the learning rates of the next epoch."""
        self._set(self.count + 1)

    def _set(self, count: int) -> None:
        i = bisect_right(self.milestones, count - 1)
        begin = self.milestones[i - 1] if i else 0
        self.schedulers[i].set(count - begin)
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the epoch, from 1, and the states of the schedules, as data."""
        return {"count": self.count, "schedulers": [s.state_dict() for s in self.schedulers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`.

        Parameters: as `Schedule.load_state_dict`.
        """
        for schedule, part in zip(self.schedulers, state["schedulers"], strict=True):
            schedule.load_state_dict(part)
        self.count = state["count"]

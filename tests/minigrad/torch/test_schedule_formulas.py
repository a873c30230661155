"""Schedules with drawn arguments against their formulas, chained and resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples

from minigrad import Tensor, optim

Formula = Callable[[int], float]
"""Takes an epoch, from 0, and returns the factor of the learning rate."""

counts = st.integers(1, 9)
factors = st.floats(0.05, 2.0)


def half_cosine(done: float) -> float:
    return (1 + math.cos(math.pi * done)) / 2


def between(start: float, end: float, done: float) -> float:
    return start * (1 - done) + end * done


SCHEDULES: dict[str, tuple[dict[str, st.SearchStrategy[Any]], Callable[..., float]]] = {
    "StepLR": (
        {"step_size": counts, "gamma": factors},
        lambda epoch, step_size, gamma: gamma ** math.floor(epoch / step_size),
    ),
    "MultiStepLR": (
        {"milestones": st.lists(st.integers(0, 9), max_size=4), "gamma": factors},
        lambda epoch, milestones, gamma: gamma ** sum(m <= epoch for m in milestones),
    ),
    "ExponentialLR": ({"gamma": factors}, lambda epoch, gamma: gamma**epoch),
    "LinearLR": (
        {"start_factor": factors, "end_factor": factors, "total_iters": counts},
        lambda epoch, start_factor, end_factor, total_iters: between(
            start_factor, end_factor, min(epoch / total_iters, 1)
        ),
    ),
    "CosineAnnealingLR": ({"T_max": counts}, lambda epoch, T_max: half_cosine(epoch / T_max)),
}
"""For each name the arguments, and the formula of the factor."""
MULTIPLY = ("StepLR", "MultiStepLR", "LinearLR")
"""Schedules whose factors multiply: a cosine that leaves 0 again does not."""


def schedules(*names: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), st.fixed_dictionaries(SCHEDULES[name][0]))
    )


def sgd(rates: list[float]) -> optim.SGD:
    groups = [{"params": [Tensor(np.ones(1), requires_grad=True)], "lr": lr} for lr in rates]
    return optim.SGD(groups)


def approximately(rates: list[float]) -> Any:
    return pytest.approx(rates, rel=1e-9, abs=1e-12)


base_rates = st.lists(st.floats(0.01, 2.0), min_size=1, max_size=3)


@pytest.mark.parametrize("name", SCHEDULES)
@given(st.data(), base_rates, st.integers(5, 30))
def test_schedule_equals_its_formula(
    name: str, data: st.DataObject, rates: list[float], epochs: int
) -> None:
    arguments = data.draw(st.fixed_dictionaries(SCHEDULES[name][0]), "arguments")
    floor = data.draw(st.sampled_from([0.0, 0.05, 0.5]), "eta_min") if "Cosine" in name else 0.0
    options = {"eta_min": floor} if floor else {}
    made = getattr(optim, name)(sgd(rates), **arguments, **options)
    for epoch in range(epochs):
        factor = SCHEDULES[name][1](epoch, **arguments)
        expected = approximately([floor + (rate - floor) * factor for rate in rates])
        assert made.get_last_lr() == expected and made.rates(epoch + 1) == expected
        assert made.lr == made.get_last_lr()[0]
        made.step()
    made.set(epochs // 2)
    for epoch in range(epochs // 2 - 1, epochs):
        assert made.get_last_lr() == approximately(made.rates(epoch + 1))
        made.step()


@given(st.lists(st.lists(factors, min_size=9, max_size=9), min_size=1, max_size=3))
def test_lambda_schedule_sets_the_rate_of_each_group(tables: list[list[float]]) -> None:
    optimizer = sgd([0.5] * len(tables))
    made = optim.LambdaLR(optimizer, [table.__getitem__ for table in tables])
    for epoch in range(9):
        assert made.get_last_lr() == [0.5 * table[epoch] for table in tables]
        optimizer.param_groups[0]["lr"] = 7.0  # has no effect on the next rate
        if epoch < 8:
            made.step()


@given(st.lists(schedules(*MULTIPLY), min_size=1, max_size=3), base_rates, st.integers(1, 20))
def test_schedules_of_one_optimizer_multiply(
    parts: list[tuple[str, dict[str, Any]]], rates: list[float], epochs: int
) -> None:
    optimizer = sgd(rates)
    chain = [getattr(optim, name)(optimizer, **arguments) for name, arguments in parts]
    assert all(schedule.base == rates for schedule in chain)
    for epoch in range(epochs):
        factor = math.prod(SCHEDULES[name][1](epoch, **arguments) for name, arguments in parts)
        assert chain[0].get_last_lr() == approximately([rate * factor for rate in rates])
        for schedule in chain:
            schedule.step()


@given(
    d_model=st.integers(1, 64),
    warmup=st.integers(1, 9),
    rest=st.integers(1, 9),
    final=st.floats(0.0, 1.0),
)
def test_factors_of_all_steps_equal_their_formulas(
    d_model: int, warmup: int, rest: int, final: float
) -> None:
    """Vaswani et al. (2017), section 5.3, and the usual warmups."""
    total = warmup + rest
    noam, root = optim.noam_schedule(d_model, warmup), optim.inverse_sqrt_schedule(warmup)
    cosine, line = (f(total, warmup, final) for f in (optim.cosine_schedule, optim.linear_schedule))
    for step in range(1, total + 3):
        falling = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert noam(step) == pytest.approx(falling)
        rising, done = step / warmup, min((step - 1 - warmup) / rest, 1.0)
        is_rising = step <= warmup
        assert root(step) == pytest.approx(rising if is_rising else math.sqrt(warmup / step))
        for factor, curve in ((cosine, half_cosine), (line, lambda done: 1 - done)):
            expected = rising if is_rising else between(final, 1.0, curve(done))
            assert factor(step) == pytest.approx(expected)
        steps_left = max(0, total + 1 - step)  # with this one
        assert optim.linear_schedule(total)(step) == pytest.approx(steps_left / total)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"start_factor": 0.0}, "greater than 0, got 0.0"),
        ({"end_factor": -0.5}, "at least 0, got -0.5"),
        ({"start_factor": math.nan}, "greater than 0, got nan"),
        ({"end_factor": math.inf}, "at least 0, got inf"),
    ],
)
def test_linear_factors_outside_their_limits_are_refused(
    options: dict[str, float], limit: str
) -> None:
    optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], 0.1)
    (name,) = options
    with pytest.raises(ValueError, match=f"LinearLR: {name} must be finite, {limit}"):
        optim.lr_scheduler.LinearLR(optimizer, **options)


@pytest.mark.parametrize(("d_model", "warmup", "name"), [(0, 3, "d_model"), (8, 0, "warmup")])
def test_factors_for_no_width_or_no_warmup_are_refused(
    d_model: int, warmup: int, name: str
) -> None:
    with pytest.raises(ValueError, match=f"noam_schedule: {name} must be at least 1, got 0"):
        optim.noam_schedule(d_model, warmup)


class Plateau:
    """Definition of `ReduceLROnPlateau`: look back over all metrics since the last reduction."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.best: float | None = None
        self.waited = self.cooldown = 0

    def is_better(self, metric: float) -> bool:
        if self.best is None:
            return True
        by, o = self.options["threshold"], self.options
        by = abs(self.best) * by if o["threshold_mode"] == "rel" else by
        return metric < self.best - by if o["mode"] == "min" else metric > self.best + by

    def reduces(self, metric: float) -> bool:
        if self.is_better(metric):
            self.best, self.waited = metric, 0
        else:
            self.waited += 1
        if self.cooldown > 0:
            self.cooldown -= 1
            self.waited = 0
        if self.waited <= self.options["patience"]:
            return False
        self.waited, self.cooldown = 0, self.options["cooldown"]
        return True


plateaus = st.fixed_dictionaries(
    {
        "threshold_mode": st.sampled_from(["rel", "abs"]),
        "threshold": st.sampled_from([0.07, 0.0, 0.5]),
        "patience": st.integers(0, 2),
        "cooldown": st.integers(0, 2),
        "factor": st.sampled_from([0.1, 0.5, 0.9]),
        "min_lr": st.sampled_from([0.0, 0.05]),
        "eps": st.sampled_from([1e-8, 0.04]),
    }
)
metrics = st.lists(
    st.sampled_from([1.0, 1.04, 0.97, 1.1, 1.2, 0.5, 3.0, 0.0]), min_size=10, max_size=25
)


@pytest.mark.parametrize("mode", ["min", "max"])
@max_examples(40)
@given(plateaus, metrics, base_rates, st.integers(0, 25))
def test_plateau_equals_its_definition_also_resumed(
    mode: str, options: dict[str, Any], metrics: list[float], rates: list[float], cut: int
) -> None:
    options = {**options, "mode": mode}
    optimizer, plateau = sgd(rates), Plateau(options)
    made = optim.ReduceLROnPlateau(optimizer, **options)
    for i, metric in enumerate(metrics):
        if i == cut:
            state = json.loads(json.dumps(made.state_dict()))
            made = optim.ReduceLROnPlateau(optimizer, **options)
            made.load_state_dict(state)
        made.step(metric)
        if plateau.reduces(metric):
            for j, rate in enumerate(rates):
                lower = max(rate * options["factor"], options["min_lr"])
                rates[j] = lower if rate - lower > options["eps"] else rate
        assert made.get_last_lr() == rates


tables = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=26, max_size=26)


@given(
    schedule=schedules(*SCHEDULES) | tables,
    rates=base_rates,
    steps=st.integers(0, 12),
    by_hand=st.integers(0, 12),
)
def test_schedule_resumed_at_any_step_continues_exactly(
    schedule: tuple[str, dict[str, Any]] | list[float],
    rates: list[float],
    steps: int,
    by_hand: int,
) -> None:
    """In an optimizer with other rates, also after a rate was set by hand, or the factor was 0."""

    def make(optimizer: Any) -> Any:
        if isinstance(schedule, tuple):
            return getattr(optim, schedule[0])(optimizer, **schedule[1])
        return optim.Schedule(optimizer, schedule.__getitem__, floor=0.01)

    optimizer = sgd(rates)
    whole = make(optimizer)
    for step in range(steps + 1):
        if step == min(by_hand, steps):
            optimizer.param_groups[0]["lr"] = 0.77
        if step < steps:
            whole.step()
    states = json.loads(json.dumps([whole.state_dict(), optimizer.state_dict()["groups"]]))
    others = [sgd([0.3] * len(rates)) for _ in range(2)]
    both = [make(other) for other in others]
    both[0].load_state_dict(states[0])
    for other in others:
        other.load_state_dict({"groups": states[1], "arrays": {}})
    both[1].load_state_dict(states[0])
    for step in range(1, 11):
        for resumed in both:
            assert resumed.get_last_lr() == whole.get_last_lr()
            assert resumed.rates(step) == whole.rates(step)
            resumed.step()
        whole.step()


@given(
    schedules=st.lists(schedules(*SCHEDULES), min_size=1, max_size=3),
    lengths=st.lists(st.integers(1, 5), min_size=2, max_size=2),
    rates=base_rates,
    cut=st.integers(0, 14),
)
def test_sequence_has_the_rates_of_each_schedule_from_its_milestone_on_also_resumed(
    schedules: list[tuple[str, dict[str, Any]]], lengths: list[int], rates: list[float], cut: int
) -> None:
    def make(rates: list[float]) -> Any:
        optimizer = sgd(rates)
        chain = [getattr(optim, name)(optimizer, **options) for name, options in schedules]
        return optim.SequentialLR(optimizer, chain, begins[1:])

    begins = [0, *np.cumsum(lengths).tolist()][: len(schedules)]
    made = make(rates)
    for epoch in range(15):
        if epoch == cut:
            state = json.loads(json.dumps(made.state_dict()))
            made = make([0.3] * len(rates))
            made.load_state_dict(state)
        i = sum(epoch >= begin for begin in begins) - 1
        name, options = schedules[i]
        factor = SCHEDULES[name][1](epoch - begins[i], **options)
        assert made.get_last_lr() == approximately([rate * factor for rate in rates])
        made.step()

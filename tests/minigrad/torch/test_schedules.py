"""Learning-rate schedules, compared with formulas and with PyTorch."""

from __future__ import annotations

import copy
import itertools
import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from support.environment import needs

from minigrad import Tensor, optim


def leaf() -> Tensor:
    return Tensor(np.ones(1), requires_grad=True)


def sgd() -> optim.SGD:
    return optim.SGD([leaf()], lr=1.0)


def pair() -> tuple[Any, Any, Any]:
    """Return the same optimizer here and in PyTorch, with two groups, and PyTorch's schedules."""
    torch = needs("torch")
    numpy_sgd = optim.SGD([{"params": [leaf()]}, {"params": [leaf()], "lr": 0.1}], lr=0.5)
    groups = [{"params": [torch.ones(1)]}, {"params": [torch.ones(1)], "lr": 0.1}]
    return numpy_sgd, torch.optim.SGD(groups, lr=0.5), torch.optim.lr_scheduler


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda m, o: m.LambdaLR(o, lambda epoch: 0.9**epoch),
        lambda m, o: m.StepLR(o, 3, 0.3),
        lambda m, o: m.LinearLR(o, 0.1, total_iters=7),
        lambda m, o: m.CosineAnnealingLR(o, 7, 0.01),
        lambda m, o: m.CosineAnnealingLR(o, 4),
    ],
)
def test_schedule_has_the_rates_of_pytorch(make: Any) -> None:
    numpy_sgd, torch_sgd, lr_scheduler = pair()
    schedule, expected = make(optim, numpy_sgd), make(lr_scheduler, torch_sgd)
    for _ in range(19):
        assert schedule.get_last_lr() == pytest.approx(expected.get_last_lr(), rel=1e-9, abs=1e-12)
        for part in (torch_sgd, schedule, expected):
            part.step()


@pytest.mark.slow
@pytest.mark.parametrize("mode, threshold_mode, cooldown", [("min", "rel", 3), ("max", "abs", 0)])
def test_plateau_has_the_rates_of_pytorch(mode: str, threshold_mode: str, cooldown: int) -> None:
    numpy_sgd, torch_sgd, lr_scheduler = pair()
    options: Any = {
        "mode": mode, "threshold_mode": threshold_mode, "patience": 2, "factor": 0.3, "cooldown": cooldown,
        "threshold": 0.05, "min_lr": 0.001, "eps": 0.02,
    }  # fmt: skip
    schedule = optim.ReduceLROnPlateau(numpy_sgd, **options)
    expected = lr_scheduler.ReduceLROnPlateau(torch_sgd, **options)
    for metric in np.random.default_rng(0).uniform(1, 2, 40).cumsum() % 1.7 + 0.1:
        schedule.step(metric)
        expected.step(metric)
        assert schedule.get_last_lr() == pytest.approx(expected.get_last_lr())


def test_schedule_copied_deeply_goes_on_by_itself() -> None:
    schedule = optim.CosineAnnealingLR(sgd(), 7)
    before, other = schedule.lr, copy.deepcopy(schedule)
    other.step()
    assert schedule.lr == before
    schedule.step()
    assert schedule.lr == other.lr


def test_schedule_after_a_rate_set_by_hand_scales_its_distance_to_the_floor() -> None:
    schedule = optim.CosineAnnealingLR(sgd(), 4, eta_min=0.2)
    schedule.optimizer.param_groups[0]["lr"] = 0.2 + 3 * 0.8
    for _ in range(2):
        schedule.step()
    assert schedule.lr == pytest.approx(0.2 + 3 * 0.4)


@pytest.mark.parametrize(("factor", "rate"), [(0.0, 0.3 + 0.8 * 0.5), (-0.1, 0.2 - 0.1)])
def test_schedule_after_a_rate_set_by_hand_scales_it_or_adds_at_factor_0(
    factor: float, rate: float
) -> None:
    """A factor may be negative, if the rate is not."""
    factors = [1.0, factor, 0.5 if not factor else 0.1]
    schedule = optim.Schedule(sgd(), lambda step: factors[step - 1], floor=0.2)
    schedule.step()
    assert schedule.lr == pytest.approx(0.2 + 0.8 * factor)
    schedule.optimizer.param_groups[0]["lr"] = 0.3
    schedule.step()
    assert schedule.lr == pytest.approx(rate)


@pytest.mark.parametrize(("mode", "metric", "rate"), [("min", -0.95, 1.0), ("max", -1.05, 1.0), ("min", -0.85, 0.5), ("max", -1.15, 0.5)])  # fmt: skip
def test_plateau_of_negative_metrics_has_a_negative_margin(
    mode: str, metric: float, rate: float
) -> None:
    """As in PyTorch, where the relative threshold multiplies the best metric."""
    schedule = optim.ReduceLROnPlateau(sgd(), mode, factor=0.5, patience=0, threshold=0.1)
    schedule.step(-1.0)
    schedule.step(metric)
    assert schedule.get_last_lr() == [rate]


@pytest.mark.parametrize(("eps", "rate"), [(0.5, 1.0), (0.499, 0.5)])
def test_plateau_skips_a_reduction_by_exactly_eps(eps: float, rate: float) -> None:
    schedule = optim.ReduceLROnPlateau(sgd(), factor=0.5, patience=0, eps=eps)
    assert schedule.state_dict()["best"] is None
    for _ in range(2):
        schedule.step(1.0)
    assert schedule.get_last_lr() == [rate]


@pytest.mark.parametrize("strategy", ["linear", "cos"])
def test_one_cycle_of_groups_moves_between_its_points_with_momentum_against_it(
    strategy: str,
) -> None:
    groups = [{"params": [leaf()], "momentum": 0.9}, {"params": [leaf()], "momentum": 0.0}]
    with pytest.raises(ValueError, match="optimizer must have momentum with cycle_momentum"):
        optim.OneCycleLR(optim.SGD(groups, lr=1.0), [1.0, 2.0], 10)
    groups[1]["momentum"] = 0.5
    optimizer = optim.SGD(groups, lr=1.0)
    schedule = optim.OneCycleLR(optimizer, [1.0, 2.0], epochs=5, steps_per_epoch=2, pct_start=0.4,
                                anneal_strategy=strategy, div_factor=10.0, final_div_factor=4.0)  # fmt: skip
    for epoch in range(10):
        top = np.interp(epoch, [0, 3, 9], [0, 1, 0])  # 1 at the highest rate
        top = (1 - np.cos(np.pi * top)) / 2 if strategy == "cos" else top
        start = 0.1 if epoch < 3 else 0.025
        factor, momentum = start + (1 - start) * top, 0.95 - 0.1 * top
        np.testing.assert_allclose(schedule.get_last_lr(), [factor, 2 * factor], rtol=1e-12)
        found = [group["momentum"] for group in optimizer.param_groups]
        np.testing.assert_allclose(found, momentum, rtol=1e-12)
        if epoch < 9:
            schedule.step()


@pytest.mark.parametrize("three_phase", [False, True])
def test_one_cycle_has_a_rate_for_each_of_its_steps_and_no_other(three_phase: bool) -> None:
    optimizer = optim.Adam([leaf()], betas=(0.9, 0.5))
    schedule = optim.OneCycleLR(optimizer, 1.0, 10, three_phase=three_phase, pct_start=0.4)
    rates, momenta = [schedule.lr], [optimizer.param_groups[0]["betas"][0]]
    for _ in range(9):
        schedule.step()
        rates.append(schedule.lr)
        momenta.append(optimizer.param_groups[0]["betas"][0])
    ends = [0, 3, 6, 9] if three_phase else [0, 3, 9]
    assert [momenta[i] for i in ends] == pytest.approx([0.95, 0.85, 0.95, 0.95][: len(ends)])
    assert rates[3] == max(rates) == 1.0 and rates[0] == pytest.approx(1 / 25)
    assert (rates[6] == pytest.approx(1 / 25)) == three_phase
    assert rates[9] == pytest.approx(1 / 25 / 1e4)
    assert optimizer.param_groups[0]["betas"] == (pytest.approx(0.95), 0.5)
    with pytest.raises(ValueError, match="total_steps must be at least .* got 10 and step 11"):
        schedule.step()


def test_one_cycle_takes_numbers_of_numpy_and_refuses_rates_before_it_changes_one() -> None:
    assert optim.OneCycleLR(optim.Adam([leaf()]), np.float32(2.0), 10).base == [2.0]
    optimizer = optim.SGD([{"params": [leaf()]}, {"params": [leaf()]}], lr=0.5, momentum=0.9)
    before = [dict(group) for group in optimizer.param_groups]
    for rates, message in (
        ([1.0, -1.0], "max_lr must be finite, at least 0, got -1"),
        ([1.0], "2 rates, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            optim.OneCycleLR(optimizer, rates, 10)
    assert optimizer.param_groups == before


def test_one_cycle_after_another_schedule_begins_with_its_own_rate() -> None:
    optimizer = optim.SGD([leaf()], lr=0.5, momentum=0.9)
    optim.StepLR(optimizer, 1)
    schedule = optim.OneCycleLR(optimizer, 2.0, 10)
    assert schedule.base == [2.0] and schedule.lr == pytest.approx(2.0 / 25)


@pytest.mark.parametrize("has_schedule", [*itertools.product([False, True], repeat=2)])
def test_state_of_an_optimizer_with_a_schedule_continues_without_and_vice_versa(
    has_schedule: Any,
) -> None:
    first, second = optimizers = [sgd(), optim.SGD([leaf()], lr=0.25)]
    for optimizer, has in zip(optimizers, has_schedule):
        if has:
            optim.StepLR(optimizer, 3)
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["lr"] == 1.0
    assert second.param_groups[0].get("initial_lr") == (0.25 if has_schedule[1] else None)


def test_state_that_does_not_fit_a_schedule_is_refused_and_changes_nothing() -> None:
    adams = [optim.Adam([leaf()], lr=0.5) for _ in range(2)]
    two = optim.StepLR(optim.SGD([{"params": [leaf()]}, {"params": [leaf()]}]), 1)
    long = optim.OneCycleLR(optim.Adam([leaf()]), 2.0, 30)
    for _ in range(10):
        two.step()
        long.step()
    for schedule, other, message in (
        (optim.StepLR(adams[0], 3), two, "optimizer must have 2 parameter groups, got 1"),
        (optim.OneCycleLR(adams[1], 1.0, 10), long, "total_steps must be at least .* step 11"),
    ):
        before, group = schedule.state_dict(), dict(schedule.optimizer.param_groups[0])
        with pytest.raises(ValueError, match=message):
            schedule.load_state_dict(other.state_dict())
        assert schedule.state_dict() == before and schedule.optimizer.param_groups[0] == group
        schedule.step()
        assert schedule.get_last_lr() == schedule.rates(2)


def test_state_of_plateau_is_plain_data_for_metrics_of_numpy() -> None:
    schedule = optim.ReduceLROnPlateau(sgd())
    schedule.step(np.float32(0.5))
    assert json.loads(json.dumps(schedule.state_dict()))["best"] == 0.5


@pytest.mark.parametrize(("total", "is_allowed"), [(3, False), (4, True), (5, True)])
def test_one_cycle_needs_more_than_one_step_in_which_the_rate_rises(
    total: int, is_allowed: bool
) -> None:
    make = lambda part: optim.OneCycleLR(optim.Adam([leaf()]), 1.0, total, pct_start=part)
    with (
        nullcontext() if is_allowed else pytest.raises(ValueError, match="must be between 1 and 3")
    ):
        make(1 / 3)
    with pytest.raises(ValueError, match="pct_start must be .* less than 1, got 1"):
        make(1.0)


def test_one_cycle_of_the_rate_alone_keeps_momentum() -> None:
    for make in (lambda: optim.Adam([leaf()]), lambda: optim.SGD([leaf()], 0.1, momentum=0.5)):
        optimizer: Any = make()
        before = {k: v for k, v in optimizer.param_groups[0].items() if k in ("betas", "momentum")}
        schedule = optim.OneCycleLR(optimizer, 1.0, 9, cycle_momentum=False)
        schedule.step()
        assert optimizer.param_groups[0].items() >= before.items()


def test_state_of_a_schedule_contains_the_rate_from_which_others_begin() -> None:
    state = optim.StepLR(sgd(), 1).state_dict()
    schedule = optim.StepLR(optim.SGD([leaf()], lr=7.0), 1)
    schedule.load_state_dict(state)
    assert optim.LambdaLR(schedule.optimizer, lambda epoch: 0.5).lr == 0.5


def test_schedules_keep_copies_of_the_lists_of_a_caller() -> None:
    factors: list[Any] = [lambda step: 1 / step]
    schedule = optim.Schedule(sgd(), factors)
    milestones, schedules = [1], [schedule, optim.LambdaLR(schedule.optimizer, lambda epoch: 0.25)]
    sequence = optim.SequentialLR(schedule.optimizer, schedules, milestones)
    state = schedule.state_dict()
    schedule.load_state_dict(state)
    for values in (factors, milestones, schedules, state["base"]):
        values[:] = [None]
    schedule.step()
    assert schedule.lr == 0.5 and schedule.state_dict()["base"] == [1.0]
    schedule.state_dict()["base"][0] = 3.0
    assert schedule.rates(2) == [0.5]
    sequence.step()
    assert schedule.lr == 0.25


def test_schedule_step_that_is_refused_is_not_counted() -> None:
    values = [1.0, np.nan, 0.5]
    schedule = optim.LambdaLR(sgd(), lambda epoch: values[epoch])
    with pytest.raises(ValueError, match="rate at step 2 must be finite"):
        schedule.step()
    assert schedule.count == 1
    values[1] = 0.25
    schedule.step()
    assert schedule.lr == 0.25


def test_schedule_step_after_a_group_was_added_is_refused() -> None:
    optimizer = sgd()
    schedule = optim.StepLR(optimizer, 2)
    optimizer.add_param_group({"params": [leaf()]})
    with pytest.raises(ValueError, match="optimizer must have 1 parameter groups, got 2. Make the"):
        schedule.step()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda o: optim.cosine_schedule(9, 9), "warmup must be less than total .9., got 9"),
        (lambda o: optim.inverse_sqrt_schedule(0), "_sqrt_schedule: warmup must be at least 1"),
        (lambda o: optim.Schedule(o, lambda step: np.nan), "rate at step 1 must be finite, at l"),
        (
            lambda o: optim.SequentialLR(o, [optim.StepLR(o, 1)] * 3, [5, 3]),
            "milestones must have 2 epochs for 3 schedulers, in order, got .5, 3.",
        ),
        (lambda o: optim.SequentialLR(o, [optim.StepLR(o, 1)], [5]), "must have 0 epochs for 1"),
        (lambda o: optim.LambdaLR(o, [abs, abs]), "factor must be one function, or 1 for 1 parame"),
        (
            lambda o: optim.OneCycleLR(o, 1.0, epochs=3),
            "or epochs and steps_per_epoch, got 3 and None",
        ),
        (lambda o: optim.OneCycleLR(o, 1.0, steps_per_epoch=3), "steps_per_epoch, got None and 3"),
        (lambda o: optim.ReduceLROnPlateau(o).step(np.nan), "metric must be a number, got nan"),
    ],
)
def test_schedule_refuses_argument(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(sgd())


def test_sequence_resumed_after_a_rate_set_by_hand_keeps_it() -> None:
    def make() -> tuple[Any, Any]:
        optimizer = sgd()
        parts = [optim.StepLR(optimizer, 2, 0.5), optim.ExponentialLR(optimizer, 0.9)]
        return optimizer, optim.SequentialLR(optimizer, parts, [3])

    optimizer, whole = make()
    whole.step()
    optimizer.param_groups[0]["lr"] = 0.77
    other, resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for _ in range(5):
        assert resumed.get_last_lr() == whole.get_last_lr()
        whole.step(), resumed.step()

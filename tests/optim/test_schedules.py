"""Learning-rate schedules, compared with formulas and with PyTorch."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest

from minigrad import Tensor, optim


def leaf() -> Tensor:
    return Tensor(np.ones(1), requires_grad=True)


def sgd() -> optim.SGD:
    return optim.SGD([leaf()], lr=1.0)


@pytest.mark.parametrize(
    "factor, rates",
    [
        (optim.noam_schedule(4, 100), {1: 5e-4, 100: 0.05, 400: 0.025}),
        (optim.inverse_sqrt_schedule(100), {50: 0.5, 100: 1.0, 400: 0.5}),
        (optim.cosine_schedule(110, 10, final=0.1), {5: 0.5, 10: 1, 60: 0.55, 110: 0.1, 200: 0.1}),
        (optim.linear_schedule(100), {0: 1.0, 50: 0.5, 100: 0.0}),
    ],
)
def test_factor_of_schedule_equals_its_formula(factor: Any, rates: dict[int, float]) -> None:
    assert {step: factor(step) for step in rates} == pytest.approx(rates)


def test_two_schedules_of_one_optimizer_multiply() -> None:
    optimizer = sgd()
    linear = optim.LinearLR(optimizer, 0.2, end_factor=0.8, total_iters=2)
    optim.ExponentialLR(optimizer, 0.5).step()
    linear.step()
    assert linear.lr == pytest.approx(0.5 * 0.5)


def pair() -> tuple[Any, Any, Any]:
    """Return the same optimizer here and in PyTorch, with two groups, and PyTorch's schedules."""
    torch = pytest.importorskip("torch")
    numpy_sgd = optim.SGD([{"params": [leaf()]}, {"params": [leaf()], "lr": 0.1}], lr=0.5)
    groups = [{"params": [torch.ones(1)]}, {"params": [torch.ones(1)], "lr": 0.1}]
    return numpy_sgd, torch.optim.SGD(groups, lr=0.5), torch.optim.lr_scheduler


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda m, o: m.LambdaLR(o, lambda epoch: 0.9**epoch),
        lambda m, o: m.MultiStepLR(o, [7, 2, 2], 0.3),
        lambda m, o: m.CosineAnnealingLR(o, 7, 0.01),
        lambda m, o: m.CosineAnnealingLR(o, 4),
        lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
        lambda m, o: m.OneCycleLR(o, 2.0, 20, cycle_momentum=False),
        lambda m, o: m.OneCycleLR(o, 2.0, 20, anneal_strategy="linear", cycle_momentum=False),
        lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.1), m.ExponentialLR(o, 0.8)], [4]),
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


def test_schedule_pickled_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a Schedule cannot be pickled.*pickle its state_dict\(\)"):
        pickle.dumps(optim.StepLR(sgd(), 3))


def test_schedule_after_a_rate_set_by_hand_scales_its_distance_to_the_floor() -> None:
    schedule = optim.CosineAnnealingLR(sgd(), 4, eta_min=0.2)
    schedule.optimizer.param_groups[0]["lr"] = 0.2 + 3 * 0.8
    for _ in range(2):
        schedule.step()
    assert schedule.lr == pytest.approx(0.2 + 3 * 0.4)


def test_sequence_loaded_from_its_state_goes_on_exactly() -> None:
    def sequence(o: optim.Optimizer) -> optim.SequentialLR:
        parts = optim.LinearLR(o, 0.5), optim.CosineAnnealingLR(o, 9), optim.ExponentialLR(o, 0.8)
        return optim.SequentialLR(o, parts, [3, 6])

    schedule, other = sequence(sgd()), sgd()
    for _ in range(3):
        schedule.step()
    schedule.optimizer.param_groups[0]["lr"] = 0.95  # by hand
    schedule.step()
    assert schedule.lr == pytest.approx(0.95 * (0.5 + 0.5 * np.cos(np.pi / 9)))
    other.load_state_dict(schedule.optimizer.state_dict())
    resumed = sequence(other)
    resumed.load_state_dict(schedule.state_dict())
    for _ in range(4):
        assert resumed.lr == schedule.lr
        schedule.step()
        resumed.step()


def test_sequence_with_a_base_of_a_part_or_a_sequence_in_it_goes_on_exactly() -> None:
    def sequence(o: optim.Optimizer) -> optim.SequentialLR:
        inner = optim.SequentialLR(o, [optim.ConstantLR(o, 0.5, 1), optim.StepLR(o, 2)], [2])
        linear, cycle = optim.LinearLR(o, 0.5), optim.OneCycleLR(o, 2.0, 20, cycle_momentum=False)
        return optim.SequentialLR(o, [linear, cycle, inner], [3, 6])

    schedule = sequence(sgd())
    for _ in range(4):
        other = sgd()
        other.load_state_dict(schedule.optimizer.state_dict())
        resumed, twin = sequence(other), copy.deepcopy(schedule)
        resumed.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
        for _ in range(9):
            assert resumed.lr == twin.lr
            twin.step()
            resumed.step()
        schedule.step()
        schedule.step()


def test_sequence_loads_a_state_with_one_base_for_all_parts() -> None:
    """Version 0.2 wrote such states."""
    o = sgd()
    schedule = optim.SequentialLR(o, [optim.LinearLR(o, 0.5), optim.StepLR(o, 2)], [3])
    schedule.load_state_dict({"count": 4, "base": [3.0], "lr": [3.0]})
    for _ in range(2):
        schedule.step()
    assert schedule.lr == pytest.approx(0.3)


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


def test_schedule_that_changes_at_epoch_0_begins_there() -> None:
    assert optim.lr_scheduler.MultiStepLR(sgd(), [0, 2]).lr == pytest.approx(0.1)
    assert optim.lr_scheduler.ConstantLR(sgd(), 0.5, total_iters=0).lr == 1.0


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda o: optim.cosine_schedule(9, 9), "warmup must be less than total .9., got 9"),
        (lambda o: optim.inverse_sqrt_schedule(0), "_sqrt_schedule: warmup must be at least 1"),
        (lambda o: optim.Schedule(o, lambda step: np.nan), "rate at step 1 must be finite, at l"),
        (lambda o: optim.LambdaLR(o, [abs, abs]), "factor must be one function, or 1 for 1 parame"),
        (lambda o: optim.OneCycleLR(o, 1.0, 10), "cycle_momentum must be False, got True; .* pass"),
        (lambda o: optim.ReduceLROnPlateau(o).step(np.nan), "metric must be a number, got nan"),
        (
            lambda o: optim.SequentialLR(o, [optim.ReduceLROnPlateau(o)], []),
            "schedulers must be schedules of this optimizer, got",
        ),
        (
            lambda o: optim.SequentialLR(o, [optim.StepLR(o, 1)], [1]),
            "milestones must be one fewer than schedulers .1., got 1",
        ),
        (
            lambda o: optim.SequentialLR(o, [optim.StepLR(o, 1) for _ in range(3)], [9, 5]),
            r"milestones must be sorted, got \[9, 5\]",
        ),
        (
            lambda o: optim.SequentialLR(o, [optim.StepLR(o, 1) for _ in range(2)], [2.5]),
            "milestones must be a whole number, got 2.5",
        ),
    ],
)
def test_schedule_refuses_argument(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(sgd())

"""Learning-rate schedules."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from minigrad import Tensor, optim


def test_schedules() -> None:
    noam = optim.noam_schedule(512, 4000)
    assert noam(1) == pytest.approx(512**-0.5 * 4000**-1.5) and noam(4000) == pytest.approx(
        (512 * 4000) ** -0.5
    )
    assert noam(16000) == pytest.approx(noam(4000) / 2)
    root = optim.inverse_sqrt_schedule(100)
    assert (root(50), root(100), root(400)) == (0.5, 1.0, 0.5)
    cosine = optim.cosine_schedule(110, 10, final=0.1)
    assert (cosine(5), cosine(10), cosine(60)) == pytest.approx((0.5, 1.0, 0.55)) and cosine(
        110
    ) == cosine(200) == pytest.approx(0.1)
    line = optim.linear_schedule(100)
    assert (line(0), line(50), line(100)) == (1.0, 0.5, 0.0)
    p = Tensor(np.ones(1), requires_grad=True)
    sgd = optim.SGD([{"params": [p]}], lr=2.0)
    schedule = optim.Schedule(sgd, optim.inverse_sqrt_schedule(4))
    rates = []
    for _ in range(4):
        rates.append(schedule.lr)
        schedule.step()
    assert rates == [0.5, 1.0, 1.5, 2.0]


PYTORCHS: list[tuple[str, dict[str, Any]]] = [
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}),
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [7, 2, 2], "gamma": 0.3}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.2, "end_factor": 0.8, "total_iters": 6}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 9, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4}),
    ("OneCycleLR", {"max_lr": 2.0, "total_steps": 20, "cycle_momentum": False}),
    (
        "OneCycleLR",
        {
            "max_lr": 2.0,
            "total_steps": 20,
            "pct_start": 0.5,
            "anneal_strategy": "linear",
            "cycle_momentum": False,
        },
    ),
]


@pytest.mark.parametrize("name,options", PYTORCHS, ids=[name for name, _ in PYTORCHS])
def test_schedules_by_pytorchs_names_are_pytorchs(name: str, options: Any) -> None:
    torch = pytest.importorskip("torch")
    ours = optim.SGD([{"params": [leaf()]}, {"params": [leaf()], "lr": 0.1}], lr=0.5)
    theirs = torch.optim.SGD(
        [{"params": [torch.ones(1)]}, {"params": [torch.ones(1)], "lr": 0.1}], lr=0.5
    )
    mine = getattr(optim, name)(ours, **options)
    its = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    rates = []
    for _ in range(20):
        assert mine.get_last_lr() == pytest.approx(its.get_last_lr(), rel=1e-9, abs=1e-12)
        rates.append(mine.lr)
        ours.step()
        theirs.step()
        mine.step()
        if len(rates) < 20:
            its.step()
    assert len(set(rates)) > 1
    for count in (12, 3):  # by number, as a resumed run goes there
        mine.set(count)
        assert mine.lr == pytest.approx(rates[count - 1], rel=1e-12)
    state, rate = mine.state_dict(), mine.lr
    again = getattr(optim, name)(ours, **options)
    again.load_state_dict(state)
    assert again.lr == rate and again.count == 3
    numbers = {
        n: value
        for n, value in options.items()
        if isinstance(value, (int, float)) and hasattr(its, n) and n != "cycle_momentum"
    }
    assert {n: getattr(mine, n) for n in numbers} == numbers


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda schedule: pickle.loads(pickle.dumps(schedule))]
)
@pytest.mark.parametrize(
    "name,options",
    [(n, o) for n, o in PYTORCHS if n != "LambdaLR"]
    + [
        ("Schedule", {"factor": optim.noam_schedule(8, 4)}),
        ("Schedule", {"factor": optim.inverse_sqrt_schedule(4)}),
    ]
    + [
        ("Schedule", {"factor": make(20, 3, 0.1)})
        for make in (optim.cosine_schedule, optim.linear_schedule)
    ],
)
def test_copies_of_schedules_go_on_by_themselves(name: str, options: Any, copied: Any) -> None:
    optimizer = optim.SGD([leaf()], lr=0.5)
    mine = getattr(optim, name)(optimizer, **options)
    mine.set(4)
    before = mine.lr
    other = copied(mine)
    rates = []
    for _ in range(6):
        rates.append(other.lr)
        other.step()
    assert mine.lr == before == rates[0] and mine.count == 4
    for rate in rates:
        assert mine.lr == rate
        mine.step()


def test_one_schedule_after_another_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    from torch.optim import lr_scheduler as their

    ours, theirs = optim.SGD([leaf()], lr=0.5), torch.optim.SGD([torch.ones(1)], lr=0.5)
    mine = optim.SequentialLR(
        ours, [optim.LinearLR(ours, 0.1, total_iters=4), optim.ExponentialLR(ours, 0.8)], [4]
    )
    its = their.SequentialLR(
        theirs, [their.LinearLR(theirs, 0.1, total_iters=4), their.ExponentialLR(theirs, 0.8)], [4]
    )
    for epoch in range(10):
        assert mine.get_last_lr() == pytest.approx(its.get_last_lr())
        if epoch in (2, 6):
            ours.param_groups[0]["lr"] = theirs.param_groups[0]["lr"] = 0.3
        theirs.step()
        mine.step()
        its.step()


SHORT: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 2, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 3, 5], "gamma": 0.3}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.1, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.5, "end_factor": 0.0, "total_iters": 3}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 6, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 4}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
]


def schedule_pair(names: list[int]) -> tuple[Any, Any, list[Any], list[Any]]:
    """The same schedules of one optimizer, here and in PyTorch."""
    torch = pytest.importorskip("torch")
    ours = optim.SGD([{"params": [leaf()]}, {"params": [leaf()], "lr": 0.1}], lr=1.0)
    groups = [{"params": [torch.ones(1)]}, {"params": [torch.ones(1)], "lr": 0.1}]
    theirs = torch.optim.SGD(groups, lr=1.0)
    mine = [getattr(optim, SHORT[i][0])(ours, **SHORT[i][1]) for i in names]
    its = [getattr(torch.optim.lr_scheduler, SHORT[i][0])(theirs, **SHORT[i][1]) for i in names]
    return ours, theirs, mine, its


@pytest.mark.parametrize("first", range(len(SHORT)))
@pytest.mark.parametrize("by_hand", [False, True])
def test_two_schedules_of_one_optimizer_multiply_as_pytorchs(first: int, by_hand: bool) -> None:
    for second in range(len(SHORT)):
        ours, theirs, mine, its = schedule_pair([first, second])
        for epoch in range(12):
            rates = [group["lr"] for group in ours.param_groups]
            expected = [group["lr"] for group in theirs.param_groups]
            assert rates == pytest.approx(expected, rel=1e-9, abs=1e-12), (second, epoch)
            if by_hand and epoch == 2:
                for optimizer in (ours, theirs):
                    optimizer.param_groups[0]["lr"] = 0.7
            ours.step()
            theirs.step()
            for schedule in (*mine, *its):
                schedule.step()


def test_warmup_and_decay_stepped_together_give_their_product() -> None:
    optimizer = optim.SGD([leaf()], lr=1.0)
    both = [optim.LinearLR(optimizer, 0.1, total_iters=4), optim.ExponentialLR(optimizer, 0.9)]
    rates = []
    for _ in range(5):
        rates.append(both[0].lr)
        for schedule in both:
            schedule.step()
    assert rates == pytest.approx([0.1, 0.2925, 0.4455, 0.564975, 0.6561])


@pytest.mark.parametrize("name", ["Schedule", "StepLR", "CosineAnnealingLR"])
def test_a_rate_set_by_hand_is_gone_on_from(name: str) -> None:
    options: Any = {
        "Schedule": {"factor": lambda step: 0.5**step},
        "StepLR": {"step_size": 2},
        "CosineAnnealingLR": {"T_max": 6, "eta_min": 0.01},
    }[name]
    optimizer, other = (optim.SGD([leaf()], lr=0.5) for _ in range(2))
    mine, plain = (getattr(optim, name)(o, **options) for o in (optimizer, other))
    floor = mine.floor
    optimizer.param_groups[0]["lr"] = floor + 3 * (mine.lr - floor)
    for _ in range(3):
        mine.step()
        plain.step()
        assert mine.lr - floor == pytest.approx(3 * (plain.lr - floor))


@pytest.mark.parametrize("order", ["state first", "schedule first"])
@pytest.mark.parametrize("milestones", [[3], [5]])
def test_a_sequence_restored_from_its_state_goes_on_exactly(
    order: str, milestones: list[int]
) -> None:
    def made(optimizer: optim.Optimizer) -> optim.SequentialLR:
        parts = [
            optim.LinearLR(optimizer, 0.5, total_iters=4),
            optim.CosineAnnealingLR(optimizer, 9),
        ]
        return optim.SequentialLR(optimizer, parts, milestones)

    optimizer = optim.SGD([leaf()], lr=1.0)
    schedule = made(optimizer)
    for _ in range(4):
        schedule.step()
    optimizer.param_groups[0]["lr"] *= 0.95  # by hand
    states = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
    expected = []
    for _ in range(8):
        expected.append(schedule.lr)
        schedule.step()
    other = optim.SGD([leaf()], lr=1.0)
    if order == "schedule first":
        again = made(other)
        other.load_state_dict(states[0])
    else:
        other.load_state_dict(states[0])
        again = made(other)
    again.load_state_dict(states[1])
    for rate in expected:
        assert again.lr == rate
        again.step()


def test_a_group_added_after_its_schedule_is_refused() -> None:
    optimizer = optim.SGD([leaf()], lr=1.0)
    schedule = optim.StepLR(optimizer, 2)
    optimizer.add_param_group({"params": [leaf()]})
    with pytest.raises(ValueError, match="StepLR: expected 1 parameter groups, got 2; make the"):
        schedule.step()


def test_states_of_version_02_are_read() -> None:
    optimizer = optim.SGD([leaf()], lr=1.0)
    schedule = optim.StepLR(optimizer, 2, 0.5)
    schedule.load_state_dict({"count": 4, "base": [0.8]})
    assert schedule.lr == 0.4
    schedule.step()
    assert schedule.lr == 0.2


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("cooldown", [0, 3])
def test_a_plateau_is_pytorchs(mode: str, threshold_mode: str, cooldown: int) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = optim.SGD([leaf()], lr=0.5), torch.optim.SGD([torch.ones(1)], lr=0.5)
    options: Any = {
        "mode": mode, "threshold_mode": threshold_mode, "patience": 2, "factor": 0.3, "cooldown": cooldown,
        "threshold": 0.05, "min_lr": 0.001, "eps": 0.02,
    }  # fmt: skip
    mine = optim.ReduceLROnPlateau(ours, **options)
    its = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    for metric in np.random.default_rng(0).uniform(1, 2, 40).cumsum() % 1.7 + 0.1:
        mine.step(metric)
        its.step(metric)
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"])
    assert ours.param_groups[0]["lr"] < 0.5
    with pytest.raises(ValueError, match="the metric is NaN"):
        mine.step(float("nan"))


def test_schedules_may_begin_at_once() -> None:
    optimizer = optim.SGD([leaf()], lr=1.0)
    assert optim.lr_scheduler.MultiStepLR(optimizer, [0, 2]).lr == pytest.approx(0.1)
    optimizer.param_groups[0]["lr"] = 1.0
    assert optim.lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=0).lr == 1.0


def leaf() -> Tensor:
    return Tensor(np.ones(1), requires_grad=True)


@pytest.mark.parametrize(
    "make,message",
    [
        (
            lambda o: optim.cosine_schedule(10, 10),
            "cosine_schedule: expected a warmup shorter than total, got warmup=10",
        ),
        (
            lambda o: optim.linear_schedule(10, 20),
            "linear_schedule: expected a warmup shorter than total",
        ),
        (lambda o: optim.linear_schedule(0), "linear_schedule: expected total >= 1, got 0"),
        (
            lambda o: optim.cosine_schedule(10.5),
            "cosine_schedule: expected a whole number for total, got 10.5",
        ),
        (
            lambda o: optim.inverse_sqrt_schedule(0),
            "inverse_sqrt_schedule: expected warmup >= 1, got 0",
        ),
        (lambda o: optim.noam_schedule(512, -1), "noam_schedule: expected warmup >= 1, got -1"),
        (
            lambda o: optim.Schedule(o, lambda step: float("nan")),
            "Schedule: expected a finite learning rate at step 1",
        ),
        (
            lambda o: optim.Schedule(o, lambda step: -1.0),
            "Schedule: expected a finite learning rate at step 1 >= 0",
        ),
        (
            lambda o: optim.LambdaLR(o, [abs, abs]),
            "LambdaLR: expected one function, or 1 for 1 groups, got 2",
        ),
        (lambda o: optim.StepLR(o, 0), "StepLR: expected step_size >= 1, got 0"),
        (
            lambda o: optim.OneCycleLR(o, 1.0, 10, anneal_strategy="sine", cycle_momentum=False),
            "expected anneal_strategy 'cos' or 'linear'",
        ),
        (
            lambda o: optim.OneCycleLR(o, 1.0, 10, cycle_momentum=False).set(12),
            "OneCycleLR: epoch 11 is past the 10 steps it was made for",
        ),
        (
            lambda o: optim.OneCycleLR(o, 1.0, 10),
            "OneCycleLR: cycle_momentum must be False, got True; .* pass cycle_momentum=False",
        ),
        (
            lambda o: optim.SequentialLR(o, [optim.ReduceLROnPlateau(o)], []),
            "SequentialLR: expected schedules, got",
        ),
        (
            lambda o: optim.SequentialLR(o, [optim.StepLR(o, 1)], [1]),
            "expected one milestone less than schedulers",
        ),
        (
            lambda o: optim.ReduceLROnPlateau(o, "least"),
            "ReduceLROnPlateau: expected mode 'min' or 'max'",
        ),
    ],
)
def test_schedules_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(optim.SGD([leaf()], lr=0.5))

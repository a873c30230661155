"""PyTorch's database of optimizers, and the signatures of its optimizers and schedules.

`optim_db` lists the arguments with which PyTorch tests each optimizer, those that it refuses, and
schedules for each. Parameters have to agree in float64 to 1e-10; what differs is refused, and
listed here with its reason.
"""

from __future__ import annotations

import inspect
import types
import warnings
from typing import Any

import hypothesis
import numpy as np
import pytest

from minigrad import Tensor, optim
from minigrad.advice import advice

torch: Any = pytest.importorskip("torch", reason="the comparison with PyTorch needs torch")


def database() -> dict[str, Any]:
    """PyTorch's list. Its test utilities warn, and load a hypothesis profile of their own."""
    pytest.importorskip("expecttest", reason="the test utilities of PyTorch need expecttest")
    profile = hypothesis.settings.default
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_optimizers import optim_db
    hypothesis.settings.register_profile("ours", profile)
    hypothesis.settings.load_profile("ours")
    return {info.name: info for info in optim_db}


DATABASE = database()
BOTH = [name for name in DATABASE if hasattr(optim, name)]
REFUSED = {"tensor lr": "a learning rate is a number, not a tensor"}
"""Descriptions of inputs that PyTorch takes and minigrad refuses, and why."""


def pair(name: str, kwargs: dict[str, Any]) -> tuple[Any, Any, list[tuple[Tensor, Any]]]:
    """The same optimizer here and in PyTorch, of the same parameters in two groups."""
    rng = np.random.default_rng(3)
    starts = [rng.standard_normal(shape) for shape in ((3, 4), (5,), (2, 2), ())]
    ours = [Tensor(x.copy(), requires_grad=True) for x in starts]
    theirs = [torch.tensor(x, requires_grad=True) for x in starts]
    groups = lambda ps: [{"params": ps[:2]}, {"params": ps[2:], "lr": 0.003}]
    mine = getattr(optim, name)(groups(ours), **kwargs)
    its = getattr(torch.optim, name)(groups(theirs), **kwargs)
    return mine, its, list(zip(ours, theirs))


def compare_steps(mine: Any, its: Any, parameters: Any, steps: int, after: Any = None) -> None:
    """Take the same steps; some parameters have no gradient at some steps, one at the first ten."""
    rng = np.random.default_rng(4)
    for step in range(steps):
        for i, (p, q) in enumerate(parameters):
            p.grad = q.grad = None
            if (step + i) % 4 == 3 or (i == 1 and step < 10):
                continue
            g = rng.standard_normal(p.shape)
            p.grad, q.grad = g.copy(), torch.tensor(g)
        mine.step()
        its.step()
        for i, (p, q) in enumerate(parameters):
            expected = q.detach().numpy()
            message = f"parameter {i} at step {step}"
            np.testing.assert_allclose(p.data, expected, rtol=1e-10, atol=1e-13, err_msg=message)
        if after is not None:
            after(step)


@pytest.mark.parametrize("name", BOTH)
def test_optimizers_follow_pytorchs_for_every_input_of_its_database(name: str) -> None:
    compared = 0
    for sample in DATABASE[name].optim_inputs_func(device="cpu"):
        if sample.desc in REFUSED:
            with pytest.raises(TypeError, match="expected a number for lr"):
                getattr(optim, name)([Tensor(np.ones(1), True)], **sample.kwargs)
            continue
        compare_steps(*pair(name, sample.kwargs), 14)
        compared += 1
    assert compared >= 5


@pytest.mark.parametrize("name", BOTH)
def test_what_pytorchs_optimizers_refuse_is_refused(name: str) -> None:
    def here(value: Any) -> Any:
        if isinstance(value, torch.nn.Parameter):
            return leaves.setdefault(id(value), Tensor(value.detach().numpy().copy(), True))
        if isinstance(value, (list, tuple)):
            return type(value)(map(here, value))
        if isinstance(value, dict):
            return {key: here(inner) for key, inner in value.items()}
        return value

    samples = DATABASE[name].optim_error_inputs_func(device="cpu", dtype=torch.float32)
    assert len(samples) >= 7
    for sample in samples:
        leaves: dict[int, Tensor] = {}
        found = sample.optimizer_error_input
        params = found.params if found.params is not None else [torch.nn.Parameter(torch.ones(1))]
        with pytest.raises((TypeError, ValueError)):
            getattr(optim, name)(here(params), **here(found.kwargs))
            pytest.fail(f"{name} accepts: {found.desc}")


@pytest.mark.parametrize("name", BOTH)
def test_schedules_of_the_database_give_pytorchs_rates(name: str) -> None:
    for makers in DATABASE[name].scheduler_inputs:
        mine, its, parameters = pair(name, {"lr": 0.01})
        schedules = []
        for make in makers:
            here = {n: getattr(optim, n) for n in make.__code__.co_names if hasattr(optim, n)}
            schedules.append(types.FunctionType(make.__code__, here)(mine))
            schedules.append(make(its))

        def after(step: int, mine: Any = mine, its: Any = its, schedules: Any = schedules) -> None:
            for schedule in schedules:
                args = (1.0,) if "Plateau" in type(schedule).__name__ else ()
                schedule.step(*args)
            rates = [[group["lr"] for group in o.param_groups] for o in (mine, its)]
            assert rates[0] == pytest.approx(rates[1], rel=1e-9, abs=1e-15), step

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare_steps(mine, its, parameters, 30, after)


def test_other_optimizers_of_the_database_say_what_there_is() -> None:
    others = [name for name in DATABASE if name not in BOTH]
    assert len(BOTH) == 3 and len(others) > 10
    assert [name for name in others if not advice("minigrad.optim", name)] == []


# -- signatures

PAIRS = [
    (ours, getattr(module, name))
    for name, ours in vars(optim).items()
    for module in (torch.optim.lr_scheduler if name in optim.schedules.__all__ else torch.optim,)
    if isinstance(ours, type) and hasattr(module, name)
]
PAIRS.append((optim.clip_grad_norm_, torch.nn.utils.clip_grad_norm_))
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@pytest.mark.parametrize("ours, theirs", PAIRS, ids=lambda f: f.__name__)
def test_a_position_means_what_it_means_in_pytorch(ours: Any, theirs: Any) -> None:
    mine, its = (list(inspect.signature(f).parameters.values()) for f in (ours, theirs))
    for position, parameter in enumerate(mine):
        if parameter.kind in BY_POSITION:
            assert its[position].name == parameter.name
        same = next((p for p in its if p.name == parameter.name), None)
        if same is not None and parameter.default is not parameter.empty:
            assert parameter.default == same.default, parameter.name


@pytest.mark.parametrize("ours, theirs", PAIRS, ids=lambda f: f.__name__)
def test_an_argument_that_only_pytorch_has_is_refused_by_name(ours: Any, theirs: Any) -> None:
    mine, its = (inspect.signature(f).parameters for f in (ours, theirs))
    first = optim.SGD([Tensor(np.ones(1), True)], momentum=0.9)
    values: dict[str, Any] = {"params": [Tensor(np.ones(1), True)], "parameters": []}
    values |= {"optimizer": first, "schedulers": [optim.ExponentialLR(first, 0.9)]}
    values |= {"max_norm": 1.0, "lr_lambda": abs, "milestones": [], "defaults": {}}
    needed = [n for n, p in mine.items() if p.default is p.empty]
    arguments = {name: values.get(name, 2) for name in needed}
    for name in its.keys() - mine.keys():
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            ours(**arguments, **{name: 1})

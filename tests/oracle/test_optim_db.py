"""PyTorch's database of optimizers.

`optim_db` lists the arguments with which PyTorch tests each optimizer, those that it refuses, and
schedules for each. Parameters have to agree in float64 to 1e-10.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from support.torch_databases import as_ours, import_database, torch

from minigrad import Tensor, optim

DATABASE = {info.name: info for info in import_database("common_optimizers", "optim_db")}
BOTH = [name for name in DATABASE if hasattr(optim, name)]
REFUSED = {"tensor lr": "a learning rate is a number, not a tensor"}
"""Inputs that PyTorch accepts and minigrad refuses, and the reason."""


def optimizer_pair(name: str, kwargs: dict[str, Any]) -> tuple[Any, Any, list[tuple[Tensor, Any]]]:
    """Return an optimizer of both libraries for the same parameters in two groups."""
    rng = np.random.default_rng(3)
    starts = [rng.standard_normal(shape) for shape in ((3, 4), (5,), (2, 2), ())]
    tensors = [Tensor(x.copy(), requires_grad=True) for x in starts]
    their_tensors = [torch.tensor(x, requires_grad=True) for x in starts]
    groups = lambda ps: [{"params": ps[:2]}, {"params": ps[2:], "lr": 0.003}]
    ours = getattr(optim, name)(groups(tensors), **kwargs)
    theirs = getattr(torch.optim, name)(groups(their_tensors), **kwargs)
    return ours, theirs, list(zip(tensors, their_tensors))


def compare_step(ours: Any, theirs: Any, parameters: Any, step: int) -> None:
    """Take the same step; some parameters have no gradient at some steps, one at the first ten."""
    rng = np.random.default_rng(step)
    for i, (p, q) in enumerate(parameters):
        g = rng.standard_normal(p.shape)
        has_none = (step + i) % 4 == 3 or (i == 1 and step < 10)
        p.grad, q.grad = (None, None) if has_none else (g, torch.tensor(g))
    ours.step()
    theirs.step()
    for i, (p, q) in enumerate(parameters):
        message = f"parameter {i} at step {step}"
        np.testing.assert_allclose(p.data, q.detach().numpy(), 1e-10, 1e-13, err_msg=message)


@pytest.mark.parametrize("name", BOTH)
def test_optimizer_steps_equal_pytorch_for_every_input_of_its_database(name: str) -> None:
    compared = 0
    for sample in DATABASE[name].optim_inputs_func(device="cpu"):
        if sample.desc in REFUSED:
            with pytest.raises(TypeError, match="lr must be a number"):
                getattr(optim, name)([Tensor(np.ones(1), True)], **sample.kwargs)
            continue
        pair = optimizer_pair(name, sample.kwargs)
        for step in range(14):
            compare_step(*pair, step)
        compared += 1
    assert compared >= 5


@pytest.mark.parametrize("name", BOTH)
def test_optimizer_refuses_what_pytorch_refuses(name: str) -> None:
    samples = DATABASE[name].optim_error_inputs_func(device="cpu", dtype=torch.float32)
    assert len(samples) >= 7
    for sample in samples:
        error_input, leaves = sample.optimizer_error_input, {}
        params = error_input.params
        params = [torch.ones(1, requires_grad=True)] if params is None else params
        with pytest.raises((TypeError, ValueError)):
            getattr(optim, name)(as_ours(params, leaves), **as_ours(error_input.kwargs, leaves))
            pytest.fail(f"{name} accepts: {error_input.desc}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BOTH)
def test_schedules_of_the_database_give_the_rates_of_pytorch(name: str) -> None:
    compared = 0
    for makers in DATABASE[name].scheduler_inputs:
        names = {n for make in makers for n in make.__code__.co_names}
        if not all(hasattr(optim, n) for n in names):  # a schedule that is not here
            continue
        compared += 1
        ours, theirs, parameters = optimizer_pair(name, {"lr": 0.01})
        schedules = []
        for make in makers:
            here = {n: getattr(optim, n) for n in make.__code__.co_names}
            schedules += [types.FunctionType(make.__code__, here)(ours), make(theirs)]
        for step in range(30):
            compare_step(ours, theirs, parameters, step)
            for schedule in schedules:
                schedule.step(*((1.0,) if "Plateau" in type(schedule).__name__ else ()))
            rates = [[group["lr"] for group in o.param_groups] for o in (ours, theirs)]
            assert rates[0] == pytest.approx(rates[1], rel=1e-9, abs=1e-15), step
    assert compared

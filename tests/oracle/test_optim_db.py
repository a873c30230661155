"""PyTorch's database of optimizers.

`optim_db` lists the arguments with which PyTorch tests each optimizer, those that it refuses, and
schedules for each. Parameters have to agree in float64 to 1e-10.
"""

from __future__ import annotations

import types
import warnings
from typing import Any

import numpy as np
import pytest
from torch_databases import import_database, torch

from minigrad import Tensor, optim
from minigrad.advice import advice

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


def compare_steps(ours: Any, theirs: Any, parameters: Any, steps: int, after: Any = None) -> None:
    """Take the same steps; some parameters have no gradient at some steps, one at the first ten."""
    rng = np.random.default_rng(4)
    for step in range(steps):
        for i, (p, q) in enumerate(parameters):
            p.grad = q.grad = None
            if (step + i) % 4 == 3 or (i == 1 and step < 10):
                continue
            g = rng.standard_normal(p.shape)
            p.grad, q.grad = g.copy(), torch.tensor(g)
        ours.step()
        theirs.step()
        for i, (p, q) in enumerate(parameters):
            expected = q.detach().numpy()
            message = f"parameter {i} at step {step}"
            np.testing.assert_allclose(p.data, expected, rtol=1e-10, atol=1e-13, err_msg=message)
        if after is not None:
            after(step)


@pytest.mark.parametrize("name", BOTH)
def test_optimizer_steps_equal_pytorch_for_every_input_of_its_database(name: str) -> None:
    compared = 0
    for sample in DATABASE[name].optim_inputs_func(device="cpu"):
        if sample.desc in REFUSED:
            with pytest.raises(TypeError, match="lr must be a number"):
                getattr(optim, name)([Tensor(np.ones(1), True)], **sample.kwargs)
            continue
        compare_steps(*optimizer_pair(name, sample.kwargs), 14)
        compared += 1
    assert compared >= 5


@pytest.mark.parametrize("name", BOTH)
def test_optimizer_refuses_what_pytorch_refuses(name: str) -> None:
    def here(value: Any) -> Any:
        """Return arguments with our tensors for those of PyTorch."""
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
        error_input = sample.optimizer_error_input
        params = (
            error_input.params
            if error_input.params is not None
            else [torch.nn.Parameter(torch.ones(1))]
        )
        with pytest.raises((TypeError, ValueError)):
            getattr(optim, name)(here(params), **here(error_input.kwargs))
            pytest.fail(f"{name} accepts: {error_input.desc}")


@pytest.mark.parametrize("name", BOTH)
def test_schedules_of_the_database_give_the_rates_of_pytorch(name: str) -> None:
    for makers in DATABASE[name].scheduler_inputs:
        ours, theirs, parameters = optimizer_pair(name, {"lr": 0.01})
        schedules = []
        for make in makers:
            here = {n: getattr(optim, n) for n in make.__code__.co_names if hasattr(optim, n)}
            schedules.append(types.FunctionType(make.__code__, here)(ours))
            schedules.append(make(theirs))

        def after(
            step: int, ours: Any = ours, theirs: Any = theirs, schedules: Any = schedules
        ) -> None:
            for schedule in schedules:
                args = (1.0,) if "Plateau" in type(schedule).__name__ else ()
                schedule.step(*args)
            rates = [[group["lr"] for group in o.param_groups] for o in (ours, theirs)]
            assert rates[0] == pytest.approx(rates[1], rel=1e-9, abs=1e-15), step

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare_steps(ours, theirs, parameters, 30, after)


def test_other_optimizers_of_the_database_have_advice() -> None:
    others = [name for name in DATABASE if name not in BOTH]
    assert len(BOTH) == 3 and len(others) > 10
    assert [name for name in others if not advice("minigrad.optim", name)] == []

"""Optimizers and clipping against the formulas of the papers, for drawn programs of steps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edges import overwrite

from minigrad import Tensor, optim
from minigrad.fast import stepper

Settings = dict[str, Any]

shapes = st.sampled_from([(), (1,), (3,), (0,), (2, 3), (5, 1, 2)])
parameters = st.tuples(shapes, st.sampled_from(["float64", "float32"]))
rates = st.sampled_from([1.0, 0.1, 0.003])
decays = st.sampled_from([0.1, 0.0])
averages = st.sampled_from([(0.9, 0.999), (0.5, 0.8), (0.0, 0.5), (0.9, 0.0)])


@dataclass
class Group:
    """Parameters with their own settings, and the step before which they are added."""

    parameters: list[tuple[tuple[int, ...], str]]
    settings: Settings
    since: int


@dataclass
class Step:
    """What happens in one step.

    `missing` are parameters without a gradient, `changes` settings by group. The optimizer is
    replaced by a new one with its state if `reloaded`.
    """

    missing: set[int]
    changes: dict[int, Settings]
    reloaded: bool
    by_backward: bool


def settings_of(kind: str) -> st.SearchStrategy[Settings]:
    common = {"lr": rates, "weight_decay": decays, "maximize": st.booleans()}
    if kind != "SGD":
        own = {"betas": averages, "eps": st.sampled_from([1e-8, 1e-3]), "amsgrad": st.booleans()}
        return st.fixed_dictionaries({**common, **own})
    momentum = {"momentum": st.sampled_from([0.5, 0.9])}
    dampened = {**momentum, "dampening": st.sampled_from([0.3, 0.8])}
    nesterov = {**momentum, "nesterov": st.just(True)}
    kinds = (dampened, nesterov, momentum, {})
    return st.one_of([st.fixed_dictionaries(common | own) for own in kinds])


def changes_of(kind: str) -> st.SearchStrategy[Settings]:
    """Return settings that may be changed between steps; arrays of state must exist before."""
    names = {"lr": rates | st.just(0.0), "weight_decay": decays, "maximize": st.booleans()}
    return st.fixed_dictionaries(
        {}, optional=names | ({} if kind == "SGD" else {"betas": averages})
    )


def groups_of(kind: str) -> st.SearchStrategy[list[Group]]:
    group = st.builds(
        Group, st.lists(parameters, min_size=1, max_size=4), settings_of(kind), st.integers(0, 2)
    )
    return st.lists(group, min_size=1, max_size=3)


def steps_of(kind: str) -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step,
        st.sets(st.integers(0, 8), max_size=4),
        st.dictionaries(st.integers(0, 2), changes_of(kind), max_size=2),
        st.booleans(),
        st.booleans(),
    )
    return st.lists(step, min_size=2, max_size=6)


KINDS = {"SGD": optim.SGD, "Adam": optim.Adam, "AdamW": optim.AdamW}


class Reference:
    """One parameter in float64, and what its optimizer remembers of it."""

    def __init__(self, values: np.ndarray) -> None:
        self.x = values.astype(float)
        self.t = 0
        self.m: Any = None
        self.v: Any = 0.0
        self.largest: Any = 0.0

    def sgd(self, g: np.ndarray, s: Settings) -> None:
        d = g + s["weight_decay"] * self.x
        if s["momentum"] != 0:
            is_first = self.m is None
            self.m = d if is_first else s["momentum"] * self.m + (1 - s["dampening"]) * d
            d = d + s["momentum"] * self.m if s["nesterov"] else self.m
        self.x = self.x - s["lr"] * d

    def adam(self, g: np.ndarray, s: Settings, decoupled: bool) -> None:
        """Kingma, Ba (2015), algorithm 1; Loshchilov, Hutter (2019), algorithm 2."""
        (b1, b2), lr, decay = s["betas"], s["lr"], s["weight_decay"]
        g = g if decoupled else g + decay * self.x
        self.t += 1
        self.m = b1 * (0.0 if self.m is None else self.m) + (1 - b1) * g
        self.v = b2 * self.v + (1 - b2) * g**2
        self.largest = np.maximum(self.largest, self.v) if s["amsgrad"] else self.v
        m, v = self.m / (1 - b1**self.t), self.largest / (1 - b2**self.t)
        shrunk = (1 - lr * decay) * self.x if decoupled else self.x
        self.x = shrunk - lr * m / (np.sqrt(v) + s["eps"])

    def step(self, kind: str, g: np.ndarray, s: Settings) -> None:
        g = -g if s["maximize"] else g
        if kind == "SGD":
            self.sgd(g, s)
        else:
            self.adam(g, s, kind == "AdamW")


def assert_close(found: np.ndarray, expected: Any, clips: bool, message: str = "") -> None:
    """Compare; where gradients of two dtypes are clipped, their norm is one of single precision."""
    exact = found.dtype == np.float64
    rtol, atol = ((1e-4, 1e-6) if clips else (1e-9, 1e-11)) if exact else (1e-3, 3e-5)
    np.testing.assert_allclose(found, expected, rtol, atol, err_msg=message)


def other(settings: Settings) -> Settings:
    """Return other settings, for which an optimizer has the same arrays of state."""
    found = {name: x / 2 for name, x in settings.items() if isinstance(x, float)}
    found |= {name: tuple(b / 2 for b in x) for name, x in settings.items() if name == "betas"}
    return settings | found | {"maximize": not settings["maximize"]}


def reloaded(optimizer: Any, leaves: list[list[Tensor]]) -> Any:
    """Return a new optimizer of other settings with the state of another one, through JSON."""
    state = optimizer.state_dict()
    expected = [{k: v for k, v in s.items() if k != "params"} for s in optimizer.param_groups]
    settings = [{**other(s), "params": ps} for s, ps in zip(expected, leaves)]
    again = type(optimizer)(settings, clip_norm=optimizer.clip_norm)
    arrays = {name: array.copy() for name, array in state["arrays"].items()}
    again.load_state_dict({"groups": json.loads(json.dumps(state["groups"])), "arrays": arrays})
    for found, group in zip(again.param_groups, expected, strict=True):
        assert {name: found[name] for name in group} == group
    overwrite(arrays)
    return again


@dataclass
class Program:
    """A training loop; `block` is the number of elements that are changed together."""

    kind: str
    groups: list[Group]
    steps: list[Step]
    clip_norm: float | None
    block: int
    seed: int


@cache
def programs(kind: str) -> st.SearchStrategy[Program]:
    return st.builds(
        Program,
        st.just(kind),
        groups_of(kind),
        steps_of(kind),
        st.sampled_from([None, 0.1, 3.0, 100.0]),
        st.integers(1, 12),
        st.integers(0, 2**32 - 1),
    )


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_steps_of_any_program_equal_the_formulas(kind: str, data: st.DataObject) -> None:
    assert_formulas_hold(data.draw(programs(kind)))


def assert_formulas_hold(program: Program) -> None:
    kind, groups, clip_norm = program.kind, program.groups, program.clip_norm
    rng = np.random.default_rng(program.seed)
    leaves = [
        [Tensor(np.asarray(rng.normal(size=shape), dtype), requires_grad=True) for shape, dtype in g.parameters]
        for g in groups
    ]  # fmt: skip
    expected = [[Reference(p.data) for p in ps] for ps in leaves]
    is_mixed = any(p.dtype == np.float32 for ps in leaves for p in ps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepper, "BLOCK", program.block)
        first = {**groups[0].settings, "params": leaves[0]}
        optimizer = KINDS[kind]([first], clip_norm=clip_norm)
        active = [0]
        for number, step in enumerate(program.steps):
            for i, group in enumerate(groups):
                if i not in active and number >= group.since:
                    optimizer.add_param_group({**group.settings, "params": leaves[i]})
                    active.append(i)
            for i, settings in step.changes.items():
                if i < len(active):
                    optimizer.param_groups[i].update(settings)
            if step.reloaded:
                optimizer = reloaded(optimizer, [leaves[i] for i in active])
            optimizer.zero_grad()
            members = [(i, j) for i in active for j in range(len(leaves[i]))]
            gradients: dict[tuple[int, int], np.ndarray] = {}
            for index, (i, j) in enumerate(members):
                p = leaves[i][j]
                if index not in step.missing:
                    g = np.asarray(rng.normal(size=p.shape) * rng.integers(0, 2, p.shape), p.dtype)
                    gradients[i, j] = g.astype(float)
                    if step.by_backward:
                        (p * g).sum().backward()
                    else:
                        p.grad = g
            norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
            assert optimizer.step() == pytest.approx(norm, rel=1e-5)
            factor = 1.0 if clip_norm is None else min(1.0, clip_norm / (norm + 1e-6))
            for position, i in enumerate(active):
                settings = optimizer.param_groups[position]
                for j, (p, reference) in enumerate(zip(leaves[i], expected[i])):
                    if (i, j) in gradients:
                        reference.step(kind, gradients[i, j] * factor, settings)
                        assert p.grad is not None
                        np.testing.assert_array_equal(p.grad.data, gradients[i, j])
                    assert p.dtype == groups[i].parameters[j][1]
                    message = f"step {number}, group {i}, parameter {j}"
                    assert_close(p.data, reference.x, is_mixed and clip_norm is not None, message)


@given(
    members=st.lists(st.tuples(parameters, st.booleans()), max_size=5),
    max_norm=st.sampled_from([0.0, 0.1, 1.0, 2.0, 1e3]),
    owned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_clip_grad_norm_scales_all_gradients_to_the_norm(
    members: list[tuple[tuple[tuple[int, ...], str], bool]],
    max_norm: float,
    owned: bool,
    seed: int,
) -> None:
    """Also if an optimizer owns the gradients, whose step with `clip_norm` is the same."""
    rng = np.random.default_rng(seed)
    leaves = [Tensor(np.zeros(shape, dtype), requires_grad=True) for (shape, dtype), _ in members]
    sgd = optim.SGD(leaves, lr=1.0) if owned and leaves else None
    expected: list[Any] = []
    for p, (_, has_gradient) in zip(leaves, members):
        g = np.asarray(rng.normal(size=p.shape), p.dtype)
        if has_gradient:
            (p * g).sum().backward()
        expected.append(g.astype(float) if has_gradient else None)
    norm = np.sqrt(sum((g**2).sum() for g in expected if g is not None))
    is_mixed = any(p.dtype == np.float32 for p in leaves)
    assert optim.clip_grad_norm_(leaves, max_norm) == pytest.approx(norm, rel=1e-5)
    for p, g in zip(leaves, expected):
        if g is None:
            assert p.grad is None
        else:
            factor = max_norm / (norm + 1e-6) if norm > max_norm else 1.0
            assert_close(p.grad.data, g * factor, is_mixed)
    if sgd is not None:
        clipped = [None if p.grad is None else p.grad.data.copy() for p in leaves]
        sgd.step()
        for p, c in zip(leaves, clipped):
            np.testing.assert_array_equal(p.data, 0 if c is None else -c)

"""Random compositions of all registered ops, to third order, against differences of their values.

A program is a few calls drawn from `opinfo.TABLE`. Every floating operand of a call follows values that
were computed before, from a starting point that is as the table drew it, or rounded to whole numbers:
integer exponents, zeros and ties are where rules break. The whole is a function of one number, whose
first three derivatives are held against finite differences of 13 points, which know nothing of rules.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from opinfo import TABLE, Draw, OpInfo, Sample

import minigrad as mg
from minigrad import Tensor

ORDERS = (1, 2, 3)
POINTS = np.arange(-6, 7)
# row k: what the values at POINTS are weighted with to give the k-th derivative, for steps of length 1
STENCIL = np.linalg.inv(np.vander(POINTS / 6.0, increasing=True)) * [
    [1 / 6.0**k] for k in range(13)
]

# Where elements are equal, or at a kink, values can move smoothly (two that touch and part again, the middle one of
# three), and no rule can tell along which: these ops are not begun from whole numbers.
_CHOOSING = (
    "quantile",
    "percentile",
    "median",
    "sort",
    "part",
    "top_k",
    "max",
    "min",
    "ptp",
    "clip",
    "abs",
    "relu",
    "elu",
    "softplus",
    "sign",
    "norm",
    "huber",
    "smooth",
    "l1",
    "interp",
)
CHOOSING = {name for name in TABLE if any(word in name for word in _CHOOSING)}


class Step:
    """A call of one op; `follow` says how each floating operand moves with an earlier value.

    No two elements move alike, so that a tie of several is a kink, which `problem` sees.
    """

    def __init__(
        self, info: OpInfo, sample: Sample, rng: np.random.Generator, earlier: list[np.ndarray]
    ) -> None:
        self.info, self.sample = info, sample
        self.follow: dict[int, tuple[int, np.ndarray, np.ndarray, Any]] = {}
        for i, x in enumerate(sample.operands):
            if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.size:
                source = int(rng.integers(max(0, len(earlier) - 2), len(earlier)))
                places = rng.integers(0, earlier[source].size, x.shape)
                start = earlier[source].reshape(-1)[places]
                self.follow[i] = source, places, start, rng.uniform(0.2, 0.5, x.shape)

    def __call__(self, earlier: list[Any]) -> list[Any]:
        operands = list(self.sample.operands)
        for i, (source, places, start, scale) in self.follow.items():
            moved = np.sin(np.reshape(earlier[source], (-1,))[places] - start + 0.5) - np.sin(0.5)
            operands[i] = operands[i] + moved * scale
        result = self.info.call(*operands, **self.sample.options)
        results = result if isinstance(result, (list, tuple)) else [result]
        return [y for y in results if isinstance(y, Tensor) and y.dtype.kind == "f" and y.size]


def _is_regular(info: OpInfo, operands: list[Any], options: dict[str, Any]) -> bool:
    """Whether an op has finite values there, and no slope that is infinite, as arccos has at 1."""
    moving = [isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in operands]
    tracked = [Tensor(x, requires_grad=True) if moves else x for x, moves in zip(operands, moving)]
    try:
        y = info.call(*tracked, **options)
    except np.linalg.LinAlgError:
        return False
    if not isinstance(y, Tensor) or not np.isfinite(y.data).all():
        return False
    if y.requires_grad:
        y.sum().backward()
    return not any(
        np.isinf(t.grad.data).any()
        for t, moves in zip(tracked, moving)
        if moves and t.grad is not None
    )


class Program:
    """A function of one number: 4 to 8 calls, one of them of `info` (from whole numbers, if `whole`)."""

    def __init__(self, info: OpInfo, data: Any, whole: bool) -> None:
        draw = Draw(data.draw)
        self.rng = np.random.default_rng(
            [*info.name.encode(), draw.rng.integers(2**32)]
        )  # no two ops meet the same
        self.x, self.v = self.rng.standard_normal((2, 5))
        chosen = [
            TABLE[str(name)] for name in self.rng.choice(list(TABLE), int(self.rng.integers(3, 8)))
        ]
        chosen.insert(int(self.rng.integers(0, len(chosen) + 1)), info)
        self.steps: list[Step] = []
        values: list[Any] = [self.x]
        for one in chosen:
            rounded = whole if one is info else bool(self.rng.random() < 0.3)
            step = Step(
                one,
                self._start(one, draw, rounded),
                self.rng,
                [np.asarray(value) for value in values],
            )
            results = step(values)
            if results and all(np.isfinite(y.data).all() for y in results):
                self.steps.append(step)
                values += [y.data for y in results]
        self.weights = [
            self.rng.standard_normal(value.shape) / np.sqrt(value.size) for value in values
        ]

    def _start(self, info: OpInfo, draw: Draw, rounded: bool) -> Sample:
        sample = info.samples(draw)
        if rounded and info.name not in CHOOSING:
            whole = [
                np.asarray(np.ceil(x)) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x
                for x in sample.operands
            ]
            if _is_regular(info, whole, sample.options):
                sample.operands = whole
        return sample

    def values(self, t: Any) -> list[Any]:
        """All that is computed on the way: as arrays if `t` is a number."""
        found: list[Any] = [self.x + t * self.v]
        for step in self.steps:
            results = step(found)
            found += results if isinstance(t, Tensor) else [y.data for y in results]
        return found

    def __call__(self, t: Any) -> Any:
        return sum([(value * w).sum() for value, w in zip(self.values(t), self.weights)][-3:])

    def differences(self, *steps: int, h: float = 0.01) -> list[tuple[np.ndarray, np.ndarray]]:
        """For points that are so many `h` apart: the first three derivatives at 0, of the result and (a column each) of
        every number on the way."""
        with mg.no_grad():
            found = {int(k): self.values(k * h) for k in {*np.outer(steps, POINTS).flat}}
        rows = {
            k: np.concatenate([value.ravel() for value in values]) for k, values in found.items()
        }
        sizes = np.cumsum([w.size for w in self.weights])
        last = sizes[-4] if len(sizes) > 3 else 0
        weights = np.concatenate([w.ravel() for w in self.weights[-3:]])
        results = []
        for step in steps:
            y = np.array([rows[k] for k in step * POINTS])
            slopes = np.array(
                [STENCIL[k] @ y * math.factorial(k) / (step * h) ** k for k in ORDERS]
            )
            results.append((slopes[:, last:] @ weights, slopes))
        return results

    def derivatives(self) -> np.ndarray:
        """The first three derivatives at 0, of the engine."""
        t, found = Tensor(0.0, requires_grad=True), []
        y = self(t)
        for order in ORDERS:
            more = order < ORDERS[-1]
            dy = (
                mg.gradients(y, t, create_graph=more, allow_unused=True)[0]
                if y.requires_grad
                else None
            )
            y = Tensor(0.0) if dy is None else dy
            found.append(y.item())
        return np.array(found)

    def __repr__(self) -> str:
        return " -> ".join(
            f"{s.info.name}({s.sample.operands}, {s.sample.options})" for s in self.steps
        )


def problem(program: Program) -> str | None:
    """What is wrong with the derivatives; None if nothing is, or if a value on the way is not smooth there."""
    try:
        (fine, every), (coarse, other) = program.differences(1, 2)
    except (
        np.linalg.LinAlgError,
        ValueError,
    ):  # NaN on the way to a decomposition, or a value out of its range
        return None
    if not np.all(np.abs(every - other) <= 1e-3 * np.maximum(1.0, np.abs(every))):
        return None
    size, doubt = np.maximum(1.0, np.abs(fine)), np.abs(fine - coarse)
    got = program.derivatives()
    if np.all(np.abs(got - fine) <= 5 * doubt + 1e-5 * size):
        return None
    return f"derivatives {got}, expected {fine} (within {doubt}) of {program}"


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
@settings(
    max_examples=settings.default.max_examples // 6,  # type: ignore[union-attr]
    phases=[
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ],  # a program says what is wrong; to shrink it takes minutes
)
@given(data=st.data())
def test_third_derivatives_of_compositions(info: OpInfo, data: Any) -> None:
    with np.errstate(all="ignore"):
        for whole in (False, True) if info.name not in CHOOSING else (False,):
            assert (wrong := problem(Program(info, data, whole))) is None, wrong

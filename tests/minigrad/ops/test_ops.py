"""Properties of all ops, on the samples of `tests/support/opinfo`."""

from __future__ import annotations

import copy
import gc
import weakref
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edges import overwrite
from support.environment import max_examples
from support.opinfo import NO_GRADIENT, TABLE, OpInfo, Sample, cotangents, samples
from support.opinfo.base import Draw

import minigrad as mg
from minigrad import Tensor
from minigrad.graph import topological
from minigrad.registry import FUNCTIONS, OPS

every = pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))


MODULES = "minigrad.ops", "minigrad.numpy", "minigrad.torch.losses", "nn.options.activations"
NESTED = {"block", "np.vsplit", "np.hsplit", "np.dsplit"}
"""Functions of nested lists of arrays, and of arrays only."""
DOUBLE = {"interp", "cov", "corrcoef", "quantile", "percentile", "heaviside"}
"""Functions whose results are of float64 in NumPy."""


def gradients(ys: list[Tensor], leaves: list[Tensor], gs: list[np.ndarray]) -> list[Any]:
    """Return the gradients of `leaves`, None where no result depends on one."""
    tracked = [(y, g) for y, g in zip(ys, gs) if y.requires_grad]
    if not tracked:
        return [None] * len(leaves)
    results, weights = map(list, zip(*tracked))
    grads = mg.gradients(results, leaves, weights, allow_unused=True)
    return [None if g is None else g.data for g in grads]


def assert_equal(values: list[Any], expected: list[Any]) -> None:
    """Compare arrays up to rounding; None equals None."""
    for value, e in zip(values, expected, strict=True):
        assert (value is None) == (e is None)
        if e is not None:
            assert value.shape == np.shape(e)
            if not np.array_equal(value, e):
                np.testing.assert_allclose(value, e, rtol=1e-10, atol=1e-12)


def test_table_has_entries_of_all_ops_and_functions_with_gradients() -> None:
    functions = {name for name, f in FUNCTIONS.items() if f.__module__.startswith(MODULES)}
    needed = set(OPS) | functions - NO_GRADIENT
    known = {name for name in TABLE if not name.startswith("np.")}
    assert needed <= known, f"add to tests/support/opinfo: {sorted(needed - known)}"
    assert known <= needed, f"remove from tests/support/opinfo: {sorted(known - needed)}"


@every
@max_examples(8)
@given(data=st.data())
def test_op_value_equals_reference_and_records_nothing_without_need(
    info: OpInfo, data: st.DataObject
) -> None:
    sample = data.draw(samples(info))
    ys = sample.call(*map(Tensor, sample.floats))
    assert all(type(y.data) is np.ndarray and not y.requires_grad for y in ys)
    expected = sample.expected()
    if expected is not None:
        assert_equal([y.data for y in ys], expected)
    with mg.no_grad():
        assert sample.run()[1] == []
    if info.name not in NESTED and all(x.size for x in sample.arrays):
        assert_equal([y.data for y in sample.call_lists()], [y.data for y in ys])


@cache
def seeded_samples(info: OpInfo) -> st.SearchStrategy[tuple[Sample, int]]:
    return st.tuples(samples(info), st.integers(0, 2**32 - 1))


def is_analytic(sample: Sample, seed: int) -> bool:
    """Return whether an imaginary step gives the differences of an op, which may refuse it.

    Each operand is moved alone, since the slope along one may hide that along another.
    """
    rng = np.random.default_rng(seed)
    for i, operand in enumerate(sample.floats):
        direction = rng.standard_normal(operand.shape)
        moved: list[list[Any]] = [list(sample.floats) for _ in range(3)]
        for xs, step in zip(moved, (1e-20j, 1e-5, -1e-5)):  # the first may be refused
            xs[i] = operand + step * direction
        try:
            ends = [[np.asarray(y) for y in sample.call(*map(Tensor, xs))] for xs in moved]
        except (TypeError, ValueError, np.exceptions.ComplexWarning):
            return False
        for step, high, low in zip(*ends):
            atol = 1e-8 * (1e-3 + np.abs(high).max(initial=0))
            if not np.allclose(step.imag * 1e20, (high - low) / 2e-5, rtol=1e-4, atol=atol):
                return False
    return True


@every
@max_examples(8)
@given(data=st.data())
def test_op_has_first_and_second_derivatives(info: OpInfo, data: st.DataObject) -> None:
    """Compare along a random direction, with a random cotangent, and by each element of a few.

    First derivatives are compared with an imaginary step, which is exact to rounding, if the op is
    analytic, or with differences.
    """
    sample, seed = data.draw(seeded_samples(info))
    xs = sample.floats
    few = sum(x.size for x in xs) <= 6
    exact: Any = {"complex_step": True, "rtol": 1e-10, "atol": 1e-11}
    options = exact if is_analytic(sample, seed) else {}
    mg.gradcheck(sample.call, xs, elementwise=few, directions=1, seed=seed, **options)
    mg.gradgradcheck(sample.call, xs, elementwise=False, directions=1, rtol=1e-5, seed=seed)


@every
@max_examples(8)
@given(data=st.data())
def test_op_gradients_do_not_depend_on_layout_dtype_or_other_operands(
    info: OpInfo, data: st.DataObject
) -> None:
    sample = data.draw(samples(info))
    leaves = [Tensor(x, requires_grad=True) for x in sample.floats]
    ys = sample.call(*leaves)
    gs = data.draw(cotangents(ys))
    expected = gradients(ys, leaves, gs)

    copies = [Tensor(x.copy(), requires_grad=True) for x in sample.floats]
    has_lists = info.name not in NESTED and all(x.size for x in sample.arrays)
    form = data.draw(st.sampled_from((np.copy, np.ndarray.tolist))) if has_lists else np.copy
    sample.change_layouts(lambda x: np.copy(x) if x.dtype.kind == "f" else form(x))
    results = sample.call(*copies)
    assert_equal([y.data for y in results], [y.data for y in ys])
    before = copy.deepcopy((sample.operands, sample.options))
    overwrite([sample.operands, sample.options])
    assert_equal(gradients(results, copies, [g.copy() for g in gs]), expected)
    sample.operands, sample.options = before

    for i, leaf in enumerate(leaves):
        values: list[Any] = list(sample.floats)
        values[i] = leaf
        assert_equal(gradients(sample.call(*values), [leaf], gs), [expected[i]])

    leaves = [Tensor(x.astype(np.float32), requires_grad=True) for x in sample.floats]
    ys = sample.call(*leaves)
    gs = [g.astype(y.dtype) for g, y in zip(gs, ys)]
    for y in ys:
        wider = info.name in DOUBLE or not y.requires_grad or "dtype" in sample.options
        assert y.dtype == np.float32 or wider
    for x, g in zip(leaves, gradients(ys, leaves, gs)):
        assert g is None or (g.dtype == np.float32 and g.shape == x.shape)


@every
@max_examples(6)
@given(data=st.data())
def test_op_declares_views_its_rules_share_no_memory_and_its_graph_is_freed(
    info: OpInfo, data: st.DataObject
) -> None:
    """No rule writes to its cotangent, returns a saved array, or gives one array to two operands.

    The graph is freed without the garbage collector.
    """
    sample = data.draw(samples(info))
    gc.disable()
    try:
        leaves, ys = sample.run()
        for y in ys:
            if any(np.shares_memory(y.data, x.data) for x in leaves):
                assert y.is_leaf or y._node.op.view
        for node in topological([y._node for y in ys]):
            assert_rules_share_no_memory(node)
        nodes = [weakref.ref(y._node) for y in ys]
        for y in ys:
            y.backward(np.ones(y.shape), retain_graph=True)
        ys = y = node = None
        assert all(node() is None for node in nodes)
    finally:
        gc.enable()


class Chooser(Draw):
    """Draws from a seed, but `value` as the integer with number `at`; keeps the ranges of integers."""

    def __init__(self, at: int = -1, value: int = 0) -> None:
        self.rng = np.random.default_rng(0)
        self.at, self.value, self.ranges = at, value, list[range]()

    def integer(self, low: int, high: int) -> int:
        drawn = int(self.rng.integers(low, high, endpoint=True))
        self.ranges.append(range(low, high + 1))
        return min(max(self.value, low), high) if len(self.ranges) - 1 == self.at else drawn

    def codes(self, count: int) -> np.ndarray:
        return self.rng.integers(0, 2**16, count)


@pytest.mark.filterwarnings("ignore:Using `assume`")
def test_each_choice_of_each_op_has_the_value_of_the_reference_and_its_slope() -> None:
    """Each value of each option of a sample, such as an axis or a flag, beside the others as drawn."""
    count = 0
    for info in TABLE.values():
        info.samples(first := Chooser())
        for at, choices in enumerate(first.ranges):
            for value in choices if len(choices) <= 9 else (choices[0], choices[-1]):
                sample = info.samples(d := Chooser(at, value))
                sample.info = info
                assert_value_and_slope(sample, d.rng)
                count += 1
    assert count > 1000


def assert_value_and_slope(sample: Sample, rng: np.random.Generator) -> None:
    leaves = [Tensor(x, requires_grad=True) for x in sample.floats]
    ys, expected = sample.call(*leaves), sample.expected()
    if expected is not None:
        assert_equal([y.data for y in ys], expected)
    gs = [rng.standard_normal(y.shape) for y in ys]
    ways = [rng.standard_normal(x.shape) for x in leaves]

    def moved(step: float) -> float:
        values = [Tensor(x.data + step * way) for x, way in zip(leaves, ways)]
        results = zip(ys, sample.call(*values), gs)
        return sum(np.sum(y.data * g) for old, y, g in results if old.requires_grad)

    grads = gradients(ys, leaves, gs)
    found = sum(np.sum(g * way) for g, way in zip(grads, ways) if g is not None)
    slope, size = (moved(1e-5) - moved(-1e-5)) / 2e-5, sum(np.sum(np.abs(y.data)) for y in ys)
    assert abs(found - slope) < 1e-5 * (1 + abs(slope) + size), sample


def assert_rules_share_no_memory(node: Any) -> None:
    g = np.broadcast_to(1.5, node.shape)  # read-only
    for _, rule, args in node.edges:
        answer = rule(g, *args)
        results = answer if node.op.joint else [answer]
        saved = [a for v in args for a in (v if isinstance(v, tuple) else [v])]
        others = [a for a in saved if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
        for c in results:
            if c is not None and not np.shares_memory(c, g):
                assert not any(np.shares_memory(c, other) for other in others)
                others.append(c)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_power_of_numbers_is_that_of_numpy() -> None:
    assert np.isnan(mg.power(-0.5, 0.5).item())
    with pytest.raises(ValueError, match="negative integer powers"):
        mg.power(2, -1)

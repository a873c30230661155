"""Tests of all ops, on the samples of `tests/support/opinfo`."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from opinfo import EXAMPLES, NO_GRADIENT, TABLE, OpInfo, Sample, naming

import minigrad as mg
from minigrad import Tensor
from minigrad.core.graph import Node
from minigrad.core.registry import FUNCTIONS, OPS
from minigrad.core.tensor import DISPATCH

every = pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))


def cotangents(ys: list[Tensor]) -> list[np.ndarray]:
    """Draw a gradient of each result."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(y.shape).astype(y.dtype) for y in ys]


def gradients(ys: list[Tensor], leaves: list[Tensor], gs: list[np.ndarray]) -> list[Any]:
    """Return the gradients of `leaves`, None where no result depends on one."""
    if not ys:
        return [None] * len(leaves)
    grads = mg.gradients(ys, leaves, gs, allow_unused=True, retain_graph=True)
    return [None if g is None else g.data for g in grads]


def assert_equal(values: list[Any], expected: list[Any]) -> None:
    """Compare arrays up to rounding; None equals None."""
    for value, e in zip(values, expected, strict=True):
        assert (value is None) == (e is None)
        if e is not None:
            assert value.shape == np.shape(e)
            np.testing.assert_allclose(value, e, rtol=1e-10, atol=1e-12)


def test_table_has_entries_of_all_ops_and_of_functions_that_numpy_lacks() -> None:
    in_numpy = {getattr(f, "__name__", None) for f in DISPATCH}
    needed = set(OPS) | {
        name
        for name, f in FUNCTIONS.items()
        if name not in in_numpy | NO_GRADIENT and f.__module__ != "minigrad.torch_names"
    }
    assert needed <= set(TABLE), f"add to tests/support/opinfo: {sorted(needed - set(TABLE))}"
    assert not set(TABLE) - set(OPS) - set(FUNCTIONS), "remove entries from tests/support/opinfo"


@every
def test_op_value_equals_reference_and_records_nothing_without_need(info: OpInfo) -> None:
    for sample in info.each_sample(count=3 * EXAMPLES):
        with naming(sample):
            ys = sample.call(*map(Tensor, sample.floats.values()))
            expected = info.reference(*sample.operands, **sample.options)
            assert_equal(
                [y.data for y in ys],
                list(expected) if isinstance(expected, (list, tuple)) else [expected],
            )
            assert all(type(y.data) is np.ndarray and not y.requires_grad for y in ys)
            with mg.no_grad():
                assert sample.run()[1] == []


@every
def test_op_of_float32_has_results_and_gradients_of_float32(info: OpInfo) -> None:
    for sample in info.each_sample():
        with naming(sample):
            leaves, ys = sample.run(np.float32)
            assert all(y.dtype == sample.options.get("dtype", np.float32) for y in ys)
            for x, g in zip(leaves, gradients(ys, leaves, cotangents(ys))):
                assert g is None or (g.dtype == np.float32 and g.shape == x.shape)


def check_derivatives(info: OpInfo) -> None:
    """Compare first and second derivatives with finite differences."""
    for sample in info.each_sample():
        xs = list(sample.floats.values())
        with naming(sample):
            mg.gradcheck(sample.call, xs, elementwise=sum(x.size for x in xs) <= 12)
            mg.gradgradcheck(sample.call, xs, elementwise=False, directions=1, rtol=1e-5)


@every
def test_op_derivatives_equal_finite_differences(info: OpInfo) -> None:
    check_derivatives(info)


def check_kinks(info: OpInfo) -> None:
    """Compare values and derivatives at kinks with those on both sides."""
    for sample in info.each_sample(at_kinks=True):
        if sample.has_kinks and sample.floats:
            with naming(sample):
                assert_between_sides(sample)


def assert_between_sides(sample: Sample, step: float = 1e-4) -> None:
    """Check that f and f' lie between their values on both sides, and |f''| is at most their sum."""
    xs = tuple(sample.floats.values())
    rng = np.random.default_rng(0)
    us = tuple(rng.choice([-1, 1], x.shape) * rng.uniform(0.5, 1.5, x.shape) for x in xs)

    def slope(*points: Any) -> list[Any]:
        zero = 0 * sum(p.sum() for p in points)  # a constant slope depends on the points too
        return [y + zero for y in mg.jvp(sample.call, points, us)[1]]

    def orders(shift: float) -> list[list[np.ndarray]]:
        points = tuple(np.asarray(x + shift * u) for x, u in zip(xs, us))
        values, slopes = mg.jvp(sample.call, points, us)
        return [[y.data for y in ys] for ys in (values, slopes, mg.jvp(slope, points, us)[1])]

    with np.errstate(all="ignore"):
        sides = zip(orders(-step), orders(0), orders(step), strict=True)
    for order, results in enumerate(sides):
        for left, at, right in zip(*results, strict=True):
            if not np.isfinite(at).all():  # cbrt at 0
                return
            slack = 20 * step * (1 + np.abs(left) + np.abs(right))
            low, high = np.minimum(left, right) - slack, np.maximum(left, right) + slack
            if order == 2:  # either side can cross several kinks
                high = np.abs(left) + np.abs(right) + slack
                low = -high
            assert ((low <= at) & (at <= high)).all(), (
                f"derivative {order} along {us} is {at}, beside it {left} and {right}"
            )


@every
def test_op_derivatives_at_kinks_lie_between_both_sides(info: OpInfo) -> None:
    check_kinks(info)


def test_check_kinks_finds_second_derivative_that_is_wrong_at_its_kink() -> None:
    """|x| x has the second derivative 2 sign(x)."""
    rule = lambda g, x: g * np.where(x == 0, 9 * x, 2 * np.abs(x))
    f = mg.custom_op(x=rule)(lambda x, /: np.abs(x) * x)
    info = OpInfo("f", f, np.abs, lambda d: Sample(d.array((3,), kinks=(0,))))
    with pytest.raises(AssertionError, match="derivative 2"):
        check_kinks(info)


# -- memory --------------------------------------------------------------------------------------------


def rearranged(x: np.ndarray, layout: int) -> np.ndarray:
    """Return a read-only array with the same values in another memory layout."""
    if layout == 0:
        y = np.array(x.T).T
    elif layout == 1:
        y = np.zeros([2 * n for n in x.shape])[(..., *[slice(None, None, 2)] * x.ndim)]
        y[...] = x
    else:
        y = np.array(np.flip(x)).reshape(x.shape)[(..., *[slice(None, None, -1)] * x.ndim)]
    y.flags.writeable = False
    return y


@every
def test_op_of_read_only_arrays_in_other_layouts_has_the_same_gradients(info: OpInfo) -> None:
    for number, sample in enumerate(info.each_sample()):
        with naming(sample):
            leaves, ys = sample.run()
            gs = cotangents(ys)
            expected = gradients(ys, leaves, gs)
            others = [Tensor(rearranged(x.data, number % 3), requires_grad=True) for x in leaves]
            results = [y for y in sample.call(*others) if y.requires_grad]
            assert_equal([y.data for y in results], [y.data for y in ys])
            other_gs = [rearranged(g, number % 3) for g in gs]
            assert_equal(gradients(results, others, other_gs), expected)
            repeated = [np.broadcast_to(np.float64(1.5), y.shape) for y in ys]  # strides of 0
            copies = [g.copy() for g in repeated]
            assert_equal(gradients(ys, leaves, repeated), gradients(ys, leaves, copies))


@every
def test_op_of_one_tensor_among_arrays_has_the_same_gradient(info: OpInfo) -> None:
    for sample in info.each_sample():
        with naming(sample):
            leaves, ys = sample.run()
            gs = cotangents(ys)
            for i, expected in enumerate(gradients(ys, leaves, gs)):
                values: list[Any] = list(sample.floats.values())
                values[i] = Tensor(values[i], requires_grad=True)
                results = [y for y in sample.call(*values) if y.requires_grad]
                assert_equal(gradients(results, [values[i]], gs[: len(results)]), [expected])


@every
def test_op_rules_return_new_arrays_or_views_of_the_cotangent(info: OpInfo) -> None:
    for sample in info.each_sample():
        with naming(sample):
            for y in sample.run()[1]:
                assert_rules_share_nothing(y._node)


def assert_rules_share_nothing(node: Node) -> None:
    """Check that no rule returns memory of a saved array, or shares memory between two gradients."""
    for parent, rule, args in node.edges:
        g = np.random.default_rng(0).standard_normal(node.shape)
        g.flags.writeable = False
        answer = rule(g, *args)
        results = [c for c in (answer if node.op.joint else [answer]) if c is not None]
        saved = [
            a
            for value in args
            for a in (value if isinstance(value, tuple) else [value])
            if isinstance(a, np.ndarray) and a.dtype.kind == "f"
        ]
        for i, c in enumerate(results):
            assert not any(np.shares_memory(c, array) for array in saved)
            assert np.shares_memory(c, g) or not any(np.shares_memory(c, d) for d in results[:i])
        assert_rules_share_nothing(parent)


@every
def test_op_graph_is_freed_without_the_collector(info: OpInfo) -> None:
    sample = info.sample(0)
    gc.disable()
    try:
        _, ys = sample.run()
        nodes = [weakref.ref(y._node) for y in ys]
        for y in ys:
            y.backward(np.ones(y.shape), retain_graph=True)
        del ys, y
        assert all(node() is None for node in nodes)
    finally:
        gc.enable()

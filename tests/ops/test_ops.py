"""Tests of all ops, on the samples of `tests/support/opinfo`."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest
from opinfo import EXAMPLES, NO_GRADIENT, TABLE, OpInfo, naming

import minigrad as mg
from minigrad import Tensor
from minigrad.core.graph import topological
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
            if info.reference is not None:
                expected = info.reference(*sample.operands, **sample.options)
                parts = expected if isinstance(expected, (list, tuple)) else [expected]
                assert_equal([y.data for y in ys], parts)
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


@every
def test_op_derivatives_equal_finite_differences(info: OpInfo) -> None:
    """Compare first and second derivatives."""
    for sample in info.each_sample():
        xs = list(sample.floats.values())
        with naming(sample):
            mg.gradcheck(sample.call, xs, elementwise=sum(x.size for x in xs) <= 12)
            mg.gradgradcheck(sample.call, xs, elementwise=False, directions=1, rtol=1e-5)


@every
def test_op_of_one_tensor_among_arrays_has_the_same_gradient(info: OpInfo) -> None:
    for sample in info.each_sample():
        with naming(sample):
            leaves, ys = sample.run()
            gs = cotangents(ys)
            for i, expected in enumerate(gradients(ys, leaves, gs)):
                values: list[Any] = [x.data for x in leaves]
                values[i] = leaves[i]
                results = [y for y in sample.call(*values) if y.requires_grad]
                assert_equal(gradients(results, [leaves[i]], gs[: len(results)]), [expected])


@every
def test_op_of_lists_equals_op_of_arrays(info: OpInfo) -> None:
    for sample in info.each_sample():
        if all(x.size for x in sample.operands if isinstance(x, np.ndarray)):
            with naming(sample):
                lists = [x.tolist() if isinstance(x, np.ndarray) else x for x in sample.operands]
                results = info.call(*lists, **sample.options)
                parts = list(results) if isinstance(results, (list, tuple)) else [results]
                expected = sample.call(*sample.floats.values())
                assert_equal([y.data for y in parts], [y.data for y in expected])


@pytest.mark.parametrize(
    "f",
    [
        mg.gradient,
        mg.median,
        mg.nanmean,
        mg.nanstd,
        partial(mg.quantile, q=0.3),
        partial(mg.std, where=[True, False, True]),
        partial(mg.var, mean=[0.5]),
    ],
    ids=lambda f: getattr(f, "func", f).__name__,
)
def test_function_of_list_equals_function_of_array(f: Any) -> None:
    values = [-0.5, 2.0, 3.5]
    assert_equal([f(values).data], [f(np.array(values)).data])


@pytest.mark.filterwarnings("ignore:invalid value")
def test_power_of_numbers_is_that_of_numpy() -> None:
    assert np.isnan(mg.power(-0.5, 0.5).item())
    with pytest.raises(ValueError, match="negative integer powers"):
        mg.power(2, -1)


# -- memory --------------------------------------------------------------------------------------------


def rearranged(x: np.ndarray, step: int) -> np.ndarray:
    """Return a read-only array with the same values, transposed in memory, or also with gaps."""
    y = np.zeros([abs(step) * n for n in x.shape[::-1]])[(..., *[slice(None, None, step)] * x.ndim)]
    y.T[...] = x
    y.flags.writeable = False
    return y.T


@every
def test_op_of_read_only_arrays_in_other_layouts_has_the_same_gradients(info: OpInfo) -> None:
    for number, sample in enumerate(info.each_sample()):
        step = (1, -2)[number % 2]
        with naming(sample):
            leaves, ys = sample.run()
            gs = cotangents(ys)
            others = [Tensor(rearranged(x.data, step), requires_grad=True) for x in leaves]
            results = [y for y in sample.call(*others) if y.requires_grad]
            assert_equal([y.data for y in results], [y.data for y in ys])
            found = gradients(results, others, [rearranged(g, step) for g in gs])
            assert_equal(found, gradients(ys, leaves, gs))


@every
def test_op_rules_return_new_arrays_or_views_of_the_cotangent(info: OpInfo) -> None:
    """No rule writes to its cotangent, returns a saved array, or gives one array to two operands."""
    for sample in info.each_sample():
        with naming(sample):
            for node in topological([y._node for y in sample.run()[1]]):
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


@every
def test_op_graph_is_freed_without_the_collector(info: OpInfo) -> None:
    gc.disable()
    try:
        ys = info.sample(0).run()[1]
        nodes = [weakref.ref(y._node) for y in ys]
        for y in ys:
            y.backward(np.ones(y.shape), retain_graph=True)
        del ys, y
        assert all(node() is None for node in nodes)
    finally:
        gc.enable()

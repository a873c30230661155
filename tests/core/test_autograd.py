"""Backward passes: accumulation, freeing, hooks, modes and errors."""

from __future__ import annotations

import asyncio
import copy
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import GradientError, Tensor


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=True)


# -- accumulation ------------------------------------------------------------------------------------


def test_gradient_of_two_parents_is_not_added_into() -> None:
    a, b, c, d = (leaf(3, seed=i) for i in range(4))
    (((a + b) * d).sum() + (a * c).sum()).backward()
    np.testing.assert_array_equal(b.grad.data, d.data)
    np.testing.assert_array_equal(a.grad.data, d.data + c.data)


def test_gradients_add_up_over_backward_passes() -> None:
    x = leaf(3)
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    np.testing.assert_array_equal(x.grad.data, np.full(3, 5.0))
    assert np.shares_memory(first.data, x.grad.data)
    x.grad = None
    assert x.grad is None


def test_leaf_gradients_own_their_memory() -> None:
    x, y, w = leaf(3), leaf(3), leaf(3)
    g = np.ones(3)
    (x + y).backward(g)
    assert x.grad.data.flags.writeable
    assert not np.shares_memory(x.grad.data, y.grad.data)
    assert not np.shares_memory(x.grad.data, g)
    w.backward(g)  # a leaf is its own root
    assert not np.shares_memory(w.grad.data, g)
    x.grad.data[...] = 7
    np.testing.assert_array_equal(y.grad.data, np.ones(3))


def test_gradient_of_a_sum_is_no_broadcast_view() -> None:
    x = leaf(100, 100)
    x.sum().backward()
    x.grad.data[0, 0] = 5
    assert x.grad.data.sum() == 100 * 100 + 4


def test_backward_visits_each_node_once() -> None:
    x = y = Tensor(np.float64(1.0), requires_grad=True)
    for _ in range(60):  # 2^60 paths
        y = y * 0.5 + y * 0.5
    y.backward()
    assert x.grad.item() == 1.0


def test_float32_with_numbers_and_reductions_stays_float32() -> None:
    x = Tensor(np.ones((2, 3), np.float32), requires_grad=True)
    y = mg.where(x > 0, x * 2 + 1.5, 0.0) / 3 - 1 + x.mean() + x.std(0) ** 2 + 1 / x + 2**x
    assert y.dtype == np.float32


def test_gradient_has_the_dtype_of_its_operand() -> None:
    a, b = (Tensor(np.ones(3, dtype), requires_grad=True) for dtype in (np.float32, np.float64))
    (a * b).sum().backward()
    assert a.grad.dtype == np.float32 and b.grad.dtype == np.float64


# -- graph lifetime ----------------------------------------------------------------------------------


def test_graph_of_200_000_ops_needs_no_recursion() -> None:
    x = y = Tensor(np.ones(2), requires_grad=True)
    for _ in range(200_000):
        y = y + 1.0
    y.backward(np.ones(2), retain_graph=True)
    np.testing.assert_array_equal(x.grad.data, np.ones(2))
    del y


def test_node_is_freed_before_the_rules_of_its_parents_run() -> None:
    seen: list[int] = []
    kept: list[weakref.ref[np.ndarray]] = []

    @mg.custom_op(x=lambda g, x: watched(g))
    def probe(x, /):
        kept.append(weakref.ref(x))
        return x * 1.0

    def watched(g: np.ndarray) -> np.ndarray:
        seen.append(sum(k() is not None for k in kept))
        return g * 1.0

    h = leaf(10) * 1.0
    for _ in range(5):
        h = probe(h)
    h = h.sum()
    h.backward()
    assert seen == [5, 4, 3, 2, 1]


def test_second_backward_without_retain_graph_is_refused() -> None:
    x = leaf(3)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(x.grad.data, 4 * x.data)
    with pytest.raises(GradientError, match="sum: the graph is freed; pass retain_graph=True"):
        y.backward()
    h = x * x
    a, b = h.sum(), h.mean()
    a.backward()
    with pytest.raises(GradientError, match="multiply: the graph is freed"):
        b.backward()


# -- hooks -------------------------------------------------------------------------------------------


def test_hook_sees_and_replaces_the_gradient() -> None:
    x = leaf(3)
    h = x * 2
    seen = []
    handle = h.register_hook(lambda g: seen.append(g.data.copy()))
    h.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    (h * h).sum().backward()
    np.testing.assert_allclose(seen[0], 4 * x.data)
    np.testing.assert_allclose(x.grad.data, 80 * x.data + 1)
    handle.remove()
    handle.remove()
    y = x * 2
    y.register_hook(lambda g: np.zeros(2))
    with pytest.raises(
        GradientError,
        match=r"hook must return a gradient of shape \(3,\) .* got shape \(2,\) and dtype float64",
    ):
        y.sum().backward()


def test_retain_grad_keeps_the_gradient_of_a_computed_tensor() -> None:
    x = leaf(3)
    h = x * 2
    assert h.grad is None
    h.retain_grad()
    (h * h).sum().backward()
    np.testing.assert_allclose(h.grad.data, 4 * x.data)


# -- modes -------------------------------------------------------------------------------------------


def test_modes_nest_decorate_and_end_with_errors() -> None:
    x = leaf(2)
    with mg.no_grad():
        assert not mg.is_grad_enabled() and not (x * 2).requires_grad
        with mg.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert mg.is_grad_enabled()

    @mg.no_grad()
    def f(t: Tensor) -> Tensor:
        """Doc."""
        return t * 2

    assert f.__doc__ == "Doc." and not f(x).requires_grad
    with pytest.raises(ValueError), mg.no_grad():
        raise ValueError
    assert mg.is_grad_enabled()
    with pytest.raises(TypeError, match="no_grad: cannot decorate g, a generator"):

        @mg.no_grad()
        def g():  # type: ignore[no-untyped-def]
            yield


def test_mode_belongs_to_its_thread() -> None:
    with mg.no_grad(), ThreadPoolExecutor() as threads:
        assert threads.submit(mg.is_grad_enabled).result()
        assert not mg.is_grad_enabled()


def test_backward_in_several_threads_at_once_equals_one_thread() -> None:
    w = leaf(20, 20).detach()
    slope = mg.grad(lambda w: mg.tanh(w @ w).sum())
    with ThreadPoolExecutor(4) as threads:
        for g in threads.map(slope, [w] * 200):
            np.testing.assert_array_equal(g.data, slope(w).data)


# -- changes in place --------------------------------------------------------------------------------


def test_change_before_use_and_new_array_are_allowed() -> None:
    w = leaf(3)
    w.data -= 0.1
    y = (w * w).sum()
    old = w.data.copy()
    w.data = np.zeros(3)  # another array: the graph still has the old one
    y.backward()
    np.testing.assert_allclose(w.grad.data, 2 * old)


# -- errors ------------------------------------------------------------------------------------------

X = leaf(2, 3)
CONSTANT = Tensor(np.ones(2))
WRONG = np.ones((2, 3), np.float32)


def without_recording(x: Tensor) -> Tensor:
    with mg.no_grad():
        return x.sum()


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda: (X * 2).backward(),
            GradientError,
            r"unless the tensor has one element, got shape \(2, 3\)",
        ),
        (
            lambda: (X * 2).backward(np.ones(3)),
            GradientError,
            r"gradient must have shape \(2, 3\) and dtype float64, got shape \(3,\)",
        ),
        (lambda: (X * 2).backward(WRONG), GradientError, "float64, got shape .* dtype float32"),
        (lambda: CONSTANT.backward(), GradientError, "this tensor does not require gradients"),
        (
            lambda: without_recording(X).backward(),
            GradientError,
            "or they were computed under no_grad",
        ),
        (
            lambda: setattr(X, "data", np.zeros((3, 2))),
            ValueError,
            r"data must have shape \(2, 3\)",
        ),
        (lambda: setattr(X, "data", WRONG), ValueError, "dtype float64, got .* dtype float32"),
        (lambda: setattr(X, "grad", np.ones(2)), GradientError, r"grad: .*, got shape \(2,\)"),
        (lambda: setattr(CONSTANT, "grad", 1.0), GradientError, "grad: this tensor does not requ"),
        (lambda: setattr(X * 2, "requires_grad", False), GradientError, "only a leaf can be"),
        (lambda: CONSTANT.register_hook(print), GradientError, "register_hook: this tensor does"),
        (
            lambda: Tensor([1, 2], requires_grad=True),
            TypeError,
            "the dtype must be floating-point, got int64",
        ),
        (lambda: Tensor([True]).requires_grad_(), TypeError, "must be floating-point, got bool"),
        (
            lambda: Tensor([1j]).requires_grad_(),
            TypeError,
            "must be floating-point, got complex128",
        ),
        (lambda: copy.deepcopy(X * 2), GradientError, "deepcopy: only a leaf"),
        (lambda: pickle.dumps(X * 2), GradientError, "pickle: only a leaf"),
    ],
)
def test_tensor_refuses_what_has_no_gradient_or_another_shape(
    call: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_no_grad_object_shared_by_tasks_gives_each_its_mode() -> None:
    shared = mg.no_grad()

    async def task(pause: float) -> None:
        for _ in range(5):
            with shared:
                await asyncio.sleep(pause)
                assert not mg.is_grad_enabled()
                with shared:
                    await asyncio.sleep(pause / 2)
                assert not mg.is_grad_enabled()
            assert mg.is_grad_enabled()

    async def together() -> None:
        await asyncio.gather(task(0.001), task(0.0017), task(0.0005))

    asyncio.run(together())


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"]
)
def test_copies_keep_gradients_and_shared_tensors_shared(copied: Any) -> None:
    x = Tensor(np.arange(3.0), requires_grad=True)
    (x * x).sum().backward()
    one, two = copied((x, {"weight": x}))
    assert one is two["weight"] and one.requires_grad
    np.testing.assert_array_equal(one.data, x.data)
    np.testing.assert_array_equal(one.grad.data, x.grad.data)
    assert not np.shares_memory(one.grad.data, x.grad.data)
    assert not np.shares_memory(one.data, x.data)

"""A backward pass adds up the gradients of parameters in the arrays of their optimizer."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.optim import SGD


def parameter(size: int, seed: int) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=size), requires_grad=True)


def test_backward_into_an_optimizer_holds_one_gradient_outside_of_it() -> None:
    size = 100_000
    parameters = [parameter(size, i) for i in range(8)]
    SGD(parameters, lr=1.0)
    factor = np.random.default_rng(8).normal(size=size)
    loss = sum(mg.dot(p, factor) for p in parameters)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    loss.backward()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert peak < 3 * 8 * size
    for p in parameters:
        np.testing.assert_array_equal(p.grad.data, factor)


def test_gradients_of_three_uses_add_up_in_the_optimizer() -> None:
    p, q = parameter(5, 0), parameter(5, 1)
    optimizer = SGD([p, q], lr=1.0)
    a, b, c = np.random.default_rng(2).normal(size=(3, 5))
    for factor in (1.0, 3.0):  # the second pass adds into the first
        (((p * a).sum() + (p * b * q).sum() + (mg.exp(p) * c).sum()) * factor).backward()
    flat = optimizer._groups[0].grad
    assert np.shares_memory(p.grad.data, flat) and np.shares_memory(q.grad.data, flat)
    np.testing.assert_allclose(p.grad.data, 4 * (a + b * q.data + np.exp(p.data) * c))
    np.testing.assert_allclose(q.grad.data, 4 * b * p.data)


def test_backward_after_an_error_uses_the_buffer_again() -> None:
    p = parameter(5, 0)
    optimizer = SGD([p], lr=1.0)

    def fail(g: Any) -> None:
        raise RuntimeError("stop")

    y = p * 3.0
    y.register_hook(fail)
    with pytest.raises(RuntimeError, match="stop"):
        (y.sum() + mg.exp(p).sum()).backward()
    assert p.grad is None
    (p * p).sum().backward()
    assert np.shares_memory(p.grad.data, optimizer._groups[0].grad)
    np.testing.assert_array_equal(p.grad.data, 2 * p.data)


def test_gradient_that_a_graph_saved_is_not_overwritten_during_its_backward() -> None:
    p = parameter(5, 0)
    optimizer = SGD([p], lr=1.0)
    (p * 2.0).sum().backward()
    saved = p.grad
    for _ in range(2):
        optimizer.zero_grad()
        (p * 2.0).sum().backward()
    optimizer.zero_grad()
    (p * saved + p.exp()).sum().backward()  # exp first: it was made last
    np.testing.assert_allclose(p.grad.data, np.exp(p.data) + 2)


def test_gradient_that_a_hook_kept_is_not_overwritten_by_the_next_pass() -> None:
    p = parameter(5, 0)
    optimizer = SGD([p], lr=1.0)
    kept: list[Any] = []
    p.register_hook(kept.append)
    for factor in (2.0, 3.0):
        optimizer.zero_grad()
        (p * factor).sum().backward()
    np.testing.assert_array_equal(kept[0].data, np.full(5, 2.0))

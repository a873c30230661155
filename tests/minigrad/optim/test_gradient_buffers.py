"""Gradients of parameters that a program keeps, or that a backward pass adds up in given arrays."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.fast.parallel.memory import FlatGradients
from minigrad.optim import SGD
from minigrad.tensor import grad_of


def parameter(size: int = 5) -> Tensor:
    return Tensor(np.linspace(-1, 1, size), requires_grad=True)


def collected(parameters: list[Tensor]) -> tuple[SGD, FlatGradients]:
    """Return an optimizer, and the arrays in which the gradients are collected."""
    optimizer: Any = SGD(parameters)
    optimizer.stepper.follow()
    array = np.zeros(sum(p.size for p in parameters))
    return optimizer, FlatGradients(optimizer.stepper.groups, [array])


def peak_of(function: Any) -> int:
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize(("is_collected", "gradients"), [(True, 3), (False, 9)])
def test_backward_holds_each_gradient_once(is_collected: bool, gradients: int) -> None:
    size = 100_000
    parameters = [parameter(size) for _ in range(8)]
    if is_collected:
        collected(parameters)
    loss = sum(mg.dot(p, np.ones(size)) for p in parameters)
    assert peak_of(loss.backward) < gradients * 8 * size


def test_step_of_large_parameters_holds_no_copies() -> None:
    size = 400_000
    parameters = [parameter(size) for _ in range(4)]
    for p in parameters:
        p.grad = np.ones(size)
    optimizer = SGD(parameters)
    assert peak_of(optimizer.step) < 4 * size


def test_gradients_of_several_uses_add_up_in_the_array() -> None:
    p, q = parameter(), parameter()
    _, flat = collected([p, q])
    c, d = np.random.default_rng(2).normal(size=(2, 5))
    for _ in range(2):  # the second pass adds into the first
        (((p + q) * d).sum() + (p * c).sum()).backward()
    assert np.shares_memory(grad_of(p), flat.vectors[0])
    np.testing.assert_allclose(p.grad.data, 2 * (c + d))
    np.testing.assert_allclose(q.grad.data, 2 * d)


def test_gradient_of_the_array_that_the_program_reads_is_not_overwritten() -> None:
    p = parameter()
    optimizer, flat = collected([p])
    kept = []
    for factor in (2.0, 3.0):
        optimizer.zero_grad()
        flat.open()
        (p * factor).sum().backward()
        kept.append(p.grad)
    assert [g.tolist() for g in kept] == [[2.0] * 5, [3.0] * 5]


def test_gradient_that_a_graph_saved_is_not_overwritten_during_its_backward() -> None:
    p = parameter()
    optimizer = SGD([p])
    (p * 2.0).sum().backward()
    saved = p.grad
    optimizer.zero_grad()
    (p * saved + p.exp()).sum().backward()  # exp first: it was made last
    np.testing.assert_allclose(p.grad.data, np.exp(p.data) + 2)


def test_gradient_that_a_hook_kept_is_not_overwritten_by_the_next_pass() -> None:
    p = parameter()
    optimizer = SGD([p])
    kept: list[Any] = []
    p.register_hook(kept.append)
    for factor in (2.0, 3.0):
        optimizer.zero_grad()
        (p * factor).sum().backward()
    assert kept[0].tolist() == [2.0] * 5


@pytest.mark.parametrize("steps", [1, 2])
def test_gradient_set_to_a_view_of_a_gradient_is_used(steps: int) -> None:
    p, q, r = (Tensor(np.zeros((3, 3)), requires_grad=True) for _ in range(3))
    optimizer = SGD([p, q, r], lr=1.0)
    a, b, c = np.random.default_rng(3).normal(size=(3, 3, 3))
    ((p * a).sum() + (q * b).sum() + (r * c).sum()).backward()
    assert p.grad is not None and q.grad is not None and r.grad is not None
    p.grad, q.grad, r.grad = q.grad[::-1], p.grad * 2, r.grad.T
    for _ in range(steps):
        optimizer.step()
    for x, g in ((p, b[::-1]), (q, 2 * a), (r, c.T)):
        np.testing.assert_allclose(x.data, -steps * g)


def test_backward_adds_to_a_gradient_that_was_set_from_outside() -> None:
    p = parameter()
    _, flat = collected([p])
    p.grad = np.arange(5.0)
    flat.fill()
    flat.adopt([0])
    (p * 2).sum().backward()
    assert p.grad.tolist() == [2, 3, 4, 5, 6]


def test_backward_inside_a_hook_does_not_overwrite_the_gradient_of_the_outer_one() -> None:
    """Read the gradient of the product, made last, which is in the array at the call of the hook."""
    p, passes = parameter(), list[Any]()
    collected([p])
    y, product = p.exp(), p * 2.0

    @mg.enable_grad()
    def go_backward_once(g: Tensor) -> None:
        passes.append(g)
        if len(passes) == 1:
            (p * 3.0).sum().backward()

    y.register_hook(go_backward_once)
    (product + y).sum().backward()
    np.testing.assert_allclose(p.grad, np.exp(p.data) + 5)


def test_gradient_in_the_array_that_a_hook_keeps_does_not_change_later() -> None:
    p, kept = parameter(), list[Any]()
    optimizer, flat = collected([p])
    p.register_hook(kept.append)
    for factor in (2.0, 3.0):
        optimizer.zero_grad()
        flat.open()
        (p * factor).sum().backward()
        assert kept[0].tolist() == [2.0] * 5 and p.grad.tolist() == [factor] * 5


def test_gradients_that_are_returned_are_not_in_the_array() -> None:
    p = parameter()
    _, flat = collected([p])
    (g,) = mg.gradients((p * 2.0).sum(), p)
    assert g is not None and p.grad is None and not np.shares_memory(g.data, flat.vectors[0])
    (p * 3.0).sum().backward()
    assert g.tolist() == [2.0] * 5 and p.grad.tolist() == [3.0] * 5

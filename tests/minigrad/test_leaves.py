"""Leaves between operations: frozen, thawed, and with gradients that the program keeps."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from support.environment import max_examples
from support.leaf_machine import LeafMachine
from support.life_of_leaves import Ours, Program, all_programs, rounded

import nn
from minigrad import GradientError, Tensor, gradients
from minigrad.optim import SGD
from nn.options.modules import replace_array


@pytest.mark.parametrize(
    "program, expected", [pytest.param(f, y, id=name) for name, f, y in all_programs()]
)
def test_program_with_leaves_has_the_result_of_pytorch(program: Program, expected: Any) -> None:
    assert rounded(program(Ours)) == expected


def test_pickle_of_frozen_leaf_keeps_its_gradient() -> None:
    p = Tensor([1.0, 2.0], requires_grad=True)
    (p * p).sum().backward()
    p.requires_grad = False
    q = pickle.loads(pickle.dumps(p))
    assert q.grad.tolist() == [2, 4] and not q.requires_grad


@pytest.mark.parametrize(
    "call", [lambda p: gradients((p.detach() * 2).sum(), p), lambda p: p.register_hook(print)]
)
def test_frozen_leaf_as_target_or_with_new_hook_is_refused(call: Any) -> None:
    p = Tensor([1.0, 2.0], requires_grad=True)
    p.requires_grad = False
    with pytest.raises(GradientError, match="this tensor does not require gradients"):
        call(p)


def test_frozen_module_keeps_its_place_in_a_recorded_graph() -> None:
    layer = nn.Linear(2, 1, bias=False)
    sgd, x = SGD(layer.parameters(), lr=0.5), np.ones((1, 2), np.float32)
    before = layer.weight.data.copy()
    loss = layer(x).sum()
    layer.requires_grad_(False)
    assert not layer(x).requires_grad
    layer.requires_grad_()
    loss.backward()
    sgd.step()
    np.testing.assert_allclose(layer.weight.data, before - 0.5)


def test_parameter_replaced_while_frozen_starts_without_gradient() -> None:
    p = nn.Parameter(np.ones(2))
    (p * p).sum().backward()
    p.requires_grad = False
    replace_array(p, np.ones(3))
    assert p.grad is None
    p.requires_grad = True
    (p * 2).sum().backward()
    assert p.grad.tolist() == [2, 2, 2]


TestLeafMachine = LeafMachine.TestCase
TestLeafMachine.settings = max_examples(40, stateful_step_count=40)

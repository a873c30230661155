"""The programs of `tests/minigrad/test_leaves.py` in PyTorch, whose results they expect, and random ones."""

from __future__ import annotations

from typing import Any

import pytest
from support.environment import max_examples, needs
from support.leaf_machine import LeafMachine
from support.life_of_leaves import Ours, Program, all_programs, rounded

torch = needs("torch")


class Theirs:
    """PyTorch."""

    SGD, Adam = torch.optim.SGD, torch.optim.Adam
    clip_grad_norm_ = staticmethod(torch.nn.utils.clip_grad_norm_)
    no_grad = staticmethod(torch.no_grad)

    @staticmethod
    def leaf(*values: float) -> Any:
        """Return a leaf that requires gradients."""
        return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    "program, expected", [pytest.param(f, y, id=name) for name, f, y in all_programs()]
)
def test_program_with_leaves_in_pytorch(program: Program, expected: Any) -> None:
    assert rounded(program(Theirs)) == expected


class BothLibraries(LeafMachine):
    """The state machine in minigrad and PyTorch."""

    libraries = (Ours, Theirs)


TestBothLibraries = BothLibraries.TestCase
TestBothLibraries.settings = max_examples(60, stateful_step_count=40)

"""Random programs in minigrad and in PyTorch: the same values, and the same derivatives to third order.

A program computes tensors from earlier ones, in both libraries. Ops are tested elsewhere one by one.
These programs test graphs: operands used several times, views, broadcasting, changes in place,
parts without a graph, several backward passes and derivatives of derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.environment import THOROUGH, needs

import minigrad as mg
from minigrad import Tensor

torch = needs("torch")
COUNT = 3000 if THOROUGH else 200
Step = Callable[..., Any]

OF_ANY: list[Step] = [
    lambda t: t.tanh(), lambda t: 1 / (t * t + 1), lambda t: t**3, lambda t: t + t, lambda t: t * t.detach(),
    lambda t: t.clone(), lambda t: t.sum(),
]  # fmt: skip
OF_AXES: list[Step] = [
    lambda t: t.reshape(-1), lambda t: t[..., None], lambda t: t[..., ::2], lambda t: t[-1],
    lambda t: t.permute(*range(t.ndim)[::-1]), lambda t: t.broadcast_to((2, *t.shape)), lambda t: t.sum(0),
    lambda t: t.mean(-1, keepdims=True), lambda t: t.cumsum(0), lambda t: t.softmax(-1), lambda t: t.flip((0,)),
]  # fmt: skip
OF_MATRICES: list[Step] = [lambda t: t.diagonal(), lambda t: t @ t.mT]
OF_TWO: list[Step] = [
    lambda t, u: t + u, lambda t, u: t - u, lambda t, u: t * u, lambda t, u: t / (u * u + 1),
]  # fmt: skip
PRODUCT: list[Step] = [lambda t, u: t @ u]


def assert_equal(ours: Tensor | None, theirs: Any) -> None:
    """Compare two results; None equals None."""
    assert (ours is None) == (theirs is None)
    if ours is not None:
        expected = theirs.numpy(force=True)
        assert ours.shape == expected.shape
        atol = 1e-8 * max(1.0, np.abs(expected).max(initial=0))
        np.testing.assert_allclose(ours.data, expected, rtol=0, atol=atol)


class Program:
    """A random program, and its values in both libraries."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.ours: list[Tensor] = []
        self.theirs: list[Any] = []

    def choose(self, items: Any) -> Any:
        """Return a random item."""
        return items[int(self.rng.integers(len(items)))]

    def tracked(self) -> list[int]:
        """Return the indices of values that require gradients."""
        return [i for i, t in enumerate(self.theirs) if t.requires_grad]

    def append(self, ours: Tensor, theirs: Any) -> None:
        """Compare the results of a step, and keep them as values unless they are large."""
        assert_equal(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad
        if 0 < ours.size <= 60 and np.abs(ours.data).max() < 1e3:
            self.ours.append(ours)
            self.theirs.append(theirs)

    def add_leaf(self) -> None:
        """Add a leaf; some leaves contain integers, and some require no gradient."""
        shape = tuple(self.rng.integers(1, 4, int(self.rng.integers(0, 4))).tolist())
        x = self.rng.standard_normal(shape)
        x = np.round(1.5 * x) if self.rng.random() < 0.3 else x
        tracked = bool(self.rng.random() < 0.8)
        self.append(Tensor(x, requires_grad=tracked), torch.tensor(x, requires_grad=tracked))

    def compute(self) -> None:
        """Add the result of a random step, a few of them under no_grad."""
        i, j = (int(max(self.rng.integers(len(self.ours), size=2))) for _ in range(2))
        t, u = self.ours[i], self.ours[j]
        steps = OF_ANY + OF_AXES * (t.ndim > 0) + OF_MATRICES * (t.ndim > 1)
        if t.shape == u.shape or 1 in (t.size, u.size):
            steps = self.choose([steps, OF_TWO])
        elif t.ndim > 1 and t.ndim == u.ndim and t.shape[:-2] + t.shape[-1:] == u.shape[:-1]:
            steps = PRODUCT
        step, records = self.choose(steps), bool(self.rng.random() > 0.06)
        results = []
        for library, values in ((mg, self.ours), (torch, self.theirs)):
            with library.set_grad_enabled(records):
                operands = [values[i], values[j]] if steps in (OF_TWO, PRODUCT) else [values[i]]
                result = step(*operands)
            results.append(result if records else result.detach())
        self.append(*results)

    def add_in_place(self) -> None:
        """Change a computed value by `t += u`, which is recorded as `t = t + u`."""
        i, u = int(self.rng.integers(len(self.ours))), float(self.rng.standard_normal())
        t = self.ours[i]
        shares = [np.may_share_memory(t.data, other.data) for other in self.ours]
        if t.requires_grad and not t.is_leaf and t._node.op.view is False and sum(shares) == 1:
            self.ours[i] += u
            self.theirs[i] = self.theirs[i] + u

    def backward(self) -> None:
        """Add to the gradients of all leaves by a random cotangent."""
        if tracked := self.tracked():
            i = self.choose(tracked)
            g = self.rng.standard_normal(self.ours[i].shape)
            self.ours[i].backward(g, retain_graph=True)
            self.theirs[i].backward(torch.tensor(g), retain_graph=True)
            for ours, theirs in zip(self.ours, self.theirs):
                if theirs.is_leaf:
                    assert_equal(ours.grad, theirs.grad)

    def derive_three_times(self) -> None:
        """Compare three derivatives of the last values by a leaf, each in a random direction."""
        last = self.tracked()[-3:]
        weights = [self.rng.standard_normal(self.ours[i].shape) for i in last]
        y = sum((self.ours[i] * w).sum() for i, w in zip(last, weights))
        z = sum((self.theirs[i] * torch.tensor(w)).sum() for i, w in zip(last, weights))
        leaf = self.choose([i for i in self.tracked() if self.theirs[i].is_leaf] or [0])
        direction = self.rng.standard_normal(self.ours[leaf].shape)
        for _ in range(3):
            if not getattr(z, "requires_grad", False):
                return
            (h,) = torch.autograd.grad(z, self.theirs[leaf], create_graph=True, allow_unused=True)
            if h is None or not h.abs().max() < 1e5:  # NaN, too
                return
            (g,) = mg.gradients(y, self.ours[leaf], create_graph=True, allow_unused=True)
            g = Tensor(np.zeros(h.shape)) if g is None else g
            assert_equal(g, h)
            y, z = (g * direction).sum(), (h * torch.tensor(direction)).sum()


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_program_equals_pytorch(seed: int) -> None:
    program = Program(seed)
    steps = [program.add_leaf, program.compute, program.add_in_place, program.backward]
    for _ in range(3):
        program.add_leaf()
    for kind in program.rng.choice(4, 12, p=[0.05, 0.8, 0.07, 0.08]):
        steps[kind]()
    program.derive_three_times()

"""Random programs in minigrad and in PyTorch: the same values, and the same derivatives to third order.

A program is a list of values, each of which is a tensor in both libraries. A step is a function of a
library and of tensors, which uses names that both libraries have.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
COUNT = 3000 if os.environ.get("HYPOTHESIS_PROFILE") == "intense" else 200
Step = Callable[..., Any]

SMOOTH: list[Step] = [
    lambda m, t: t.sin(), lambda m, t: t.tanh(), lambda m, t: (t * 0.3).exp(), lambda m, t: (t * t + 1).log(),
    lambda m, t: 1 / (t * t + 1), lambda m, t: t**3, lambda m, t: 2.0 ** (t * 0.3), lambda m, t: 1 - t,
    lambda m, t: t * t, lambda m, t: t.clone(), lambda m, t: t * t.detach(), lambda m, t: t + t, lambda m, t: t.sum(),
    lambda m, t: t.prod(),
]  # fmt: skip
KINKED: list[Step] = [
    lambda m, t: t.abs(), lambda m, t: t.relu(), lambda m, t: t.clip(-1, 1), lambda m, t: t.max(),
    lambda m, t: t * (t > 0), lambda m, t: m.where(t > 0, t * 2, t * t),
]  # fmt: skip
ALONG_AXIS: list[Step] = [
    lambda m, t, i: t.sum(i), lambda m, t, i: t.mean(i, keepdims=True), lambda m, t, i: t.cumsum(i),
    lambda m, t, i: t.softmax(i), lambda m, t, i: t.logsumexp(i), lambda m, t, i: t.flip((i,)),
    lambda m, t, i: t.swapaxes(i, 0), lambda m, t, i: m.cat([t, t * 2], i), lambda m, t, i: m.stack([t, t.sin()], i),
    lambda m, t, i: t.index_select(i, m.tensor([0, -1 % t.shape[i], 0])), lambda m, t, i: t.var(i, correction=0),
]  # fmt: skip
VIEWS: list[Step] = [
    lambda m, t: t.reshape(-1), lambda m, t: t[None], lambda m, t: t[..., None], lambda m, t: t[..., ::2],
    lambda m, t: t.permute(*range(t.ndim)[::-1]), lambda m, t: t.broadcast_to((2, *t.shape)), lambda m, t: t[-1],
    lambda m, t: t[t > 0],
]  # fmt: skip
MATRIX: list[Step] = [
    lambda m, t: t.tril(), lambda m, t: t.diagonal(), lambda m, t: t @ t.mT,
    lambda m, t: m.linalg.inv(t.tanh().mT @ t.tanh() + m.eye(t.shape[-1], dtype=m.float64)),
]  # fmt: skip
BINARY: list[Step] = [
    lambda m, t, u: t + u, lambda m, t, u: t - u, lambda m, t, u: t * u, lambda m, t, u: t / (u * u + 1),
    lambda m, t, u: (t * t + 0.5) ** (u * 0.1 + 0.03), lambda m, t, u: m.where(t * u > 0.1, t, u),
]  # fmt: skip
PRODUCT: list[Step] = [lambda m, t, u: t @ u, lambda m, t, u: m.einsum("...ij,...jk->...ik", t, u)]


def is_clear_of_kinks(x: np.ndarray) -> bool:
    """Return whether rounding cannot decide between two elements, or beside -1, 0 and 1."""
    if np.all(x == np.round(x)):
        return True
    return bool(np.all(np.diff(np.sort([*x.ravel(), -1.0, 0.0, 1.0])) > 1e-6))


class Program:
    """A random program, and what was done so far."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.ours: list[Tensor] = []
        self.theirs: list[Any] = []
        self.history: list[str] = []

    def choose(self, items: Any) -> Any:
        """Return a random item."""
        return items[int(self.rng.integers(len(items)))]

    def agree(self, ours: Any, theirs: Any) -> None:
        """Compare two results."""
        message = "\n".join(self.history)
        assert ours.shape == tuple(theirs.shape), message
        expected = theirs.numpy(force=True)
        scale = max(1.0, np.abs(expected).max(initial=0))
        np.testing.assert_allclose(ours.data, expected, rtol=0, atol=1e-8 * scale, err_msg=message)

    def append(self, name: str, ours: Tensor, theirs: Any) -> None:
        """Compare the results of a step, and keep them as values unless they are large."""
        self.history.append(f"{len(self.ours)} = {name}, shape {ours.shape}")
        self.agree(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad, self.history
        if 0 < ours.size <= 60 and np.abs(ours.data).max() < 1e3:
            self.ours.append(ours)
            self.theirs.append(theirs)

    def add_leaf(self) -> None:
        """Add a leaf, whose values are integers now and then."""
        shape = tuple(self.rng.integers(1, 4, int(self.rng.integers(0, 4))).tolist())
        x = self.rng.standard_normal(shape)
        x = np.round(1.5 * x) if self.rng.random() < 0.3 else x
        tracked = bool(self.rng.random() < 0.8)
        ours, theirs = Tensor(x, requires_grad=tracked), torch.tensor(x, requires_grad=tracked)
        self.append(f"leaf, requires_grad={tracked}", ours, theirs)

    def draw_step(self, i: int, j: int) -> tuple[str, Step, tuple[int, ...], tuple[int, ...]]:
        """Return the name of a step that fits values i and j, the step, its values and its axis."""
        x, u = self.ours[i], self.ours[j]
        groups = {"SMOOTH": SMOOTH}
        if x.ndim:
            groups |= {"VIEWS": VIEWS, "ALONG_AXIS": ALONG_AXIS}
        if x.ndim > 1:
            groups["MATRIX"] = MATRIX
        if is_clear_of_kinks(x.data):
            groups["KINKED"] = KINKED
        if x.shape == u.shape or 1 in (x.size, u.size):
            groups["BINARY"] = BINARY
        elif x.ndim > 1 and x.ndim == u.ndim and x.shape[:-2] + x.shape[-1:] == u.shape[:-1]:
            groups["PRODUCT"] = PRODUCT
        name = self.choose([*groups, *groups.keys() & {"BINARY", "PRODUCT"}])
        number = int(self.rng.integers(len(groups[name])))
        operands = (i, j) if name in ("BINARY", "PRODUCT") else (i,)
        axis = (int(self.rng.integers(x.ndim)),) if name == "ALONG_AXIS" else ()
        return f"{name}[{number}]", groups[name][number], operands, axis

    def compute(self) -> None:
        """Add the result of a random step, a few of them under no_grad."""
        i, j = (int(max(self.rng.integers(len(self.ours), size=2))) for _ in range(2))
        name, step, operands, axis = self.draw_step(i, j)
        records = bool(self.rng.random() > 0.06)
        results = []
        for library, values in ((mg, self.ours), (torch, self.theirs)):
            with library.set_grad_enabled(records):
                result = step(library, *[values[k] for k in operands], *axis)
            results.append(result if records else result.detach())
        self.append(f"{name} of {operands}, axis {axis}, recorded {records}", *results)

    def add_in_place(self) -> None:
        """Change a computed value by `t += u`, which is recorded as `t = t + u`."""
        i, u = int(self.rng.integers(len(self.ours))), float(self.rng.standard_normal())
        t = self.ours[i]
        shares = [np.may_share_memory(t.data, other.data) for other in self.ours]
        if t.requires_grad and not t.is_leaf and t._node.op.view is False and sum(shares) == 1:
            self.history.append(f"{i} += {u}")
            t += u
            self.theirs[i] = self.theirs[i] + u

    def leaves(self) -> list[int]:
        """Return the leaves that require gradients."""
        return [i for i, t in enumerate(self.ours) if t.is_leaf and t.requires_grad]

    def backward(self) -> None:
        """Add to the gradients of all leaves by a random cotangent."""
        tracked = [i for i, t in enumerate(self.theirs) if t.requires_grad]
        if not tracked:
            return
        i = self.choose(tracked)
        g = self.rng.standard_normal(self.ours[i].shape)
        self.history.append(f"backward of {i}")
        self.ours[i].backward(g, retain_graph=True)
        self.theirs[i].backward(torch.tensor(g), retain_graph=True)
        for leaf in self.leaves():
            ours, theirs = self.ours[leaf].grad, self.theirs[leaf].grad
            assert (ours is None) == (theirs is None), self.history
            if ours is not None:
                self.agree(ours, theirs)

    def derive_three_times(self) -> int:
        """Compare three derivatives of the last values by a leaf, each in a random direction."""
        tracked = [i for i, t in enumerate(self.theirs) if t.requires_grad][-3:]
        weights = [self.rng.standard_normal(self.ours[i].shape) for i in tracked]
        y = sum((self.ours[i] * w).sum() for i, w in zip(tracked, weights))
        z = sum((self.theirs[i] * torch.tensor(w)).sum() for i, w in zip(tracked, weights))
        if not tracked:
            return 0
        leaves = [self.ours[i] for i in self.leaves()]
        gradients = mg.gradients(y, leaves, retain_graph=True, allow_unused=True)
        leaf = self.choose([i for i, g in zip(self.leaves(), gradients) if g is not None])
        direction = self.rng.standard_normal(self.ours[leaf].shape)
        options = {"create_graph": True, "allow_unused": True}
        for order in range(3):
            if not getattr(y, "requires_grad", False) or not z.requires_grad:
                return order
            (g,) = mg.gradients(y, self.ours[leaf], **options)
            (h,) = torch.autograd.grad(z, self.theirs[leaf], **options)
            if g is None or h is None or not h.abs().max() < 1e5:  # NaN, too
                return order
            self.history.append(f"derivative {order + 1} by {leaf}")
            self.agree(g, h)
            y, z = (g * direction).sum(), (h * torch.tensor(direction)).sum()
        return 3


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_program_equals_pytorch(seed: int) -> None:
    program = Program(seed)
    steps = [program.add_leaf, program.compute, program.add_in_place, program.backward]
    for _ in range(3):
        program.add_leaf()
    for kind in program.rng.choice(4, 12, p=[0.05, 0.8, 0.07, 0.08]):
        steps[kind]()
    program.derive_three_times()

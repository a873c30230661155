"""Random programs, run step by step in minigrad and in PyTorch.

A program is a list of numbered values and what is done to them: operations, views, writes in place, detach, parts
under `no_grad`, hooks, and backward passes, whose gradients can be values again. `Ours` and `Theirs` are the two
machines; each step is written once, in words that both have. What is written into has the meaning that minigrad
gives it: where a gradient flows `t += u` is `t = t + u`, elsewhere memory changes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor

torch = pytest.importorskip("torch", reason="PyTorch is the truth here")
F = torch.nn.functional

Draw = np.random.Generator
Step = Callable[..., Any]


class Ours:
    """minigrad, by the words of a step."""

    attention = staticmethod(nn.functional.scaled_dot_product_attention)

    def __init__(self) -> None:
        self.values: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(mg, name)

    context = staticmethod(nullcontext)
    of = staticmethod(np.copy)
    array = staticmethod(lambda t: t.data)

    @staticmethod
    def index_add(t: Tensor, i: Any, v: Any) -> Tensor:
        return mg.index_add(t, index=i, values=v)

    @staticmethod
    def tensor(a: np.ndarray, requires_grad: bool) -> Tensor:
        return Tensor(a.copy(), requires_grad=requires_grad)

    @staticmethod
    def grad(ys: Any, xs: Any, gs: Any, **options: Any) -> Any:
        return mg.gradients(ys, xs, [*map(np.copy, gs)], allow_unused=True, **options)

    def write(self, i: int, value: Any, symbol: str) -> None:
        self.values[i] = getattr(operator, f"i{symbol}")(self.values[i], value)

    def gradient_of(self, t: Any) -> Any:
        return None if t.grad is None else t.grad.data

    def aliases(self, i: int) -> set[int]:
        """The values that share memory with value i."""
        return {
            k
            for k, t in enumerate(self.values)
            if np.may_share_memory(_whole(t.data), _whole(self.values[i].data))
        }


def _whole(a: np.ndarray) -> np.ndarray:
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a


class Theirs:
    """PyTorch, by the same words."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    context = staticmethod(nullcontext)
    of, inv, linear = (
        staticmethod(torch.tensor),
        staticmethod(torch.linalg.inv),
        staticmethod(F.linear),
    )
    embedding = staticmethod(lambda t, i: F.embedding(i, t))
    array = staticmethod(lambda t: t.detach().numpy())
    gelu = staticmethod(lambda t: t * 0.5 * (1 + torch.erf(t * math.sqrt(0.5))))
    sort = staticmethod(lambda t, axis: torch.sort(t, dim=axis, stable=True)[0])
    cross_entropy = staticmethod(lambda t, i: F.nll_loss(torch.log_softmax(t, -1), i))
    index_add = staticmethod(
        lambda t, i, v: t.index_put((i,), v.broadcast_to(t[i].shape), accumulate=True)
    )
    attention = staticmethod(
        lambda q, k, v: torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v
    )

    @staticmethod
    def layer_norm(t: Any) -> Any:
        c = t - t.mean(-1, keepdim=True)
        return c / ((c * c).mean(-1, keepdim=True) + 1e-5).sqrt()

    @staticmethod
    def tensor(a: np.ndarray, requires_grad: bool) -> Any:
        return torch.tensor(a, requires_grad=requires_grad)

    def grad(self, ys: Any, xs: Any, gs: Any, **options: Any) -> Any:
        kept = [(t, t.grad) for t in self.values if t.retains_grad]
        found = torch.autograd.grad(ys, xs, [*map(torch.tensor, gs)], allow_unused=True, **options)
        for t, g in kept:  # PyTorch adds to gradients that are retained here too
            t.grad = g
        return found

    def write(self, i: int, value: Any, symbol: str) -> None:
        t = self.values[i]
        computed, leaf = t.requires_grad and not t.is_leaf, t.requires_grad and t.is_leaf
        flows = (
            torch.is_grad_enabled()
            and not leaf
            and (computed or getattr(value, "requires_grad", False))
        )
        if flows and np.broadcast_shapes(t.shape, np.shape(value)) != t.shape:
            raise ValueError("broadcast")
        self.values[i] = getattr(operator, symbol if flows else f"i{symbol}")(t, value)

    def gradient_of(self, t: Any) -> Any:
        return (
            t.grad.detach().numpy()
            if (t.is_leaf or t.retains_grad) and t.grad is not None
            else None
        )

    def aliases(self, i: int) -> set[int]:
        memory = [t.untyped_storage().data_ptr() for t in self.values]
        return {k for k, start in enumerate(memory) if start == memory[i]}


class Frozen(Theirs):
    """PyTorch that saves copies, which no write in place can change: the truth where it refuses itself."""

    def context(self) -> Any:  # type: ignore[override]
        return torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)


# -- operations ------------------------------------------------------------------------------------------


def is_settled(x: np.ndarray) -> bool:
    """Whether no rounding could decide between elements, or about -1, 0 and 1: all are whole, or lie apart."""
    if np.all(x == np.round(x)):
        return True
    return bool(np.all(np.diff(np.sort(np.concatenate([x.ravel(), [-1.0, 0.0, 1.0]]))) > 1e-6))


def _axis(r: Draw, x: np.ndarray) -> int:
    return int(r.integers(-x.ndim, x.ndim))


def _axes(r: Draw, x: np.ndarray) -> Any:
    if not x.ndim or r.random() < 0.3:
        return None
    return (
        _axis(r, x) if r.random() < 0.7 else tuple(range(x.ndim))[: int(r.integers(1, x.ndim + 1))]
    )


SMOOTH: list[Step] = [
    lambda m, t: t.sin(), lambda m, t: t.cos().square(), lambda m, t: t.tanh(), lambda m, t: t.sigmoid(),
    lambda m, t: (t * 0.3).exp(), lambda m, t: (t * t + 1).log(), lambda m, t: (t * t + 0.5).sqrt(),
    lambda m, t: 1 / (t * t + 1), lambda m, t: t**2, lambda m, t: t**3, lambda m, t: 2.0 ** (t * 0.3), lambda m, t: -t,
    lambda m, t: 1 - t, lambda m, t: t * t, lambda m, t: t / 2, lambda m, t: t.erf(), lambda m, t: m.gelu(t),
    lambda m, t: t.clone(), lambda m, t: t * t.detach(), lambda m, t: (t * 0.2).expm1(), lambda m, t: t + t,
    lambda m, t: (t * t).log1p(), lambda m, t: (t * 0.1).sinh(), lambda m, t: t.arctan(), lambda m, t: t**4,
    lambda m, t: t * (t > 0), lambda m, t: t.sigmoid().log(), lambda m, t: (t * t + 1) ** -1.5,
]  # fmt: skip
KINKED: list[Step] = [
    lambda m, t: t.abs(), lambda m, t: t.relu(), lambda m, t: t.clip(-1, 1), lambda m, t: t.sign(),
    lambda m, t: t.clip(min=0), lambda m, t: t.max(), lambda m, t: t.min(), lambda m, t: t.round(),
    lambda m, t: m.maximum(t, t * 0), lambda m, t: t.abs().sqrt() * t, lambda m, t: t % 2.0,
    lambda m, t: t.norm(), lambda m, t: m.where(t > 0, t * 2, t * t),
]  # fmt: skip


def view(r: Draw, x: np.ndarray) -> Step:
    """The same elements in another shape, or some of them by slices."""
    kind = int(r.integers(7))
    if kind == 0:
        shape = [(-1,), x.shape[::-1], (1, *x.shape), (*x.shape, 1)][int(r.integers(4))]
        return lambda m, t: t.reshape(shape)
    if kind == 1 and x.ndim > 1:
        a, b = _axis(r, x), _axis(r, x)
        return lambda m, t: t.swapaxes(a, b)
    if kind == 2 and x.ndim:
        order = tuple(r.permutation(x.ndim).tolist())
        return lambda m, t: t.permute(order)
    if kind == 3:
        shape = (2, *x.shape)
        return lambda m, t: t.broadcast_to(shape)
    if kind == 4 and x.ndim:
        axis = _axis(r, x)
        return lambda m, t: t.flip((axis,))
    if kind == 5 and x.ndim > 1:
        return lambda m, t: t.diagonal()
    parts: list[Any] = []
    for n in x.shape:
        inside = [
            slice(None),
            slice(1, None),
            slice(None, None, 2),
            slice(0, -1),
            int(r.integers(-n, n)) if n else ...,
        ]
        parts.append(inside[int(r.integers(5))])
        parts += [None] if r.random() < 0.1 else []
    if parts.count(...) > 1:
        parts = [...]
    return lambda m, t: t[tuple(parts)]


def picked(r: Draw, x: np.ndarray) -> Step:
    """Elements by integers, which can repeat (and now and then are out of range), or by a mask."""
    if not x.ndim or not x.size:
        return lambda m, t: t + 0.5
    axis, kind = _axis(r, x), int(r.integers(7))
    n = x.shape[axis]
    i = r.integers(0, n + (r.random() < 0.05), int(r.integers(1, 4)))
    if kind == 0:
        return lambda m, t: t.moveaxis(axis, 0)[m.of(i)]
    if kind == 1:
        mask = r.random(x.shape) < 0.6
        return lambda m, t: t[m.of(mask)]
    if kind == 2:
        shape = list(x.shape)
        shape[axis] = 2
        index = r.integers(0, n, shape)
        return lambda m, t: t.gather(axis, m.of(index))
    if kind == 3:
        return lambda m, t: t.index_select(axis, m.of(i))
    if kind == 4 and x.ndim > 1:
        j = r.integers(0, x.shape[1], len(i))
        i = r.integers(0, x.shape[0], len(i))
        return lambda m, t: t[m.of(i), m.of(j)]
    if kind == 5 and x.ndim == 2:
        i = r.integers(0, len(x), (2, 2))
        return lambda m, t: m.embedding(t, m.of(i))
    i = r.integers(0, len(x), 3)
    return lambda m, t: m.index_add(t, m.of(i), t[:1] * 2)


def reduced(r: Draw, x: np.ndarray) -> Step:
    """Sums, products, extremes, and what normalises."""
    axis, axes, keep = (_axis(r, x) if x.ndim else 0), _axes(r, x), bool(r.integers(2))
    safe = x.ndim and x.shape[axis] > 1 and x.size
    steps: list[Step] = [lambda m, t: t.sum() if axes is None else t.sum(axes, keepdims=keep)]
    if x.size:
        steps += [
            lambda m, t: t.mean() if axes is None else t.mean(axes, keepdims=keep),
            lambda m, t: t.prod(),
        ]
    if x.ndim and x.size:
        steps += [
            lambda m, t: t.prod(axis), lambda m, t: t.cumsum(axis), lambda m, t: t.cumprod(axis),
            lambda m, t: t.logsumexp(axis), lambda m, t: t.softmax(axis), lambda m, t: t.log_softmax(axis),
        ]  # fmt: skip
        if is_settled(x):
            steps += [
                lambda m, t: t.amax(axis),
                lambda m, t: t.amin(axis),
                lambda m, t: m.sort(t, axis),
            ] * 2
    if safe:
        steps += [
            lambda m, t: t.var(axis, correction=1),
            lambda m, t: m.layer_norm(t),
            lambda m, t: t.std(axis, correction=0),
        ]
    if x.ndim == 2 and x.size:
        labels = r.integers(0, x.shape[1], len(x))
        steps += [
            lambda m, t: t.tril(),
            lambda m, t: t.trace(),
            lambda m, t: m.cross_entropy(t, m.of(labels)),
        ]
    if x.ndim == 3 and x.size:
        steps += [lambda m, t: m.attention(t, t, t)]
    if x.ndim >= 2 and x.size:
        n = x.shape[-1]
        definite = lambda m, t: t.tanh().mT @ t.tanh() + m.of(np.eye(n))
        steps += [lambda m, t: m.inv(definite(m, t)), lambda m, t: m.det(definite(m, t))]
    return steps[int(r.integers(len(steps)))]


def _fits(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return False
    return True


def paired(r: Draw, a: np.ndarray, b: np.ndarray) -> Step | None:
    """Of two values; shapes that do not fit are an error in both."""
    steps: list[Step] = [
        lambda m, t, u: t + u, lambda m, t, u: t - u, lambda m, t, u: t * u, lambda m, t, u: t / (u * u + 1),
        lambda m, t, u: m.arctan2(t, u * u + 1), lambda m, t, u: m.hypot(t, u + 0.37), lambda m, t, u: m.logaddexp(t, u),
        lambda m, t, u: (t * t + 0.5) ** (u * 0.1 + 0.03), lambda m, t, u: m.where(t > 0, t, u),
    ]  # fmt: skip
    if is_settled(a) and is_settled(b) and _fits(a, b):
        gap = np.abs(a - b)
        if np.all((gap == 0) | (gap > 1e-6)) and (np.all(a == np.round(a)) or not np.any(gap == 0)):
            steps += [lambda m, t, u: m.maximum(t, u), lambda m, t, u: m.minimum(t, u)]
        whole = (
            np.all(b == np.round(b))
            and np.all((b >= 1) & (b < 4))
            and np.all(a >= 0)
            and np.all(a == np.round(a))
        )
        if (
            whole
        ):  # zeros among the bases; PyTorch's higher derivatives are wrong at exponents of 1 and 2
            steps += [lambda m, t, u: t ** (u + 3)] * 3
    if a.ndim and b.ndim and a.shape[-1] == (b.shape[-2] if b.ndim > 1 else b.shape[0]):
        steps += [lambda m, t, u: t @ u] * 5
    if a.ndim and b.ndim == 2 and a.shape[-1] == b.shape[-1]:
        steps += [
            lambda m, t, u: m.linear(t, u),
            lambda m, t, u: m.einsum("...i,ji->...j", t, u),
        ] * 3
    if a.shape == b.shape and a.ndim:
        mask = r.random(a.shape) < 0.5
        steps += [
            lambda m, t, u: m.cat([t, u, t], 0), lambda m, t, u: m.stack([t, u], -1), lambda m, t, u: (t * u).sum(),
            lambda m, t, u: m.where(m.of(mask), t, u),
        ] * 2  # fmt: skip
    elif a.ndim == b.ndim == 1:
        steps += [lambda m, t, u: m.einsum("i,j->ij", t, u), lambda m, t, u: m.cat([t, u], 0)] * 2
    if not _fits(a, b) and r.random() < 0.8:
        steps = steps[9:]
    return steps[int(r.integers(len(steps)))] if steps else None

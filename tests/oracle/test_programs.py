"""Random programs in minigrad and in PyTorch: the same values and gradients, to third order, or an error in both.

What minigrad refuses and PyTorch does not, is refused by one of the sentences of `LOUD`; where PyTorch refuses a
write in place that minigrad allows, the truth is PyTorch with copies of all that it saves. Nothing may differ silently.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import (
    KINKED,
    SMOOTH,
    Frozen,
    Ours,
    Theirs,
    is_settled,
    paired,
    picked,
    reduced,
    torch,
    view,
)

from minigrad.core.errors import GradientError
from minigrad.core.graph import topological

INTENSE = os.environ.get("HYPOTHESIS_PROFILE") == "intense"
PARTS, PROGRAMS = 4, 750 if INTENSE else 60

LOUD = "the graph is freed|changed in place"
"""PyTorch walks a freed part of a graph again if nothing was saved in it; and it saves other arrays here and there."""
THEIRS = "modified by an inplace operation|created in no_grad mode|a view of a leaf Variable"
"""PyTorch watches whole memories, not the part that was written, and views that were made under no_grad."""
ERRORS = (RuntimeError, ValueError, TypeError, IndexError, np.linalg.LinAlgError)


class Program:
    """The values of one program on the three machines, and the steps that were taken.

    Where it takes `higher` derivatives, these are by leaves, and nothing looks at gradients on the way: whether a
    derivative reads what was computed, or computes it anew, is a choice that only values on the way can tell.
    """

    def __init__(self, seed: int, tally: Counter[str]) -> None:
        self.r, self.seed, self.tally = np.random.default_rng(seed), seed, tally
        self.worlds: list[Any] = [Ours(), Theirs(), Frozen()]
        self.higher = bool(self.r.random() < 0.6)
        self.last = ""

    # -- one step ----------------------------------------------------------------------------------------

    def take(self, name: str, step: Callable[[Any], Any]) -> list[Any] | None:
        """What a step returns on each machine; None where it is refused by all that matter."""
        self.tally["steps"] += 1
        self.last = name
        found: list[Any] = []
        for m in self.worlds:
            with m.context():
                try:
                    found.append(step(m))
                except ERRORS as error:
                    found.append(error)
        ours, truth = found[0], found[-1]
        if len(found) == 3 and isinstance(found[1], ERRORS):
            if isinstance(ours, ERRORS):
                self.tally["refused by both"] += 1
                return None
            assert re.search(THEIRS, str(found[1])), (
                f"{self}: PyTorch refuses {found[1]!r}, ours does not"
            )
            self.tally["refused by PyTorch alone"] += 1
            if isinstance(truth, ERRORS):
                raise StopIteration
            del self.worlds[1], found[1]
        elif isinstance(ours, ERRORS):
            allowed = (
                isinstance(truth, ERRORS) or re.search(LOUD, str(ours)) or len(self.worlds) == 2
            )
            assert allowed, f"{self}: ours refuses {ours!r}, PyTorch does not"
            self.tally["refused by ours alone"] += 1
            raise StopIteration
        return found

    def add(self, name: str, step: Callable[[Any], Any]) -> None:
        """A step whose result is a new value."""
        found = self.take(name, step)
        if found is None:
            return
        a = self.worlds[0].array(found[0])
        self.agree(a, self.worlds[-1].array(found[-1]))
        if a.size <= 60 and np.all(np.abs(a) < 1e3):
            for m, value in zip(self.worlds, found):
                m.values.append(value)
            self.same_ties(len(self.worlds[0].values) - 1)

    def same_ties(self, i: int) -> None:
        """Where only one machine records, its gradient has to be 0; from there on neither does."""
        ours, theirs = (m.values[i].requires_grad for m in (self.worlds[0], self.worlds[-1]))
        if ours == theirs:
            return
        m = self.worlds[0] if ours else self.worlds[-1]
        leaves = [t for t in m.values if t.requires_grad and t.is_leaf]
        gs = [self.r.standard_normal(tuple(m.values[i].shape))]
        with m.context():
            found = m.grad([m.values[i]], leaves, gs, retain_graph=True)
        assert all(g is None or np.all(np.abs(m.array(g)) < 1e-9) for g in found), (
            f"{self}: a gradient that one machine has"
        )
        for m in self.worlds:
            m.values[i] = m.values[i].detach()

    def agree(self, a: np.ndarray, b: np.ndarray) -> None:
        assert a.shape == b.shape and a.dtype == b.dtype, (
            f"{self}: {a.dtype} {a.shape}, expected {b.dtype} {b.shape}"
        )
        if not np.isfinite(b).all() or np.abs(b).max(initial=0) > 1e9:
            raise StopIteration
        size = max(1.0, np.abs(b).max(initial=0))
        assert np.all(np.abs(a - b) <= 1e-8 * size), f"{self}: {a}, expected {b}"

    def agree_everywhere(self) -> None:
        """All values, and all gradients that were collected."""
        m, truth = self.worlds[0], self.worlds[-1]
        for t, u in zip(m.values, truth.values):
            self.agree(m.array(t), truth.array(u))
            g, e = m.gradient_of(t), truth.gradient_of(u)
            if g is not None or e is not None:
                zeros = np.zeros(tuple(t.shape))
                self.agree(zeros if g is None else g, zeros if e is None else e)

    def __repr__(self) -> str:
        return f"program {self.seed}, step {self.tally['steps']}, {self.last}"

    # -- what a step may be ------------------------------------------------------------------------------

    def one(self, tracked: bool = False) -> int | None:
        """A value, rather a late one; if asked for, one that a gradient flows through."""
        values = self.worlds[0].values
        fit = [i for i, t in enumerate(values) if t.requires_grad or not tracked]
        return fit[max(int(self.r.integers(len(fit))) for _ in range(2))] if fit else None

    def leaf(self) -> None:
        shape = tuple(self.r.integers(1, 4, int(self.r.integers(0, 4))).tolist())
        a = self.r.standard_normal(shape)
        a = np.round(a * 1.5) if self.r.random() < 0.4 else a
        a, tracked = np.abs(a) if self.r.random() < 0.2 else a, bool(self.r.random() < 0.7)
        self.add("leaf", lambda m: m.tensor(a, tracked))

    def compute(self) -> None:
        i, j = self.one(), self.one()
        assert i is not None and j is not None
        x, y = (np.array(self.worlds[0].array(self.worlds[0].values[k])) for k in (i, j))
        kind = self.r.integers(9)
        if kind < 4:
            step = paired(self.r, x, y)
            apply = None if step is None else lambda m: step(m, m.values[i], m.values[j])
        else:
            kinked = KINKED if is_settled(x) else SMOOTH
            lists: list[Any] = [SMOOTH, kinked, view, picked, reduced]
            chosen = lists[kind - 4]
            single = (
                chosen[int(self.r.integers(len(chosen)))]
                if isinstance(chosen, list)
                else chosen(self.r, x)
            )
            apply = lambda m: single(m, m.values[i])
        if apply is None:
            return
        name = f"op {kind} of {i}, {j}"
        if self.r.random() < 0.06:
            self.add(f"{name} under no_grad", lambda m: _without(m, lambda: apply(m)).detach())
        else:
            self.add(name, apply)

    def write(self) -> None:
        """`t += u` and its kind, by a value or a number, sometimes under no_grad."""
        i, j = self.one(), self.one()
        assert i is not None
        if any(
            m.aliases(i) != self.worlds[-1].aliases(i) for m in self.worlds
        ):  # np.flip gives a view, for one
            return
        symbol = ["add", "sub", "mul"][int(self.r.integers(3))]
        number, free = float(self.r.integers(1, 3)), bool(self.r.random() < 0.5)
        by_number = symbol == "mul" or self.r.random() < 0.4
        act = lambda m: m.write(i, number if by_number else m.values[j], symbol)
        if self.take(
            f"write {symbol} into {i}", lambda m: _without(m, lambda: act(m)) if free else act(m)
        ):
            self.same_ties(i)
            self.agree_everywhere()

    def change(self) -> None:
        """Detach, ask for gradients, keep them, double them by a hook, or go on with them."""
        i, kind = self.one(), self.r.integers(6)
        if kind > 3 and all(m.gradient_of(m.values[i]) is not None for m in self.worlds):
            self.add(f"the gradient of {i}", lambda m: m.values[i].grad)
        if kind == 0:
            self.add(f"detach {i}", lambda m: m.values[i].detach())
        elif (
            kind == 1
            and self.worlds[0].values[i].is_leaf
            and all(m.aliases(i) == {i} for m in self.worlds)
        ):
            self.take(f"requires_grad_ {i}", lambda m: m.values[i].requires_grad_() is not None)
        elif self.higher and not self.worlds[0].values[i].is_leaf:
            return
        elif kind == 2:
            self.take(f"retain_grad {i}", lambda m: m.values[i].retain_grad() is None)
        elif kind == 3:
            self.take(f"hook {i}", lambda m: m.values[i].register_hook(lambda g: g * 2) is not None)

    def backward(self) -> None:
        i = self.one(tracked=self.r.random() < 0.9)
        if i is None:
            return
        g = self.r.standard_normal(tuple(self.worlds[0].values[i].shape))
        create = bool(self.higher and self.r.random() < 0.2)
        options = {"retain_graph": create or bool(self.r.random() < 0.7), "create_graph": create}
        seedless = self.r.random() < 0.1
        back = lambda m: m.values[i].backward(*([] if seedless else [m.of(g)]), **options) is None
        if self.take(f"backward of {i}, {options}", back) is not None:
            self.agree_everywhere()
        elif not seedless or g.size == 1:
            raise StopIteration  # in the middle of a walk, when some gradients were collected

    def gradients(self) -> None:
        """Gradients of one or two values by one or two others, which are values again."""
        ys, xs = ({self.one(True) for _ in range(self.r.integers(1, 3))} - {None} for _ in range(2))
        xs = {
            x
            for x in xs - ys
            if x is not None and (self.worlds[0].values[x].is_leaf or not self.higher)
        }
        if not ys or not xs:
            return
        gs = [self.r.standard_normal(tuple(self.worlds[0].values[y].shape)) for y in ys]
        options = {"retain_graph": True, "create_graph": self.higher and self.r.random() < 0.8}
        act = lambda m: m.grad([m.values[y] for y in ys], [m.values[x] for x in xs], gs, **options)
        found = self.take(f"gradients of {ys} by {xs}, {options}", act)
        if found is None:
            raise StopIteration
        self.tally["gradients"] += 1
        for k, x in enumerate(xs):
            by = lambda m, k=k, x=x: _or_zeros(m, found[self.worlds.index(m)][k], m.values[x])
            self.add(f"gradient by {x}", by)

    def to_third_order(self) -> None:
        """The last values as one number, its derivatives by a leaf in random directions, and a backward pass."""
        values = self.worlds[0].values
        ys = [i for i, t in enumerate(values) if t.requires_grad][-3:]
        reached = topological([values[i]._node for i in ys])
        leaves = [i for i, t in enumerate(values) if t.is_leaf and t._node in reached]
        if not leaves:
            return
        x, ws = leaves[0], [self.r.standard_normal(tuple(values[i].shape)) for i in ys]
        self.add("result", lambda m: sum((m.values[i] * m.of(w)).sum() for i, w in zip(ys, ws)))
        for order in range(1, 4 if self.higher else 2):
            last = len(self.worlds[0].values) - 1
            if not self.worlds[0].values[last].requires_grad:
                return
            w = self.r.standard_normal(tuple(values[x].shape))
            act = lambda m, last=last, w=w: (_slope(m, m.values[last], m.values[x]) * m.of(w)).sum()
            self.add(f"derivative {order}", act)
            if len(self.worlds[0].values) - 1 == last:
                return
            self.tally[f"derivatives of order {order}"] += 1
        self.backward()

    def run(self) -> None:
        kinds = [self.leaf, self.compute, self.write, self.change, self.backward, self.gradients]
        try:
            for _ in range(3):
                self.leaf()
            for kind in self.r.choice(
                6, int(self.r.integers(4, 14)), p=[0.06, 0.66, 0.1, 0.07, 0.03, 0.08]
            ):
                kinds[kind]()
            self.to_third_order()
        except (StopIteration, GradientError):  # refused in a walk, or beyond what numbers hold
            self.tally["stopped"] += 1


def _without(m: Any, act: Callable[[], Any]) -> Any:
    with m.no_grad():
        return act()


def _or_zeros(m: Any, g: Any, x: Any) -> Any:
    return m.tensor(np.zeros(tuple(x.shape)), False) if g is None else g


def _slope(m: Any, y: Any, x: Any) -> Any:
    return _or_zeros(
        m, m.grad([y], [x], [np.ones(tuple(y.shape))], create_graph=True, retain_graph=True)[0], x
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_programs(part: int, tell: Callable[[str], None]) -> None:
    start = int(np.random.default_rng().integers(2**32)) if INTENSE else part * 1000
    tally: Counter[str] = Counter()
    torch.set_num_threads(1)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(start, start + PROGRAMS):
            Program(seed, tally).run()
    tell(
        f"programs beside PyTorch: {PROGRAMS}; "
        + ", ".join(f"{count:,} {name}" for name, count in tally.items())
    )
    assert (
        tally["derivatives of order 3"] > PROGRAMS / 8
        and tally["refused by both"]
        and tally["gradients"]
    )

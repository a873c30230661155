"""Random programs that write into arrays, for NumPy, minigrad and PyTorch.

A program is a list of steps. Each step changes an array that was computed from `x`, or takes a view, or
keeps a product, whose operands are saved by the graph. NumPy runs the same steps. Further steps retain a gradient,
register a hook or go backward.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

SIZE = 5
OPERATORS = {"=": None, "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul}


@dataclass
class Arrays:
    """Arrays of a running program: `x`, those that are written into, and results.

    `seen` contains the gradients that each hook got.
    """

    x: Any
    written: list[Any]
    kept: list[Any] = field(default_factory=list)
    seen: list[list[Any]] = field(default_factory=list)

    def results(self) -> list[Any]:
        """Return all arrays except `x`."""
        return [*self.written, *self.kept]


Step = Callable[[Arrays], None]
numbers = st.sampled_from([-1.5, -0.5, 0.5, 2.0])
slices = st.sampled_from(
    [slice(None), slice(1, None), slice(None, -1), slice(1, 4), slice(None, None, 2), ...]
)
integers = st.integers(-SIZE, SIZE - 1)


@st.composite
def write(draw: st.DrawFn, repeated: bool) -> Step:
    """Write a value into an array or a view: target[key] = value, or target[key] += value."""
    which, kind = draw(st.integers(0, 9)), draw(st.sampled_from(["slice", "int", "mask", "list"]))
    op, c, source = draw(st.sampled_from(list(OPERATORS))), draw(numbers), draw(st.integers(0, 9))
    part, i, limit = draw(slices), draw(integers), draw(numbers)
    rows = draw(st.lists(integers, min_size=1, max_size=4))
    is_number = draw(st.booleans())

    def step(arrays: Arrays) -> None:
        target = arrays.written[which % len(arrays.written)]
        other = [arrays.x, *arrays.written][source % (1 + len(arrays.written))]
        n = len(target)
        indices = [j % n for j in rows]
        if not repeated:
            indices = list(dict.fromkeys(indices))
        key = {"slice": part, "int": i % n, "mask": target > limit, "list": indices}[kind]
        value = c if is_number or kind == "mask" else other[0] * c
        if op == "=" and kind == "list" and repeated and not is_number:
            value = other[: len(indices)] if len(other) >= len(indices) else value
        if op == "=":
            target[key] = value
        else:
            target[key] = OPERATORS[op](target[key], value)  # type: ignore[misc]

    return step


@st.composite
def change(draw: st.DrawFn) -> Step:
    """Change an array or a view as a whole: target += value."""
    which, op, c = draw(st.integers(0, 9)), draw(st.sampled_from(["+=", "-=", "*="])), draw(numbers)

    def step(arrays: Arrays) -> None:
        i = which % len(arrays.written)
        target = arrays.written[i]
        changed = OPERATORS[op](target, arrays.x[0] * c)  # type: ignore[misc]
        assert changed is target

    return step


@st.composite
def view(draw: st.DrawFn, nested: bool) -> Step:
    """Take a view of an array that is written into, and write into it, too.

    Without `nested`, it is no view of a view.
    """
    which = draw(st.integers(0, 9))
    take = draw(
        st.sampled_from([lambda a: a[1:], lambda a: a[:2], lambda a: a.reshape(-1, 1).T[0]])
    )

    def step(arrays: Arrays) -> None:
        base = arrays.written[which % (len(arrays.written) if nested else 2)]
        if len(base) > 2:
            arrays.written.append(take(base))

    return step


@st.composite
def product(draw: st.DrawFn) -> Step:
    """Keep the square of an array, which saves the array in the graph."""
    which = draw(st.integers(0, 9))

    def step(arrays: Arrays) -> None:
        a = arrays.written[which % len(arrays.written)]
        arrays.kept.append(a * a)

    return step


@st.composite
def gradient(draw: st.DrawFn) -> Step:
    """Retain the gradients of all arrays, go backward from them, or register a hook."""
    kind = draw(st.sampled_from(["retain", "backward", "hook"]))
    which, c = draw(st.integers(0, 9)), draw(numbers)

    def step(arrays: Arrays) -> None:
        if kind == "retain":
            for a in arrays.written:
                a.retain_grad()
        elif kind == "backward":
            sum([(a * c).sum() for a in arrays.written]).backward(retain_graph=True)
        else:
            seen: list[Any] = []
            arrays.seen.append(seen)
            a = arrays.written[which % 2]  # PyTorch does not call hooks of a view that is written
            a.register_hook(lambda g: (seen.append(g), g * c)[1])

    return step


def programs(repeated: bool = True, gradients: bool = False) -> st.SearchStrategy[list[Step]]:
    """Return a strategy of programs.

    Without `repeated`, no element is written twice in a step. With `gradients`, programs retain gradients, go backward and
    register hooks. They keep no products, which PyTorch could not differentiate after a write, and take no views of views,
    which PyTorch makes of their base again after a write.
    """
    writes = st.one_of(write(repeated), write(repeated), change(), view(nested=not gradients))
    if gradients:
        return st.lists(writes | gradient(), min_size=6, max_size=12)
    return st.lists(writes | product(), min_size=1, max_size=7)


def run(program: list[Step], x: Any) -> Arrays:
    """Run a program on a vector x of length SIZE."""
    arrays = Arrays(x, [x * 1.5, x * x])
    for step in program:
        step(arrays)
    return arrays

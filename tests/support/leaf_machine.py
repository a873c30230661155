"""A state machine of what programs do with leaves between operations, and a plain model of it.

The model contains numbers only. Its computed values are elementwise, so it derives them forwards: each
value has its derivative by every leaf. `tests/minigrad/test_leaves.py` runs the machine in minigrad, and
`tests/oracle/test_leaves.py` in PyTorch beside it.
"""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.life_of_leaves import Ours

from minigrad import GradientError

SIZE = 2
LIMIT = 1e6  # larger results are not kept, so that rounding errors stay small
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
numbers = st.integers(-3, 3).map(float)
vectors = st.lists(numbers, min_size=SIZE, max_size=SIZE).map(np.array)
momenta = st.sampled_from([0.0, 0.5])
keys = st.sampled_from([0, 1, -1, slice(None), slice(1, None), [1, 0], np.array([True, False])])
places = st.integers(0, 9)
"""Index of an existing object, modulo their number."""


class Leaf:
    """A leaf of the model; `grad` is one array, which later passes add to, or None."""

    def __init__(self, value: np.ndarray, requires_grad: bool) -> None:
        self.value, self.requires_grad = value, requires_grad
        self.grad: np.ndarray | None = None
        self.version = 0  # number of writes
        self.hooks: list[list[np.ndarray]] = []  # what each hook has seen


class Memory:
    """Elements that a value shares with its views and with results of `detach`."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value


class Value:
    """A computed value of the model, with its derivative by each leaf and value that it depends on."""

    def __init__(self, memory: Memory, operands: list[Any], saved: list[Leaf]) -> None:
        self.memory = memory
        self.operands = operands  # those that need a gradient
        self.saved = [(leaf, leaf.version) for leaf in saved]
        self.derivatives: dict[Any, np.ndarray] = {self: np.ones(SIZE)} if operands else {}
        self.is_freed = False
        self.grad: np.ndarray | None = None
        self.retains = False
        self.read: list[Value] = []  # values that the graph reads
        self.was_written = False  # a later write goes on from this value
        self.family: list[Value] = [self]  # a value and its views, oldest first
        self.base: Value | None = None

    @property
    def value(self) -> np.ndarray:
        return self.memory.value

    def graph(self) -> list[Value]:
        """Return this value and those that it was computed from."""
        return [v for v in self.derivatives if isinstance(v, Value)]

    def fault(self) -> str | None:
        """Return what the error of a backward pass says, or None if there is none."""
        if any(v.is_freed for v in self.graph()):
            return "freed"
        is_stale = any(leaf.version != version for v in self.graph() for leaf, version in v.saved)
        return "changed in place" if is_stale else None

    def reads_old_values(self) -> bool:
        """Return whether the graph reads a value from before a write, which PyTorch does not keep."""
        return any(x.was_written for v in self.graph() for x in v.read)

    def replaced(self, old: Value, new: Value) -> None:
        """Put a value in the place of another one in the graph."""
        self.derivatives = {new if z is old else z: d for z, d in self.derivatives.items()}
        self.read = [new if v is old else v for v in self.read]


def derivatives_of(x: Any) -> dict[Leaf, np.ndarray]:
    return x.derivatives if isinstance(x, Value) else {x: np.ones(SIZE)}


def needs_gradient(x: Any) -> bool:
    return bool(x.operands) if isinstance(x, Value) else x.requires_grad


class LeafMachine(RuleBasedStateMachine):
    """Leaves, values and optimizers of each library in `libraries`, compared with the model.

    Objects of the libraries are in lists beside those of the model, in the same order.
    """

    libraries: tuple[Any, ...] = (Ours,)

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[tuple[Leaf, list[Any]]] = []
        self.values: list[tuple[Value, list[Any]]] = []
        self.kept: list[tuple[np.ndarray, list[Any]]] = []
        self.arrays: list[tuple[Memory, np.ndarray]] = []
        self.hooks: list[tuple[Leaf, int, list[Any], list[list[Any]]]] = []
        self.optimizers: list[tuple[list[Leaf], dict[str, Any], dict[Leaf, Any], list[Any]]] = []

    def leaf(self, place: int) -> tuple[Leaf, list[Any]]:
        return self.leaves[place % len(self.leaves)]

    def operand(self, place: int) -> tuple[Any, list[Any]]:
        both: list[Any] = [*self.leaves, *self.values]
        return both[place % len(both)]

    # -- leaves and values

    @initialize(first=vectors, second=vectors, lr=st.sampled_from([0.5, 0.25]), momentum=momenta)
    def begin(self, first: np.ndarray, second: np.ndarray, lr: float, momentum: float) -> None:
        """Add two leaves, an optimizer, and their product."""
        self.add_leaf(first, True)
        self.add_leaf(second, True)
        self.make_optimizer([0, 1], lr, momentum)
        self.compute(0, 1, "*")

    @precondition(lambda self: len(self.leaves) < 5)
    @rule(value=vectors, requires_grad=st.booleans())
    def add_leaf(self, value: np.ndarray, requires_grad: bool) -> None:
        tensors = [library.leaf(*value) for library in self.libraries]
        for t in tensors:
            t.requires_grad = requires_grad
        self.leaves.append((Leaf(value.copy(), requires_grad), tensors))

    @rule(i=places, j=places, op=st.sampled_from("+-*"))
    def compute(self, i: int, j: int, op: str) -> None:
        """Add the sum, difference or product of two leaves or values."""
        (x, xs), (y, ys) = self.operand(i), self.operand(j)
        factors = {"+": (1.0, 1.0), "-": (1.0, -1.0), "*": (y.value, x.value)}[op]
        read = [(y, x), (x, y)] if op == "*" else []  # an operand is read for the other one
        saved = [a for a, other in read if isinstance(a, Leaf) and needs_gradient(other)]
        value = Value(
            Memory(OPERATORS[op](x.value, y.value)), [a for a in (x, y) if needs_gradient(a)], saved
        )
        value.read = [a for a, other in read if isinstance(a, Value) and needs_gradient(other)]
        for operand, factor in zip((x, y), factors):
            if needs_gradient(operand):
                for z, d in derivatives_of(operand).items():
                    value.derivatives[z] = value.derivatives.get(z, 0.0) + factor * d
        if all(np.abs(a).max() <= LIMIT for a in (value.value, *value.derivatives.values())):
            self.values.append((value, [OPERATORS[op](a, b) for a, b in zip(xs, ys)]))

    @rule(i=places)
    def detach(self, i: int) -> None:
        """Add the values of a tensor without its graph."""
        x, tensors = self.operand(i)
        if isinstance(x, Value):
            self.values.append((Value(x.memory, [], []), [t.detach() for t in tensors]))

    @precondition(lambda self: self.values)
    @rule(
        i=places,
        how=st.sampled_from([lambda t: t[:], lambda t: t.reshape(2), lambda t: t[None][0]]),
    )
    def view(self, i: int, how: Any) -> None:
        """Add a view of a computed value, which writes to the value change, and the other way round."""
        value, tensors = self.values[i % len(self.values)]
        if value.operands and not value.retains:
            new = Value(value.memory, [value], [])
            new.derivatives |= value.derivatives
            new.base, new.family = value, value.family
            value.family.append(new)
            self.values.append((new, [how(t) for t in tensors]))

    @precondition(lambda self: self.values)
    @rule(i=places, j=places, key=keys, adds=st.booleans())
    def write_into_value(self, i: int, j: int, key: Any, adds: bool) -> None:
        """Write elements of a leaf or value into a computed value: t[key] = u[key], or +=."""
        (value, tensors), (x, xs) = self.values[i % len(self.values)], self.operand(j)
        if not value.operands or (value.retains and value.grad is not None):
            return
        written = np.zeros(SIZE)
        written[key] = 1.0
        if not adds and written.all():  # what was computed before has no gradient, in PyTorch zeros
            return
        kept = 1.0 if adds else 1.0 - written
        derivatives = {z: kept * d for z, d in value.derivatives.items()}
        for z, d in derivatives_of(x).items() if needs_gradient(x) else ():
            derivatives[z] = derivatives.get(z, 0.0) + written * d
        result = kept * value.value + written * x.value
        if any(np.abs(a).max() > LIMIT for a in (result, *derivatives.values())):
            return
        for t, u in zip(tensors, xs):
            if adds:
                t[key] += u[key]
            else:
                t[key] = u[key]
        self.go_on(value.family, result, derivatives)

    def go_on(self, family: list[Value], result: np.ndarray, derivatives: Any) -> None:
        """Use a value and its views as new values; the graph refers to the old ones."""
        olds = {}
        for member in family:
            old = olds[member] = copy.copy(member)
            old.was_written, old.memory = True, Memory(member.value)
            for v in (*[v for v, _ in self.values], *olds.values()):
                v.replaced(member, old)
        derivatives = {olds.get(z, z): d for z, d in derivatives.items()}
        for member in family:
            member.memory.value = result
            member.saved, member.read, member.is_freed = [], [], False
            above = derivatives if member.base is None else member.base.derivatives
            member.derivatives = {**above, member: np.ones(SIZE)}

    @precondition(lambda self: self.values)
    @rule(i=places)
    def keep_array(self, i: int) -> None:
        """Keep the ndarray of a computed value, which later writes change, too."""
        value, tensors = self.values[i % len(self.values)]
        if value.operands:
            self.arrays.append((value.memory, tensors[0].data))

    @rule(i=places, key=keys)
    def write_into_leaf_is_refused(self, i: int, key: Any) -> None:
        leaf, tensors = self.leaf(i)
        if leaf.requires_grad:
            for t in tensors:
                with pytest.raises((GradientError, RuntimeError), match="leaf"):
                    t[key] = 1.0

    @rule(i=places, requires_grad=st.booleans())
    def freeze_or_thaw(self, i: int, requires_grad: bool) -> None:
        leaf, tensors = self.leaf(i)
        leaf.requires_grad = requires_grad
        for t in tensors:
            t.requires_grad = requires_grad

    @rule(i=places, value=vectors)
    def write(self, i: int, value: np.ndarray) -> None:
        """Add to a leaf in place, under no_grad."""
        leaf, tensors = self.leaf(i)
        leaf.value = leaf.value + value
        leaf.version += 1
        for library, t in zip(self.libraries, tensors):
            with library.no_grad():
                t += library.leaf(*value).detach()

    @precondition(lambda self: len(self.leaves) < 5)
    @rule(i=places, how=st.sampled_from(["deepcopy", "pickle"]))
    def copy_leaf(self, i: int, how: str) -> None:
        """Copy a leaf with its gradient, without its hooks; PyTorch pickles no gradients."""
        leaf, tensors = self.leaf(i)
        new = Leaf(leaf.value, leaf.requires_grad)
        new.grad = None if leaf.grad is None else leaf.grad.copy()
        copies = [
            pickle.loads(pickle.dumps(t)) if how == "pickle" and lib is Ours else copy.deepcopy(t)
            for lib, t in zip(self.libraries, tensors)
        ]
        self.leaves.append((new, copies))

    # -- gradients

    @precondition(lambda self: self.usable())
    @rule(i=places, g=vectors, retain=st.booleans())
    def backward(self, i: int, g: np.ndarray, retain: bool) -> None:
        usable = self.usable()
        self.go_backward(*usable[i % len(usable)], g, retain)

    @rule(i=places, j=places, op=st.sampled_from("+-*"), g=vectors, retain=st.booleans())
    def compute_and_backward(self, i: int, j: int, op: str, g: np.ndarray, retain: bool) -> None:
        self.compute(i, j, op)
        if self.values and self.values[-1] in self.usable():
            self.go_backward(*self.values[-1], g, retain)

    def go_backward(self, value: Value, tensors: list[Any], g: np.ndarray, retain: bool) -> None:
        for library, t in zip(self.libraries, tensors):
            t.backward(library.leaf(*g).detach(), retain_graph=retain)
        for x, d in value.derivatives.items():
            if isinstance(x, Value):
                x.is_freed = not retain
                if x.retains:
                    x.grad = g * d if x.grad is None else x.grad + g * d
                continue
            for seen in x.hooks:
                seen.append(g * d)
            if x.requires_grad and x.grad is None:
                x.grad = g * d
            elif x.requires_grad:
                x.grad += g * d  # in place, since the program may have kept it

    def usable(self) -> list[tuple[Value, list[Any]]]:
        """Return values whose graph exists and has saved nothing that was written to."""
        return [
            pair
            for pair in self.values
            if pair[0].operands
            and pair[0].fault() is None
            and not (len(self.libraries) > 1 and pair[0].reads_old_values())
        ]

    @precondition(lambda self: any(value.fault() for value, _ in self.values))
    @rule(i=places)
    def backward_of_unusable_value_is_refused(self, i: int) -> None:
        """PyTorch allows some of these calls. What one computed before its error is dropped."""
        unusable = [pair for pair in self.values if pair[0].fault()]
        value, tensors = unusable[i % len(unusable)]
        with pytest.raises(GradientError, match=value.fault()):
            tensors[0].backward(Ours.leaf(*np.ones(SIZE)).detach(), retain_graph=True)
        if value.fault() == "changed in place":
            for x, all_tensors in (*self.leaves, *self.values):
                x.grad = None
                for t in all_tensors if isinstance(x, Leaf) or x.retains else ():
                    t.grad = None
            self.kept.clear()
            for leaf, number, _, logs in self.hooks:
                for log in (leaf.hooks[number], *logs):
                    log.clear()

    @precondition(lambda self: self.values)
    @rule(i=places)
    def retain_gradient(self, i: int) -> None:
        value, tensors = self.values[i % len(self.values)]
        if value.operands and len(value.family) == 1:
            value.retains = True
            for t in tensors:
                t.retain_grad()

    @rule()
    def keep_gradients(self) -> None:
        """Keep the gradients: only passes without `zero_grad` between change their arrays."""
        for leaf, tensors in self.leaves:
            if leaf.grad is not None:
                self.kept.append((leaf.grad, [t.grad for t in tensors]))

    @rule(i=places)
    def drop_gradient(self, i: int) -> None:
        leaf, tensors = self.leaf(i)
        leaf.grad = None
        for t in tensors:
            t.grad = None

    @rule(i=places, value=vectors)
    def replace_gradient(self, i: int, value: np.ndarray) -> None:
        leaf, tensors = self.leaf(i)
        if leaf.requires_grad or leaf.grad is not None:
            leaf.grad = value.copy()
            for library, t in zip(self.libraries, tensors):
                t.grad = library.leaf(*value).detach()

    @precondition(lambda self: self.kept)
    @rule(i=places, j=places)
    def use_kept_gradient(self, i: int, j: int) -> None:
        """Set the sum of a gradient and a kept one as the gradient, as for several tasks."""
        leaf, tensors = self.leaf(i)
        g, kept = self.kept[j % len(self.kept)]
        if leaf.grad is not None:
            leaf.grad = leaf.grad + g
            for t, k in zip(tensors, kept):
                t.grad = t.grad + k

    @rule(i=places)
    def register_hook(self, i: int) -> None:
        leaf, tensors = self.leaf(i)
        if leaf.requires_grad:
            logs: list[list[Any]] = [[] for _ in tensors]
            handles = [t.register_hook(log_into(log)) for t, log in zip(tensors, logs)]
            leaf.hooks.append([])
            self.hooks.append((leaf, len(leaf.hooks) - 1, handles, logs))

    @precondition(lambda self: self.hooks)
    @rule(i=places)
    def remove_hook(self, i: int) -> None:
        leaf, number, handles, logs = self.hooks.pop(i % len(self.hooks))
        leaf.hooks[number] = []  # no longer compared
        for handle in handles:
            handle.remove()

    # -- optimizers

    @rule(
        chosen=st.lists(places, min_size=1, max_size=3),
        lr=st.sampled_from([0.5, 0.25]),
        momentum=momenta,
    )
    def make_optimizer(self, chosen: list[int], lr: float, momentum: float) -> None:
        """Give an SGD some leaves that require gradients and have no optimizer.

        It moves them. Graphs that saved a leaf keep the array that it had before, which no write changes:
        PyTorch refuses their backward pass after a step, so they are dropped.
        """
        owned = [leaf for leaves, *_ in self.optimizers for leaf in leaves]
        free = {
            leaf: tensors
            for leaf, tensors in map(self.leaf, chosen)
            if leaf.requires_grad and leaf not in owned
        }
        if free:
            optimizers = [
                library.SGD([tensors[n] for tensors in free.values()], lr=lr, momentum=momentum)
                for n, library in enumerate(self.libraries)
            ]
            settings = {"lr": lr, "momentum": momentum}
            self.optimizers.append((list(free), settings, {}, optimizers))
            self.values = [
                pair
                for pair in self.values
                if not any(leaf in free for v in pair[0].graph() for leaf, _ in v.saved)
            ]

    @precondition(lambda self: self.optimizers)
    @rule(i=places)
    def step(self, i: int) -> None:
        leaves, settings, buffers, optimizers = self.optimizers[i % len(self.optimizers)]
        for leaf in leaves:
            if leaf.grad is not None:
                m = settings["momentum"] * buffers.get(leaf, 0.0) + leaf.grad
                buffers[leaf] = m
                leaf.value = leaf.value - settings["lr"] * m
                leaf.version += 1
        for optimizer in optimizers:
            optimizer.step()

    @precondition(lambda self: self.optimizers)
    @rule(i=places, to_none=st.booleans())
    def zero_grad(self, i: int, to_none: bool) -> None:
        leaves, _, _, optimizers = self.optimizers[i % len(self.optimizers)]
        for leaf in leaves:
            if to_none:
                leaf.grad = None
            elif leaf.grad is not None:
                leaf.grad[...] = 0
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=to_none)

    @rule(max_norm=st.sampled_from([1.0, 4.0]))
    def clip_gradients(self, max_norm: float) -> None:
        """Scale the gradients of all leaves down, in place."""
        grads = [leaf.grad for leaf, _ in self.leaves if leaf.grad is not None]
        norm = np.sqrt(sum(float(g @ g) for g in grads))
        for g in grads:
            g *= min(1.0, max_norm / (norm + 1e-6))
        for n, library in enumerate(self.libraries):
            library.clip_grad_norm_([tensors[n] for _, tensors in self.leaves], max_norm)

    # -- comparison

    @invariant()
    def libraries_have_the_state_of_the_model(self) -> None:
        for leaf, tensors in self.leaves:
            for t in tensors:
                assert_equal(t, leaf.value)
                assert t.requires_grad == leaf.requires_grad and t.is_leaf
                assert_equal(t.grad, leaf.grad)
        for value, tensors in self.values:
            for t in tensors:
                assert_equal(t, value.value)
                assert t.requires_grad == bool(value.operands)
                if value.retains:
                    assert_equal(t.grad, value.grad)
        for g, kept in self.kept:
            for t in kept:
                assert_equal(t, g)
        for memory, array in self.arrays:
            np.testing.assert_allclose(array, memory.value, rtol=1e-9, atol=1e-9 * LIMIT**0.5)
        for leaf, number, _, logs in self.hooks:
            for log in logs:
                for seen, expected in zip(log, leaf.hooks[number], strict=True):
                    assert_equal(seen, expected)


def log_into(log: list[Any]) -> Any:
    return lambda g: log.append(g)


def assert_equal(t: Any, expected: np.ndarray | None) -> None:
    assert (t is None) == (expected is None), (t, expected)
    if expected is not None:
        got = np.array(t.detach().tolist())
        if not np.array_equal(got, expected):
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9 * LIMIT**0.5)

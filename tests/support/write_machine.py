"""A state machine of programs that take views of arrays and write into them, with NumPy as the oracle.

Each statement runs on ndarrays and on tensors, whose values must agree after it. At the end the gradients
must be the derivatives of the program on ndarrays of jets. In these, what `detach` and `no_grad` freeze has
no derivatives. A statement that NumPy refuses is left out. minigrad may refuse a program with a
`GradientError` if it freezes something.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.jets import constants, jet, on_line, sin

import minigrad as mg
from minigrad import GradientError, Tensor
from minigrad.changes import owner_of

SHAPES = [(5,), (4, 3), (3, 4), (2, 3, 2), (6,), (1, 4), (2, 2, 3)]
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda a: a,
    "F": np.asfortranarray,
    "reversed": lambda a: a[::-1].copy()[::-1],
    "transposed": lambda a: a.T.copy().T,
    "strided": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "part": lambda a: np.concatenate([a[:1], a, a[:1]])[1:-1],
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "reverse": lambda x: x[::-1],
    "step": lambda x: x[::2],
    "tail": lambda x: x[1:],
    "last axis": lambda x: x[..., ::-1],
    "columns after the first": lambda x: x[..., 1:],
    "row": lambda x: x[0],
    "new axis": lambda x: x[None],
    "all": lambda x: x[...],
    "transpose": np.transpose,
    "swapaxes": lambda x: np.swapaxes(x, 0, -1),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1),
    "flat": lambda x: x.reshape(-1),
    "matrix": lambda x: x.reshape(x.shape[0], -1),
    "column": lambda x: x.reshape(-1, 1),
    "ravel": np.ravel,
    "flatten": lambda x: x.flatten(),
    "squeeze": np.squeeze,
    "split": lambda x: np.array_split(x, 2)[1],
    "hsplit": lambda x: np.hsplit(x, [1])[1],
    "vsplit": lambda x: np.vsplit(x, [1])[0],
    "diagonal": lambda x: x.diagonal(),
    "einsum diagonal": lambda x: einsum_diagonal(x[:2, :2]),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=0),
    "broadcast": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "rot90": np.rot90,
    "flip": np.flip,
    "real": np.real,
    "expand": lambda x: np.expand_dims(x, 1),
    "list": lambda x: x[[-1, 0]],
    "list after a slice": lambda x: x[:, [-1, 0]],
    "copy": np.copy,
}


def einsum_diagonal(x: Any) -> Any:
    """Return the diagonal of a matrix; of an empty one, NumPy returns elements of other memory."""
    if not x.size:
        raise ValueError("the matrix is empty")
    return np.einsum("ii->i", x)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sin": sin,
    "sum": np.sum,
    "cumsum": lambda x: np.cumsum(x, axis=-1),
    "scaled": lambda x: x * 0.75,
    "add": np.add,
    "multiply": np.multiply,
    "matmul": np.matmul,
    "concatenate": lambda a, b: np.concatenate([a, b]),
}
BINARY = {"add", "multiply", "matmul", "concatenate"}
OPERATORS = {"+=": (operator.iadd, np.add), "*=": (operator.imul, np.multiply)}

places = st.integers(0, 99)
"""Index of an existing array, modulo their number; recent ones come first."""


class Statement(NamedTuple):
    """Statement of a program: `function(*operands)` is added, or written into `target`.

    A write is called with the target and its values first. Both are one object except if the values are frozen.
    """

    function: Callable[..., Any]
    operands: tuple[int, ...]
    target: int | None = None
    no_grad: bool = False
    detach: bool = False


class Arrays:
    """Program on ndarrays, of numbers or of jets; frozen operands have no derivatives."""

    def __init__(self, start: list[np.ndarray]) -> None:
        self.values = [in_new_memory(a) for a in start]
        self.frozen: set[int] = set()

    def read(self, i: int, no_grad: bool = False) -> np.ndarray:
        a = self.values[i]
        if not no_grad and i not in self.frozen:
            return a
        return np.asarray(constants(a)) if a.dtype == object else a.copy(order="K")

    def run(self, s: Statement) -> None:
        if s.target is not None:
            own = self.read(s.target, s.no_grad)
            # a number itself, since an array of objects would store an array of no axes as one
            operands = [self.read(i, s.no_grad)[()] for i in s.operands]
            s.function(self.values[s.target], own, *operands)
            return
        y, source = s.function(*[self.values[i] for i in s.operands]), self.values[s.operands[0]]
        # a number among jets stays an object
        is_number, y = not isinstance(y, np.ndarray), np.asarray(y, source.dtype)
        is_array = source.ndim > 0 or source.flags.writeable  # an array of a number is new
        is_view = owner_of(y) is owner_of(source) and (is_array or s.detach)
        read = [self.read(i, s.no_grad) for i in s.operands]
        if is_view and (s.detach or s.no_grad or s.operands[0] in self.frozen):
            self.frozen.add(len(self.values))
        elif not is_view:
            y = np.array(s.function(*read), source.dtype, order="K")
        if is_number:
            y.setflags(write=False)
        self.values.append(y)


class Tensors:
    """Program on tensors; the first two need gradients."""

    def __init__(self, start: list[np.ndarray], leaves: int = 2) -> None:
        self.values = [Tensor(in_new_memory(a), i < leaves) for i, a in enumerate(start)]

    def run(self, s: Statement) -> None:
        with mg.no_grad() if s.no_grad else nullcontext():
            operands = [self.values[i] for i in s.operands]
            if s.target is not None:
                t = self.values[s.target]
                s.function(t, t, *operands)
            else:
                self.values.append(operands[0].detach() if s.detach else s.function(*operands))


def in_new_memory(a: np.ndarray, dtype: Any = None) -> np.ndarray:
    """Return a copy with the same layout, which is a view of a larger array if this one is.

    Another dtype must have elements of the same length.
    """
    owner = owner_of(a)
    first, start = (x.__array_interface__["data"][0] for x in (owner, a))
    memory = owner.astype(dtype or a.dtype, order="K").ravel(order="K")
    return np.ndarray(a.shape, memory.dtype, memory, start - first, a.strides)


def assign(key: Any) -> Callable[..., None]:
    return lambda target, own, value: operator.setitem(target, key, value)


def assign_constant(key: Any, value: float) -> Callable[..., None]:
    return lambda target, own: operator.setitem(target, key, value)


def change(name: str, key: Any) -> Callable[..., None]:
    """Return target[key] += value, or *=."""
    in_place, ufunc = OPERATORS[name]

    def function(target: Any, own: Any, value: Any) -> None:
        if target is own:
            target[key] = in_place(target[key], value)
        else:
            target[key] = ufunc(own[key], value, out=np.array(own[key]))[()]

    return function


def change_whole(name: str) -> Callable[..., None]:
    """Return target += value, or *=."""
    in_place, ufunc = OPERATORS[name]
    out = lambda target, own, value: ufunc(own, value, out=target)
    return lambda t, own, value: in_place(t, value) if t is own else out(t, own, value)


WRITES: dict[str, Callable[..., Any]] = {
    "copyto": lambda target, own, value: np.copyto(target, value),
    "put": lambda target, own, value: np.put(target, [1, 0], value),
    "out": lambda target, own, value: np.multiply(value, own, out=target),
    "swap": lambda target, own: operator.setitem(target, [0, -1], own[[-1, 0]]),
    "shift": lambda target, own: operator.setitem(target, slice(1, None), own[1:] + own[:-1]),
    "masked put": lambda target, own, value: np.putmask(target, own > 0, value),
}


def put_loop(target: Any, own: Any) -> None:
    """Compute each row from the row before it, as a simulation does."""
    row = own[0]
    for i in range(1, len(target)):
        row = row + 0.5 * sin(row)
        target[i] = row
        row = target[i] if target is own else row


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Draw an index of an array; integers are distinct."""
    n = shape[0]
    kind = draw(st.sampled_from(["int", "slice", "last", "list", "mask", "column", "all"]))
    rows = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    return {
        "int": rows[0],
        "slice": slice(rows[0], None),
        "last": (..., slice(None, None, -1)),
        "list": rows,
        "mask": np.arange(np.prod(shape)).reshape(shape) % 3 == rows[0] % 3,
        "column": (..., [rows[0] % shape[-1]]),
        "all": ...,
    }[kind]


class WriteMachine(RuleBasedStateMachine):
    """Programs that freeze nothing, which are never refused."""

    may_freeze = False

    def __init__(self) -> None:
        super().__init__()
        self.program: list[Statement] = []
        self.is_refused = False

    @initialize(
        shapes=st.lists(st.sampled_from(SHAPES), min_size=4, max_size=4),
        layouts=st.lists(st.sampled_from(list(LAYOUTS)), min_size=4, max_size=4),
        seed=st.integers(0, 2**32 - 1),
    )
    def begin(self, shapes: list[tuple[int, ...]], layouts: list[str], seed: int) -> None:
        """Make two leaves and two constants, and a value of each leaf."""
        self.rng = np.random.default_rng(seed)
        draw = self.rng.uniform
        self.start = [LAYOUTS[name](draw(-1, 1, shape)) for shape, name in zip(shapes, layouts)]
        self.arrays, self.tensors = Arrays(self.start), Tensors(self.start)
        self.plain = Tensors(self.start, leaves=0)
        self.leaf_memory = [owner_of(a) for a in self.arrays.values[:2]]
        for i in (0, 1):
            self.run(Statement(FUNCTIONS["scaled"], (i,)))

    def run(self, s: Statement) -> None:
        """Run a statement that NumPy accepts on arrays, tensors, and tensors without gradients."""
        try:
            self.arrays.run(s)
        except (ValueError, IndexError, TypeError):
            return
        self.program.append(s)
        self.plain.run(s)
        try:
            self.tensors.run(s)
        except GradientError:
            assert any(t.no_grad or t.detach for t in self.program)
            self.is_refused = True

    def place(self, i: int) -> int:
        return len(self.arrays.values) - 1 - i % len(self.arrays.values)

    def target(self, i: int) -> int | None:
        """Return the number of an array that may be written, or None."""
        n = self.place(i)
        a = self.arrays.values[n]
        is_leaf = any(owner_of(a) is memory for memory in self.leaf_memory)
        repeats = np.lib.array_utils.byte_bounds(a)[1] - np.lib.array_utils.byte_bounds(a)[0]
        is_usable = a.ndim and a.size and a.flags.writeable and a.nbytes <= repeats
        return n if is_usable and not is_leaf else None

    def freezes(self, wanted: bool) -> bool:
        return wanted and self.may_freeze

    is_running = precondition(lambda self: not self.is_refused)

    @precondition(lambda self: self.is_refused)
    @rule()
    def end(self) -> None:
        """Do nothing after an error."""

    @is_running
    @rule(i=places, name=st.sampled_from(list(VIEWS)), no_grad=st.integers(0, 9))
    def view(self, i: int, name: str, no_grad: int) -> None:
        self.run(Statement(VIEWS[name], (self.place(i),), no_grad=self.freezes(no_grad == 0)))

    @is_running
    @rule(i=places, j=places, name=st.sampled_from(list(FUNCTIONS)), no_grad=st.integers(0, 9))
    def compute(self, i: int, j: int, name: str, no_grad: int) -> None:
        operands = (self.place(i), self.place(j))[: 2 if name in BINARY else 1]
        values = [self.arrays.values[n] for n in operands]
        if all(a.size < 60 and np.abs(a).max(initial=0) < 20 for a in values):
            self.run(Statement(FUNCTIONS[name], operands, no_grad=self.freezes(no_grad == 0)))

    @precondition(lambda self: self.may_freeze and not self.is_refused)
    @rule(i=places)
    def detach(self, i: int) -> None:
        self.run(Statement(lambda x: x.view(), (self.place(i),), detach=True))

    @is_running
    @rule(data=st.data(), i=places, j=places, value=st.none() | st.just(0.5), no_grad=st.booleans())
    def set_item(self, data: Any, i: int, j: int, value: float | None, no_grad: bool) -> None:
        n, no_grad = self.target(i), self.freezes(no_grad)
        values = self.arrays.values
        if n is not None:
            key = data.draw(keys(values[n].shape))
            if value is None:
                overlaps = np.shares_memory(values[n], values[self.place(j)])
                if overlaps and (n in self.arrays.frozen or isinstance(key, np.ndarray)):
                    return  # values written where they are freeze nothing; NumPy copies none for masks
                self.run(Statement(assign(key), (self.place(j),), n, no_grad))
            else:
                self.run(Statement(assign_constant(key, value), (), n, no_grad))

    @is_running
    @rule(data=st.data(), i=places, j=places, name=st.sampled_from(list(OPERATORS)))
    def change_part(self, data: Any, i: int, j: int, name: str) -> None:
        n = self.target(i)
        if n is not None:
            key = data.draw(keys(self.arrays.values[n].shape))
            self.run(Statement(change(name, key), (self.place(j),), n))

    @is_running
    @rule(i=places, j=places, name=st.sampled_from(list(OPERATORS)), no_grad=st.integers(0, 5))
    def change_all(self, i: int, j: int, name: str, no_grad: int) -> None:
        n = self.target(i)
        if n is not None:
            freezes = self.freezes(no_grad == 0)
            self.run(Statement(change_whole(name), (self.place(j),), n, freezes))

    @is_running
    @rule(i=places, j=places, name=st.sampled_from(list(WRITES)))
    def write(self, i: int, j: int, name: str) -> None:
        n = self.target(i)
        if n is not None:
            operands = () if name in ("swap", "shift") else (self.place(j),)
            self.run(Statement(WRITES[name], operands, n))

    @is_running
    @rule(i=places)
    def loop(self, i: int) -> None:
        n = self.target(i)
        if n is not None and n not in self.arrays.frozen:
            self.run(Statement(put_loop, (), n))

    @is_running
    @rule(data=st.data(), i=places)
    def save_change_restore(self, data: Any, i: int) -> None:
        """Keep selected elements, change the array, and write them back."""
        n = self.target(i)
        if n is not None and n not in self.arrays.frozen:
            key = data.draw(keys(self.arrays.values[n].shape))
            count = len(self.program)
            self.run(Statement(lambda x: x[key], (n,)))
            if len(self.program) > count and not self.is_refused:
                kept = len(self.arrays.values) - 1
                self.run(Statement(change_whole("*="), (kept,), n))
                if not self.is_refused:
                    self.run(Statement(assign(key), (kept,), n))

    @invariant()
    def values_are_those_of_numpy(self) -> None:
        if self.program and not self.is_refused:
            expected = self.arrays.values
            for program in (self.tensors, self.plain):
                values = [t.data for t in program.values]
                assert [x.shape for x in values] == [a.shape for a in expected]
                x, a = (np.concatenate([*map(np.ravel, v)]) for v in (values, expected))
                if not np.array_equal(x, a):
                    np.testing.assert_allclose(x, a, rtol=1e-12, atol=1e-12)

    def teardown(self) -> None:
        if self.program and not self.is_refused:
            self.gradients_are_derivatives_of_jets()
            if not self.may_freeze:
                self.vmap_equals_a_loop()

    # -- gradients

    def total(self, values: list[Any], read: Callable[[int], Any]) -> Any:
        """Return the sum of all values, with weights."""
        weights = np.random.default_rng(0)
        terms = [read(i) * weights.uniform(0.5, 1.5, a.shape) for i, a in enumerate(values)]
        return sum(np.sum(term) for term in terms)

    def gradients(self, start: list[np.ndarray], create_graph: bool = False) -> Any:
        """Run the program on tensors, and return the leaves and their gradients."""
        tensors = Tensors(start)
        for s in self.program:
            tensors.run(s)
        leaves = tensors.values[:2]
        y = self.total(tensors.values, lambda i: tensors.values[i])
        return leaves, mg.gradients(y, leaves, create_graph=create_graph)

    def vmap_equals_a_loop(self) -> None:
        """Run the program inside `vmap` on two examples; it may lack a batching rule."""
        starts = [np.stack([a, 0.5 * a[::-1]]) for a in self.start]

        def f(*start: Any) -> tuple[Any, ...]:
            tensors = Tensors([])
            tensors.values = [in_layout(x, a) for x, a in zip(start, self.start)]
            for s in self.program:
                tensors.run(s)
            return tuple(tensors.values)

        leaves, others = ([Tensor(a, requires_grad=True) for a in starts] for _ in range(2))
        try:
            batched = mg.vmap(f)(*leaves)
        except TypeError as error:
            assert "batching rule" in str(error) or "for all examples" in str(error)
            return
        except np.exceptions.AxisError:  # of a scalar
            return
        results = zip(*[f(*[x[i] for x in others]) for i in range(2)], strict=True)
        loop = [np.stack(list(parts)) for parts in results]
        for a, b in zip(batched, loop, strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-9, atol=1e-12)
        ones = [np.cos(np.arange(a.size)).reshape(a.shape) for a in loop]
        for a, b in zip(
            *[
                mg.gradients(list(ys), xs, ones, allow_unused=True)
                for ys, xs in ((batched, leaves), (loop, others))
            ]
        ):
            scale = 1 if b is None else 1 + np.abs(b.data).max(initial=0)
            np.testing.assert_allclose(dense(a) / scale, dense(b) / scale, rtol=1e-8, atol=1e-8)

    def gradients_are_derivatives_of_jets(self) -> None:
        directions = [self.rng.uniform(-1, 1, a.shape) for a in self.start[:2]]
        lines = [in_new_memory(a, object) for a in self.start]
        for a, d in zip(lines, directions):
            a[...] = on_line(a, d)
        arrays = Arrays(lines)
        for s in self.program:
            arrays.run(s)
        expected = jet(self.total(arrays.values, arrays.read))
        try:
            leaves, gs = self.gradients(self.start, create_graph=not self.may_freeze)
        except GradientError as error:
            freezes = any(s.no_grad or s.detach for s in self.program)
            assert freezes or "changed in place after it was used" in str(error)  # a constant was
            return
        along = lambda gs: sum((g * d).sum() for g, d in zip(gs, directions) if g is not None)
        curve = along(gs)
        slope = float(curve.data)
        largest = max([np.abs(a).max(initial=0) for a in self.arrays.values])
        scale = max(1, largest, *[np.abs(g.data).sum() for g in gs])
        assert abs(slope - expected.slope) < 1e-11 * scale, (slope, expected)
        if self.may_freeze:  # a gradient of other leaves would have other frozen values
            return
        gs = self.gradients(self.start)[1]
        assert abs(float(along(gs).data) - slope) < 1e-11 * scale
        gs2 = mg.gradients(curve, leaves, allow_unused=True) if curve.requires_grad else (None,) * 2
        curvature = float(along([None if g is None else g.data for g in gs2]))
        scale = max(scale, *[np.abs(dense(g)).sum() for g in gs2])
        assert abs(curvature - expected.curvature) < 1e-11 * scale, (curvature, expected)


def in_layout(x: Any, a: np.ndarray) -> Any:
    """Return a copy of `x` with the order of axes of `a`."""
    return x.T.copy().T if a.ndim > 1 and not a.flags.c_contiguous else x.copy()


def dense(g: Any) -> Any:
    return 0.0 if g is None else g.data


class FreezingMachine(WriteMachine):
    """Programs that also detach, and compute and write under `no_grad`."""

    may_freeze = True

"""The graph, and the walk back through it.

Every recorded operation leaves one `Node`. A node points only backwards, at the nodes of its
operands, so a graph has no reference cycles and is freed the moment its last result is. Nothing in
this file knows `Tensor`, or any particular operation.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from .errors import GradientError
from .modes import MODE

ndarray = np.ndarray
_by_seq = attrgetter("seq")
_tick = itertools.count(1).__next__  # one clock, for new nodes and for changes made in place

Edge = tuple["Node", Callable[..., Any], tuple[Any, ...]]


class Node:
    """One recorded operation, or (with `op is None`) a leaf that collects a gradient.

    `edges` holds, for each operand that wants a gradient, its node, the rule that computes the
    gradient, and the values that this rule reads; nothing else is kept. It is None once the graph
    is freed. `inputs` has the node of every operand, or None, in order. Nodes are numbered as they
    are made, so that sorting by `seq` sorts a graph topologically.
    """

    __slots__ = ("seq", "op", "edges", "inputs", "shape", "dtype", "notes", "grad", "__weakref__")

    edges: tuple[Edge, ...] | None

    def __init__(self, op: Any, edges: tuple[Edge, ...], inputs: tuple[Node | None, ...], y: ndarray) -> None:
        self.seq = _tick()
        self.op = op
        self.edges = edges
        self.inputs = inputs
        self.shape = y.shape
        self.dtype = y.dtype
        self.notes: Notes | None = None
        self.grad: Any = None  # an ndarray, or after create_graph a Tensor


class Notes:
    """What few nodes have: gradient hooks, the wish to keep the gradient, the line that made it."""

    __slots__ = ("hooks", "retain", "grad_buffer", "line", "checksum")

    def __init__(self) -> None:
        self.hooks: dict[int, Callable[[Any], Any]] = {}
        self.retain = False
        self.grad_buffer: ndarray | None = None  # where an optimizer wants a leaf's gradient to be
        self.line: str | None = None
        self.checksum: int | None = None


def notes_of(node: Node) -> Notes:
    """The notes of a node, made on first use."""
    if node.notes is None:
        node.notes = Notes()
    return node.notes


# -- arrays changed in place -----------------------------------------------------------------------

_changed: dict[int, tuple[weakref.ref[Any], int]] = {}  # id of an array -> (the array, when)
_last_change = 0


def mark_changed(array: ndarray) -> None:
    """Note that `array` was changed in place: a graph that kept it, or a view of it, will refuse."""
    global _last_change
    key = id(array)
    _last_change = _tick()
    _changed[key] = (weakref.ref(array, lambda _: _changed.pop(key, None)), _last_change)


def _check_unchanged(node: Node, values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, tuple):
            _check_unchanged(node, value)
        array = value
        while isinstance(array, ndarray):  # a view has changed if what it looks into has
            changed = _changed.get(id(array))
            if changed is not None and changed[0]() is array and changed[1] > node.seq:
                raise GradientError(
                    f"{node.op.name}: an array of shape {value.shape} that its gradient needs was changed "
                    "in place after it was used; change it after backward(), or use a clone() of it"
                )
            array = array.base


# -- backward --------------------------------------------------------------------------------------


def topological(roots: Sequence[Node]) -> list[Node]:
    """Every node that the roots depend on, oldest first."""
    seen = set(roots)
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.edges is None:
            raise GradientError(
                f"{node.op.name}: the graph is freed; pass retain_graph=True to the first backward pass "
                "to walk it again"
            )
        for edge in node.edges:
            parent = edge[0]
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return sorted(seen, key=_by_seq)


def _leading_to(targets: set[Node], order: list[Node]) -> set[Node]:
    useful: set[Node] = set()
    for node in order:  # parents come before children
        if node in targets or any(edge[0] in useful for edge in node.edges or ()):
            useful.add(node)
    return useful


def unbroadcast(c: Any, shape: tuple[int, ...]) -> Any:
    """Sum a gradient over the axes along which its operand of shape `shape` was broadcast."""
    extra = c.ndim - len(shape)
    axes = tuple(i for i in range(c.ndim) if i < extra or (shape[i - extra] == 1 and c.shape[i] != 1))
    return c.sum(axis=axes, keepdims=True).reshape(shape)


class Backward:
    """One walk back through the graph.

    In an ordinary pass the rules see ndarrays and nothing is recorded. With `create_graph` they see
    Tensors, through which the same formulas record themselves. `lift(array, node)` makes a Tensor.
    """

    def __init__(self, lift: Callable[[Any, Node | None], Any], retain_graph: bool, create_graph: bool) -> None:
        self.lift = lift
        self.retain_graph = retain_graph or create_graph
        self.create_graph = create_graph
        self.watch = MODE.get().watch
        self.targets: set[Node] = set()
        self.useful: set[Node] | None = None  # with targets: the nodes that lead to one
        self.found: dict[Node, Any] = {}

    def run(
        self, roots: Sequence[Node], seeds: Sequence[Any], targets: Sequence[Node] | None = None
    ) -> dict[Node, Any]:
        """Send the gradients `seeds` of `roots` back.

        Without `targets`, gradients are added into the `grad` of every leaf. With them, the
        gradients of exactly these nodes are returned, and no `grad` changes.
        """
        order = topological(roots)
        if targets is not None:
            self.targets = set(targets)
            self.useful = _leading_to(self.targets, order)
            order = [node for node in order if node in self.useful]
        wanted, free, numeric = self.targets, not self.retain_graph, not self.create_graph
        plain = self.watch is None and targets is None and numeric
        grads: dict[Node, Any] = {}
        owned: set[Node] = set()  # the nodes whose entry in `grads` is ours to add into
        for node, seed in zip(roots, seeds):
            grads[node] = grads[node] + seed if node in grads else seed

        while order:
            node = order.pop()
            g = grads.pop(node, None)
            if g is None:
                continue
            if node.notes is not None or node in wanted:
                g = self._notice(node, g)
                owned.discard(node)
            if node.op is None:
                if targets is None:
                    self._collect(node, g, node in owned)
                continue
            plainly = plain and not node.op.joint and _last_change < node.seq
            edges = node.edges if plainly else self._pull(node, g, grads)
            if free:
                node.edges = None
                node.inputs = ()
            for parent, rule, args in edges:  # type: ignore[union-attr]
                c = rule(g, *args)
                if type(c) is not ndarray:
                    c = self._coerced(c)
                if c.shape != parent.shape:
                    c = unbroadcast(c, parent.shape)
                if c.dtype is not parent.dtype:
                    c = c.astype(parent.dtype)
                total = grads.get(parent)
                if total is None:
                    grads[parent] = c
                    if parent.op is None and numeric and c is not g and (c.base is None or c is _grad_buffer(parent)):
                        owned.add(parent)  # a new array, which a leaf may keep as its gradient
                elif parent in owned:
                    np.add(total, c, out=total)
                else:
                    grads[parent] = self._coerced(total + c)
                    if numeric:
                        owned.add(parent)
            g = edges = args = c = total = None  # nothing outlives its use
        return self.found

    def _pull(self, node: Node, g: Any, grads: dict[Node, Any]) -> list[Edge]:
        """Edges whose rules have been run, with every check and in every mode that `run` spares the plain case."""
        op, useful = node.op, self.useful
        pairs: list[tuple[Node | None, Any]] = []
        for parent, rule, args in node.edges or ():
            if useful is not None and not op.joint and parent not in useful:
                continue
            if _last_change > node.seq:
                _check_unchanged(node, args)
            if self.create_graph:
                args = tuple(self._tied(value, origin) for value, origin in zip(args, op.origins(rule, node)))
                rule = op.through_tensors(rule, node)
            elif op.fills_buffers:
                args = (*args, self._grad_buffers(node, grads))
            c = rule(g, *args) if self.watch is None else self.watch.backward(node, rule, g, args)
            if op.joint:  # one rule answered for all operands
                pairs = list(zip(node.inputs, c))
                break
            pairs.append((parent, c))
        return [
            (p, _given, (c,)) for p, c in pairs if p is not None and c is not None and (useful is None or p in useful)
        ]

    def _grad_buffers(self, node: Node, grads: dict[Node, Any]) -> list[ndarray | None]:
        """For each operand, where its gradient may be written: the grad_buffer of a leaf that has no gradient yet."""
        free: list[ndarray | None] = []
        for leaf in node.inputs:
            grad_buffer = None if leaf is None or leaf in grads or leaf.grad is not None else _grad_buffer(leaf)
            if grad_buffer is not None and (node.inputs.count(leaf) > 1 or leaf.notes.hooks or self.useful is not None):  # type: ignore[union-attr]
                grad_buffer = None  # it is not the whole gradient, or others see it
            free.append(grad_buffer)
        return free

    def _tied(self, value: Any, origin: Any) -> Any:
        """A saved value as a Tensor of the node it came from (`origin`: a node, a tuple of them, or None)."""
        if isinstance(origin, tuple):
            return tuple(self._tied(v, o) for v, o in zip(value, origin))
        return value if origin is None else self.lift(value, origin)

    def _coerced(self, c: Any) -> Any:
        if self.create_graph:
            return self.lift(np.asarray(c), None) if isinstance(c, (ndarray, np.generic, float, int)) else c
        return np.asarray(c)

    def _notice(self, node: Node, g: Any) -> Any:
        """Run the hooks of a node, keep its gradient where that was asked for, and pass it on."""
        if node.notes is not None:
            for hook in list(node.notes.hooks.values()):
                answer = hook(g if self.create_graph else self.lift(g, None))
                if answer is not None:
                    g = self._replacement(node, answer)
            if node.notes.retain and node.op is not None and self.useful is None:
                self._collect(node, g, False)
        if node in self.targets:
            self.found[node] = g if self.create_graph else self.lift(g, None)
        return g

    def _replacement(self, node: Node, answer: Any) -> Any:
        if getattr(answer, "shape", None) != node.shape or answer.dtype != node.dtype:
            raise GradientError(
                f"a gradient hook returned {_what(answer)} in place of a gradient of shape {node.shape} and "
                f"dtype {node.dtype}"
            )
        return answer if self.create_graph else np.asarray(answer)

    def _collect(self, node: Node, g: Any, own: bool) -> None:
        """Add `g` into the gradient of a node; `own` says that `g` may be kept without a copy."""
        if node.grad is None:
            grad_buffer = _grad_buffer(node)
            if grad_buffer is not None and not self.create_graph:
                if g is not grad_buffer:
                    np.copyto(grad_buffer, g)
                node.grad = grad_buffer
            else:
                node.grad = g if own or self.create_graph else g.copy()
        elif type(node.grad) is ndarray and not self.create_graph:
            np.add(node.grad, g, out=node.grad)
        else:
            node.grad = node.grad + g


def _grad_buffer(node: Node) -> ndarray | None:
    return None if node.notes is None else node.notes.grad_buffer


def _given(g: Any, c: Any) -> Any:
    """A rule that has been run already."""
    return c


def _what(value: Any) -> str:
    return f"shape {value.shape} and dtype {value.dtype}" if hasattr(value, "shape") else f"a {type(value).__name__}"

"""The graph, and the walk back through it.

Every recorded operation leaves one `Node`. A node points only backwards, at the nodes of its
operands, so a graph has no reference cycles and is freed the moment its last result is. Nothing in
this file knows `Tensor`, or any particular operation.

On a first reading: `Node`, `topological`, and of `Backward` the methods `run`, `_walk` and
`_parts`. That is all of reverse-mode differentiation. The rest can wait: hooks; gradients of
gradients (`create_graph`); and the buffers in which an optimizer wants its gradients.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from . import changes
from .changes import tick
from .errors import GradientError
from .modes import MODE

ndarray = np.ndarray
_by_seq = attrgetter("seq")
_collecting = threading.RLock()  # two threads may add into the gradient of one leaf

Edge = tuple["Node", Callable[..., Any], tuple[Any, ...]]


class Node:
    """One recorded operation, or (with `op is None`) a leaf that collects a gradient.

    `edges` holds, for each operand that wants a gradient, its node, the rule that computes the
    gradient, and the values that this rule reads; nothing else is saved. It is None once the graph
    is freed. `inputs` has the node of every operand, or None, in order. Nodes are numbered as they
    are made, so that sorting by `seq` sorts a graph topologically.
    """

    __slots__ = ("seq", "op", "edges", "inputs", "shape", "dtype", "notes", "grad", "__weakref__")

    edges: tuple[Edge, ...] | None

    def __init__(
        self, op: Any, edges: tuple[Edge, ...], inputs: tuple[Node | None, ...], y: ndarray
    ) -> None:
        self.seq = tick()
        self.op = op
        self.edges = edges
        self.inputs = inputs
        self.shape = y.shape
        self.dtype = y.dtype
        self.notes: Notes | None = None
        self.grad: Any = None  # an ndarray, or after create_graph a Tensor


class Notes:
    """What few nodes have: gradient hooks, the wish to keep the gradient, the line that made it."""

    __slots__ = ("hooks", "retain", "grad_buffer", "shown", "writer", "line", "checksum")

    def __init__(self) -> None:
        self.hooks: dict[int, Callable[[Any], Any]] = {}
        self.retain = False
        self.grad_buffer: ndarray | None = None  # where an optimizer wants a leaf's gradient to be
        # whether the gradient in that buffer was handed out, so that a graph may have saved it
        self.shown = False
        self.writer: Backward | None = None  # the walk that may write there
        self.line: str | None = None
        self.checksum: int | None = None


def notes_of(node: Node) -> Notes:
    """The notes of a node, made on first use."""
    if node.notes is None:
        node.notes = Notes()
    return node.notes


# -- backward --------------------------------------------------------------------------------------


def topological(roots: Sequence[Node]) -> list[Node]:
    """Every node that the roots depend on, oldest first."""
    seen = set(roots)
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.edges is None:
            raise GradientError(
                f"{node.op.name}: the graph is freed; pass retain_graph=True to the first "
                "backward pass "
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
    axes = tuple(
        i for i in range(c.ndim) if i < extra or (shape[i - extra] == 1 and c.shape[i] != 1)
    )
    return c.sum(axis=axes, keepdims=True).reshape(shape)


class Backward:
    """One walk back through the graph.

    In an ordinary pass the rules see ndarrays and nothing is recorded. With `create_graph` they see
    Tensors, through which the same formulas record themselves. `lift(array, node)` makes a Tensor.
    """

    def __init__(
        self,
        lift: Callable[[Any, Node | None], Any],
        retain_graph: bool,
        create_graph: bool,
    ) -> None:
        self.lift = lift
        self.retain_graph = retain_graph or create_graph
        self.create_graph = create_graph
        self.watch = MODE.get().watch
        self.targets: set[Node] = set()
        self.useful: set[Node] | None = None  # with targets: the nodes that lead to one
        self.found: dict[Node, Any] = {}
        self.writing: list[Notes] = []  # of leaves whose buffers this walk has taken

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
        grads: dict[Node, Any] = {}
        for node, seed in zip(roots, seeds):
            grads[node] = grads[node] + seed if node in grads else seed
        try:
            self._walk(order, grads)
        finally:
            for notes in self.writing:
                notes.writer = None
        return self.found

    def _walk(self, order: list[Node], grads: dict[Node, Any]) -> None:
        """From the results down to the leaves: `grads` has what came together so far, for nodes not
        yet met.

        The first gradient that reaches a node is taken as it is, the second makes a sum of the two,
        and later ones are added into that. `owned` has the nodes whose entry is ours alone to add
        into.
        """
        collects, numeric = self.useful is None, not self.create_graph
        owned: set[Node] = set()
        while order:
            node = order.pop()
            g = grads.pop(node, None)
            if g is None:
                continue
            notes = node.notes
            if (notes is not None and (notes.hooks or notes.retain)) or node in self.targets:
                g = self._notice(node, g)
                owned.discard(node)
            if node.op is None:
                if collects:
                    self._collect(node, g, node in owned)
                continue
            parts = self._parts(node, g, grads)
            if not self.retain_graph:
                node.edges = None
                node.inputs = ()
            for parent, c in parts:
                if (
                    c is None
                    or parent is None
                    or (self.useful is not None and parent not in self.useful)
                ):
                    continue
                if type(c) is not ndarray:
                    c = self._coerced(c)
                if c.shape != parent.shape:
                    c = unbroadcast(c, parent.shape)
                if c.dtype is not parent.dtype:
                    c = c.astype(parent.dtype)
                total = grads.get(parent)
                if total is None:
                    grads[parent] = c
                    if (
                        parent.op is None
                        and numeric
                        and c is not g
                        and (c.base is None or c is _grad_buffer(parent))
                    ):
                        owned.add(parent)  # a new array, which a leaf may keep as its gradient
                elif parent in owned:
                    np.add(total, c, out=total)
                else:
                    grads[parent] = self._coerced(total + c)
                    if numeric:
                        owned.add(parent)
            del parts
            g = c = total = None  # nothing outlives its use

    def _parts(self, node: Node, g: Any, grads: dict[Node, Any]) -> list[tuple[Node | None, Any]]:
        """What the rules of a node make of its gradient `g`: a part for each operand that wants
        one.
        """
        op = node.op
        parts: list[tuple[Node | None, Any]] = []
        for parent, rule, args in node.edges or ():
            if self.useful is not None and parent not in self.useful and not op.joint:
                continue
            if changes.last > node.seq:
                changes.check_unchanged(op.name, node.seq, args)
            if self.create_graph:
                args = tuple(
                    [
                        self._tied(value, origin)
                        for value, origin in zip(args, op.origins(rule, node))
                    ]
                )
                rule = op.through_tensors(rule, node)
            elif op.fills_buffers:
                args = (*args, self._grad_buffers(node, grads))
            c = rule(g, *args) if self.watch is None else self.watch.backward(node, rule, g, args)
            if op.joint:  # one rule answers for all operands
                return list(zip(node.inputs, c))
            parts.append((parent, c))
        return parts

    def _grad_buffers(self, node: Node, grads: dict[Node, Any]) -> list[ndarray | None]:
        """For each operand, where its gradient may be computed: the buffer of a leaf that has no
        gradient yet.
        """
        buffers: list[ndarray | None] = []
        for leaf in node.inputs:
            buffer = (
                None
                if leaf is None or leaf in grads or self.useful is not None
                else _grad_buffer(leaf)
            )
            if buffer is not None:
                with _collecting:
                    notes = notes_of(leaf)  # type: ignore[arg-type]
                    whole = (
                        node.inputs.count(leaf) == 1 and not notes.hooks
                    )  # this is all of it, and nobody looks
                    if whole and leaf.grad is None and notes.writer is None:  # type: ignore[union-attr]
                        notes.writer = self
                        self.writing.append(notes)
                    else:
                        buffer = None
            buffers.append(buffer)
        return buffers

    def _tied(self, value: Any, origin: Any) -> Any:
        """A saved value as a Tensor of the node it came from (`origin`: a node, a tuple of them, or
        None).
        """
        if isinstance(origin, tuple):
            return tuple(self._tied(v, o) for v, o in zip(value, origin))
        return value if origin is None else self.lift(value, origin)

    def _coerced(self, c: Any) -> Any:
        if self.create_graph:
            return (
                self.lift(np.asarray(c), None)
                if isinstance(c, (ndarray, np.generic, float, int))
                else c
            )
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
                f"a gradient hook returned {kind_of(answer)} in place of a gradient of shape "
                f"{node.shape} and "
                f"dtype {node.dtype}"
            )
        return answer if self.create_graph else np.asarray(answer)

    def _collect(self, node: Node, g: Any, own: bool) -> None:
        """Add `g` into the gradient of a node; `own` says that `g` may be kept without a copy."""
        with _collecting:
            buffer = None if self.create_graph else _grad_buffer(node)
            if buffer is not None and node.notes.writer not in (None, self):  # type: ignore[union-attr]
                buffer = None  # another thread computes its gradient there
            if node.grad is None and buffer is not None:
                if g is not buffer:
                    np.copyto(buffer, g)
                node.grad = buffer
                if node.notes.shown:  # type: ignore[union-attr]
                    node.notes.shown = False  # type: ignore[union-attr]
                    changes.mark_changed(buffer)
            elif node.grad is None:
                node.grad = (
                    g if self.create_graph or (own and g is not _grad_buffer(node)) else g.copy()
                )
            elif type(node.grad) is ndarray and not self.create_graph:
                np.add(node.grad, g, out=node.grad)
                changes.mark_changed(node.grad)
            else:
                node.grad = node.grad + g


def _grad_buffer(node: Node) -> ndarray | None:
    return None if node.notes is None else node.notes.grad_buffer


def kind_of(value: Any) -> str:
    """What came in place of a gradient, for an error."""
    shaped = hasattr(value, "shape") and not isinstance(value, np.generic)
    return f"shape {value.shape} and dtype {value.dtype}" if shaped else f"a {type(value).__name__}"

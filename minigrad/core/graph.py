"""Graph of recorded operations, and the backward pass through it.

Each recorded operation leaves one `Node`. A node refers only to the nodes of its operands, so a
graph has no reference cycles and is freed together with its last result. This file depends on no
operation and not on `Tensor`.

On a first reading: `Node`, `topological`, and the methods `run` and `_walk` of `Backward`. They are
all of reverse-mode differentiation. `_rule_results` handles what is beyond the plain case:
gradients of gradients, target nodes, tools that watch, rules for all operands of a kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from . import changes
from .batched import EXAMPLES, BatchedShape, as_array
from .changes import tick
from .errors import GradientError
from .modes import MODE, VMAPPED

ndarray = np.ndarray
_by_seq = attrgetter("seq")
_collecting = threading.RLock()  # two threads may add into the gradient of one leaf

Edge = tuple["Node", Callable[..., Any], tuple[Any, ...]]


class Node:
    """Node of the graph: a recorded operation, or a leaf that collects a gradient.

    Attributes
    ----------
    seq : int
        Nodes are numbered in the order of their creation, so sorting by `seq` sorts a graph
        topologically.
    op : Op or None
        None for a leaf.
    edges : sequence of (Node, rule, values), or None
        For each operand that needs a gradient: its node, the rule that computes its gradient, and
        the values that the rule reads. Nothing else is saved. None after the graph was freed.
    inputs : tuple of (Node or None)
        The node of every operand, in order.
    shape, dtype
        Shape and dtype of the result and of its gradient.
    notes : Notes or None
    grad : ndarray or None
        The collected gradient; a Tensor after a backward pass with `create_graph`.
    """

    __slots__ = ("seq", "op", "edges", "inputs", "shape", "dtype", "notes", "grad", "__weakref__")

    edges: Sequence[Edge] | None

    def __init__(
        self, op: Any, edges: Sequence[Edge], inputs: tuple[Node | None, ...], y: ndarray
    ) -> None:
        self.seq = tick()
        self.op = op
        self.edges = edges
        self.inputs = inputs
        self.shape = y.shape
        self.dtype = y.dtype
        self.notes: Notes | None = None
        self.grad: Any = None


class Notes:
    """Attributes that few nodes have.

    Attributes
    ----------
    hooks : dict of int to callable
        Called with the complete gradient of the node.
    retain : bool
        Collect the gradient of a node that is not a leaf.
    grad_buffer : ndarray or None
        Array of an optimizer that receives the gradient of a leaf.
    shown : bool
        A gradient of the node was returned to a caller, so a graph may have saved its memory.
    line : str or None
        Line of the caller's code that made the node, if anomalies are detected.
    checksum : int or None
        Checksum of the saved arrays, if anomalies are detected.
    """

    __slots__ = ("hooks", "retain", "grad_buffer", "shown", "line", "checksum")

    def __init__(self) -> None:
        self.hooks: dict[int, Callable[[Any], Any]] = {}
        self.retain = False
        self.grad_buffer: ndarray | None = None
        self.shown = False
        self.line: str | None = None
        self.checksum: int | None = None


def notes_of(node: Node) -> Notes:
    """Return the notes of a node, made on first use."""
    if node.notes is None:
        node.notes = Notes()
    return node.notes


# -- backward


def topological(roots: Sequence[Node]) -> list[Node]:
    """Return all nodes that the roots depend on, oldest first."""
    order = list(dict.fromkeys(roots))
    seen = set(order)
    for node in order:  # which grows
        if node.edges is None:
            raise GradientError(
                f"{node.op.name}: the graph is freed; pass retain_graph=True to the first "
                "backward pass to walk it again"
            )
        for parent, _, _ in node.edges:
            if parent not in seen:
                seen.add(parent)
                order.append(parent)
    order.sort(key=_by_seq)
    return order


def _leading_to(targets: set[Node], order: list[Node]) -> set[Node]:
    useful: set[Node] = set()
    for node in order:  # parents come before children
        if node in targets or any(edge[0] in useful for edge in node.edges or ()):
            useful.add(node)
    return useful


def unbroadcast(c: Any, shape: tuple[int, ...]) -> Any:
    """Sum a gradient over the axes along which its operand of shape `shape` was broadcast."""
    extra = c.ndim - len(shape)
    axes = [i for i, n in enumerate(c.shape) if i < extra or (shape[i - extra] == 1 and n != 1)]
    c = c.sum(axis=tuple(axes), keepdims=True)
    return c.reshape(shape) if extra else c


def _check_shape(name: str, c: Any, parent: Node) -> None:
    """Raise an error for a gradient that cannot be summed to the shape of its operand."""
    shape = parent.shape
    extra = c.ndim - len(shape)
    if extra < 0 or any(m not in (1, n) for m, n in zip(shape, c.shape[extra:])):
        raise GradientError(
            f"{name}: the gradient of an operand of shape {tuple(shape)} must have this shape, but "
            f"its rule returned shape {tuple(c.shape)}"
        )


def _in_dtype(name: str, c: Any, parent: Node) -> Any:
    """Return a gradient in the dtype of its operand, which is real."""
    if c.dtype.kind == "c":
        raise GradientError(
            f"{name}: the gradient of an operand of dtype {parent.dtype} must be real, but its "
            f"rule returned dtype {c.dtype}"
        )
    return c.astype(parent.dtype)


class Backward:
    """Backward pass through a graph.

    Rules receive ndarrays, and nothing is recorded. With `create_graph` they receive Tensors, and
    their operations are recorded.

    Parameters
    ----------
    lift : callable
        `lift(array, node)` makes a Tensor.
    retain_graph : bool
        Keep the edges of nodes, for another backward pass.
    create_graph : bool
        Record the gradients; implies `retain_graph`.
    batched : bool
        The seeds are batches of gradients. Otherwise only examples of `vmap` are batched. Outside
        of it, the gradient of an operand that they share is the sum over them.
    """

    def __init__(
        self,
        lift: Callable[[Any, Node | None], Any],
        retain_graph: bool,
        create_graph: bool,
        batched: bool = False,
    ) -> None:
        self.lift = lift
        self.retain_graph = retain_graph or create_graph
        self.create_graph = create_graph
        self.watch = MODE.get().watch
        self.keeps_examples = batched or VMAPPED.get()
        self.targets: set[Node] = set()
        self.useful: set[Node] | None = None  # with targets: the nodes that lead to a target
        self.gradients: dict[Node, Any] = {}
        self.taken: list[tuple[Notes, ndarray]] = []  # buffers that this pass adds up in

    def run(
        self, roots: Sequence[Node], seeds: Sequence[Any], targets: Sequence[Node] | None = None
    ) -> dict[Node, Any]:
        """Propagate the gradients `seeds` of `roots` to the leaves, or to `targets`.

        Without `targets`, gradients are added into the `grad` of each leaf. With `targets`, the
        gradients of these nodes are returned, and no `grad` changes.
        """
        if targets is None and VMAPPED.get():
            raise GradientError(
                "backward: it must not be called inside vmap, whose examples have gradients of "
                "their own; return them by grad"
            )
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
            for notes, buffer in self.taken:
                notes.grad_buffer = buffer
        return self.gradients

    def _walk(self, order: list[Node], grads: dict[Node, Any]) -> None:
        """Visit nodes from the last to the first, and add up the gradients of their operands.

        `grads` contains the gradients of nodes that are not yet visited. The first gradient of a
        node is taken without a copy, the second makes a new array with the sum, and later ones are
        added into it. `owned` contains the nodes whose array in `grads` may be written to.
        """
        numeric, retain = not self.create_graph, self.retain_graph
        plain = numeric and self.useful is None and self.watch is None
        owned: set[Node] = set()
        while order:
            node = order.pop()
            g = grads.pop(node, None)
            if g is None:
                continue
            if node.notes is not None or self.targets:
                g = self._notice(node, g, owned)
            if node.op is None:
                if self.useful is None:
                    self._collect(node, g, node in owned)
                continue
            if plain and not node.op.joint and changes.last < node.seq:
                edges: Any = node.edges
            else:
                edges = [(parent, _given, (c,)) for parent, c in self._rule_results(node, g)]
            if not retain:
                node.edges = None
                node.inputs = ()
            for parent, rule, args in edges:
                c = rule(g, *args)
                if type(c) is not ndarray:
                    if c is None:
                        continue
                    c = self._coerced(c, parent)
                if c.shape != parent.shape:
                    _check_shape(node.op.name, c, parent)
                    c = unbroadcast(c, parent.shape)
                if c.dtype is not parent.dtype:
                    c = _in_dtype(node.op.name, c, parent)
                total = grads.get(parent)
                if total is None:
                    grads[parent] = c
                    if parent.op is None and numeric:
                        buffer = self._take_buffer(parent)
                        if buffer is not None:
                            np.copyto(buffer, c)
                            grads[parent] = buffer
                            owned.add(parent)
                        elif c is not g and c.base is None:
                            owned.add(parent)  # a new array, which a leaf may keep as its gradient
                elif parent in owned and type(c) is ndarray:
                    np.add(total, c, out=total)
                else:
                    total = self._coerced(total + c, parent)
                    if total.dtype is not parent.dtype:  # of another byte order
                        total = total.astype(parent.dtype)
                    grads[parent] = total
                    if numeric:
                        owned.add(parent)
            g = c = total = edges = args = buffer = None  # so that no array outlives its use

    def _rule_results(self, node: Node, g: Any) -> list[tuple[Node, Any]]:
        """Run the rules of a node on its gradient `g`, in other than the plain case of `_walk`."""
        op, useful = node.op, self.useful
        results: list[tuple[Any, Any]] = []
        for parent, rule, args in node.edges or ():
            if useful is not None and parent not in useful and not op.joint:
                continue
            if changes.last > node.seq:
                changes.check_unchanged(op.name, node.seq, args)
            if self.create_graph:
                origins = op.origins(rule, node)
                args = tuple([self._tied(value, origin) for value, origin in zip(args, origins)])
                rule = op.through_tensors(rule, node)
            c = rule(g, *args) if self.watch is None else self.watch.backward(node, rule, g, args)
            if op.joint:  # one rule returns the gradients of all operands
                if not isinstance(c, (tuple, list)) or len(c) != len(node.inputs):
                    got = len(c) if isinstance(c, (tuple, list)) else f"a {type(c).__name__}"
                    raise GradientError(
                        f"{op.name}: vjp must return {len(node.inputs)} gradients, one for each "
                        f"operand, got {got}"
                    )
                results = list(zip(node.inputs, c))
                break
            results.append((parent, c))
        return [
            (parent, c)
            for parent, c in results
            if parent is not None and (useful is None or parent in useful)
        ]

    def _tied(self, value: Any, origin: Any) -> Any:
        """Return a saved value as a Tensor of the node, or tuple of nodes, that it came from."""
        if isinstance(origin, tuple):
            return tuple(self._tied(v, o) for v, o in zip(value, origin))
        return value if origin is None else self.lift(value, origin)

    def _coerced(self, c: Any, parent: Node) -> Any:
        """Return a gradient of `parent` as an ndarray, or as a Tensor with `create_graph`."""
        if type(getattr(c, "shape", None)) is BatchedShape:
            is_shared = not self.keeps_examples and type(parent.shape) is not BatchedShape
            return c.sum(axis=EXAMPLES) if is_shared else c  # all examples use a shared operand
        if self.create_graph:
            return (
                self.lift(np.asarray(c), None)
                if isinstance(c, (ndarray, np.generic, float, int))
                else c
            )
        return np.asarray(c)

    def _notice(self, node: Node, g: Any, owned: set[Node]) -> Any:
        """Run the hooks of a node, store its gradient if requested, and return the gradient."""
        notes = node.notes
        if notes is not None and (notes.hooks or notes.retain):
            owned.discard(node)
            for hook in list(notes.hooks.values()):
                answer = hook(g if self.create_graph else self.lift(g, None))
                if answer is not None:
                    g = self._replacement(node, answer)
            if notes.retain and node.op is not None and self.useful is None:
                self._collect(node, g, False)
        if node in self.targets:
            owned.discard(node)
            self.gradients[node] = g if self.create_graph else self.lift(g, None)
        return g

    def _replacement(self, node: Node, answer: Any) -> Any:
        if getattr(answer, "shape", None) != node.shape or answer.dtype != node.dtype:
            raise GradientError(
                f"a gradient hook must return a gradient of shape {node.shape} and dtype "
                f"{node.dtype}, got {kind_of(answer)}"
            )
        if self.create_graph:
            return self._coerced(answer, node)
        return as_array(getattr(answer, "_array", answer))

    def _take_buffer(self, leaf: Node) -> ndarray | None:
        """Reserve the `grad_buffer` of a leaf for this pass, if nothing else uses it."""
        notes = leaf.notes
        if notes is None or notes.hooks or notes.shown or self.useful is not None:
            return None
        with _collecting:
            if leaf.grad is not None or notes.grad_buffer is None:
                return None
            buffer, notes.grad_buffer = notes.grad_buffer, None
        self.taken.append((notes, buffer))
        return buffer

    def _collect(self, node: Node, g: Any, owned: bool) -> None:
        """Add `g` into the gradient of a node, which may keep `g` without a copy if `owned`."""
        notes = node.notes
        with _collecting:
            if node.grad is not None:
                if type(node.grad) is ndarray and not self.create_graph:
                    np.add(node.grad, g, out=node.grad)
                    changes.mark_changed(node.grad)
                else:
                    node.grad = node.grad + g
            elif self.create_graph or notes is None or notes.grad_buffer is None:
                node.grad = g if self.create_graph or owned else g.copy()
            else:
                node.grad = notes.grad_buffer
                np.copyto(node.grad, g)
                if notes.shown:
                    changes.mark_changed(node.grad)


def _given(g: Any, c: Any) -> Any:
    """Return the gradient `c` that was computed before, as the rule of an edge."""
    return c


def kind_of(value: Any) -> str:
    """Return the shape and dtype of a value, or its type, for an error."""
    shaped = hasattr(value, "shape") and not isinstance(value, np.generic)
    return f"shape {value.shape} and dtype {value.dtype}" if shaped else f"a {type(value).__name__}"

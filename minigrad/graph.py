"""Graph of recorded operations, and the backward pass through it.

Each recorded operation leaves one `Node`. A node refers only to the nodes of its operands, so a
graph has no reference cycles and is freed together with its last result. This file depends on no
operation, and of a `Tensor` it reads only two attributes.

On a first reading: `Node`, `topological`, and the methods `_walk` and `_collect` of
`Backward`. They are all of reverse-mode differentiation. `_walk` visits the nodes from the last to
the first and runs their rules, and `_collect` adds a gradient to a leaf.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from . import changes
from .arrays import Array, Function, OtherArray, Shape, as_array
from .changes import tick
from .errors import GradientError
from .modes import MODE, set_grad_enabled

ndarray = np.ndarray
_by_seq = attrgetter("seq")
collecting = threading.RLock()  # two threads may add into the gradient of one leaf

Edge = tuple["Node", Function, tuple[Array, ...]]


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
        self.grad: Array = None

    def __repr__(self) -> str:
        name = "leaf" if self.op is None else self.op.name
        return f"<Node {self.seq}: {name} {self.shape} {self.dtype}>"


class Notes:
    """Attributes that few nodes have.

    Attributes
    ----------
    hooks : dict of int to callable
        Called with the complete gradient of the node.
    retain : bool
        Collect the gradient of a node that is not a leaf.
    frozen : bool
        The tensor of a leaf does not require gradients now, so the leaf collects none.
    home : object or None
        Where the gradient of a leaf is collected (`minigrad.fast.parallel.memory`): skip it on a
        first reading. `keep` takes the first gradient of a pass, `shown` returns copies.
    """

    __slots__ = ("hooks", "retain", "frozen", "home")

    def __init__(self) -> None:
        self.hooks: dict[int, Callable[[Array], Array]] = {}
        self.retain = False
        self.frozen = False
        self.home: Any = None


def notes_of(node: Node) -> Notes:
    """Return the notes of a node, made on first use."""
    if node.notes is None:
        node.notes = Notes()
    return node.notes


def shown_grad(node: Node) -> Array:
    """Return the gradient of a node for a caller, who may keep it."""
    if node.notes is not None and node.notes.home is not None:
        node.grad = node.notes.home.shown(node.grad)
    return node.grad


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


class Backward:
    """Backward pass through a graph.

    Rules receive ndarrays, and nothing is recorded. With `create_graph` they receive Tensors, and
    their operations are recorded.

    Parameters
    ----------
    lift : callable
        `lift(array, node)` makes a Tensor. Its third argument is the time of its values.
    retain_graph : bool
        Keep the edges of nodes, for another backward pass.
    create_graph : bool
        Record the gradients; implies `retain_graph`.
    """

    def __init__(
        self,
        lift: Function,
        retain_graph: bool,
        create_graph: bool,
    ) -> None:
        self.lift = lift
        self.retain_graph = retain_graph or create_graph
        self.create_graph = create_graph
        self.watch = MODE.get().watch
        self.is_plain = not create_graph and self.watch is None
        self.targets: set[Node] = set()
        self.collects = True  # into the `grad` of leaves; not with targets
        self.useful: set[Node] | None = None  # the nodes that lead to a target, if not all do
        self.gradients: dict[Node, Array] = {}  # of the targets
        self.memory: dict[int, Array] = {}  # copies of memory before later writes

    def run(
        self,
        seeds: Sequence[tuple[Node, Array]],
        targets: Sequence[Node] | None = None,
        order: list[Node] | None = None,
    ) -> dict[Node, Array]:
        """Propagate the gradients of some nodes to the leaves, or to `targets`.

        Without `targets`, gradients are added into the `grad` of each leaf. With `targets`, the
        gradients of these nodes are returned, and no `grad` changes. A caller who has the
        `topological` order of the nodes in `seeds` may pass it; it is emptied.
        """
        order = topological([node for node, _ in seeds]) if order is None else order
        if targets is not None:
            self.collects, self.targets = False, set(targets)
            if not self.targets.issuperset([node for node in order if node.op is None]):
                self.useful = _leading_to(self.targets, order)
                order[:] = [node for node in order if node in self.useful]
        grads: dict[Node, Array] = {}
        with set_grad_enabled(self.create_graph):
            for node, seed in seeds:
                grads[node] = grads[node] + seed if node in grads else seed
            self._walk(order, grads)
        return self.gradients

    def _walk(self, order: list[Node], grads: dict[Node, Array]) -> None:
        """Visit nodes from the last to the first, and add up the gradients of their operands.

        `grads` contains the gradients of nodes that are not yet visited. The first gradient of a
        node is taken without a copy, the second makes a new array with the sum, and later ones are
        added into it. `owned` contains the nodes whose array in `grads` may be written to.

        `c` is what one edge contributes to the gradient of its operand, and `joint` contains the
        contributions of an op with one rule for all operands. `useful` and `_keep` can be skipped
        on a first reading.
        """
        owned: set[Node] = set()
        useful, targets, is_plain = self.useful, self.targets, self.is_plain
        create_graph, retain_graph = self.create_graph, self.retain_graph
        while order:
            node = order.pop()
            g = grads.pop(node, None)
            if g is None:
                continue
            if node.notes is not None or node in targets:
                g = self._notice(node, g, owned)
            op = node.op
            if op is None:
                if self.collects:
                    self._collect(node, g, node in owned)
                continue
            edges: Any = node.edges
            if changes.last > node.seq:  # a saved array may have been changed since
                name = op.name if self.watch is None else self.watch._name(node)
                edges = changes.LOG["restored"](self.memory, name, node.seq, edges)
            joint = iter(self._apply_joint(node, edges, g)) if op.joint else None
            for parent, rule, values in edges:
                if joint is not None:
                    c = next(joint)
                if useful is not None and parent not in useful:
                    continue
                if joint is None:
                    c = rule(g, *values) if is_plain else self._apply(node, rule, g, values)
                if type(c) is not ndarray:
                    if c is None:
                        continue
                    c = self._coerced(c, parent)
                if c.shape != parent.shape:
                    c = unbroadcast(c, parent.shape, op.name)
                if c.dtype is not parent.dtype:
                    c = _in_dtype(op.name, c, parent)
                total = grads.get(parent)
                if total is None:
                    grads[parent] = c
                    if parent.op is None and not create_graph:
                        self._keep(parent, c, c is not g and c.base is None, grads, owned)
                elif parent in owned and type(c) is ndarray:
                    np.add(total, c, out=total)
                else:
                    total = self._coerced(total + c, parent)
                    if total.dtype is not parent.dtype:  # of another byte order
                        total = total.astype(parent.dtype)
                    grads[parent] = total
                    if not create_graph:
                        owned.add(parent)
            if not retain_graph:
                node.edges, node.inputs = None, ()
            g = c = total = edges = joint = values = None  # so that no array outlives its use

    def _keep(
        self, leaf: Node, c: Array, is_new: bool, grads: dict[Node, Array], owned: set[Node]
    ) -> None:
        """Let a leaf own its first gradient: a new array, or what its home makes of it."""
        notes = leaf.notes
        if notes is not None and notes.home is not None and self.collects:
            kept = notes.home.keep(leaf, c)
            if kept is not None:
                grads[leaf] = kept
                is_new = True
        if is_new:
            owned.add(leaf)

    def _apply_joint(self, node: Node, edges: Sequence[Edge], g: Array) -> list[Array]:
        """Run the one rule of all operands; return a gradient for each edge."""
        _, rule, values = edges[0]
        results = self._apply(node, rule, g, values)
        is_sequence = isinstance(results, (tuple, list))
        if not is_sequence or len(results) != len(node.inputs):
            raise GradientError(
                f"{node.op.name}: vjp must return {len(node.inputs)} gradients, one for each "
                f"operand, got {len(results) if is_sequence else f'a {type(results).__name__}'}"
            )
        return [c for parent, c in zip(node.inputs, results) if parent is not None]

    def _apply(self, node: Node, rule: Function, g: Array, values: Sequence[Array]) -> Array:
        """Run a rule that a tool watches, or that records itself since it gets Tensors."""
        if self.create_graph:
            origins = node.op.origins(rule, node)
            values = tuple([self._tied(value, origin) for value, origin in zip(values, origins)])
            rule = node.op.through_tensors(rule, node)
        return (
            rule(g, *values) if self.watch is None else self.watch.backward(node, rule, g, values)
        )

    def _tied(self, value: Array, origin: Any) -> Array:
        """Return a saved value as a Tensor of the node, or tuple of nodes, that it came from."""
        if isinstance(origin, tuple):
            return tuple(self._tied(v, o) for v, o in zip(value, origin))
        return value if origin is None else self.lift(value, origin, changes.NEVER)

    def _coerced(self, c: Array, parent: Node) -> Array:
        """Return a gradient of `parent` as an ndarray, or as a Tensor with `create_graph`."""
        if self.is_plain and isinstance(c, np.generic):
            return np.asarray(c)
        array = getattr(c, "_array", c)
        if isinstance(array, OtherArray):
            c = array.gradient_for(parent.shape, c, collected=self.collects)
            if isinstance(getattr(c, "_array", c), OtherArray):
                return c
        if self.create_graph:
            return (
                self.lift(np.asarray(c), None)
                if isinstance(c, (ndarray, np.generic, float, int))
                else c
            )
        return as_array(c)

    def _notice(self, node: Node, g: Array, owned: set[Node]) -> Array:
        """Run the hooks of a node, store its gradient if requested, and return the gradient."""
        notes = node.notes
        if notes is not None and (notes.hooks or notes.retain):
            owned.discard(node)  # since hooks may keep the array
            for hook in list(notes.hooks.values()):
                answer = hook(g if self.create_graph else self.lift(g, None))
                if answer is not None:
                    g = self._replacement(node, answer)
            if notes.retain and node.op is not None and self.collects:
                self._collect(node, g, False)
        if node in self.targets:
            self.gradients[node] = g if self.create_graph else self.lift(g, None)
        return g

    def _replacement(self, node: Node, answer: Array) -> Array:
        if getattr(answer, "shape", None) != node.shape or answer.dtype != node.dtype:
            raise GradientError(
                f"a gradient hook must return a gradient of shape {node.shape} and dtype "
                f"{node.dtype}, got {kind_of(answer)}"
            )
        if self.create_graph:
            return self._coerced(answer, node)
        return as_array(getattr(answer, "_array", answer))

    def _collect(self, node: Node, g: Array, owned: bool) -> None:
        """Add `g` into the gradient of a node, which may keep `g` without a copy if `owned`."""
        notes = node.notes
        if notes is not None and notes.frozen:
            return
        with collecting:
            total = node.grad
            if total is None and not self.create_graph:
                node.grad = g if owned else g.copy()
                return
            is_array = type(total) is ndarray and total.flags.writeable
            if is_array and not self.create_graph:  # callers who have the array see the sum, too
                np.add(total, g, out=total)
                changes.mark_changed(total)
                return
            # gradients with a graph can share memory, so they are copied
            total = self.lift(g._array.copy(), g._node) if total is None else total + g
            is_constant = type(total) is not ndarray and total._node is None
            node.grad = total._array if is_constant else total


def _leading_to(targets: set[Node], order: list[Node]) -> set[Node]:
    """Return the nodes of a topological order that depend on a target."""
    useful: set[Node] = set()
    for node in order:  # parents come before children
        if node in targets or any(edge[0] in useful for edge in node.edges or ()):
            useful.add(node)
    return useful


# -- the gradient of an operand


def unbroadcast(c: Array, shape: Shape, name: str) -> Array:
    """Sum a gradient over the axes along which its operand of shape `shape` was broadcast."""
    if shape == () and type(c) is ndarray:
        return np.add.reduce(c, None, keepdims=True).reshape(())
    extra = c.ndim - len(shape)
    axes = [i for i, n in enumerate(c.shape) if i < extra or (shape[i - extra] == 1 and n != 1)]
    total = c.sum(axis=tuple(axes), keepdims=True)
    if extra > 0:
        total = total.reshape(total.shape[extra:])
    if total.shape != shape:
        raise GradientError(
            f"{name}: the gradient of an operand of shape {tuple(shape)} must have this shape, but "
            f"its rule returned shape {tuple(c.shape)}"
        )
    return total


def _in_dtype(name: str, c: Array, parent: Node) -> Array:
    """Return a gradient in the dtype of its operand, which is real."""
    if c.dtype.kind == "O":
        as_array(c)  # names the fix
    if c.dtype.kind == "c":
        raise GradientError(
            f"{name}: the gradient of an operand of dtype {parent.dtype} must be real, but its "
            f"rule returned dtype {c.dtype}"
        )
    return c.astype(parent.dtype)


def kind_of(value: Array) -> str:
    """Return the shape and dtype of a value, or its type, for an error."""
    shaped = hasattr(value, "shape") and not isinstance(value, np.generic)
    return f"shape {value.shape} and dtype {value.dtype}" if shaped else f"a {type(value).__name__}"

"""Derivatives of functions: `grad(f)(x)`, of any order by nesting.

`gradients` returns the gradients of some tensors of a graph with respect to others. `grad` runs a
function on new leaves and calls `gradients` on its result. Arguments are arrays or trees of arrays
(`nested.py`), and no `.grad` changes. Each function works inside another one and inside an ordinary
graph: results are recorded if the inputs require gradients. Look at `gradients` and `TracedCall`,
whose `new_input` makes derivatives nest: inside another one, an input is a new node of its graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arrays import Array, ArrayLike, Function, Options, Tree, as_array
from .errors import GradientError
from .graph import Backward, Node, topological
from .modes import MODE, traced
from .nested import leaves, rebuilt
from .registry import alias
from .tensor import Tensor, wrap

__all__ = ["grad", "gradients", "value_and_grad"]


def gradients(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    gradient: ArrayLike = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `outputs` with respect to `inputs`.

    Other parameters: as `Tensor.backward`.

    Parameters
    ----------
    outputs : Tensor, or list or tuple of Tensor
        The gradients of several outputs are added.
    inputs : Tensor, or list or tuple of Tensor
        Any tensors of the graph.
    gradient : array_like, or list or tuple of array_like, optional
        Gradient of a final scalar with respect to each output; 1 by default, for outputs of one
        element.
    allow_unused : bool
        Return None for an input that the outputs do not depend on. By default, such an input is an
        error.

    Returns
    -------
    tuple of Tensor
        One gradient for each input, of its shape and dtype.
    """
    ys, xs = _as_list(outputs), _as_list(inputs)
    gs = [None] * len(ys) if gradient is None else _as_list(gradient)
    if len(gs) != len(ys):
        raise ValueError(f"gradients: gradient must have {len(ys)} items, got {len(gs)}")
    nodes = [x._needed_node("gradients") for x in xs]
    seeds = _seeds(ys, gs, create_graph)
    grads = Backward(wrap, retain_graph, create_graph).run(seeds, nodes)
    if not allow_unused and (unused := [i for i, node in enumerate(nodes) if node not in grads]):
        raise GradientError(
            f"gradients: the outputs do not depend on inputs {unused}; pass allow_unused=True to "
            "get None"
        )
    return tuple([grads.get(node) for node in nodes])


def _seeds(ys: Sequence[Any], gs: Sequence[Array], create_graph: bool) -> list[tuple[Node, Array]]:
    """Return the nodes of results with the gradients that start a backward pass."""
    live = [(y, g) for y, g in zip(ys, gs) if y._node is not None]
    return [(y._last_node, y._seed("gradients", g, create_graph)) for y, g in live]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def is_array(value: Any) -> bool:
    """Return whether an argument is an array or nested lists of numbers, not a tree."""
    if type(value) in (list, tuple):
        return all(
            isinstance(part, (int, float)) or (type(part) in (list, tuple) and is_array(part))
            for part in value
        )
    return not isinstance(value, (dict, list, tuple))


class TracedCall:
    """Call of `f` in a new graph, whose inputs are the leaves of the chosen arguments."""

    def __init__(
        self,
        name: str,
        f: Function,
        args: Sequence[Any],
        argnums: int | Sequence[int],
        kwargs: Options,
    ) -> None:
        args = list(args)
        positions = _argument_positions(name, argnums, len(args))
        self.outer, self.single = MODE.get().record, isinstance(argnums, (int, np.integer))
        self.trees = [args[i] for i in positions]
        self.inputs: list[Tensor] = []
        for i, tree in zip(positions, self.trees):
            inputs = [new_input(name, x, self.outer) for x in leaves(tree, is_array)]
            self.inputs += inputs
            args[i] = rebuilt(tree, inputs, is_array)
        with traced():
            self.result = f(*args, **kwargs)

    def order(self, ys: Sequence[Tensor]) -> list[Node]:
        """Return the nodes that results depend on, oldest first."""
        roots = [y._node for y in ys if y._node is not None]
        self.nodes = [x._needed_node("gradients") for x in self.inputs]
        return topological(roots)

    def gradients(
        self,
        ys: list[Tensor],
        gs: Sequence[Array],
        order: list[Node],
        create_graph: bool,
        retain_graph: bool = False,
    ) -> list[Tensor]:
        """Return the gradients of the inputs, zeros for an input without influence.

        `order` contains the nodes of `ys`, and is emptied.
        """
        seeds = _seeds(ys, gs, create_graph)
        grads = Backward(wrap, retain_graph, create_graph).run(seeds, self.nodes, order)
        return [
            grads[node] if node in grads else wrap(np.zeros_like(x._array), None)
            for x, node in zip(self.inputs, self.nodes)
        ]

    def by_argument(self, values: Sequence[Array]) -> Tree:
        """Return the values of the inputs in the structure of the chosen arguments."""
        remaining = iter(values)
        by_tree = tuple([rebuilt(tree, remaining, is_array) for tree in self.trees])
        return by_tree[0] if self.single else by_tree

    def is_tied(self, order: Sequence[Node], gs: Sequence[Array] = ()) -> bool:
        """Return whether the gradients of an order depend on a leaf outside this call."""
        return self.outer and (
            not set(self.nodes).issuperset([node for node in order if node.op is None])
            or any(isinstance(g, Tensor) and g._node is not None for g in gs)
        )

    def released(self, tree: Tree) -> Tree:
        """Return a result, detached if none of its tensors depends on a leaf outside this call."""
        parts = leaves(tree)
        ys = [y for y in parts if isinstance(y, Tensor) and y._node is not None]
        if not ys or self.is_tied(self.order(ys)):
            return tree
        return rebuilt(tree, [y.detach() if isinstance(y, Tensor) else y for y in parts])


def checked_results(ys: list[Any]) -> list[Tensor]:
    """Return the results of a function, which must be tensors."""
    for y in ys:
        if not isinstance(y, Tensor):
            raise TypeError(f"the function must return a Tensor, got a {type(y).__name__}")
    return ys


def _value_and_aux(result: Any) -> tuple[Any, Any]:
    """Return the parts of the result of a function with `has_aux`."""
    is_sequence = isinstance(result, (list, tuple))
    if not is_sequence or len(result) != 2:
        got = f"{len(result)} parts" if is_sequence else f"a {type(result).__name__}"
        raise TypeError(
            "grad: the function must return a pair, its value and another object, with "
            f"has_aux=True, got {got}"
        )
    return result[0], result[1]


def _argument_positions(name: str, argnums: Any, count: int) -> list[int]:
    """Return the positions of the chosen arguments, counted from the first of `count`."""
    if not count:
        raise TypeError(f"{name}: the argument must be given by position, as in {name}(f)(x)")
    if type(argnums) is int and 0 <= argnums < count:
        return [argnums]
    several = argnums if isinstance(argnums, (Sequence, np.ndarray)) else [argnums]
    for i in several:
        if isinstance(i, bool) or not isinstance(i, (int, np.integer)):
            raise TypeError(f"{name}: argnums must be an integer or integers, got {argnums!r}")
        if not -count <= i < count:
            raise ValueError(
                f"{name}: argnums must be from {-count} to {count - 1} for {count} arguments, got "
                f"{i}"
            )
    if not len(several):
        raise ValueError(f"{name}: argnums must contain at least one position, got {argnums!r}")
    positions = [int(i) % count for i in several]
    if len(set(positions)) < len(positions):
        raise ValueError(
            f"{name}: argnums must contain each argument once, got {argnums!r} for {count} "
            "arguments; differentiate once and use the result twice"
        )
    return positions


def new_input(name: str, x: ArrayLike, outer: bool) -> Tensor:
    """Return an input of a new graph: a new node of the outer graph, or else a new leaf."""
    if isinstance(x, Tensor) and x._node is not None and outer:
        return alias(x)
    array = x._array if isinstance(x, Tensor) else as_array(x)
    if array.dtype.kind in "iu" and array.ndim:  # SciPy passes a start such as [1, 1] unchanged
        array = array.astype(float)
    if array.dtype.kind != "f":
        got = f"dtype {array.dtype}" if array.dtype.kind in "iubc" else f"{x!r}"
        raise TypeError(f"{name}: arguments must be floating-point, got {got}")
    return wrap(array, Node(None, (), (), array))


def value_and_grad(
    f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a function that returns the value and the gradient of `f`.

    Parameters
    ----------
    f : callable
        Returns a tensor of one element.
    argnums : int or sequence of int
        Positions of the arguments to differentiate with respect to; 0 by default. An argument is an
        array, a list of numbers, or nested dicts, lists, tuples and named tuples of arrays.
        Arrays and lists of integers are converted to float64.
    has_aux : bool
        `f` returns a pair of its value and any other object; False by default.

    Returns
    -------
    callable
        Returns the value, or the pair, and the gradient. The gradient has the structure of the
        argument, or is a tuple if `argnums` is a sequence.
    """

    @functools.wraps(f)
    def derived(*args: Any, **kwargs: Any) -> Any:
        run = TracedCall("grad", f, args, argnums, kwargs)
        y, aux = _value_and_aux(run.result) if has_aux else (run.result, None)
        order = run.order(checked_results([y]))
        tied = run.is_tied(order)
        if y._array.size != 1:
            raise GradientError(
                f"grad: the function must return one element, got shape {y.shape}; write "
                "jacobian(f) for the derivatives of all elements, or return a sum"
            )
        value = y if tied else y.detach()
        if has_aux:
            value = value, run.released(aux)
        return value, run.by_argument(run.gradients([y], [None], order, tied))

    return derived


def grad(
    f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Tensor]:
    """Return a function that returns the gradient of `f`, as in `grad(f)(x)`.

    Parameters: as `value_and_grad`.

    Returns
    -------
    callable
        Returns the gradient, or with `has_aux` a pair of the gradient and the other object.
    """
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def derived(*args: Any, **kwargs: Any) -> Any:
        value, gs = both(*args, **kwargs)
        return (gs, value[1]) if has_aux else gs

    return derived

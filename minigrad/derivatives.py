"""Derivatives of functions, such as `grad(f)(x)`, of any order by nesting.

The functions take arrays or trees of arrays (`minigrad.trees`), and no `.grad` changes. Each works
inside another one and inside an ordinary graph: results are recorded if the inputs require
gradients.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .core.batched import BatchedArray, BatchedShape
from .core.errors import GradientError
from .core.graph import Backward, Node, topological
from .core.modes import MODE, set_grad_enabled, traced
from .core.op import alias
from .core.tensor import Tensor, wrap
from .kernels import use_definitions
from .ops.joining import stack
from .trees import aligned, leaves, rebuilt

__all__ = [
    "gradients",
    "grad",
    "value_and_grad",
    "elementwise_grad",
    "vjp",
    "jvp",
    "hvp",
    "jacobian",
    "hessian",
]

Function = Callable[..., Any]


def gradients(
    outputs: Any,
    inputs: Any,
    gradient: Any = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `outputs` with respect to `inputs`.

    Parameters
    ----------
    outputs : Tensor, or list or tuple of Tensor
        The gradients of several outputs are added.
    inputs : Tensor, or list or tuple of Tensor
        Any tensors of the graph.
    gradient : array_like, or list or tuple of array_like, optional
        Gradient of a final scalar with respect to each output; 1 by default, for outputs of one
        element.
    retain_graph : bool
        Keep the graph for another backward pass; False by default.
    create_graph : bool
        Record the gradients, so that they can be differentiated again; False by default.
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
    live = [
        (y._node, y._seed("gradients", g, create_graph))
        for y, g in zip(ys, gs)
        if y._node is not None
    ]
    with set_grad_enabled(create_graph):
        roots, seeds = [node for node, _ in live], [seed for _, seed in live]
        grads = Backward(wrap, retain_graph, create_graph).run(roots, seeds, nodes)
    if not allow_unused and (unused := [i for i, node in enumerate(nodes) if node not in grads]):
        raise GradientError(
            f"gradients: the outputs do not depend on inputs {unused}; pass allow_unused=True to "
            "get None"
        )
    return tuple([grads.get(node) for node in nodes])


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


class _Traced:
    """Call of `f` in a new graph, whose inputs are the leaves of the chosen arguments."""

    def __init__(
        self,
        name: str,
        f: Function,
        args: Sequence[Any],
        argnums: int | Sequence[int],
        kwargs: dict[str, Any],
    ) -> None:
        self.outer, self.single = MODE.get().record, not isinstance(argnums, (Sequence, np.ndarray))
        args = list(args)
        positions = _argument_positions(name, argnums, len(args))
        self.trees = [args[i] for i in positions]
        self.inputs: list[Tensor] = []
        for i, tree in zip(positions, self.trees):
            inputs = [_new_input(name, x, self.outer) for x in leaves(tree, is_array)]
            self.inputs += inputs
            args[i] = rebuilt(tree, inputs, is_array)
        with traced():
            self.result = f(*args, **kwargs)

    def pull(
        self, ys: list[Tensor], gs: Any, create_graph: bool, retain_graph: bool = False
    ) -> list[Tensor]:
        """Return the gradients of the inputs, zeros for an input without influence."""
        grads = gradients(
            ys,
            self.inputs,
            gs,
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=True,
        )
        return [
            wrap(np.zeros_like(x._array), None) if c is None else c
            for x, c in zip(self.inputs, grads)
        ]

    def by_argument(self, values: Sequence[Any]) -> Any:
        """Return the values of the inputs in the structure of the chosen arguments."""
        remaining = iter(values)
        by_tree = tuple([rebuilt(tree, remaining, is_array) for tree in self.trees])
        return by_tree[0] if self.single else by_tree

    def is_tied(self, ys: Sequence[Any], gs: Sequence[Any]) -> bool:
        """Return whether the gradients of `ys` depend on a leaf outside this call."""
        inputs = {x._node for x in self.inputs}
        roots = [y._node for y in ys if y is not None and y._node is not None]
        has_outer_leaf = any(node.op is None and node not in inputs for node in topological(roots))
        return self.outer and (
            has_outer_leaf or any(isinstance(g, Tensor) and g._node is not None for g in gs)
        )

    def released(self, tree: Any) -> Any:
        """Return a result, detached if none of its tensors depends on a leaf outside this call."""
        parts = leaves(tree)
        ys = [y for y in parts if isinstance(y, Tensor) and y._node is not None]
        if not ys or self.is_tied(ys, ()):
            return tree
        return rebuilt(tree, [y.detach() if isinstance(y, Tensor) else y for y in parts])


def _checked(ys: list[Any]) -> list[Tensor]:
    """Return the results of a function, which must be tensors."""
    for y in ys:
        if not isinstance(y, Tensor):
            raise TypeError(f"the function must return a Tensor, got a {type(y).__name__}")
    return ys


def _value_and_aux(result: Any) -> tuple[Any, Any]:
    """Return the parts of the result of a function with `has_aux`."""
    if not isinstance(result, (list, tuple)) or len(result) != 2:
        got = (
            f"{len(result)} parts"
            if isinstance(result, (list, tuple))
            else f"a {type(result).__name__}"
        )
        raise TypeError(
            "grad: the function must return a pair, its value and another object, with "
            f"has_aux=True, got {got}"
        )
    return result[0], result[1]


def _argument_positions(name: str, argnums: Any, count: int) -> list[int]:
    """Return the positions of the chosen arguments, counted from the first of `count`."""
    several = argnums if isinstance(argnums, (Sequence, np.ndarray)) else [argnums]
    if any(isinstance(i, bool) or not isinstance(i, (int, np.integer)) for i in several):
        raise TypeError(f"{name}: argnums must be an integer or integers, got {argnums!r}")
    if outside := [i for i in several if not -count <= i < count]:
        raise ValueError(
            f"{name}: argnums must be from {-count} to {count - 1} for {count} arguments, got "
            f"{outside[0]}"
        )
    if count and not len(several):
        raise ValueError(f"{name}: argnums must contain at least one position, got {argnums!r}")
    positions = [int(i) % count for i in several]
    if len(set(positions)) < len(positions):
        raise ValueError(
            f"{name}: argnums must contain each argument once, got {argnums!r} for {count} "
            "arguments; differentiate once and use the result twice"
        )
    return positions


def _new_input(name: str, x: Any, outer: bool) -> Tensor:
    """Return an input of a new graph: a new node of the outer graph, or else a new leaf."""
    if isinstance(x, Tensor) and x._node is not None and outer:
        return alias(x)
    array = x._array if isinstance(x, Tensor) else np.asarray(x)
    if array.dtype.kind in "iu" and array.ndim:  # SciPy passes a start such as [1, 1] unchanged
        array = array.astype(float)
    if array.dtype.kind != "f":
        got = f"dtype {array.dtype}" if array.dtype.kind in "iubc" else f"{x!r}"
        raise TypeError(f"{name}: arguments must be floating-point, got {got}")
    return wrap(array, Node(None, (), (), array))


def value_and_grad(
    f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Function:
    """Return a function that returns the value and the gradient of `f`.

    Parameters
    ----------
    f : callable
        Returns a tensor of one element.
    argnums : int or sequence of int
        Positions of the arguments to differentiate with respect to; 0 by default. An argument is an
        array, a list of numbers, or nested dicts, lists, tuples and named tuples of arrays.
        Integers are converted to float64.
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
        run = _Traced("grad", f, args, argnums, kwargs)
        y, aux = _value_and_aux(run.result) if has_aux else (run.result, None)
        tied = run.is_tied(_checked([y]), ())
        value, aux = y if tied else y.detach(), run.released(aux)
        gs = run.pull([y], None, tied)
        return (value, aux) if has_aux else value, run.by_argument(gs)

    return derived


def grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """Return a function that returns the gradient of `f`, as in `grad(f)(x)`.

    Parameters
    ----------
    f : callable
        Returns a tensor of one element.
    argnums : int or sequence of int
        Positions of the arguments, as in `value_and_grad`; 0 by default.
    has_aux : bool
        `f` returns a pair of its value and any other object; False by default.

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


def elementwise_grad(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function that returns the derivative of an elementwise `f`, such as np.tanh.

    Parameters
    ----------
    f : callable
        Each element of its result depends on one element of the argument.
    argnums : int or sequence of int
        Positions of the arguments, as in `value_and_grad`; 0 by default.

    Returns
    -------
    callable
        Takes the arguments of `f` and returns a Tensor of their shape.
    """
    return grad(functools.wraps(f)(lambda *args, **kwargs: f(*args, **kwargs).sum()), argnums)


def vjp(f: Function, *xs: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """Return `f(*xs)` and its vector-Jacobian product.

    Parameters
    ----------
    f : callable
        Returns a tensor or a tree of tensors.
    *xs : array or tree of arrays

    Returns
    -------
    value
        `f(*xs)`.
    pullback : callable
        Takes a gradient of the value, and returns a tuple of the gradients of all xs. If the value
        is a tuple or list, it takes one gradient for each part. If the value is another tree, it
        takes a tree of its structure.
    """
    run = _Traced("vjp", f, xs, range(len(xs)), {})
    ys = _checked(leaves(run.result))

    def pullback(*gs: Any) -> tuple[Any, ...]:
        is_sequence = isinstance(run.result, (list, tuple))
        by_part = is_sequence and not (len(gs) == 1 and isinstance(gs[0], (list, tuple)))
        if not by_part and len(gs) != 1:
            raise ValueError(f"vjp: pullback must be called with one gradient, got {len(gs)}")
        seeds = aligned(run.result, gs if by_part else gs[0])
        return run.by_argument(run.pull(ys, seeds, run.is_tied(ys, seeds), retain_graph=True))

    return run.released(run.result), pullback


def jvp(f: Function, xs: Any, vs: Any) -> tuple[Any, Any]:
    """Return `f(*xs)` and the Jacobian times `vs`, the derivative in the direction `vs`.

    The vjp is linear in its gradient, so the vjp of the vjp is the jvp.

    Parameters
    ----------
    f : callable
        Returns a tensor or a tree of tensors.
    xs : array, tree of arrays, or tuple or list of them
        The argument or arguments of `f`.
    vs : like `xs`
        The direction.

    Returns
    -------
    value
        `f(*xs)`.
    derivative
        In the structure of the value.
    """
    arguments = _as_tuple(xs)
    run = _Traced("jvp", f, arguments, range(len(arguments)), {})
    directions = _directions(run, xs, vs)
    ys = _checked(leaves(run.result))
    tied = run.is_tied(ys, directions)
    live = [y for y in ys if y.requires_grad]
    us = [_new_input("jvp", np.zeros(y.shape, y.dtype), False) for y in live]
    pulled = gradients(live, run.inputs, us, create_graph=True, allow_unused=True)
    pairs = [(p, v) for p, v in zip(pulled, directions) if p is not None and p.requires_grad]
    tangents = gradients(
        [p for p, _ in pairs], us, [v for _, v in pairs], create_graph=tied, allow_unused=True
    )
    tangent_of = {y: t for y, t in zip(live, tangents) if t is not None}
    derivatives = [tangent_of.get(y, wrap(np.zeros(y.shape, y.dtype), None)) for y in ys]
    return run.released(run.result), rebuilt(run.result, derivatives)


def hvp(f: Function, xs: Any = None, vs: Any = None) -> Any:
    """Multiply the Hessian of a scalar function by a vector, without computing the Hessian.

    Parameters
    ----------
    f : callable
        Returns a scalar.
    xs : array, tree of arrays, or tuple or list of them, optional
        The argument or arguments of `f`. If omitted, `hvp(f)` is a function of `xs` and `vs`,
        such as `scipy.optimize.minimize(..., hessp=hvp(f))` takes.
    vs : like `xs`, optional
        The vector.

    Returns
    -------
    Tensor, or a structure of tensors like `xs`
        Product of the Hessian and `vs`, in the structure of `xs`.
    """
    if xs is None and vs is None:
        return lambda xs, vs: hvp(f, xs, vs)
    arguments = _as_tuple(xs)
    argnums = 0 if _is_single(xs) else range(len(arguments))
    run = _Traced("hvp", grad(f, argnums), arguments, argnums, {})
    ys, directions = leaves(run.result), _directions(run, xs, vs)
    return run.by_argument(run.pull(ys, directions, run.is_tied(ys, directions)))


def _is_single(xs: Any) -> bool:
    """Return whether `xs` is one argument: an array, a list of numbers, a dict or named tuple."""
    return type(xs) not in (list, tuple) or (type(xs) is list and is_array(xs))


def _as_tuple(xs: Any) -> tuple[Any, ...]:
    return (xs,) if _is_single(xs) else tuple(xs)


def _directions(run: _Traced, xs: Any, vs: Any) -> list[Any]:
    """Return the leaves of the directions `vs`, each in the dtype of its input."""
    if _is_single(xs):
        vs = vs if type(vs) in (list, tuple) and len(vs) == 1 and not is_array(vs) else (vs,)
    parts = tuple(vs) if isinstance(vs, (list, tuple)) else (vs,)
    if len(parts) != len(run.trees):
        raise ValueError(
            f"the direction must have {len(run.trees)} parts, one for each argument, got "
            f"{len(parts)}"
        )
    vectors = [v for pair in zip(run.trees, parts) for v in aligned(*pair, is_array)]
    return [
        v if isinstance(v, Tensor) else np.asarray(v, x.dtype) for x, v in zip(run.inputs, vectors)
    ]


def jacobian(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function that returns the Jacobian of `f`.

    Parameters
    ----------
    f : callable
        Returns an array or a tree of arrays.
    argnums : int or sequence of int
        Positions of the arguments, as in `value_and_grad`; 0 by default.

    Returns
    -------
    callable
        Returns a tensor of shape (*result.shape, *argument.shape), or a tuple of them if `argnums`
        is a sequence. For trees it has the structure of the result, and for each of its leaves the
        structure of the argument.
    """

    @functools.wraps(f)
    def derived(*args: Any, **kwargs: Any) -> Any:
        with use_definitions():  # batches of gradients need rules in plain NumPy
            run = _Traced("jacobian", f, args, argnums, kwargs)
        ys = _checked(leaves(run.result))
        return rebuilt(run.result, [run.by_argument(_rows(run, y)) for y in ys])

    return derived


def _rows(run: _Traced, y: Tensor) -> list[Tensor]:
    """Return the derivatives of all elements of `y` for each input, (*y.shape, *input.shape)."""
    order = [] if y._node is None else topological([y._node])
    is_batched = any(type(node.shape) is BatchedShape for node in order)
    if is_batched or run.is_tied([y], ()):
        return _rows_one_by_one(run, y)
    try:
        return _rows_in_batches(run, y, order)
    except Exception:  # a user's operation that accepts only ndarrays, or fails
        return _rows_one_by_one(run, y)


ELEMENTS = 1 << 22
"""Largest number of elements of an array in a batch of gradients."""


def _rows_in_batches(run: _Traced, y: Tensor, order: list[Node]) -> list[Tensor]:
    rows = [np.zeros((y.size, *x.shape), x.dtype) for x in run.inputs]
    largest = max([math.prod(node.shape) for node in order], default=1)
    length = max(1, ELEMENTS // max(largest, 1))
    for start in range(0, y.size, length):
        batch = slice(start, start + length)
        seeds = np.eye(y.size, dtype=y.dtype)[batch].reshape(-1, *y.shape)
        if y._node is not None:
            with set_grad_enabled(False):
                backward = Backward(wrap, retain_graph=True, create_graph=False, batched=True)
                nodes = [x._needed_node("jacobian") for x in run.inputs]
                grads = backward.run([y._node], [BatchedArray(seeds)], nodes)
            for row, x in zip(rows, run.inputs):
                if x._node in grads:
                    c = grads[x._node]._array
                    row[batch] = c.values if isinstance(c, BatchedArray) else c
    return [wrap(row.reshape(y.shape + x.shape), None) for row, x in zip(rows, run.inputs)]


def _rows_one_by_one(run: _Traced, y: Tensor) -> list[Tensor]:
    rows, tied = [], run.is_tied([y], ())
    for i in range(y.size):
        g = np.zeros(y.size, y.dtype)
        g[i] = 1
        rows.append(run.pull([y], [g.reshape(y.shape)], tied, retain_graph=True))
    if not rows:
        return [wrap(np.zeros(y.shape + x.shape, x.dtype), None) for x in run.inputs]
    return [
        stack([row[k] for row in rows]).reshape(y.shape + x.shape) for k, x in enumerate(run.inputs)
    ]


def hessian(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function that returns the Hessian of a scalar function.

    Parameters
    ----------
    f : callable
        Returns a tensor of one element.
    argnums : int or sequence of int
        Positions of the arguments, as in `value_and_grad`; 0 by default.

    Returns
    -------
    callable
        Returns a tensor of shape (*argument.shape, *argument.shape).
    """
    return jacobian(grad(f, argnums), argnums)

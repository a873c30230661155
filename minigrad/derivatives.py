"""Derivatives as functions: `grad(f)(x)`, and its relatives, to any order by nesting.

These see `f` as a function of arrays, or of trees of arrays (`minigrad.trees`); no `.grad` is
touched. Each works inside another, and inside an ordinary graph: what they return is recorded
wherever its inputs are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .core.errors import GradientError
from .core.graph import Backward, Node, topological
from .core.modes import MODE, set_grad_enabled, traced
from .core.op import alias
from .core.tensor import Tensor, wrap
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
    """The gradients of `outputs` (a tensor, or several, whose gradients add up) with respect to
    `inputs`.

    Each has the shape and dtype of its input, which can be any tensor of the graph. `gradient` is
    that of a final scalar with respect to each output, and can be left out for one-element outputs.
    An input that the outputs do not depend on is an error, or None with `allow_unused`.
    """
    ys, xs = _listed(outputs), _listed(inputs)
    gs = [None] * len(ys) if gradient is None else _listed(gradient)
    if len(gs) != len(ys):
        raise ValueError(f"gradients: expected {len(ys)} output gradients, got {len(gs)}")
    nodes = [x._needed_node("gradients") for x in xs]
    live = [
        (y._node, y._seed("gradients", g, create_graph))
        for y, g in zip(ys, gs)
        if y._node is not None
    ]
    with set_grad_enabled(create_graph):
        roots, seeds = [node for node, _ in live], [seed for _, seed in live]
        found = Backward(wrap, retain_graph, create_graph).run(roots, seeds, nodes)
    if not allow_unused and (unused := [i for i, node in enumerate(nodes) if node not in found]):
        raise GradientError(
            f"gradients: the outputs do not depend on inputs {unused}; pass allow_unused=True for "
            "None"
        )
    return tuple([found.get(node) for node in nodes])


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def is_array(value: Any) -> bool:
    """Whether an argument is one array: lists and tuples of plain numbers are, as for np.asarray;
    others are trees.
    """
    if type(value) in (list, tuple):
        return all(
            isinstance(part, (int, float)) or (type(part) in (list, tuple) and is_array(part))
            for part in value
        )
    return not isinstance(value, (dict, list, tuple))


class _Traced:
    """One run of `f`, with the leaves of the chosen arguments as the inputs of a graph of its own."""

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
            fresh = [_fresh(x, self.outer) for x in leaves(tree, is_array)]
            self.inputs += fresh
            args[i] = rebuilt(tree, fresh, is_array)
        with traced():
            self.result = f(*args, **kwargs)

    def pull(self, ys: list[Tensor], gs: Any, retain_graph: bool = False) -> list[Tensor]:
        """The gradients of the inputs; recorded, if anything outside this run could ask for theirs."""
        for y in ys:
            if not isinstance(y, Tensor):
                raise TypeError(
                    f"expected the function to return a Tensor, got a {type(y).__name__}"
                )
        create = self.is_tied(ys, gs or ())
        found = gradients(
            ys, self.inputs, gs, retain_graph=retain_graph, create_graph=create, allow_unused=True
        )
        return [
            wrap(np.zeros_like(x._array), None) if c is None else c
            for x, c in zip(self.inputs, found)
        ]

    def by_argument(self, values: Sequence[Any]) -> Any:
        """A value for each input, as a tree for each of the chosen arguments, or for the single
        one.
        """
        rest = iter(values)
        found = tuple([rebuilt(tree, rest, is_array) for tree in self.trees])
        return found[0] if self.single else found

    def is_tied(self, ys: Sequence[Any], gs: Sequence[Any]) -> bool:
        """Whether gradients of `ys`, for the cotangents `gs`, depend on a leaf outside this run."""
        own = {x._node for x in self.inputs}
        roots = [y._node for y in ys if y is not None and y._node is not None]
        tied = any(node.op is None and node not in own for node in topological(roots))
        return self.outer and (
            tied or any(isinstance(g, Tensor) and g._node is not None for g in gs)
        )


def _argument_positions(name: str, argnums: Any, count: int) -> list[int]:
    """Return the positions of the chosen arguments, counted from the first of `count`."""
    several = argnums if isinstance(argnums, (Sequence, np.ndarray)) else [argnums]
    if any(isinstance(i, bool) or not isinstance(i, (int, np.integer)) for i in several):
        raise TypeError(f"{name}: argnums must be an integer or integers, got {argnums!r}")
    if outside := [i for i in several if not -count <= i < count]:
        raise ValueError(
            f"{name}: argnums has {outside[0]}, but the function was given {count} arguments"
        )
    positions = [int(i) % count for i in several]
    if len(set(positions)) < len(positions):
        raise ValueError(
            f"{name}: argnums must name each argument once, got {argnums!r} for {count} arguments; "
            "differentiate once and use the result twice"
        )
    return positions


def _fresh(x: Any, outer: bool) -> Tensor:
    """A new input: tied to the graph around it, if there is one, or a new leaf."""
    if isinstance(x, Tensor) and x._node is not None and outer:
        return alias(x)
    array = x._array if isinstance(x, Tensor) else np.asarray(x)
    if array.dtype.kind in "iu" and array.ndim:  # as SciPy hands on a start such as [1, 1]
        array = array.astype(float)
    if array.dtype.kind != "f":
        got = f"dtype {array.dtype}" if array.dtype.kind in "iubc" else f"{x!r}"
        raise TypeError(f"only floating-point arguments can be differentiated, got {got}")
    return wrap(array, Node(None, (), (), array))


def value_and_grad(
    f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Function:
    """A function that returns f's value and its gradient.

    `f` returns a tensor of one element; with `has_aux`, a pair of that and anything else. The
    gradient has the structure of argument `argnums` (an array, or nested dicts, lists, tuples and
    named tuples of arrays), or is a tuple of them if that is a tuple. A list of plain numbers is an
    array, and integers of arrays count as float64.
    """

    @functools.wraps(f)
    def derived(*args: Any, **kwargs: Any) -> Any:
        run = _Traced("grad", f, args, argnums, kwargs)
        y = run.result[0] if has_aux else run.result
        gs = run.pull([y], None)
        value = y.detach() if all(g._node is None for g in gs) else y
        return (value, run.result[1]) if has_aux else value, run.by_argument(gs)

    return derived


def grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that returns the gradient of `f`: `grad(f)(x)`. See `value_and_grad`."""
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def derived(*args: Any, **kwargs: Any) -> Any:
        value, gs = both(*args, **kwargs)
        return (gs, value[1]) if has_aux else gs

    return derived


def elementwise_grad(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that returns the derivative of each element of f's result, for an elementwise `f`
    such as np.tanh.
    """
    return grad(functools.wraps(f)(lambda *args, **kwargs: f(*args, **kwargs).sum()), argnums)


def vjp(f: Function, *xs: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """f(*xs), and the function that takes a gradient of that value to the gradients of all xs.

    If `f` returns a tuple or list, that function takes as many gradients; if it returns another
    tree, one of its structure. The gradients have the structure of the xs, which can be trees of
    arrays.
    """
    run = _Traced("vjp", f, xs, range(len(xs)), {})
    ys = leaves(run.result)

    def pullback(*gs: Any) -> tuple[Any, ...]:
        several = isinstance(run.result, (list, tuple)) and not (
            len(gs) == 1 and isinstance(gs[0], (list, tuple))
        )
        if not several and len(gs) != 1:
            raise ValueError(f"vjp: expected one output gradient, got {len(gs)}")
        return run.by_argument(
            run.pull(ys, aligned(run.result, gs if several else gs[0]), retain_graph=True)
        )

    return run.result, pullback


def jvp(f: Function, xs: Any, vs: Any) -> tuple[Any, Any]:
    """f(*xs), and its derivative in the direction `vs`: the Jacobian times vs, in the structure of
    f's result.

    `xs` and `vs` are each one argument or a tuple or list of them; each can be a tree of arrays.
    The vjp is linear in the gradient it is given, so its own vjp is the jvp.
    """
    arguments = _tupled(xs)
    run = _Traced("jvp", f, arguments, range(len(arguments)), {})
    directions = _directions(run, xs, vs)
    ys = leaves(run.result)
    tied = run.is_tied(ys, directions)
    us = [_fresh(np.zeros(y.shape, y.dtype), False) for y in ys]
    pulled = gradients(ys, run.inputs, us, create_graph=True, allow_unused=True)
    pairs = [(p, v) for p, v in zip(pulled, directions) if p is not None and p.requires_grad]
    tangents = gradients(
        [p for p, _ in pairs], us, [v for _, v in pairs], create_graph=tied, allow_unused=True
    )
    zeros = [Tensor(np.zeros(y.shape, y.dtype)) if t is None else t for y, t in zip(ys, tangents)]
    return rebuilt(run.result, ys if tied else [y.detach() for y in ys]), rebuilt(run.result, zeros)


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
    """
    if xs is None and vs is None:
        return lambda xs, vs: hvp(f, xs, vs)
    arguments = _tupled(xs)
    argnums = 0 if _is_one(xs) else range(len(arguments))
    run = _Traced("hvp", grad(f, argnums), arguments, argnums, {})
    return run.by_argument(run.pull(leaves(run.result), _directions(run, xs, vs)))


def _is_one(xs: Any) -> bool:
    """Whether `xs` is one argument: an array (a list of numbers too), a dict or a named tuple."""
    return type(xs) not in (list, tuple) or (type(xs) is list and is_array(xs))


def _tupled(xs: Any) -> tuple[Any, ...]:
    return (xs,) if _is_one(xs) else tuple(xs)


def _directions(run: _Traced, xs: Any, vs: Any) -> list[Any]:
    """The directions vs at the leaves of xs, each in the dtype of its input."""
    if _is_one(xs):
        vs = vs if type(vs) in (list, tuple) and len(vs) == 1 and not is_array(vs) else (vs,)
    given = aligned(run.trees, tuple(vs) if isinstance(vs, (list, tuple)) else (vs,), is_array)
    return [
        v if isinstance(v, Tensor) else np.asarray(v, x.dtype) for x, v in zip(run.inputs, given)
    ]


def jacobian(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that returns all derivatives of f's result: a tensor of shape (*f's, *argument's).

    A tuple of them, if `argnums` is a tuple. Where f's result or the argument is a tree, the answer
    is one too: it has the structure of the result, and for each of its leaves that of the argument.
    """

    @functools.wraps(f)
    def derived(*args: Any, **kwargs: Any) -> Any:
        run = _Traced("jacobian", f, args, argnums, kwargs)
        return rebuilt(run.result, [run.by_argument(_rows(run, y)) for y in leaves(run.result)])

    return derived


def _rows(run: _Traced, y: Tensor) -> list[Tensor]:
    """The derivatives of all elements of one result, for each input: (*y's shape, *input's shape)."""
    rows = []
    for i in range(y.size):
        g = np.zeros(y.size, y.dtype)
        g[i] = 1
        rows.append(run.pull([y], [g.reshape(y.shape)], retain_graph=True))
    if not rows:
        return [Tensor(np.zeros(y.shape + x.shape)) for x in run.inputs]
    return [
        stack([row[k] for row in rows]).reshape(y.shape + x.shape) for k, x in enumerate(run.inputs)
    ]


def hessian(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that returns all second derivatives of f: (*argument's shape, *argument's shape)."""
    return jacobian(grad(f, argnums), argnums)

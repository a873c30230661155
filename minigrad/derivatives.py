"""Derivatives as functions: `grad(f)(x)`, and its relatives, to any order by nesting.

These see `f` as a function of arrays; no `.grad` is touched. Each works inside another, and inside
an ordinary graph: what they return is recorded wherever its inputs are.
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

__all__ = ["gradients", "grad", "value_and_grad", "vjp", "jvp", "hvp", "jacobian", "hessian"]

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
    """The gradients of `outputs` (a tensor, or several, whose gradients add up) with respect to `inputs`.

    Each has the shape and dtype of its input, which can be any tensor of the graph. `gradient` is
    that of a final scalar with respect to each output, and can be left out for one-element outputs.
    An input that the outputs do not depend on is an error, or None with `allow_unused`.
    """
    ys, xs = _listed(outputs), _listed(inputs)
    gs = [None] * len(ys) if gradient is None else _listed(gradient)
    if len(gs) != len(ys):
        raise ValueError(f"gradients: expected {len(ys)} output gradients, got {len(gs)}")
    nodes = [x._needed_node("gradients") for x in xs]
    live = [(y._node, y._seed("gradients", g, create_graph)) for y, g in zip(ys, gs) if y._node is not None]
    with set_grad_enabled(create_graph):
        walk = Backward(wrap, retain_graph, create_graph)
        found = walk.run([node for node, _ in live], [seed for _, seed in live], nodes)
    if not allow_unused and (unused := [i for i, node in enumerate(nodes) if node not in found]):
        raise GradientError(
            f"gradients: the outputs do not depend on inputs {unused}; pass allow_unused=True to get None"
        )
    return tuple([found.get(node) for node in nodes])


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


class _Traced:
    """One run of `f`, with the chosen arguments as the inputs of a graph of its own."""

    def __init__(
        self, name: str, f: Function, args: Sequence[Any], argnums: Sequence[int], kwargs: dict[str, Any]
    ) -> None:
        self.outer = MODE.get().record
        args = list(args)
        for i in argnums:
            if not -len(args) <= i < len(args):
                raise ValueError(f"{name}: argnums has {i}, but the function was given {len(args)} arguments")
            args[i] = _fresh(args[i], self.outer)
        self.inputs: list[Tensor] = [args[i] for i in argnums]
        with traced():
            self.result = f(*args, **kwargs)

    def pull(self, ys: list[Tensor], gs: Any, retain_graph: bool = False) -> list[Tensor]:
        """The gradients of the inputs; recorded, if anything outside this run could ask for theirs."""
        for y in ys:
            if not isinstance(y, Tensor):
                raise TypeError(f"expected the function to return a Tensor, got a {type(y).__name__}")
        create = self.is_tied(ys, gs or ())
        found = gradients(ys, self.inputs, gs, retain_graph=retain_graph, create_graph=create, allow_unused=True)
        return [wrap(np.zeros_like(x._data), None) if c is None else c for x, c in zip(self.inputs, found)]

    def is_tied(self, ys: Sequence[Any], gs: Sequence[Any]) -> bool:
        """Whether gradients of `ys`, for the cotangents `gs`, depend on a leaf outside this run."""
        own = {x._node for x in self.inputs}
        roots = [y._node for y in ys if y is not None and y._node is not None]
        tied = any(node.op is None and node not in own for node in topological(roots))
        return self.outer and (tied or any(isinstance(g, Tensor) and g._node is not None for g in gs))


def _fresh(x: Any, outer: bool) -> Tensor:
    """A new input: tied to the graph around it, if there is one, or a new leaf."""
    if isinstance(x, Tensor) and x._node is not None and outer:
        return alias(x)
    array = x._data if isinstance(x, Tensor) else np.asarray(x)
    if array.dtype.kind != "f":
        raise TypeError(f"only floating-point arguments can be differentiated, got dtype {array.dtype}")
    return wrap(array, Node(None, (), (), array))


def _numbers(argnums: int | Sequence[int]) -> Sequence[int]:
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


def value_and_grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that returns f's value and its gradient.

    `f` returns a tensor of one element; with `has_aux`, a pair of that and anything else. The
    gradient is a tensor in the shape of argument `argnums`, or a tuple of them if that is a tuple.
    """

    @functools.wraps(f)
    def derived(*args: Any, **kwargs: Any) -> Any:
        run = _Traced("grad", f, args, _numbers(argnums), kwargs)
        y = run.result[0] if has_aux else run.result
        gs = run.pull([y], None)
        value = y.detach() if all(g._node is None for g in gs) else y
        return (value, run.result[1]) if has_aux else value, gs[0] if isinstance(argnums, int) else tuple(gs)

    return derived


def grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that returns the gradient of `f`: `grad(f)(x)`. See `value_and_grad`."""
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def derived(*args: Any, **kwargs: Any) -> Any:
        value, gs = both(*args, **kwargs)
        return (gs, value[1]) if has_aux else gs

    return derived


def vjp(f: Function, *xs: Any) -> tuple[Any, Callable[..., tuple[Tensor, ...]]]:
    """f(*xs), and the function that takes a gradient of that value to the gradients of all xs.

    If `f` returns several tensors, that function takes as many gradients.
    """
    run = _Traced("vjp", f, xs, range(len(xs)), {})
    ys = _listed(run.result)

    def pullback(*gs: Any) -> tuple[Tensor, ...]:
        return tuple(run.pull(ys, list(gs), retain_graph=True))

    return run.result, pullback


def jvp(f: Function, xs: Any, vs: Any) -> tuple[Tensor, Tensor]:
    """f(*xs), and its derivative in the direction `vs`: the Jacobian times vs, of f's shape.

    `xs` and `vs` are each an array or a tuple of arrays. The vjp is linear in the gradient it is
    given, so its own vjp is the jvp.
    """
    xs, vs = _tupled(xs), _directions(_tupled(xs), vs)
    run = _Traced("jvp", f, xs, range(len(xs)), {})
    y = run.result
    tied = run.is_tied([y], vs)
    u = _fresh(np.zeros(y.shape, y.dtype), False)
    pulled = gradients(y, run.inputs, u, create_graph=True, allow_unused=True)
    pairs = [(p, v) for p, v in zip(pulled, vs) if p is not None and p.requires_grad]
    (tangent,) = gradients([p for p, _ in pairs], u, [v for _, v in pairs], create_graph=tied, allow_unused=True)
    return (y if tied else y.detach()), Tensor(np.zeros(y.shape, y.dtype)) if tangent is None else tangent


def hvp(f: Function, xs: Any, vs: Any) -> Any:
    """The Hessian of `f` at `xs` times `vs`, without the Hessian.

    `xs` and `vs` are each an array or a tuple of arrays; the answer is alike.
    """
    arrays = _tupled(xs)
    _, pullback = vjp(grad(f, tuple(range(len(arrays)))), *arrays)
    answer = pullback(*_directions(arrays, vs))
    return answer if isinstance(xs, (tuple, list)) else answer[0]


def _tupled(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _directions(xs: tuple[Any, ...], vs: Any) -> tuple[Any, ...]:
    """The directions vs, each in the dtype of its x."""
    pairs = zip(xs, _tupled(vs))
    return tuple(v if isinstance(v, Tensor) else np.asarray(v, getattr(x, "dtype", float)) for x, v in pairs)


def jacobian(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that returns all derivatives of f's result: a tensor of shape (*f's, *argument's).

    A tuple of them, if `argnums` is a tuple; and if `f` returns a tuple, a tuple for each result.
    """

    @functools.wraps(f)
    def derived(*args: Any, **kwargs: Any) -> Any:
        run = _Traced("jacobian", f, args, _numbers(argnums), kwargs)
        blocks = []
        for y in _listed(run.result):
            rows = []
            for i in range(y.size):
                g = np.zeros(y.size, y.dtype)
                g[i] = 1
                rows.append(run.pull([y], [g.reshape(y.shape)], retain_graph=True))
            columns = [
                stack([row[k] for row in rows]).reshape(y.shape + x.shape)
                if rows
                else Tensor(np.zeros(y.shape + x.shape))
                for k, x in enumerate(run.inputs)
            ]
            blocks.append(columns[0] if isinstance(argnums, int) else tuple(columns))
        return tuple(blocks) if isinstance(run.result, (tuple, list)) else blocks[0]

    return derived


def hessian(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that returns all second derivatives of f: (*argument's shape, *argument's shape)."""
    return jacobian(grad(f, argnums), argnums)

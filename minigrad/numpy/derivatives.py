"""Derivatives of functions, such as `grad(f)(x)`, of any order by nesting.

The functions take arrays or trees of arrays (`minigrad.nested`), and no `.grad` changes. Each works
inside another one and inside an ordinary graph: results are recorded if the inputs require
gradients.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..fuse import use_definitions
from ..grad import Function, TracedCall, checked_results, grad, gradients, is_array, new_input
from ..graph import Backward, Node
from ..nested import leaves, rebuilt
from ..ops.shape import stack
from ..tensor import Tensor, to_array, wrap
from .batched import KEEPS, BatchedArray, BatchedShape
from .nested import aligned

__all__ = [
    "vjp",
    "jvp",
    "hvp",
    "jacobian",
    "hessian",
]


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
    run = TracedCall("vjp", f, xs, range(len(xs)), {})
    ys = checked_results(leaves(run.result))

    def pullback(*gs: Any) -> tuple[Any, ...]:
        is_sequence = isinstance(run.result, (list, tuple))
        by_part = is_sequence and not (len(gs) == 1 and isinstance(gs[0], (list, tuple)))
        if not by_part and len(gs) != 1:
            raise ValueError(f"vjp: pullback must be called with one gradient, got {len(gs)}")
        return run.by_argument(_gradients(run, ys, aligned(run.result, gs if by_part else gs[0])))

    return run.released(run.result), pullback


def _gradients(
    run: TracedCall, ys: list[Tensor], gs: list[Any], retain_graph: bool = True
) -> list[Tensor]:
    """Return the gradients of the inputs of a call, for gradients of its results."""
    order = run.order(ys)
    return run.gradients(ys, gs, order, run.is_tied(order, gs), retain_graph)


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
    run = TracedCall("jvp", f, arguments, range(len(arguments)), {})
    directions = _directions(run, xs, vs)
    ys = checked_results(leaves(run.result))
    tied = run.is_tied(run.order(ys), directions)
    live = [y for y in ys if y.requires_grad]
    us = [new_input("jvp", np.zeros(y.shape, y.dtype), False) for y in live]
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
    run = TracedCall("hvp", grad(f, argnums), arguments, argnums, {})
    return run.by_argument(_gradients(run, leaves(run.result), _directions(run, xs, vs), False))


def _is_single(xs: Any) -> bool:
    """Return whether `xs` is one argument: an array, a list of numbers, a dict or named tuple."""
    return type(xs) not in (list, tuple) or (type(xs) is list and is_array(xs))


def _as_tuple(xs: Any) -> tuple[Any, ...]:
    return (xs,) if _is_single(xs) else tuple(xs)


def _directions(run: TracedCall, xs: Any, vs: Any) -> list[Any]:
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
    if others := [v for v in vectors if to_array(v).dtype.kind not in "fiub"]:
        raise TypeError(
            f"the direction must be real, got dtype {to_array(others[0]).dtype}; pass real and "
            "imaginary parts one after the other"
        )
    return [
        v if isinstance(v, Tensor) else to_array(v).astype(x.dtype)
        for x, v in zip(run.inputs, vectors)
    ]


def jacobian(f: Function, argnums: int | Sequence[int] = 0) -> Callable[..., Tensor]:
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
            run = TracedCall("jacobian", f, args, argnums, kwargs)
        ys = checked_results(leaves(run.result))
        return rebuilt(run.result, [run.by_argument(_rows(run, y)) for y in ys])

    return derived


def _rows(run: TracedCall, y: Tensor) -> list[Tensor]:
    """Return the derivatives of all elements of `y` for each input, (*y.shape, *input.shape)."""
    order = run.order([y])
    is_batched = any(type(node.shape) is BatchedShape for node in order)
    if not y.size or not (is_batched or run.is_tied(order)):
        # the errors of a rule of custom_op that accepts only ndarrays
        with suppress(TypeError, ValueError, IndexError, AttributeError):
            return _rows_in_batches(run, y, order)
    seeds = np.eye(y.size, dtype=y.dtype).reshape(-1, *y.shape)
    rows = [_gradients(run, [y], [g]) for g in seeds]
    return [
        stack([row[k] for row in rows]).reshape(y.shape + x.shape) for k, x in enumerate(run.inputs)
    ]


ELEMENTS = 1 << 22
"""Largest number of elements of an array in a batch of gradients."""


def _rows_in_batches(run: TracedCall, y: Tensor, order: list[Node]) -> list[Tensor]:
    rows = [np.zeros((y.size, *x.shape), x.dtype) for x in run.inputs]
    largest = max([math.prod(node.shape) for node in order], default=1)
    length = max(1, ELEMENTS // max(largest, 1))
    for start in range(0, y.size, length):
        batch = slice(start, start + length)
        seeds = np.eye(y.size, dtype=y.dtype)[batch].reshape(-1, *y.shape)
        if y._node is not None:
            backward = Backward(wrap, retain_graph=True, create_graph=False)
            token = KEEPS.set(True)
            try:
                grads = backward.run([(y._node, BatchedArray(seeds))], run.nodes)
            finally:
                KEEPS.reset(token)
            for row, node in zip(rows, run.nodes):
                if node in grads:
                    c = grads[node]._array
                    row[batch] = c.values if isinstance(c, BatchedArray) else c
    return [wrap(row.reshape(y.shape + x.shape), None) for row, x in zip(rows, run.inputs)]


def hessian(f: Function, argnums: int | Sequence[int] = 0) -> Callable[..., Tensor]:
    """Return a function that returns the Hessian of a scalar function.

    Parameters: as `jacobian`.

    Returns
    -------
    callable
        Returns a tensor of shape (*argument.shape, *argument.shape).
    """
    return jacobian(grad(f, argnums), argnums)

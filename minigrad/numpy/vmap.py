"""`vmap`: a function of one example, applied to all examples at once.

Inside the function, arrays are of type `BatchedArray`, which hides the axis of the examples. Two
ops hide and show this axis; each is the derivative of the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import one_axis, shape_of
from ..fuse import use_definitions
from ..grad import is_array
from ..nested import leaves, rebuilt
from ..registry import Op, either
from ..tensor import Tensor
from .batched import VMAPPED, BatchedArray
from .nested import aligned
from .watch import Watch

__all__ = ["vmap"]


def _hide_axis(x: Any, /, axis: int) -> BatchedArray:
    values = np.moveaxis(x, axis, 0)
    values.flags.writeable = False  # the memory is not of this example alone
    return BatchedArray(values)


def _show_axis(x: Any, /, axis: int, length: int) -> np.ndarray:
    """Return the values with the axis of the examples, a new axis if they share the values."""
    if isinstance(x, BatchedArray):
        return np.moveaxis(x.values, 0, axis)
    return np.broadcast_to(np.expand_dims(x, axis), (*x.shape[:axis], length, *x.shape[axis:]))


_hide = Op(
    _hide_axis,
    {"x": lambda g, x_shape, axis: _shown(g, axis=axis, length=x_shape[axis])},
    view=True,
).function
_show = Op(_show_axis, {"x": lambda g, axis: _hidden(g, axis=axis)}, view=True).function
_hidden: Any = either(_hide)
_shown: Any = either(_show)


class _Examples(Watch):
    """Watch that gives arrays the type of the examples where NumPy would not."""

    def __enter__(self) -> None:
        super().__enter__()
        self._token = VMAPPED.set(True)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        VMAPPED.reset(self._token)

    def forward(self, op: Any, function: Callable[..., Any], args: Any, options: Any) -> Any:
        """Call `function`; an array at an index that differs by example differs by example."""
        index = options.get("index")
        parts = index if isinstance(index, tuple) else (index,)
        batched = [part for part in parts if isinstance(part, BatchedArray)]
        if batched:
            args = (batched[0].in_this_type(args[0]), *args[1:])
        return super().forward(op, function, args, options)

    def drawn(self) -> None:
        raise TypeError(
            "random values must not be drawn inside vmap, because all examples would get the same "
            "values; draw them outside and pass them as an argument"
        )


def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """Return a function that applies `f` to many examples at once.

    `vmap(grad(loss), (None, 0, 0))(params, xs, ys)` returns the gradient of each example. The
    result equals `np.stack([f(x) for x in xs])`, and has gradients of any order.

    Parameters
    ----------
    f : callable
        Function of one example. It must use functions of NumPy or minigrad. It must not convert
        values to numbers (`float(x)`, `if x > 0`), draw random values or call `vmap`. Its keyword
        arguments are the same for all examples.
    in_axes : int, None, or tuple of them
        Axis of the examples in each argument, or in all; 0 by default. None is for an argument
        that all examples share. The axis of a tree can be a tree of axes.
    out_axes : int, None, or tree of them
        Axis of the examples in the result; 0 by default. None is for a result that is the same
        for all examples, and returns it without this axis.

    Returns
    -------
    callable
        Takes the arguments of `f`, and returns tensors in the structure of its result.
    """

    @functools.wraps(f)
    def batched(*args: Any, **kwargs: Any) -> Any:
        if VMAPPED.get():
            raise TypeError(
                "vmap must not be called inside vmap; for all pairs of n xs and m ys, write "
                "vmap(f)(np.repeat(xs, m, axis=0), np.concatenate([ys] * n)), and reshape the "
                "result to (n, m, ...)"
            )
        axes = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise ValueError(
                f"vmap: in_axes must have an entry for each of the {len(args)} arguments, got "
                f"{len(axes)}"
            )
        pairs = [_leaves_with_axes("in_axes", arg, axis) for arg, axis in zip(args, axes)]
        inputs = [pair for of_argument in pairs for pair in of_argument]
        length = _number_of_examples(inputs)
        values = iter([x if axis is None else _hide(x, axis=axis) for x, axis in inputs])
        examples = [rebuilt(arg, values, is_array) for arg in args]
        with _Examples(), use_definitions():  # kernels work on ndarrays
            result = f(*examples, **kwargs)
        outputs = _leaves_with_axes("out_axes", result, out_axes)
        return rebuilt(result, [_output(x, axis, length) for x, axis in outputs])

    return batched


def _leaves_with_axes(name: str, tree: Any, axes: Any) -> list[tuple[Any, int | None]]:
    """Return the leaves of a tree, each with its axis from 0, or None."""
    try:
        parts = zip(leaves(axes), aligned(axes, tree))
    except ValueError as error:
        raise ValueError(f"vmap: {name} must have the structure of the arrays: {error}") from None
    pairs = []
    for axis, part in parts:
        for x in leaves(part, is_array) if name == "in_axes" else leaves(part):
            if axis is not None:
                if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
                    raise TypeError(
                        f"vmap: {name} must be an integer, None, or a tree of them, got {axis!r}"
                    )
                ndim = len(shape_of(x)) + (name == "out_axes")
                if not ndim:
                    raise ValueError(f"vmap: in_axes must be None for a scalar, got {axis}")
                axis = one_axis(f"vmap: {name}", axis, ndim)
            pairs.append((x, axis))
    return pairs


def _number_of_examples(inputs: list[tuple[Any, int | None]]) -> int:
    lengths = {shape_of(x)[axis] for x, axis in inputs if axis is not None}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "vmap: the axes of the examples must have one length of at least 1, got "
            f"{', '.join(map(str, sorted(lengths))) or 'no axis'}"
        )
    return lengths.pop()


def _output(x: Any, axis: int | None, length: int) -> Tensor:
    if not isinstance(x, (Tensor, BatchedArray)):
        x = Tensor(x)
    if axis is not None:
        return _show(x, axis=axis, length=length)
    if isinstance(x, BatchedArray) or isinstance(x._array, BatchedArray):
        raise ValueError("vmap: out_axes must not be None for a result that differs by example")
    return x

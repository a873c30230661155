"""Functions that change shapes, the order of axes, and dtypes, and that join arrays.

Look at the rules. Each is the inverse of its function: reshape back, transpose back, split again.
`broadcast_to` has the rule `g`, since the engine sums a gradient over the axes that were repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import check_choice, ints, one_axis, shape_of
from ..arrays import as_array
from ..registry import function, op
from ..tensor import Tensor, as_operand

__all__ = [
    "astype",
    "broadcast_to",
    "clone",
    "concatenate",
    "expand_dims",
    "reshape",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
]


@op(methods="astype", x=lambda g: g)
def astype(x, /, dtype):
    """Convert x to `dtype`; the gradient has the dtype of x.

    Parameters
    ----------
    x : array_like
    dtype : dtype

    Returns
    -------
    Tensor
        Copy of x in this dtype.
    """
    return as_array(x).astype(dtype)


def floating(x: Any) -> Any:
    """Return integers and booleans as float64, in which they do not wrap around."""
    x = as_operand(x)
    return astype(x, float) if x.dtype.kind in "iub" else x


@op(methods="clone copy", numpy=np.copy, x=lambda g: g)
def clone(x, /):
    """Copy x.

    Parameters
    ----------
    x : array_like

    Returns
    -------
    Tensor
        Elements of x in new memory, with a gradient to x.
    """
    return np.copy(x)


# -- reshape


@op(view=True, x=lambda g, x_shape: g.reshape(x_shape))
def _reshape(x, /, shape):
    return (x if type(x) is np.ndarray else as_array(x)).reshape(shape)


@function(methods="reshape")
def reshape(x: Any, *shape: Any, order: str = "C") -> Tensor:
    """Return x in another shape of the same size.

    Parameters
    ----------
    x : array_like
    *shape : int or tuple of int
        One length can be -1.
    order : {"C", "F"}
        The index that changes fastest: the last or the first.

    Returns
    -------
    Tensor
        View of x if its memory layout permits.
    """
    if order != "C":
        check_choice("reshape", "order", order, "C", "F")
        return _transpose(_reshape(_transpose(x), ints(shape)[::-1]))
    return _reshape(x, ints(shape))


def placeholder(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of this shape that takes no memory."""
    return np.broadcast_to(np.empty((), bool), shape)


@function(numpy=np.expand_dims, methods="expand_dims")
def expand_dims(x: Any, axis: int | Sequence[int]) -> Tensor:
    """Insert axes of length 1.

    Other parameters and the result: as `reshape`.

    Parameters
    ----------
    axis : int or sequence of int
        Positions of the new axes in the result.
    """
    return _reshape(x, shape=np.expand_dims(placeholder(shape_of(x)), axis).shape)


@function(numpy=np.squeeze, methods="squeeze")
def squeeze(x: Any, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Remove axes of length 1.

    Other parameters and the result: as `reshape`.

    Parameters
    ----------
    axis : int, tuple of int or None
        Axes to remove; all axes of length 1 by default.
    """
    return _reshape(x, shape=np.squeeze(placeholder(shape_of(x)), axis).shape)


# -- the order of axes


@op(view=True, x=lambda g, axes: g.transpose(_inverse(axes)))
def _transpose(x, /, axes=None):
    return (x if type(x) is np.ndarray else as_array(x)).transpose(axes)


def reordered(x: Any, axes: Sequence[int] | None) -> Tensor:
    """Return x with its axes in this order, reversed for None."""
    return _transpose(x, axes=axes)


def _inverse(axes: Sequence[int] | None) -> list[int] | None:
    return None if axes is None else sorted(range(len(axes)), key=lambda i: axes[i] % len(axes))


@function(methods="transpose")
def transpose(x: Any, *axes: Any) -> Tensor:
    """Reorder the axes, as `numpy.transpose`.

    Parameters
    ----------
    x : array_like
    *axes : int or tuple of int
        Axes of x in the new order, as ints or one tuple; reversed by default.

    Returns
    -------
    Tensor
        View of x.
    """
    order = ints(axes)
    if len(axes) == 2 == len(shape_of(x)) and order in ((0, 1), (-2, -1)):
        raise ValueError(
            f"transpose: axes must be in a new order, as in NumPy, got {order}; to exchange two "
            "axes, as PyTorch does, write x.T"
        )
    if len(order) == 2 < len(shape_of(x)):  # NumPy refuses it; PyTorch exchanges two axes
        return swapaxes(x, *order)
    return reordered(x, order if order != (None,) and (order or axes) else None)


@function(numpy=np.swapaxes, methods="swapaxes")
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Exchange two axes.

    Other parameters and the result: as `transpose`.

    Parameters
    ----------
    axis1, axis2 : int
        Axes to exchange.
    """
    order = list(range(len(shape_of(x))))
    first, second = (one_axis("swapaxes", axis, len(order)) for axis in (axis1, axis2))
    order[first], order[second] = second, first
    return reordered(x, tuple(order))


Tensor.T = property(_transpose, doc="Tensor with its axes reversed.")  # type: ignore[assignment]
Tensor.mT = property(  # type: ignore
    lambda x: swapaxes(x, -2, -1), doc="Tensor with its last two axes exchanged."
)

# -- broadcasting


@op(view=True, numpy=np.broadcast_to, methods="broadcast_to", x=lambda g: g)
def broadcast_to(x, /, shape):
    """Repeat x to a shape, by NumPy's rules of broadcasting.

    Parameters
    ----------
    x : array_like
    shape : tuple of int
        Shape of the result, to which the shape of x broadcasts.

    Returns
    -------
    Tensor
        View of x of this shape.
    """
    return np.broadcast_to(x, shape)


# -- joining


def _parts(g: Any, arrays_shape: tuple[tuple[int, ...], ...], axis: int | None) -> list[Any]:
    if axis is None:
        ends = np.cumsum([math.prod(shape) for shape in arrays_shape])
        return [p.reshape(shape) for p, shape in zip(np.split(g, ends[:-1]), arrays_shape)]
    return np.split(g, np.cumsum([shape[axis] for shape in arrays_shape])[:-1], axis)


@op(vjp=_parts)
def _concatenate(*arrays, axis=0):
    return np.concatenate(arrays, axis)


@function(numpy=np.concatenate)
def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Join arrays along an existing axis.

    Parameters
    ----------
    arrays : sequence of array_like
        Arrays whose shapes agree except along `axis`.
    axis : int or None
        0 by default; None joins the flattened arrays.

    Returns
    -------
    Tensor
        Elements of all arrays, in order.
    """
    return _concatenate(*arrays, axis=axis)


@function(numpy=np.stack)
def stack(arrays: Sequence[Any], axis: int = 0) -> Tensor:
    """Join arrays of one shape along a new axis.

    Parameters
    ----------
    arrays : sequence of array_like
        Arrays of one shape.
    axis : int
        Position of the new axis in the result; 0 by default.

    Returns
    -------
    Tensor
        One axis more than each array.
    """
    shapes = {shape_of(x) for x in arrays}
    if len(shapes) != 1:
        raise ValueError(f"stack: arrays must have one shape, got {sorted(shapes)}")
    axis = one_axis("stack", axis, len(shapes.pop()) + 1)
    return _concatenate(*[expand_dims(x, axis) for x in arrays], axis=axis)

"""Functions that change shapes, the order of axes, and dtypes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.batched import BatchedArray, as_array
from ..core.creation import ints
from ..core.forms import numpy_form
from ..core.registry import function, op
from ..core.tensor import Tensor, as_operand
from .axes import all_axes, check_choice, one_axis, shape_of

__all__ = [
    "astype",
    "clone",
    "reshape",
    "transpose",
    "swapaxes",
    "moveaxis",
    "expand_dims",
    "squeeze",
    "ravel",
    "broadcast_to",
    "broadcast_arrays",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
]


@op(x=lambda g: g)
def _astype(x, /, dtype, casting):
    return as_array(x).astype(dtype, casting=casting)


@function(methods="astype")
def astype(x: Any, dtype: Any, *, casting: str = "unsafe", copy: bool = True) -> Tensor:
    """Convert x to `dtype`; the gradient has the dtype of x.

    Parameters
    ----------
    x : array_like
    dtype : dtype
    casting : {"unsafe", "same_kind", "safe", "equiv", "no"}
        Conversions that are allowed, as in `numpy.can_cast`; all by default.
    copy : bool
        False returns a tensor x itself if it has this dtype. True by default.

    Returns
    -------
    Tensor
        Copy of x in this dtype.
    """
    if not copy and isinstance(x, Tensor) and x.dtype == dtype:
        return x
    return _astype(x, dtype, casting)


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
    return np.copy(x) if isinstance(x, BatchedArray) else np.array(x)


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


numpy_form(np.reshape)(lambda a, shape, order="C": reshape(a, shape, order=order))


@function(numpy=np.ravel, methods="ravel")
def ravel(x: Any, order: str = "C") -> Tensor:
    """Return the elements of x as a vector.

    Parameters
    ----------
    x : array_like
    order : {"C", "F"}
        The index that changes fastest: the last or the first; "C" by default.

    Returns
    -------
    Tensor, shape (x.size,)
        View of x if its memory layout permits.
    """
    return reshape(x, -1, order=order)


def _placeholder(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of this shape that takes no memory."""
    return np.broadcast_to(np.empty((), bool), shape)


@function(numpy=np.expand_dims, methods="expand_dims")
def expand_dims(x: Any, axis: int | Sequence[int]) -> Tensor:
    """Insert axes of length 1.

    Parameters
    ----------
    x : array_like
    axis : int or sequence of int
        Positions of the new axes in the result.

    Returns
    -------
    Tensor
        View of x if its memory layout permits.
    """
    return _reshape(x, shape=np.expand_dims(_placeholder(shape_of(x)), axis).shape)


@function(numpy=np.squeeze, methods="squeeze")
def squeeze(x: Any, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Remove axes of length 1.

    Parameters
    ----------
    x : array_like
    axis : int, tuple of int or None
        Axes to remove; all axes of length 1 by default.

    Returns
    -------
    Tensor
        View of x if its memory layout permits.
    """
    return _reshape(x, shape=np.squeeze(_placeholder(shape_of(x)), axis).shape)


_AT_LEAST = """Add axes of length 1 to arrays with fewer than {ndim} axes.

Parameters
----------
*arrays : array_like

Returns
-------
Tensor or tuple of Tensor
    View of each array, as `numpy.atleast_{ndim}d` returns it.
"""


def _at_least(ndim: int) -> Any:
    numpy = (np.atleast_1d, np.atleast_2d, np.atleast_3d)[ndim - 1]

    def atleast(*arrays: Any) -> Any:
        results = [_reshape(x, shape=numpy(_placeholder(shape_of(x))).shape) for x in arrays]
        return results[0] if len(results) == 1 else tuple(results)

    atleast.__name__ = atleast.__qualname__ = numpy.__name__
    atleast.__doc__ = _AT_LEAST.format(ndim=ndim)
    atleast.__module__ = __name__
    return function(numpy=numpy)(atleast)


atleast_1d, atleast_2d, atleast_3d = map(_at_least, (1, 2, 3))

# -- the order of axes


@op(view=True, x=lambda g, axes: g.transpose(_inverse(axes)))
def _transpose(x, /, axes=None):
    return (x if type(x) is np.ndarray else as_array(x)).transpose(axes)


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
    if len(axes) == 2 == np.ndim(x) and order in ((0, 1), (-2, -1)):
        raise ValueError(
            f"transpose: axes must be in a new order, as in NumPy, got {order}; to exchange two "
            "axes, as PyTorch does, write x.T"
        )
    if len(order) == 2 < np.ndim(x):
        raise ValueError(
            f"transpose: axes must list all {np.ndim(x)} axes, as in NumPy, got {order}; to "
            f"exchange two axes, write swapaxes{order}"
        )
    return _transpose(x, axes=order if order != (None,) and (order or axes) else None)


numpy_form(np.transpose)(
    lambda a, axes=None: _transpose(a, axes=None if axes is None else ints((axes,)))
)


@function(numpy=np.swapaxes, methods="swapaxes")
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Exchange two axes.

    Parameters
    ----------
    x : array_like
    axis1, axis2 : int
        Axes to exchange.

    Returns
    -------
    Tensor
        View of x.
    """
    order = list(range(np.ndim(x)))
    first, second = (one_axis("swapaxes", axis, len(order)) for axis in (axis1, axis2))
    order[first], order[second] = second, first
    return _transpose(x, axes=tuple(order))


@function(numpy=np.moveaxis, methods="moveaxis")
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Move axes to other positions; the others keep their order.

    Parameters
    ----------
    x : array_like
    source : int or sequence of int
        Axes to move.
    destination : int or sequence of int
        Positions of the axes after the move.

    Returns
    -------
    Tensor
        View of x.
    """
    ndim = np.ndim(x)
    if source is None or destination is None:
        raise TypeError(
            "moveaxis: source and destination must be ints or sequences of ints, got None"
        )
    sources, targets = all_axes("source", source, ndim), all_axes("destination", destination, ndim)
    if len(sources) != len(targets):
        raise ValueError(
            f"moveaxis: source and destination must have one length, got {source} and {destination}"
        )
    order = [a for a in range(ndim) if a not in sources]
    for target, axis in sorted(zip(targets, sources)):
        order.insert(target, axis)
    return _transpose(x, axes=tuple(order))


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


@function(numpy=np.broadcast_arrays)
def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """Repeat arrays to their common shape.

    Parameters
    ----------
    *arrays : array_like
        Shapes that broadcast.

    Returns
    -------
    tuple of Tensor
        Views of the arrays.
    """
    shape = np.broadcast_shapes(*map(shape_of, arrays))
    return tuple([broadcast_to(x, shape) for x in arrays])


def flattened_last(x: Any, axis: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """Return x with several axes as one last axis, and its shape with these at length 1."""
    axes = all_axes(name, axis, np.ndim(x))
    shape = shape_of(x)
    others = [i for i in range(len(shape)) if i not in axes]
    last = moveaxis(x, axes, range(len(others), len(shape)))
    last = reshape(last, *[shape[i] for i in others], math.prod(shape[i] for i in axes))
    return last, tuple([1 if i in axes else n for i, n in enumerate(shape)])


Tensor.flat = property(ravel, doc="Elements one after the other.")  # type: ignore

"""Functions that change shapes, the order of axes, and dtypes, join arrays, and select elements.

Look at the rules. Each is the inverse of its function: reshape back, transpose back, split again.
`broadcast_to` has the rule `g`, since the engine sums a gradient over the axes that were repeated.
Indexing and scattering are each other's derivative: the gradient of `x[index]` is added into zeros
at `index`, and repeated indices add up. Look at `_getitem` and `_scatter`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import booleans, check_choice, integers, ints, one_axis, shape_of
from ..arrays import Array, ArrayLike, Axis, Function, Ids, Index, Mask, Shape, as_array
from ..fuse import fusible
from ..nested import needs_gradient
from ..registry import either, function, op
from ..tensor import Tensor, as_operand, unwrap

__all__ = [
    "astype",
    "broadcast_to",
    "clone",
    "concatenate",
    "embedding",
    "expand_dims",
    "getitem",
    "masked_fill",
    "reshape",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
    "where",
]


@op(methods="astype", x=lambda g: g)
def astype(x, /, dtype):
    """Return a copy of x in another dtype; the gradient has the dtype of x.

    Parameters
    ----------
    x : array_like
    dtype : dtype
    """
    return as_array(x).astype(dtype)


def floating(x: ArrayLike) -> Array:
    """Return integers and booleans as float64, in which they do not wrap around."""
    x = as_operand(x)
    return astype(x, float) if x.dtype.kind in "iub" else x


@op(methods="clone", numpy=np.copy, x=lambda g: g)
def clone(x, /, order="K"):
    """Return the elements of x in new memory, with a gradient to x.

    Parameters
    ----------
    x : array_like
    order : {"K", "C", "F", "A"}
        Order of the memory, as in `numpy.copy`; "K", as that of x, by default.
    """
    return np.copy(x, order=order)


# -- reshape


@op(view=True, x=lambda g, x_shape: g.reshape(x_shape))
def _reshape(x, /, shape):
    return (x if type(x) is np.ndarray else as_array(x)).reshape(shape)


@function(methods="reshape")
def reshape(x: ArrayLike, *shape: int | Shape, order: str = "C") -> Tensor:
    """Return x in another shape of the same size, a view if its memory layout permits.

    Parameters
    ----------
    x : array_like
    *shape : int or tuple of int
        One length can be -1.
    order : {"C", "F"}
        The index that changes fastest: the last or the first.
    """
    if order != "C":
        check_choice("reshape", "order", order, "C", "F")
        return _transpose(_reshape(_transpose(x), ints(shape)[::-1]))
    return _reshape(x, ints(shape))


def placeholder(shape: Shape) -> np.ndarray:
    """Return an array of this shape that takes no memory."""
    return np.broadcast_to(np.empty((), bool), shape)


@function(numpy=np.expand_dims, methods="expand_dims")
def expand_dims(x: ArrayLike, axis: int | Sequence[int]) -> Tensor:
    """Return x with new axes of length 1, a view."""
    return _reshape(x, shape=np.expand_dims(placeholder(shape_of(x)), axis).shape)


@function(numpy=np.squeeze, methods="squeeze")
def squeeze(x: ArrayLike, axis: Axis = None) -> Tensor:
    """Return x without axes of length 1, a view."""
    return _reshape(x, shape=np.squeeze(placeholder(shape_of(x)), axis).shape)


# -- the order of axes


@op(view=True, x=lambda g, axes: g.transpose(_inverse(axes)))
def _transpose(x, /, axes=None):
    return (x if type(x) is np.ndarray else as_array(x)).transpose(axes)


def reordered(x: ArrayLike, axes: Sequence[int] | None) -> Tensor:
    """Return x with its axes in this order, reversed for None."""
    return _transpose(x, axes=axes)


def _inverse(axes: Sequence[int] | None) -> list[int] | None:
    return None if axes is None else sorted(range(len(axes)), key=lambda i: axes[i] % len(axes))


@function(methods="transpose")
def transpose(x: ArrayLike, *axes: int | Shape | None) -> Tensor:
    """Return a view of x with its axes in another order, as `numpy.transpose`.

    Parameters
    ----------
    x : array_like
    *axes : int or tuple of int
        Axes of x in the new order, as ints or one tuple; reversed by default.
    """
    order = ints(axes)
    if len(order) == 2 < len(shape_of(x)):  # NumPy refuses it; PyTorch exchanges two axes
        return swapaxes(x, *order)
    # x.transpose(()) of a 0-d x is x; x.transpose() and x.transpose(None) reverse the axes
    return reordered(x, order if order != (None,) and (order or axes) else None)


@function(numpy=np.swapaxes, methods="swapaxes")
def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Tensor:
    """Return a view of x with two axes exchanged."""
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
    """Return a view of x, repeated to a shape by NumPy's rules of broadcasting."""
    return np.broadcast_to(x, shape)


# -- joining


def _parts(g: Array, arrays_shape: tuple[Shape, ...], axis: int | None) -> list[Array]:
    if axis is None:
        ends = np.cumsum([math.prod(shape) for shape in arrays_shape])
        return [p.reshape(shape) for p, shape in zip(np.split(g, ends[:-1]), arrays_shape)]
    return np.split(g, np.cumsum([shape[axis] for shape in arrays_shape])[:-1], axis)


@op(vjp=_parts)
def _concatenate(*arrays, axis=0):
    return np.concatenate(arrays, axis)


@function(numpy=np.concatenate)
def concatenate(arrays: Sequence[ArrayLike], axis: int | None = 0) -> Tensor:
    """Return arrays joined along an existing axis."""
    return _concatenate(*arrays, axis=axis)


@function(numpy=np.stack)
def stack(arrays: Sequence[ArrayLike], axis: int = 0) -> Tensor:
    """Return arrays of one shape joined along a new axis."""
    shapes = {shape_of(x) for x in arrays}
    if len(shapes) != 1:
        raise ValueError(f"stack: arrays must have one shape, got {sorted(shapes)}")
    axis = one_axis("stack", axis, len(shapes.pop()) + 1)
    return _concatenate(*[expand_dims(x, axis) for x in arrays], axis=axis)


# -- by a condition


@op(
    numpy=np.where,
    a=lambda g, condition: np.where(condition, g, 0),
    b=lambda g, condition: np.where(condition, 0, g),
)
def where(condition, a, b, /):
    """Return elements of a where `condition` is True, else of b.

    The operand that is not chosen gets a gradient of exactly 0.
    """
    return np.where(condition, a, b)


@function(methods="masked_fill")
def masked_fill(x: ArrayLike, mask: Mask, value: ArrayLike) -> Tensor:
    """Return x with a value in place of the elements where `mask` is True.

    Parameters
    ----------
    x : array_like
    mask : array of bool, broadcastable with x
        True = the element is replaced.
    value : float or array_like
        The replacement.
    """
    return where(booleans("masked_fill: mask", mask, "True for what is replaced"), value, x)


# -- by an index


@op(view=True, x=lambda g, index, x_shape: _scattered(g, index, x_shape))
def _getitem(x, /, index):
    return (x if type(x) is np.ndarray else as_array(x))[index]


@op(x=lambda g, index: _selected(g, index))
def _scatter(x, /, index, shape):
    x = x if type(x) is np.ndarray else as_array(x)
    if _is_distinct(index):
        # np.zeros is five times faster, for small arrays
        y = np.zeros(shape, x.dtype) if type(x) is np.ndarray else np.zeros_like(x, shape=shape)
        y[index] = x
        return y
    dtype = np.float32 if x.dtype == np.float16 else x.dtype  # sums of float16 lose digits
    y = np.zeros_like(x, dtype, shape=shape)
    np.add.at(y, index, x)
    return y.astype(x.dtype, copy=False)


_selected: Function = either(_getitem)
_scattered: Function = either(_scatter)


_BASIC = (int, slice, type(None), type(...), np.generic)


def _is_distinct(index: Index) -> bool:
    """Return whether an index surely selects no element twice."""
    if isinstance(index, _BASIC):
        return True
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [part for part in parts if not isinstance(part, _BASIC)]
    return not arrays or (len(arrays) == 1 and as_array(arrays[0]).dtype == bool)


INTP: Any = np.intp
"""Dtype of NumPy's indices: integers of the machine's width, 32 bits in a browser, for example."""


def as_indices(indices: np.ndarray) -> np.ndarray:
    """Return integers in the dtype that NumPy indexes with, or raise an IndexError."""
    if indices.dtype.kind not in "iu" or indices.dtype == INTP:
        return indices
    narrow = indices.astype(INTP)
    if indices.dtype.itemsize >= narrow.dtype.itemsize and not (indices == narrow).all():
        raise IndexError(
            f"indices must fit into {np.dtype(INTP)}, got {indices.min()} to {indices.max()}"
        )
    return narrow


def plain_index(index: Index, x: ArrayLike = None) -> Array:
    """Return an index with arrays in place of its tensors and sequences.

    Arrays are copied if x requires gradients, because they can change before the backward pass.
    """
    if isinstance(index, tuple):
        return tuple([part if isinstance(part, _BASIC) else _plain_part(part, x) for part in index])
    return index if isinstance(index, _BASIC) else _plain_part(index, x)


def _plain_part(index: Index, x: Array) -> Array:
    """Return the array of a tensor or a sequence in an index."""
    index = unwrap(index)
    array = as_array(index)
    if array is index:
        return as_indices(array.copy() if needs_gradient(x) else array)
    if not array.size:
        return array.astype(INTP)
    return as_indices(array.copy()) if array.dtype.kind in "iub" else index  # NumPy refuses these


@function(methods="__getitem__")
def getitem(x: ArrayLike, index: Index) -> Tensor:
    """Return x[index], for every index of NumPy; a view of x if NumPy returns one.

    Parameters
    ----------
    x : array_like
    index : index of NumPy
        Integers, slices, ..., None, arrays of int or bool, or a tuple of them.
    """
    return _getitem(x, index=plain_index(index, x))


# -- rows of a table


@fusible(any_dtype=True)
def _embedding(weight: Array, indices: np.ndarray, padding_idx: int | None) -> Tensor:
    """Return weight[indices], without a gradient for row `padding_idx`."""
    rows = getitem(weight, indices)
    return (
        rows
        if padding_idx is None
        else where((indices == padding_idx)[..., None], rows.detach(), rows)
    )


@function()
def embedding(weight: ArrayLike, indices: Ids, padding_idx: int | None = None) -> Tensor:
    """Return the rows of `weight` at `indices`.

    Parameters
    ----------
    weight : Tensor, shape (n, d)
    indices : array of int, shape (...)
        From 0 to n - 1.
    padding_idx : int, optional
        Row that gets no gradient; -1 is the last.
    """
    weight = as_operand(weight)
    if weight.ndim != 2:
        raise ValueError(f"embedding: weight must have shape (n, d), got {weight.shape}")
    # a copy, because the caller may write the next batch into the array
    indices = as_indices(integers("embedding", indices)).copy()
    length = weight.shape[0]
    if not ((indices >= 0) & (indices < length)).all():
        raise IndexError(
            f"embedding: indices must be from 0 to {length - 1}, got {indices.min()} to "
            f"{indices.max()}"
        )
    if padding_idx is not None:
        if not -length <= padding_idx < length:
            raise IndexError(
                f"embedding: padding_idx must be from {-length} to {length - 1}, got {padding_idx}"
            )
        padding_idx %= length
    return _embedding(weight, indices=indices, padding_idx=padding_idx)

"""Selection of elements: by a condition, by an index, and rows of a table by index.

Indexing and scattering are each other's derivative: the gradient of `x[index]` is added into zeros
at `index`. Repeated indices add up. Look at `_getitem` and `_scatter`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import booleans, integers
from ..arrays import as_array
from ..fuse import fusible
from ..nested import needs_gradient
from ..op import either
from ..registry import function, op
from ..tensor import Tensor, as_operand, unwrap

__all__ = ["embedding", "getitem", "masked_fill", "where"]

# -- by a condition


@op(
    numpy=np.where,
    a=lambda g, condition: np.where(condition, g, 0),
    b=lambda g, condition: np.where(condition, 0, g),
)
def where(condition, a, b, /):
    """Return elements of a where `condition` is True, else of b.

    The operand that is not chosen gets a gradient of exactly 0.

    Parameters
    ----------
    condition : array_like of bool
    a, b : array_like
        Values for True and for False.
    """
    return np.where(condition, a, b)


@function(methods="masked_fill")
def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """Replace elements where `mask` is True.

    Parameters
    ----------
    x : array_like
    mask : array of bool, broadcastable with x
        True = the element is replaced.
    value : float or array_like
        The replacement.

    Returns
    -------
    Tensor
        Broadcast shape of x, `mask` and `value`.
    """
    return where(booleans("masked_fill: mask", mask, "True for what is replaced"), value, x)


# -- by an index


@op(view=True, x=lambda g, index, x_shape: _scattered(g, index, x_shape))
def _getitem(x, /, index):
    return as_array(x)[index]


@op(x=lambda g, index: _selected(g, index))
def _scatter(x, /, index, shape):
    x = as_array(x)
    if _is_distinct(index):
        y = np.zeros_like(x, shape=shape)
        y[index] = x
        return y
    dtype = np.float32 if x.dtype == np.float16 else x.dtype  # sums of float16 lose digits
    y = np.zeros_like(x, dtype, shape=shape)
    np.add.at(y, index, x)
    return y.astype(x.dtype, copy=False)


_selected: Any = either(_getitem)
_scattered: Any = either(_scatter)


_PLAIN = (int, slice, type(None), type(...), np.generic)


def _is_distinct(index: Any) -> bool:
    """Return whether an index surely selects no element twice."""
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [part for part in parts if not isinstance(part, _PLAIN)]
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


def plain_index(index: Any, x: Any = None) -> Any:
    """Return an index with arrays in place of its tensors and sequences.

    Arrays are copied if x requires gradients, because they can change before the backward pass.
    """
    if isinstance(index, tuple):
        return tuple([part if isinstance(part, _PLAIN) else _plain_part(part, x) for part in index])
    return index if isinstance(index, _PLAIN) else _plain_part(index, x)


def _plain_part(index: Any, x: Any) -> Any:
    """Return the array of a tensor or a sequence in an index."""
    index = unwrap(index)
    array = as_array(index)
    if array is index:
        return as_indices(array.copy() if needs_gradient(x) else array)
    if not array.size:
        return array.astype(INTP)
    return as_indices(array.copy()) if array.dtype.kind in "iub" else index  # NumPy refuses these


@function(methods="__getitem__")
def getitem(x: Any, index: Any) -> Tensor:
    """Return x[index], for every index of NumPy.

    Parameters
    ----------
    x : array_like
    index : index of NumPy
        Integers, slices, ..., None, arrays of int or bool, or a tuple of them.

    Returns
    -------
    Tensor
        View of x if NumPy returns one.
    """
    return _getitem(x, index=plain_index(index, x))


# -- rows of a table


@fusible(any_dtype=True)
def _embedding(weight: Any, indices: np.ndarray, padding_idx: int | None) -> Tensor:
    """Return weight[indices], without a gradient for row `padding_idx`."""
    rows = getitem(weight, indices)
    return (
        rows
        if padding_idx is None
        else where((indices == padding_idx)[..., None], rows.detach(), rows)
    )


@function()
def embedding(weight: Any, indices: Any, padding_idx: int | None = None) -> Tensor:
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

"""Functions that pick elements: all NumPy indexing, gathering, scattering, sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.op import either, function, op
from ..core.tensor import Tensor, unwrap
from .compare import argsort
from .elementwise import add

__all__ = ["scatter", "getitem", "take", "take_along_axis", "gather", "index_add", "one_hot", "sort", "top_k"]

# A pick and a scatter are each other's derivative: what one reads, the other adds to.


@op(x=lambda g, index, x_shape: _scattered(g, index, x_shape))
def _getitem(x, /, index):
    return np.asarray(x)[index]


@op(x=lambda g, index: g[index])
def scatter(x, /, index, shape):
    """Zeros of `shape`, with x added at `index`: `y[index] += x`, in which repeated indices add up."""
    y = np.zeros(shape, np.asarray(x).dtype)
    if _is_distinct(index):
        y[index] = x
    else:
        np.add.at(y, index, x)
    return y


_scattered: Any = either(scatter)


def _is_distinct(index: Any) -> bool:
    """Whether no element can be picked twice: basic slicing, or a single mask."""
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [part for part in parts if isinstance(part, (np.ndarray, list))]
    return not arrays or (len(arrays) == 1 and np.asarray(arrays[0]).dtype == bool)


def _plain_index(index: Any) -> Any:
    """An index with the arrays inside its tensors."""
    if isinstance(index, tuple):
        return tuple([unwrap(part) for part in index])
    return unwrap(index)


@function(methods="__getitem__")
def getitem(x: Any, index: Any) -> Tensor:
    """x[index], for every index that NumPy knows; the result is a view where NumPy's would be one."""
    return _getitem(x, index=_plain_index(index))


@function(numpy=np.take, methods="take")
def take(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The elements at `indices` along `axis`, or of the flattened x where it is None."""
    indices = np.asarray(unwrap(indices))
    if axis is None:
        return getitem(x.reshape(-1), indices)
    return getitem(x, (slice(None),) * (axis % np.ndim(x)) + (indices,))


def _along(indices: Any, axis: int) -> tuple[Any, ...]:
    """`indices` along `axis`, at their own positions along the other axes."""
    places = np.ogrid[tuple(slice(n) for n in indices.shape)]
    return tuple(indices if i == axis % indices.ndim else place for i, place in enumerate(places))


@function(numpy=np.take_along_axis, methods="gather")
def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Tensor:
    """y[i, j, k] = x[i, indices[i, j, k], k] for axis 1, and likewise: `np.take_along_axis`, torch's `gather`."""
    indices = np.asarray(unwrap(indices))
    if indices.ndim != np.ndim(x):
        raise ValueError(f"take_along_axis: expected indices with {np.ndim(x)} axes as x, got shape {indices.shape}")
    return getitem(x, _along(indices, axis))


gather = take_along_axis


@function(methods="index_add")
def index_add(x: Any, index: Any, values: Any) -> Tensor:
    """x with `values` added at `index` (any NumPy index); repeated indices add up."""
    index = _plain_index(index)
    wanted = np.empty(np.shape(x), bool)[index].shape
    values = values if np.shape(values) == wanted else np.broadcast_to(values, wanted)
    return add(x, scatter(values, index=index, shape=np.shape(x)))


@function()
def one_hot(indices: Any, num_classes: int, dtype: Any = np.float32) -> Tensor:
    """Integers (...) as rows of zeros with one 1: (..., num_classes), of `dtype`."""
    indices = np.asarray(unwrap(indices))
    if indices.dtype.kind not in "iu":
        raise TypeError(f"one_hot: expected integers, got dtype {indices.dtype}")
    if indices.size and (indices.min() < 0 or indices.max() >= num_classes):
        raise IndexError(f"one_hot: expected classes 0 to {num_classes - 1}, got {indices.min()} to {indices.max()}")
    return Tensor(np.equal(indices[..., None], np.arange(num_classes)).astype(dtype))


@function(numpy=np.sort, methods="sort")
def sort(x: Any, axis: int = -1) -> Tensor:
    """The elements in rising order along `axis`; equal ones keep their order."""
    _axis_length("sort", x, axis)
    return take_along_axis(x, argsort(x, axis=axis, kind="stable"), axis)


def _axis_length(name: str, x: Any, axis: int) -> int:
    shape = np.shape(x)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"{name}: axis {axis} is not one of the {len(shape)} axes of shape {shape}")
    return shape[axis]


@function(methods="top_k")
def top_k(x: Any, k: int, axis: int = -1) -> tuple[Tensor, np.ndarray]:
    """The k largest elements along `axis`, largest first, and where they stood."""
    array = np.asarray(unwrap(x))
    length = _axis_length("top_k", x, axis)
    if not 0 < k <= length:
        raise ValueError(f"top_k: expected 1 <= k <= {length}, got {k}")
    largest = np.argpartition(-array, k - 1, axis).take(np.arange(k), axis)
    order = np.argsort(-np.take_along_axis(array, largest, axis), axis, kind="stable")
    indices = np.take_along_axis(largest, order, axis)
    return take_along_axis(x, indices, axis), indices

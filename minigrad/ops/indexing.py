"""Functions that pick elements: all NumPy indexing, gathering, scattering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.op import either
from ..core.registry import function, op
from ..core.tensor import Tensor, unwrap
from .axes import booleans, check_choice, one_axis, shape_of
from .elementwise import add
from .shape import ravel

__all__ = [
    "scatter",
    "getitem",
    "take",
    "take_along_axis",
    "gather",
    "compress",
    "extract",
    "index_select",
    "masked_select",
    "index_add",
    "one_hot",
]

# A pick and a scatter are each other's derivative: what one reads, the other adds to.


@op(view=True, x=lambda g, index, x_shape: _scattered(g, index, x_shape))
def _getitem(x, /, index):
    return np.asarray(x)[index]


@op(x=lambda g, index: g[index])
def _scatter(x, /, index, shape):
    y = np.zeros(shape, np.asarray(x).dtype)
    if _is_distinct(index):
        y[index] = x
    else:
        np.add.at(y, index, x)
    return y


_scattered: Any = either(_scatter)


def _is_distinct(index: Any) -> bool:
    """Whether no element can be picked twice: basic slicing, or a single mask."""
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [part for part in parts if isinstance(part, (np.ndarray, list))]
    return not arrays or (len(arrays) == 1 and np.asarray(arrays[0]).dtype == bool)


INTP: Any = np.intp
"""What NumPy indexes with: integers of the machine's width, 32 bits in a browser and on small
boards.
"""


def as_indices(indices: np.ndarray) -> np.ndarray:
    """Integers in the dtype that NumPy indexes with; what does not fit is no index."""
    if indices.dtype.kind not in "iu" or indices.dtype == INTP:
        return indices
    narrow = indices.astype(INTP)
    if indices.dtype.itemsize >= narrow.dtype.itemsize and not np.array_equal(narrow, indices):
        raise IndexError(
            f"expected indices that fit into {np.dtype(INTP)}, got {indices.min()} to "
            f"{indices.max()}"
        )
    return narrow


def plain_index(index: Any) -> Any:
    """Return an index with arrays in place of its tensors and lists.

    A list can change before the backward pass, so that it is copied.
    """
    if isinstance(index, tuple):
        return tuple(
            [
                plain_index(part) if isinstance(part, (Tensor, np.ndarray, list)) else part
                for part in index
            ]
        )
    if isinstance(index, slice):
        return index
    if isinstance(index, list):
        return np.array(index) if index else np.zeros(0, INTP)
    index = unwrap(index)
    return as_indices(index) if isinstance(index, np.ndarray) else index


@function(methods="__getitem__")
def getitem(x: Any, index: Any) -> Tensor:
    """x[index], for every index that NumPy knows; the result is a view where NumPy's would be one."""
    return _getitem(x, index=plain_index(index))


@function()
def scatter(x: Any, *, index: Any, shape: Sequence[int]) -> Tensor:
    """Zeros of `shape`, with x added at `index` (any NumPy index): `y[index] += x`; repeated
    indices add up.
    """
    return _scatter(x, index=plain_index(index), shape=shape)


@function(numpy=np.take, methods="take")
def take(x: Any, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Tensor:
    """The elements at `indices` along `axis`, or of the flattened x where it is None.

    What to do with indices out of range: `mode` "raise", "wrap" them around, or "clip" them.
    """
    indices = integers("take", indices)
    if axis is None or np.ndim(x) == 0:
        one_axis("take", 0 if axis is None else axis, 1)
        x, axis = ravel(x), 0
    axis = one_axis("take", axis, np.ndim(x))
    n = shape_of(x)[axis]
    check_choice("take", "mode", mode, "raise", "wrap", "clip")
    if mode != "raise" and n:
        indices = indices % n if mode == "wrap" else np.clip(indices, 0, n - 1)
    return getitem(x, (slice(None),) * axis + (indices,))


def integers(name: str, indices: Any) -> np.ndarray:
    """Indices as an array of integers; no indices at all are integers too."""
    indices = indices.data if isinstance(indices, Tensor) else np.asarray(indices)
    if indices.dtype.kind not in "iu":
        if indices.size or indices.dtype.kind not in "fb":
            raise TypeError(f"{name}: expected integer indices, got dtype {indices.dtype}")
        indices = indices.astype(np.intp)
    return indices


def _picked_along(
    name: str, x: Any, indices: np.ndarray, axis: int, shape: tuple[int, ...]
) -> Tensor:
    """x at `indices` along `axis`, and at every position along the other axes of `shape`; these
    broadcast.
    """
    if indices.ndim != np.ndim(x):
        raise ValueError(
            f"{name}: expected indices with {np.ndim(x)} axes as x, got shape {indices.shape}"
        )
    places: list[Any] = list(np.ogrid[tuple(map(slice, shape))])
    places[one_axis(name, axis, indices.ndim)] = indices
    return getitem(x, tuple(places))


@function()
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Tensor:
    """y[i, j, k] = x[i, indices[i, j, k], k] for axis 1, and likewise; of the flattened x where it
    is None.

    Along the other axes x and the indices broadcast.
    """
    indices = integers("take_along_axis", indices)
    if axis is None:
        if indices.ndim != 1:
            raise ValueError(
                f"take_along_axis: expected 1 axis of indices with axis=None, got shape "
                f"{indices.shape}"
            )
        return getitem(ravel(x), indices)
    return _picked_along("take_along_axis", x, indices, axis, shape_of(x))


@numpy_form(np.take_along_axis)
def _np_take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Tensor:
    if not hasattr(indices, "dtype"):
        raise TypeError(
            f"np.take_along_axis: expected an array of indices, got a {type(indices).__name__}"
        )
    return take_along_axis(arr, indices, axis)


@function(methods="gather")
def gather(x: Any, axis: int, index: Any) -> Tensor:
    """y[i, j, k] = x[i, index[i, j, k], k] for axis 1, and likewise, as PyTorch's `gather`."""
    index = integers("gather", index)
    return _picked_along("gather", x, index, axis, index.shape)


@function(numpy=np.compress)
def compress(condition: Any, x: Any, axis: int | None = None) -> Tensor:
    """The parts of x along `axis` (of the flattened x where it is None) at which the vector
    `condition` is true.
    """
    condition = np.asarray(unwrap(condition))
    if condition.ndim != 1:
        raise ValueError(f"compress: expected a vector of conditions, got shape {condition.shape}")
    return take(x, np.flatnonzero(condition), axis)


@function(numpy=np.extract)
def extract(condition: Any, x: Any) -> Tensor:
    """The elements of x at which `condition`, of its size, is true."""
    return take(ravel(x), np.flatnonzero(unwrap(condition)))


@function(methods="index_select")
def index_select(x: Any, axis: int, index: Any) -> Tensor:
    """The slices of x at the places `index` (a vector) along `axis`, as in PyTorch; `take` does
    more.
    """
    index = integers("index_select", index)
    if index.ndim > 1:
        raise ValueError(f"index_select: expected a vector of indices, got shape {index.shape}")
    return take(x, index.reshape(-1), axis)


@function(methods="masked_select")
def masked_select(x: Any, mask: Any) -> Tensor:
    """The elements of x where `mask` (booleans, which broadcast with x) is True, as one axis."""
    mask = booleans("masked_select", mask, "True for what is picked")
    shape = np.broadcast_shapes(shape_of(x), mask.shape)
    return getitem(
        np.broadcast_to(x, shape) if shape != shape_of(x) else x, np.broadcast_to(mask, shape)
    )


@function(methods="index_add")
def index_add(x: Any, *, index: Any, values: Any) -> Tensor:
    """x with `values` added at `index` (any NumPy index); repeated indices add up."""
    index = plain_index(index)
    wanted = np.empty(np.shape(x), bool)[index].shape
    values = values if np.shape(values) == wanted else np.broadcast_to(values, wanted)
    return add(x, _scatter(values, index=index, shape=np.shape(x)))


@function()
def one_hot(indices: Any, num_classes: int = -1, *, dtype: Any = np.float32) -> Tensor:
    """Integers (...) as rows of zeros with one 1: (..., num_classes), of `dtype`; -1: as many as
    are asked for.
    """
    indices = integers("one_hot", indices)
    if num_classes == -1 and indices.size:
        num_classes = int(indices.max()) + 1
    if indices.size and (indices.min() < 0 or indices.max() >= num_classes):
        raise IndexError(
            f"one_hot: expected classes 0 to {num_classes - 1}, got {indices.min()} to "
            f"{indices.max()}"
        )
    return Tensor(np.equal(indices[..., None], np.arange(num_classes)).astype(dtype))


Tensor.compress = lambda self, condition, axis=None: compress(condition, self, axis)  # type: ignore

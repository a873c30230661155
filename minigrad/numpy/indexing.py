"""Indexing beyond the core set: gathering and scattering with PyTorch's and NumPy's names."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments import booleans, check_choice, integers, one_axis, shape_of
from ..arrays import all_values
from ..changes import shares_memory
from ..ops.arithmetic import add
from ..ops.shape import _scatter, _scattered, getitem, plain_index
from ..registry import Op, function
from ..tensor import Tensor, unwrap
from .shape import ravel

__all__ = [
    "scatter",
    "take",
    "take_along_axis",
    "gather",
    "index_select",
    "masked_select",
    "index_add",
    "one_hot",
]


def rearranged(numpy: Callable[..., Any], x: Any, *args: Any, **options: Any) -> Tensor:
    """Return numpy(x, ...) for a function that only selects and moves elements, or views them."""
    args = copy.deepcopy(tuple(map(unwrap, args)))  # a rule calls the function again
    return _rearranged(x, function=lambda array: numpy(array, *args, **options))


def _positions(x_shape: tuple[int, ...], function: Callable[[Any], Any]) -> Any:
    return function(np.arange(math.prod(x_shape)).reshape(x_shape))


def _scattered_back(g: Any, x_shape: tuple[int, ...], function: Callable[[Any], Any]) -> Any:
    size = math.prod(x_shape)
    return _scattered(g, _positions(x_shape, function), (size,)).reshape(x_shape)


def _rearrange(x: Any, /, function: Callable[[Any], Any]) -> Any:
    if all_values(x) is x:
        return function(x)
    first = x.values[0, ...]
    y = function(first)
    if not shares_memory(y, first):
        return x.reshape(-1)[_positions(x.shape, function)]
    shape, strides = (len(x.values), *y.shape), (x.values.strides[0], *y.strides)
    view = np.lib.stride_tricks.as_strided(y, shape, strides)  # read-only if y is
    return type(x)(view)


_rearranged = Op(_rearrange, {"x": _scattered_back}, view=True).function


@function()
def scatter(x: Any, *, index: Any, shape: Sequence[int]) -> Tensor:
    """Return zeros with x added at an index; repeated indices add up.

    Parameters
    ----------
    x : array_like
    index : index of NumPy
        Index into an array of shape `shape`. The selection has the shape of x.
    shape : tuple of int
        Shape of the result.
    """
    return _scatter(x, index=plain_index(index, x), shape=shape)


@function(numpy=np.take, methods="take")
def take(x: Any, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Tensor:
    """Return elements or slices at integer indices."""
    indices = integers("take", indices)
    if axis is None or np.ndim(x) == 0:
        x, axis = ravel(x), 0 if axis is None else axis
    axis = one_axis("take", axis, np.ndim(x))
    n = shape_of(x)[axis]
    check_choice("take", "mode", mode, "raise", "wrap", "clip")
    if mode != "raise" and n:
        indices = indices % n if mode == "wrap" else np.clip(indices, 0, n - 1)
    return getitem(x, (slice(None),) * axis + (indices,))


def _select_along(
    name: str, x: Any, indices: np.ndarray, axis: int, shape: tuple[int, ...]
) -> Tensor:
    """Return x at `indices` along `axis`, and at all positions of the other axes."""
    if indices.ndim != np.ndim(x):
        raise ValueError(
            f"{name}: indices must have {np.ndim(x)} axes as x, got shape {indices.shape}"
        )
    index: list[Any] = list(np.ogrid[tuple(map(slice, shape))])
    index[one_axis(name, axis, indices.ndim)] = indices
    return getitem(x, tuple(index))


@function(numpy=np.take_along_axis)
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Tensor:
    """Return y with y[i, j, k] = x[i, indices[i, j, k], k], for axis 1 of three."""
    indices = integers("take_along_axis", indices)
    if axis is None:
        if indices.ndim != 1:
            raise ValueError(
                f"take_along_axis: indices must have 1 axis with axis=None, got shape "
                f"{indices.shape}"
            )
        return getitem(ravel(x), indices)
    return _select_along("take_along_axis", x, indices, axis, shape_of(x))


@function(methods="gather")
def gather(x: Any, axis: int, index: Any) -> Tensor:
    """Return y with y[i, j, k] = x[i, index[i, j, k], k], for axis 1 of three.

    Parameters
    ----------
    x : array_like
    axis : int
        Axis that `index` indexes.
    index : array_like of int
        With as many axes as x; not longer along the other axes.
    """
    index = integers("gather", index)
    return _select_along("gather", x, index, axis, index.shape)


@function(methods="index_select")
def index_select(x: Any, axis: int, index: Any) -> Tensor:
    """Return the slices of x at a vector of indices, as in PyTorch.

    Parameters
    ----------
    x : array_like
    axis : int
        Axis along which to select.
    index : array_like of int, shape (n,)
    """
    index = integers("index_select", index)
    if index.ndim > 1:
        raise ValueError(f"index_select: index must be a vector, got shape {index.shape}")
    return take(x, index.reshape(-1), axis)


@function(methods="masked_select")
def masked_select(x: Any, mask: Any) -> Tensor:
    """Return the elements of x where `mask` is True.

    Parameters
    ----------
    x : array_like
    mask : array of bool, broadcastable with x
        True = the element is selected.
    """
    mask = booleans("masked_select: mask", mask, "True = the element is selected")
    shape = np.broadcast_shapes(shape_of(x), mask.shape)
    return getitem(
        np.broadcast_to(x, shape) if shape != shape_of(x) else x, np.broadcast_to(mask, shape)
    )


@function(methods="index_add")
def index_add(x: Any, *, index: Any, values: Any) -> Tensor:
    """Return x with values added at an index; repeated indices add up.

    Other parameters: as `getitem`.

    Parameters
    ----------
    values : array_like, broadcastable to x[index]
        Values to add.
    """
    index = plain_index(index, values)
    shape = np.empty(np.shape(x), bool)[index].shape
    values = values if np.shape(values) == shape else np.broadcast_to(values, shape)
    return add(x, _scatter(values, index=index, shape=np.shape(x)))


@function()
def one_hot(indices: Any, num_classes: int = -1, *, dtype: Any = np.float32) -> Tensor:
    """Return rows of zeros with a single 1.

    Parameters
    ----------
    indices : array_like of int, shape (...)
    num_classes : int
        Length of the rows; the largest index + 1 by default.
    dtype : dtype
        Dtype of the result; float32 by default.
    """
    indices = integers("one_hot", indices)
    values = all_values(indices)
    if num_classes == -1 and values.size:
        num_classes = int(values.max()) + 1
    if values.size and (values.min() < 0 or values.max() >= num_classes):
        raise IndexError(
            f"one_hot: indices must be from 0 to {num_classes - 1}, got {values.min()} to "
            f"{values.max()}"
        )
    return Tensor(np.equal(indices[..., None], np.arange(num_classes)).astype(dtype))

"""Functions that rearrange elements and compute nothing: reshape, transpose, join, split, repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.op import function, op
from ..core.tensor import Tensor, unwrap
from .elementwise import subtract
from .indexing import getitem, take

__all__ = [
    "astype", "clone", "reshape", "transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "ravel",
    "broadcast_to", "concatenate", "stack", "split", "pad", "flip", "roll", "repeat", "tile",
    "sliding_window_view", "diff",
]  # fmt: skip


@op(methods="astype", x=lambda g: g)
def astype(x, /, dtype):
    """x converted to `dtype`; the gradient comes back in the dtype of x."""
    return np.asarray(x).astype(dtype)


@op(methods="clone __pos__", numpy=(np.copy, np.positive), x=lambda g: g)
def clone(x, /):
    """A copy of x, in memory of its own."""
    return np.array(x)


# -- the same elements in another shape ------------------------------------------------------------


@op(x=lambda g, x_shape: g.reshape(x_shape))
def _reshape(x, /, shape):
    return np.asarray(x).reshape(shape)


@op(x=lambda g, axes: np.transpose(g, _inverse(axes)))
def _transpose(x, /, axes=None):
    return np.asarray(x).transpose(axes)


def _inverse(axes: Sequence[int] | None) -> list[int] | None:
    if axes is None:
        return None
    order = [a % len(axes) for a in axes]
    return sorted(range(len(order)), key=order.__getitem__)


def _ints(values: Sequence[Any]) -> tuple[Any, ...]:
    """(2, 3), from both f(x, 2, 3) and f(x, (2, 3))."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], (tuple, list)) else tuple(values)


@function(numpy=np.reshape, methods="reshape")
def reshape(x: Any, *shape: Any) -> Tensor:
    """x with another shape of the same size, as ints or one tuple; one length can be -1."""
    return _reshape(x, shape=_ints(shape))


@function(numpy=np.transpose, methods="transpose permute")
def transpose(x: Any, *axes: Any) -> Tensor:
    """x with its axes in the order `axes` (ints or one tuple), or reversed."""
    order = _ints(axes)
    return _transpose(x, axes=order if order and order != (None,) else None)


@function(numpy=np.swapaxes, methods="swapaxes")
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """x with two axes exchanged."""
    order = list(range(np.ndim(x)))
    try:
        order[axis1], order[axis2] = order[axis2], order[axis1]
    except IndexError:
        raise ValueError(f"swapaxes: no axes {axis1} and {axis2} in shape {np.shape(x)}") from None
    return _transpose(x, axes=tuple(order))


@function(numpy=np.moveaxis, methods="moveaxis")
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """x with the axes `source` moved to the places `destination`; the others keep their order."""
    places = np.moveaxis(np.empty((0,) * np.ndim(x)), source, destination)  # checks its arguments
    ndim = places.ndim
    sources = [a % ndim for a in (source if isinstance(source, Sequence) else [source])]
    targets = [a % ndim for a in (destination if isinstance(destination, Sequence) else [destination])]
    order = [a for a in range(ndim) if a not in sources]
    for target, axis in sorted(zip(targets, sources)):
        order.insert(target, axis)
    return _transpose(x, axes=tuple(order))


Tensor.T = property(transpose, doc="The tensor with its axes reversed.")  # type: ignore[attr-defined]
Tensor.mT = property(lambda x: swapaxes(x, -2, -1), doc="The tensor with its last two axes exchanged.")  # type: ignore[attr-defined]


@function(numpy=np.expand_dims, methods="expand_dims unsqueeze")
def expand_dims(x: Any, axis: int | Sequence[int]) -> Tensor:
    """x with a new axis of length 1 at each place `axis` of the result."""
    return _reshape(x, shape=np.expand_dims(_shaped(np.shape(x)), axis).shape)


@function(numpy=np.squeeze, methods="squeeze")
def squeeze(x: Any, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """x without its axes of length 1, or without those in `axis`."""
    return _reshape(x, shape=np.squeeze(_shaped(np.shape(x)), axis).shape)


def _shaped(shape: tuple[int, ...]) -> np.ndarray:
    """An array of this shape that takes no memory."""
    return np.broadcast_to(np.empty((), bool), shape)


@function(numpy=np.ravel, methods="ravel flatten")
def ravel(x: Any) -> Tensor:
    """x as one axis."""
    return _reshape(x, shape=(-1,))


@op(numpy=np.broadcast_to, methods="broadcast_to expand", x=lambda g: g)
def broadcast_to(x, /, shape):
    """x repeated to `shape`, as NumPy broadcasts; its memory is shared."""
    return np.broadcast_to(x, shape)


# -- joining and parting ---------------------------------------------------------------------------


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
    """The arrays joined along an axis that they have, or flattened where it is None."""
    return _concatenate(*arrays, axis=axis)


@function(numpy=np.stack)
def stack(arrays: Sequence[Any], axis: int = 0) -> Tensor:
    """The arrays, of one shape, joined along a new axis."""
    shapes = {np.shape(x) for x in arrays}
    if len(shapes) != 1:
        raise ValueError(f"stack: expected arrays of one shape, got {sorted(shapes)}")
    return _concatenate(*[expand_dims(x, axis) for x in arrays], axis=axis)


@function(numpy=(np.split, np.array_split), methods="split")
def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along `axis` into that many parts (nearly equal ones), or before those indices."""
    places = np.array_split(np.arange(np.shape(x)[axis]), unwrap(indices_or_sections))
    before = (slice(None),) * (axis % np.ndim(x))
    starts = np.cumsum([0, *[len(p) for p in places]])
    return [getitem(x, (*before, slice(start, start + len(p)))) for start, p in zip(starts, places)]


@op(x=lambda g, x_shape, widths: g[tuple([slice(before, before + n) for (before, _), n in zip(widths, x_shape)])])
def _pad(x, /, widths, value):
    return np.pad(x, widths, constant_values=value)


@function(numpy=np.pad)
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Tensor:
    """x with `pad_width` elements added before and after each axis, as in `np.pad`.

    Modes: "constant", and those that repeat elements of x: "edge", "reflect", "symmetric", "wrap".
    """
    shape = np.shape(x)
    widths = [(int(a), int(b)) for a, b in np.broadcast_to(pad_width, (len(shape), 2))]
    if mode == "constant":
        return _pad(x, widths=widths, value=constant_values)
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ValueError(f"pad: mode {mode!r} is not supported; use constant, edge, reflect, symmetric or wrap")
    for axis, (n, width) in enumerate(zip(shape, widths)):
        x = take(x, np.pad(np.arange(n), width, mode), axis)  # type: ignore[call-overload]
    return x


# -- turning and repeating -------------------------------------------------------------------------


def _axes(axis: int | Sequence[int] | None, ndim: int) -> list[int]:
    every = range(ndim) if axis is None else axis if isinstance(axis, Sequence) else [axis]
    return [a % ndim for a in every]


@function(numpy=np.flip, methods="flip")
def flip(x: Any, axis: int | Sequence[int] | None = None) -> Tensor:
    """x with the order of its elements reversed along `axis` (all axes where it is None)."""
    axes = _axes(axis, np.ndim(x))
    return getitem(x, tuple([slice(None, None, -1 if i in axes else None) for i in range(np.ndim(x))]))


@function(numpy=np.roll, methods="roll")
def roll(x: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """x with its elements moved on by `shift` along `axis`, those pushed out coming in again in front."""
    if axis is None:
        return roll(ravel(x), shift, 0).reshape(np.shape(x))
    for by, along in np.broadcast(shift, axis):
        x = take(x, np.roll(np.arange(np.shape(x)[along]), by), int(along))
    return x


@function(numpy=np.repeat, methods="repeat")
def repeat(x: Any, repeats: int | Sequence[int], axis: int | None = None) -> Tensor:
    """x with each element repeated in place along `axis`, or of the flattened x where it is None."""
    if axis is None:
        x, axis = ravel(x), 0
    return take(x, np.repeat(np.arange(np.shape(x)[axis]), repeats), axis)


@function(numpy=np.tile, methods="tile")
def tile(x: Any, reps: int | Sequence[int]) -> Tensor:
    """x repeated as a whole, `reps` times along each axis (the last axes, where they are fewer)."""
    counts = list(reps) if isinstance(reps, Sequence) else [reps]
    ndim = max(np.ndim(x), len(counts))
    y = reshape(x, (1,) * (ndim - np.ndim(x)) + np.shape(x))
    for axis, count in enumerate([1] * (ndim - len(counts)) + counts):
        if count != 1:
            y = take(y, np.tile(np.arange(y.shape[axis]), count), axis)
    return y


@function(numpy=np.lib.stride_tricks.sliding_window_view, methods="unfold")
def sliding_window_view(x: Any, window_shape: int, axis: int = -1, step: int = 1) -> Tensor:
    """The windows of `window_shape` elements along `axis`, every `step`, as a new last axis.

    (..., n, ...) becomes (..., (n - window_shape) // step + 1, ..., window_shape).
    """
    n = np.shape(x)[axis]
    if not 0 < window_shape <= n:
        raise ValueError(f"sliding_window_view: a window of {window_shape} does not fit into {n} elements")
    starts = np.arange(0, n - window_shape + 1, step)
    axis = axis % np.ndim(x)
    return moveaxis(take(x, starts[:, None] + np.arange(window_shape), axis), axis + 1, -1)


@function(numpy=np.diff)
def diff(x: Any, n: int = 1, axis: int = -1) -> Tensor:
    """The differences of neighbours along `axis`, taken `n` times."""
    before = (slice(None),) * (axis % np.ndim(x))
    for _ in range(n):
        x = subtract(getitem(x, (*before, slice(1, None))), getitem(x, (*before, slice(None, -1))))
    return x

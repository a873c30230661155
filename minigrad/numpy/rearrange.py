"""Functions that reverse, rotate, shift, repeat, insert, delete and pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import all_axes, check_choice, checked_count, one_axis, shape_of
from ..arrays import as_array
from ..nested import needs_gradient
from ..ops.shape import astype, concatenate, getitem, plain_index
from ..registry import function, op
from ..tensor import Tensor, as_operand, to_array
from .forms import numpy_form
from .indexing import rearranged
from .shape import ravel

__all__ = [
    "flip",
    "fliplr",
    "flipud",
    "rot90",
    "roll",
    "repeat",
    "tile",
    "insert",
    "delete",
    "pad",
    "sliding_window_view",
    "unfold",
]


@function(numpy=np.flip, methods="flip")
def flip(x: Any, axis: int | Sequence[int] | None = None) -> Tensor:
    """Reverse the order of elements along `axis`."""
    axes = all_axes("flip", axis, np.ndim(x))
    return getitem(
        x, tuple([slice(None, None, -1 if i in axes else None) for i in range(np.ndim(x))])
    )


@function(numpy=np.fliplr)
def fliplr(x: Any) -> Tensor:
    """Reverse the order of columns."""
    return flip(x, 1)


@function(numpy=np.flipud)
def flipud(x: Any) -> Tensor:
    """Reverse the order of rows."""
    return flip(x, 0)


@function(numpy=np.rot90)
def rot90(x: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate x by k right angles, from the first of `axes` towards the second."""
    return rearranged(np.rot90, x, k, axes)


@function(numpy=np.roll, methods="roll")
def roll(x: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Shift elements along `axis`; those beyond the end continue at the start."""
    return rearranged(np.roll, x, shift, axis)


@function(methods="repeat")
def repeat(x: Any, repeats: int | Sequence[int], *more: int, axis: int | None = None) -> Tensor:
    """Repeat each element.

    Other parameters and the result: as `numpy.repeat`.

    Parameters
    ----------
    *more : int
        Raise a TypeError, because PyTorch's `repeat` is `tile` here.
    """
    if more:
        counts = (repeats, *more)
        raise TypeError(
            f"repeat: axis must be given by name, got {counts}; write x.repeat({repeats}, "
            f"axis={more[0]}) to repeat each element, as in NumPy; to repeat x as a whole along "
            f"each axis, write x.tile({counts}), as in PyTorch"
        )
    return rearranged(np.repeat, x, plain_index(repeats), axis)


numpy_form(np.rollaxis)(lambda a, axis, start=0: rearranged(np.rollaxis, a, axis, start))
numpy_form(np.repeat)(lambda a, repeats, axis=None: repeat(a, repeats, axis=axis))


@function(numpy=np.tile, methods="tile")
def tile(x: Any, reps: int | Sequence[int]) -> Tensor:
    """Repeat x as a whole."""
    return rearranged(np.tile, x, reps)


@function(numpy=np.insert)
def insert(x: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    """Insert values before the positions `obj`."""
    x = as_operand(x)
    if not isinstance(values, Tensor):
        values = as_array(values, x.dtype)  # raises NumPy's error for numbers out of range
    if x.dtype.kind != "f" and needs_gradient(values):
        raise TypeError(
            "insert: x must be floating to contain values that require gradients, got "
            f"{x.dtype}; write x.astype(float)"
        )
    positions = np.arange(x.size).reshape(x.shape)
    added = np.arange(x.size, x.size + values.size).reshape(values.shape)
    source = concatenate([ravel(x), astype(ravel(values), x.dtype)])
    # joining turns bytes into the order of the machine
    return astype(getitem(source, np.insert(positions, plain_index(obj), added, axis)), x.dtype)


@function(numpy=np.delete)
def delete(x: Any, obj: Any, axis: int | None = None) -> Tensor:
    """Remove the elements or slices at the positions `obj`."""
    return rearranged(np.delete, x, plain_index(obj), axis)


# -- windows


@function(numpy=np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Tensor:
    """Return windows (..., n - size + 1, ..., size) of an array (..., n, ...).

    They are copies of the elements, unlike NumPy's view.
    """
    return rearranged(np.lib.stride_tricks.sliding_window_view, x, window_shape, axis)


@function(methods="unfold")
def unfold(x: Any, axis: int, size: int, step: int = 1) -> Tensor:
    """Return windows along `axis` as a new last axis, as PyTorch's `Tensor.unfold`.

    Parameters
    ----------
    x : array_like
    axis : int
        Axis to divide into windows.
    size : int
        Length of a window.
    step : int
        Distance of the starts of windows; 1 by default.
    """
    axis = one_axis("unfold", axis, np.ndim(x))
    n = shape_of(x)[axis]
    if not 0 < size <= n:
        raise ValueError(f"unfold: size must be from 1 to {n}, got {size}")
    step = checked_count("unfold", "step", step)
    return sliding_window_view(x, size, axis)[(slice(None),) * axis + (slice(None, None, step),)]


# -- padding


@op(
    x=lambda g, x_shape, widths: g[
        tuple([slice(before, before + n) for (before, _), n in zip(widths, x_shape)])
    ]
)
def _pad(x, /, widths, constant_values):
    return np.pad(x, widths, constant_values=constant_values) if widths else np.copy(x)


@function(numpy=np.pad)
def pad(
    x: Any,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = None,
    reflect_type: str = "even",
) -> Tensor:
    """Add elements before and after each axis.

    Other parameters and the result: as `numpy.pad`.

    Parameters
    ----------
    mode : {"constant", "edge", "reflect", "symmetric", "wrap"}
        Added elements: a constant, as by default, or elements of x.
    reflect_type : {"even"}
        Reflected elements are not changed.
    """
    if reflect_type != "even":
        raise ValueError(
            f"pad: reflect_type must be 'even', got {reflect_type!r}; write np.concatenate([2 * "
            "x[:1] - x[n:0:-1], x]), as an odd reflection of n elements before a vector"
        )
    if mode == "constant":
        if not np.ndim(x):
            np.pad(to_array(x), pad_width)  # checks the width, which a scalar does not need
        value = 0 if constant_values is None else constant_values
        return _pad(x, widths=_pairs(pad_width, np.ndim(x)), constant_values=value)
    check_choice("pad", "mode", mode, "constant", "edge", "reflect", "symmetric", "wrap")
    options = {} if constant_values is None else {"constant_values": constant_values}
    return rearranged(np.pad, x, pad_width, mode=mode, **options)  # NumPy refuses the options


def _pairs(value: Any, ndim: int) -> list[tuple[Any, Any]]:
    """Return the numbers of elements before and after each axis, from NumPy's forms."""
    if isinstance(value, dict):
        pairs = [(0, 0)] * ndim
        for axis, pair in value.items():
            pairs[axis] = tuple(np.broadcast_to(pair, 2).tolist())
        return pairs
    return [tuple(pair) for pair in np.broadcast_to(to_array(value), (ndim, 2)).tolist()]

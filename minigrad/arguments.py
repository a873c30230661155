"""Checks of arguments: numbers, options, axes, shapes, masks and indices.

A public function checks its arguments by these functions, and passes them on without another check.
A function `checked_...` returns the argument in the type that it promises. `check_...` only raises
the error, whose form is "<argument> must <condition>, got <value>". Look at `checked_number` first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from .arrays import ArrayLike, Ids, Mask, Shape
from .tensor import Tensor, to_array

# -- numbers and options


def checked_number(
    owner: str,
    name: str,
    value: object,
    low: float = 0.0,
    high: float = math.inf,
    *,
    above: bool = False,
) -> float:
    """Return a finite number as a float, or raise an error with the names in `owner: name`.

    low <= value < high must be true, and with `above` also low < value.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{owner}: {name} must be a number, got {value!r}")
    number = float(value)
    if not math.isfinite(number) or not low <= number < high or (above and number == low):
        least = f", {'greater than' if above else 'at least'} {low:g}" if low > -math.inf else ""
        most = f", less than {high:g}" if high < math.inf else ""
        raise ValueError(f"{owner}: {name} must be finite{least}{most}, got {value!r}")
    return number


def checked_count(owner: str, name: str, value: object, low: int = 1) -> int:
    """Return a whole number of at least `low` as an int, or raise an error."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{owner}: {name} must be a whole number, got {value!r}")
    if value < low:
        raise ValueError(f"{owner}: {name} must be at least {low}, got {value}")
    return int(value)


def check_choice(name: str, option: str, value: object, *choices: str) -> None:
    """Raise a ValueError if an option has none of the values `choices`; `name` may be empty."""
    if value not in choices:
        *first, last = map(repr, choices)
        listed = f"{', '.join(first)} or {last}" if first else last
        prefix = f"{name}: " if name else ""
        raise ValueError(f"{prefix}{option} must be {listed}, got {value!r:.60}")


def number(name: str, argument: str, value: ArrayLike) -> float | Tensor:
    """Return a real number as a float, or a 0-d tensor that requires gradients unchanged."""
    if not np.ndim(value) and to_array(value).dtype.kind in "fiu":
        return value if isinstance(value, Tensor) and value.requires_grad else float(value)
    got = f"shape {np.shape(value)}" if np.ndim(value) else repr(value)
    raise TypeError(f"{name}: {argument} must be a number, got {got}")


# -- axes and shapes


def shape_of(arrays: ArrayLike) -> Shape:
    """Return the shape of a tensor, an array, or nested lists."""
    return arrays.shape if hasattr(arrays, "shape") else np.shape(arrays)


def ints(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return (2, 3) for the arguments of f(2, 3), f((2, 3)), f([2, 3]) and f(array([2, 3]))."""
    if len(values) == 1 and not isinstance(values[0], int):
        return tuple(values[0]) if np.ndim(values[0]) else values
    return values


def one_axis(name: str, axis: Any, ndim: int) -> int:
    """Return an axis from 0 to ndim - 1, or raise an AxisError or a TypeError."""
    try:
        return normalize_axis_index(axis, ndim, name)
    except TypeError:
        raise TypeError(f"{name}: axis must be an integer, got {axis!r}") from None


def all_axes(name: str, axis: int | Sequence[int] | None, ndim: int) -> Shape:
    """Return axes from 0 to ndim - 1; all of them if `axis` is None."""
    if axis is None:
        return tuple(range(ndim))
    try:
        return tuple(normalize_axis_tuple(axis, ndim, name))
    except TypeError:
        raise TypeError(f"{name}: axis must be an integer or integers, got {axis!r}") from None


def check_shape(name: str, argument: str, value: ArrayLike, shape: Shape) -> None:
    """Raise a ValueError unless the argument has this shape."""
    got = shape_of(value)
    if got != shape:
        raise ValueError(f"{name}: {argument} must have shape {shape}, got {got}")


def check_broadcast(name: str, argument: str, value: ArrayLike, shape: Shape, of: str) -> None:
    """Raise a ValueError unless the argument broadcasts to `shape`, the shape of `of`."""
    got = shape_of(value)
    if len(got) > len(shape) or any(n not in (1, m) for n, m in zip(got[::-1], shape[::-1])):
        raise ValueError(f"{name}: {argument} must broadcast to {of}, {shape}, got {got}")


# -- masks and indices


def booleans(name: str, mask: Mask, means: str = "True = the element counts") -> np.ndarray:
    """Return a mask as an array of bool, or raise a TypeError."""
    mask = to_array(mask)
    if mask.dtype != bool:
        raise TypeError(f"{name} must be booleans, {means}, got dtype {mask.dtype}")
    return mask


def integers(name: str, indices: Ids) -> np.ndarray:
    """Return indices as an array of integers, or raise a TypeError."""
    indices = to_array(indices)
    if indices.dtype.kind not in "iu":
        if indices.size or indices.dtype.kind not in "fb":
            raise TypeError(f"{name}: indices must be integers, got dtype {indices.dtype}")
        indices = indices.astype(np.intp)
    return indices

"""Checks of axes, shapes and options."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ..core.tensor import Tensor, to_array

Axis = int | tuple[int, ...] | None


def one_axis(name: str, axis: Any, ndim: int) -> int:
    """Return an axis from 0 to ndim - 1, or raise an AxisError or a TypeError."""
    try:
        return normalize_axis_index(axis, ndim, name)
    except TypeError:
        raise TypeError(f"{name}: axis must be an integer, got {axis!r}") from None


def all_axes(name: str, axis: Any, ndim: int, repeated: bool = False) -> tuple[int, ...]:
    """Return axes from 0 to ndim - 1; all of them if `axis` is None."""
    if axis is None:
        return tuple(range(ndim))
    try:
        return tuple(normalize_axis_tuple(axis, ndim, name, repeated))
    except TypeError:
        raise TypeError(f"{name}: axis must be an integer or integers, got {axis!r}") from None


def check_choice(name: str, option: str, value: Any, *choices: str) -> None:
    """Raise a ValueError if an option has none of the values `choices`; `name` may be empty."""
    if value not in choices:
        *first, last = map(repr, choices)
        listed = f"{', '.join(first)} or {last}" if first else last
        prefix = f"{name}: " if name else ""
        raise ValueError(f"{prefix}{option} must be {listed}, got {value!r:.60}")


def booleans(name: str, mask: Any, means: str = "True = the element counts") -> np.ndarray:
    """Return a mask as an array of bool, or raise a TypeError."""
    mask = to_array(mask)
    if mask.dtype != bool:
        raise TypeError(f"{name} must be booleans, {means}, got dtype {mask.dtype}")
    return mask


def check_broadcast(name: str, argument: str, value: Any, shape: tuple[int, ...], of: str) -> None:
    """Raise a ValueError unless the argument broadcasts to `shape`, the shape of `of`."""
    got = shape_of(value)
    if len(got) > len(shape) or any(n not in (1, m) for n, m in zip(got[::-1], shape[::-1])):
        raise ValueError(f"{name}: {argument} must broadcast to {of}, {shape}, got {got}")


def number(name: str, argument: str, value: Any) -> Any:
    """Return a real number as a float, or a tensor without axes unchanged."""
    if not np.ndim(value) and to_array(value).dtype.kind in "fiu":
        return value if isinstance(value, Tensor) and value.requires_grad else float(value)
    got = f"shape {np.shape(value)}" if np.ndim(value) else repr(value)
    raise TypeError(f"{name}: {argument} must be a number, got {got}")


def shape_of(arrays: Any) -> tuple[int, ...]:
    """Return the shape of a tensor, an array, or nested lists."""
    return arrays.shape if hasattr(arrays, "shape") else np.shape(arrays)

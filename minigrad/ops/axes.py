"""Axes, shapes and counts as NumPy takes them: negative, as lists or as arrays; out of range is an
AxisError.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ..core.tensor import Tensor, unwrap

Axis = int | tuple[int, ...] | None


def one_axis(name: str, axis: Any, ndim: int) -> int:
    """An axis from 0 to ndim - 1."""
    return normalize_axis_index(axis, ndim, name)


def all_axes(name: str, axis: Any, ndim: int, repeated: bool = False) -> tuple[int, ...]:
    """Axes from 0 to ndim - 1: of an int, of a sequence without repetition, or every one where it
    is None.
    """
    return (
        tuple(range(ndim))
        if axis is None
        else tuple(normalize_axis_tuple(axis, ndim, name, repeated))
    )


def check_choice(name: str, option: str, value: Any, *choices: str) -> None:
    """A ValueError for an option that is none of the choices."""
    if value not in choices:
        listed = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
        raise ValueError(f"{name}: expected {option} {listed}, got {value!r}")


def booleans(name: str, mask: Any, means: str = "True for what counts") -> np.ndarray:
    """A mask as an array; a TypeError for one that does not hold booleans."""
    mask = np.asarray(unwrap(mask))
    if mask.dtype != bool:
        raise TypeError(f"{name}: expected booleans, {means}, got dtype {mask.dtype}")
    return mask


def check_broadcast(name: str, argument: str, value: Any, shape: tuple[int, ...], of: str) -> None:
    """Raise a ValueError unless the argument broadcasts to `shape`, the shape of `of`."""
    got = shape_of(value)
    if len(got) > len(shape) or any(n not in (1, m) for n, m in zip(got[::-1], shape[::-1])):
        raise ValueError(f"{name}: {argument} must broadcast to {of}, {shape}, got {got}")


def number(name: str, argument: str, value: Any) -> Any:
    """A real number as a float, which keeps the dtype of arrays; a tensor without axes as it is."""
    if not np.ndim(value) and np.asarray(unwrap(value)).dtype.kind in "fiu":
        return value if isinstance(value, Tensor) and value.requires_grad else float(value)
    got = f"shape {np.shape(value)}" if np.ndim(value) else repr(value)
    raise TypeError(f"{name}: {argument} must be a number, got {got}")


def shape_of(arrays: Any) -> tuple[int, ...]:
    """The shape of a tensor, an array, or anything that NumPy makes an array of."""
    return arrays.shape if hasattr(arrays, "shape") else np.shape(arrays)

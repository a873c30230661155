"""Functions of one row applied to all: what NumPy calls `apply_along_axis` and `apply_over_axes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.tensor import DISPATCH, Tensor
from .axes import one_axis
from .joining import stack
from .shape import expand_dims, moveaxis, reshape


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Tensor:
    """func1d of each vector along `axis`; the axes of what it returns take the place of `axis`."""
    axis = one_axis("apply_along_axis", axis, np.ndim(arr))
    rows = moveaxis(arr, axis, -1)
    lead = rows.shape[:-1]
    if 0 in lead:
        raise ValueError(
            f"apply_along_axis: there are no vectors along axis {axis} of shape {np.shape(arr)}"
        )
    found = stack([func1d(rows[place], *args, **kwargs) for place in np.ndindex(lead)])
    y = reshape(found, *lead, *found.shape[1:])
    return moveaxis(y, range(len(lead), y.ndim), range(axis, axis + found.ndim - 1))


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Any:
    """func(a, axis) for one of the axes after the other, each left at length 1."""
    for axis in np.atleast_1d(np.asarray(axes)):
        axis = one_axis("apply_over_axes", int(axis), np.ndim(a))
        y = func(a, axis)
        y = y if np.ndim(y) == np.ndim(a) else expand_dims(y, axis)
        if np.ndim(y) != np.ndim(a):
            raise ValueError(
                "apply_over_axes: the function did not return an array of the right shape"
            )
        a = y
    return a


DISPATCH[np.apply_along_axis], DISPATCH[np.apply_over_axes] = apply_along_axis, apply_over_axes

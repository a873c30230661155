"""Functions that join arrays and part them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.registry import function, op
from ..core.tensor import Tensor, unwrap
from .axes import check_choice, one_axis, shape_of
from .indexing import getitem
from .shape import (
    astype,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    expand_dims,
    moveaxis,
    ravel,
    swapaxes,
)

__all__ = [
    "concatenate",
    "stack",
    "append",
    "vstack",
    "hstack",
    "dstack",
    "column_stack",
    "block",
    "split",
    "array_split",
    "unstack",
    "meshgrid",
]

# -- joining
# -----------------------------------------------------------------------------------------


def _parts(g: Any, arrays_shape: tuple[tuple[int, ...], ...], axis: int | None) -> list[Any]:
    if axis is None:
        ends = np.cumsum([math.prod(shape) for shape in arrays_shape])
        return [p.reshape(shape) for p, shape in zip(np.split(g, ends[:-1]), arrays_shape)]
    return np.split(g, np.cumsum([shape[axis] for shape in arrays_shape])[:-1], axis)


@op(vjp=_parts)
def _concatenate(*arrays, axis=0):
    return np.concatenate(arrays, axis)


@function(numpy=np.concatenate)
def concatenate(
    arrays: Sequence[Any], axis: int | None = 0, *, dtype: Any = None, casting: Any = "same_kind"
) -> Tensor:
    """The arrays joined along an axis that they have, or flattened where it is None; converted to
    `dtype`, if given.
    """
    if dtype is None:
        return _concatenate(*arrays, axis=axis)
    np.concatenate(
        [np.empty(0, np.asarray(unwrap(x)).dtype) for x in arrays], dtype=dtype, casting=casting
    )  # may it?
    return _concatenate(*[astype(x, dtype) for x in arrays], axis=axis)


@function(numpy=np.stack)
def stack(
    arrays: Sequence[Any], axis: int = 0, *, dtype: Any = None, casting: Any = "same_kind"
) -> Tensor:
    """The arrays, of one shape, joined along a new axis."""
    shapes = {shape_of(x) for x in arrays}
    if len(shapes) != 1:
        raise ValueError(f"stack: expected arrays of one shape, got {sorted(shapes)}")
    place = one_axis("stack", axis, len(shapes.pop()) + 1)
    return concatenate([expand_dims(x, place) for x in arrays], place, dtype=dtype, casting=casting)


@function(numpy=np.append)
def append(x: Any, values: Any, axis: int | None = None) -> Tensor:
    """x with `values` after it along `axis`; both flattened where it is None."""
    parts = [
        np.asarray(part) if isinstance(part, (int, float)) else part for part in (x, values)
    ]  # their dtype counts
    return _concatenate(*parts, axis=axis)


@function(numpy=np.vstack)
def vstack(arrays: Sequence[Any], *, dtype: Any = None, casting: Any = "same_kind") -> Tensor:
    """The arrays on top of one another; vectors are rows."""
    return concatenate([atleast_2d(x) for x in arrays], 0, dtype=dtype, casting=casting)


@function(numpy=np.hstack)
def hstack(arrays: Sequence[Any], *, dtype: Any = None, casting: Any = "same_kind") -> Tensor:
    """The arrays side by side; vectors end to end."""
    parts = [atleast_1d(x) for x in arrays]
    return concatenate(
        parts, 0 if parts and parts[0].ndim == 1 else 1, dtype=dtype, casting=casting
    )


@function(numpy=np.dstack)
def dstack(arrays: Sequence[Any]) -> Tensor:
    """The arrays one behind another, along a third axis."""
    return _concatenate(*[atleast_3d(x) for x in arrays], axis=2)


@function(numpy=np.column_stack)
def column_stack(arrays: Sequence[Any]) -> Tensor:
    """Vectors as the columns of a matrix; matrices side by side."""
    return _concatenate(
        *[expand_dims(atleast_1d(x), 1) if np.ndim(x) < 2 else x for x in arrays], axis=1
    )


@function(numpy=np.block)
def block(arrays: Any) -> Tensor:
    """An array of nested lists of blocks: the innermost are joined along the last axis, and so on."""
    depth = _depth(arrays)
    return _block(arrays, depth, max(depth, _largest_ndim(arrays)))


def _depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        if isinstance(arrays, tuple):
            raise TypeError("block: expected lists, of lists or arrays; got a tuple")
        return 0
    depths = {_depth(part) for part in arrays}
    if len(depths) != 1:
        raise ValueError("block: expected lists nested to one depth, none of them empty")
    return depths.pop() + 1


def _largest_ndim(arrays: Any) -> int:
    return max(map(_largest_ndim, arrays)) if isinstance(arrays, list) else np.ndim(arrays)


def _block(arrays: Any, depth: int, ndim: int) -> Tensor:
    if not depth:
        return expand_dims(arrays, tuple(range(ndim - np.ndim(arrays))))
    return _concatenate(*[_block(part, depth - 1, ndim) for part in arrays], axis=-depth)


@function(numpy=np.meshgrid)
def meshgrid(
    *arrays: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True
) -> tuple[Tensor, ...]:
    """The coordinates of a grid whose sides are the given vectors: along axis i those of vector i.

    With `indexing` "xy" the first two axes are exchanged, as in pictures; with `sparse` axes along
    which nothing changes have length 1.
    """
    check_choice("meshgrid", "indexing", indexing, "xy", "ij")
    n = len(arrays)
    sides = [
        ravel(x).reshape([-1 if i == k else 1 for k in range(n)]) for i, x in enumerate(arrays)
    ]
    if indexing == "xy" and n > 1:
        sides = [swapaxes(x, 0, 1) for x in sides]
    shape = np.broadcast_shapes(*[x.shape for x in sides])
    return tuple([x if sparse else x.broadcast_to(shape) for x in sides])


# -- parting
# -----------------------------------------------------------------------------------------


def _cut(x: Any, places: Sequence[int], axis: int) -> list[Tensor]:
    before = (slice(None),) * axis
    return [getitem(x, (*before, slice(start, end))) for start, end in pairwise(places)]


@function(numpy=np.array_split)
def array_split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along `axis` before each of the indices, or into that many parts that are as equal as
    can be.
    """
    axis = one_axis("array_split", axis, np.ndim(x))
    n = shape_of(x)[axis]
    wanted = unwrap(indices_or_sections)
    if np.ndim(wanted):
        return _cut(x, [0, *wanted, n], axis)
    sections = int(wanted)
    if sections <= 0:
        raise ValueError(f"array_split: expected at least one section, got {sections}")
    each, longer = divmod(n, sections)
    return _cut(x, [each * i + min(i, longer) for i in range(sections + 1)], axis)


@function(numpy=np.split, methods="split")
def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along `axis` before each of the indices, or into that many equal parts.

    As in NumPy: `split(x, 2)` gives two parts, where PyTorch gives parts of length 2.
    """
    axis = one_axis("split", axis, np.ndim(x))
    if not np.ndim(wanted := unwrap(indices_or_sections)) and shape_of(x)[axis] % int(wanted):
        raise ValueError(
            f"split: {shape_of(x)[axis]} elements cannot be cut into {wanted} equal parts; "
            "array_split makes unequal "
            f"ones, and split(x, [{wanted}]) cuts before element {wanted}"
        )
    return array_split(x, wanted, axis)


def _split_along(axis: int, least: int, numpy: Any) -> None:
    @numpy_form(numpy)
    def parted(ary: Any, indices_or_sections: Any) -> list[Tensor]:
        if np.ndim(ary) < least:
            raise ValueError(
                f"np.{numpy.__name__}: expected an array with at least {least} axes, got "
                f"{np.ndim(ary)}"
            )
        return split(ary, indices_or_sections, 0 if np.ndim(ary) == 1 else axis)


_split_along(0, 2, np.vsplit)
_split_along(1, 1, np.hsplit)
_split_along(2, 3, np.dsplit)


@function(numpy=getattr(np, "unstack", ()))  # since NumPy 2.1
def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along `axis`, without it: what `stack` joins."""
    y = moveaxis(x, axis, 0)
    return tuple([getitem(y, i) for i in range(len(y))])

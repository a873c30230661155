"""Joining and splitting of arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import checked_count, one_axis, shape_of
from ..ops.shape import concatenate, expand_dims, getitem, placeholder
from ..registry import function
from ..tensor import Tensor, unwrap
from .forms import numpy_form
from .indexing import rearranged
from .shape import atleast_1d, atleast_2d, atleast_3d, moveaxis, ravel

__all__ = [
    "append",
    "vstack",
    "hstack",
    "dstack",
    "column_stack",
    "block",
    "meshgrid",
    "array_split",
    "split",
    "unstack",
]

# -- joining


@function(numpy=np.append)
def append(x: Any, values: Any, axis: int | None = None) -> Tensor:
    """Join x and `values` along `axis`, or both flattened by default."""
    return concatenate([x, values], axis)


@function(numpy=np.vstack)
def vstack(arrays: Sequence[Any]) -> Tensor:
    """Join arrays along the first axis; vectors become rows."""
    return concatenate([atleast_2d(x) for x in arrays], 0)


@function(numpy=np.hstack)
def hstack(arrays: Sequence[Any]) -> Tensor:
    """Join arrays along the second axis, or vectors along their only axis."""
    parts = [atleast_1d(x) for x in arrays]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1)


@function(numpy=np.dstack)
def dstack(arrays: Sequence[Any]) -> Tensor:
    """Join arrays along the third axis."""
    return concatenate([atleast_3d(x) for x in arrays], 2)


@function(numpy=np.column_stack)
def column_stack(arrays: Sequence[Any]) -> Tensor:
    """Join vectors, as columns, and matrices side by side."""
    parts = [expand_dims(atleast_1d(x), 1) if np.ndim(x) < 2 else x for x in arrays]
    return concatenate(parts, 1)


@function(numpy=np.block)
def block(arrays: Any) -> Tensor:
    """Join nested lists of arrays to one array."""
    parts: list[Tensor] = []

    def indices(part: Any) -> Any:
        """Return nested lists with the indices of all elements in place of the arrays."""
        if isinstance(part, (list, tuple)):
            return type(part)(map(indices, part))
        start = sum(x.size for x in parts)
        parts.append(ravel(part))
        return np.arange(start, start + np.size(part)).reshape(shape_of(part))

    index = np.block(indices(arrays))
    return getitem(concatenate(parts), (index, ...))


@function(numpy=np.meshgrid)
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> tuple[Tensor, ...]:
    """Return the coordinates of a grid."""
    positions = [np.arange(np.size(x)) for x in arrays]
    indices = np.meshgrid(*positions, indexing=indexing, sparse=sparse)  # type: ignore[call-overload]
    return tuple([getitem(ravel(x), index) for x, index in zip(arrays, indices)])


# -- splitting


def _cut(x: Any, indices: Sequence[int], axis: int) -> list[Tensor]:
    before = (slice(None),) * axis
    return [getitem(x, (*before, slice(start, end))) for start, end in itertools.pairwise(indices)]


@function(numpy=np.array_split)
def array_split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Split x along `axis` before the given indices, or into a number of nearly equal parts.

    Parameters and result: as `numpy.split`.
    """
    axis = one_axis("array_split", axis, np.ndim(x))
    n = shape_of(x)[axis]
    sections = unwrap(indices_or_sections)
    if np.ndim(sections):
        return _cut(x, [0, *sections, n], axis)
    sections = checked_count("array_split", "sections", int(sections))
    length, rest = divmod(n, sections)  # the first `rest` parts have one element more
    return _cut(x, [length * i + min(i, rest) for i in range(sections + 1)], axis)


@function(numpy=np.split)
def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Split x along `axis` before the given indices, or into a number of equal parts.

    As in NumPy, `split(x, 2)` returns two parts. The method `x.split(2)`, which an ndarray does not
    have, returns parts of length 2, as in PyTorch.
    """
    axis, n = one_axis("split", axis, np.ndim(x)), indices_or_sections
    if not np.ndim(n := unwrap(n)) and int(n) > 0 and shape_of(x)[axis] % int(n):
        raise ValueError(
            f"split: sections must divide the length {shape_of(x)[axis]}, got {n}; array_split "
            f"makes unequal parts, and split(x, [{n}]) splits before element {n}"
        )
    return array_split(x, n, axis)


def _answer_split(numpy: Any) -> None:
    """Register an answer to a NumPy function that splits along a fixed axis."""

    @numpy_form(numpy)
    def split_fixed_axis(ary: Any, indices_or_sections: Any) -> list[Tensor]:
        n = unwrap(indices_or_sections)
        parts = range(len(numpy(placeholder(shape_of(ary)), n)))
        return [rearranged(lambda x, n, i: numpy(x, n)[i], ary, n, i) for i in parts]


for _numpy in (np.vsplit, np.hsplit, np.dsplit):
    _answer_split(_numpy)


@function(numpy=getattr(np, "unstack", ()))  # since NumPy 2.1
def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Return slices of x along `axis`: the inverse of `stack`.

    Parameters: as `array_split`.
    """
    y = moveaxis(x, axis, 0)
    return tuple([getitem(y, i) for i in range(len(y))])

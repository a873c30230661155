"""Looking up rows of a table, and adding gradients back into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor
from ..ops import indexing
from ..ops.elementwise import where
from ..ops.indexing import as_indices, getitem, integers
from .definitions import kernel

__all__ = ["embedding"]


def embedding_definition(weight: Any, indices: np.ndarray, padding_idx: int | None) -> Tensor:
    """weight[indices], where row `padding_idx` gets no gradient."""
    rows = getitem(weight, indices)
    return (
        rows
        if padding_idx is None
        else where((indices == padding_idx)[..., None], rows.detach(), rows)
    )


def _scattered(rows: np.ndarray, indices: np.ndarray, table: np.ndarray) -> np.ndarray:
    """`table`, filled with zeros, and rows (n, d) added at `indices` (n,)."""
    if len(table) <= 256:  # a product with one-hot rows is fastest
        hot = np.zeros((len(table), len(indices)), rows.dtype)
        hot[indices, np.arange(len(indices))] = 1
        return np.matmul(hot, rows, out=table)
    table.fill(0)
    order = np.argsort(indices, kind="stable")
    found = indices[order]
    starts = np.flatnonzero(np.r_[True, found[1:] != found[:-1]]) if len(found) else order
    counts = np.diff(np.r_[starts, len(found)])
    for start, count in zip(
        starts[counts > 8], counts[counts > 8]
    ):  # frequent ones, such as padding
        table[found[start]] = np.add.reduce(rows[order[start : start + count]], axis=0)
    starts, counts = starts[counts <= 8], counts[counts <= 8]
    for k in range(counts.max(initial=0)):  # the k-th occurrence of each: no index is there twice
        starts, counts = starts[counts > k], counts[counts > k]
        table[found[starts]] += rows[order[starts + k]]
    return table


def _embedding_vjp(
    g: Any, weight_shape: Any, indices: Any, padding_idx: Any, grad_buffers: Any
) -> tuple[Any]:
    g = np.ascontiguousarray(g).reshape(indices.size, weight_shape[1])
    indices = indices.reshape(-1)
    if padding_idx is not None:
        real = indices != padding_idx
        g, indices = g[real], indices[real]
    table = np.empty(weight_shape, g.dtype) if grad_buffers[0] is None else grad_buffers[0]
    return (_scattered(g, indices, table),)


@kernel(vjp=_embedding_vjp, definition=embedding_definition, single=False)
def _embedding(weight, /, indices, padding_idx):
    # of a table in another order than C's, take() would first copy all
    return (
        np.take(weight, indices, axis=0)
        if weight.flags.c_contiguous
        else np.ascontiguousarray(weight[indices])
    )


forward_embedding = _embedding.op.forward  # type: ignore[attr-defined]  # of arrays


@function()
def embedding(weight: Any, indices: Any, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` (n, d) at integer `indices` (...): (..., d). Row `padding_idx` gets no
    gradient.
    """
    weight = weight if isinstance(weight, Tensor) else np.asarray(weight)
    if weight.ndim != 2:
        raise ValueError(f"embedding: weight must have shape (n, d), got {weight.shape}")
    if isinstance(indices, np.ndarray) and indices.dtype == indexing.INTP:
        indices = indices.copy()  # the caller may fill the array with the next batch
    else:
        indices = as_indices(integers("embedding", indices).copy())
    length = weight.shape[0]
    if indices.size and not (indices.min() >= 0 and indices.max() < length):
        raise IndexError(
            f"embedding: expected indices from 0 to {length - 1}, got {indices.min()} to "
            f"{indices.max()}"
        )
    return _embedding(weight, indices=indices, padding_idx=padding_idx)

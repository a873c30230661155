"""Embedding: rows of a table by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.batched import all_true, as_array
from ..core.registry import function
from ..core.tensor import Tensor
from ..ops.elementwise import where
from ..ops.indexing import as_indices, getitem, integers
from .definitions import kernel

__all__ = ["embedding"]


def embedding_definition(weight: Any, indices: np.ndarray, padding_idx: int | None) -> Tensor:
    """Return weight[indices], without a gradient for row `padding_idx`."""
    rows = getitem(weight, indices)
    return (
        rows
        if padding_idx is None
        else where((indices == padding_idx)[..., None], rows.detach(), rows)
    )


def _scatter_rows(rows: np.ndarray, indices: np.ndarray, length: int) -> np.ndarray:
    """Return zeros (length, d) with rows (n, d) added at `indices` (n,)."""
    if length <= 256:  # a product with one-hot rows is fastest
        hot = np.zeros((length, len(indices)), rows.dtype)
        hot[indices, np.arange(len(indices))] = 1
        with np.errstate(invalid="ignore"):
            table = hot @ rows
        if np.isfinite(table).all():  # 0 * inf is NaN
            return table
    table = np.zeros((length, rows.shape[1]), rows.dtype)
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else order
    counts = np.diff(np.r_[starts, len(ordered)])
    # frequent indices, such as padding, one by one
    for start, count in zip(starts[counts > 8], counts[counts > 8]):
        table[ordered[start]] = np.add.reduce(rows[order[start : start + count]], axis=0)
    # then the k-th occurrences of all others, among which no index is repeated
    starts, counts = starts[counts <= 8], counts[counts <= 8]
    for k in range(counts.max(initial=0)):
        starts, counts = starts[counts > k], counts[counts > k]
        table[ordered[starts]] += rows[order[starts + k]]
    return table


def _embedding_vjp(g: Any, weight_shape: Any, indices: Any, padding_idx: Any) -> tuple[Any]:
    g = np.ascontiguousarray(g).reshape(indices.size, weight_shape[1])
    indices = indices.reshape(-1)
    if padding_idx is not None:
        is_token = indices != padding_idx
        g, indices = g[is_token], indices[is_token]
    return (_scatter_rows(g, indices, weight_shape[0]),)


@kernel(vjp=_embedding_vjp, definition=embedding_definition, single=False)
def _embedding(weight, /, indices, padding_idx):
    if weight.flags.c_contiguous:
        return np.take(weight, indices, axis=0)
    return np.ascontiguousarray(weight[indices])  # take() would first copy the whole table


forward_embedding = _embedding.op.forward  # type: ignore[attr-defined]  # of arrays


@function()
def embedding(weight: Any, indices: Any, padding_idx: int | None = None) -> Tensor:
    """Return the rows of `weight` at `indices`.

    Parameters
    ----------
    weight : Tensor, shape (n, d)
    indices : array of int, shape (...)
        From 0 to n - 1.
    padding_idx : int, optional
        Row that gets no gradient; -1 is the last.

    Returns
    -------
    Tensor, shape (..., d)
        Rows of `weight`.
    """
    weight = weight if isinstance(weight, Tensor) else as_array(weight)
    if weight.ndim != 2:
        raise ValueError(f"embedding: weight must have shape (n, d), got {weight.shape}")
    # a copy, because the caller may write the next batch into the array
    indices = as_indices(integers("embedding", indices)).copy()
    length = weight.shape[0]
    if not all_true((indices >= 0) & (indices < length)):
        raise IndexError(
            f"embedding: indices must be from 0 to {length - 1}, got {indices.min()} to "
            f"{indices.max()}"
        )
    if padding_idx is not None:
        if not -length <= padding_idx < length:
            raise IndexError(
                f"embedding: padding_idx must be from {-length} to {length - 1}, got {padding_idx}"
            )
        padding_idx %= length
    return _embedding(weight, indices=indices, padding_idx=padding_idx)

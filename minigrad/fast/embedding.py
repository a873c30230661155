"""Kernel of embedding: rows of a table by index, and sums of rows for its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fuse import fuse
from ..ops import shape

_ONE_HOT_ROWS = 256  # up to this length of a table, a product with one-hot rows is fastest
_FREQUENT = 8  # the gradients of indices that occur more often are added index by index


def _scatter_rows(rows: np.ndarray, indices: np.ndarray, length: int) -> np.ndarray:
    """Return zeros (length, d) with rows (n, d) added at `indices` (n,)."""
    if length <= _ONE_HOT_ROWS:
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
    for start, count in zip(starts[counts > _FREQUENT], counts[counts > _FREQUENT]):
        table[ordered[start]] = np.add.reduce(rows[order[start : start + count]], axis=0)
    # then the k-th occurrences of all others, among which no index is repeated
    starts, counts = starts[counts <= _FREQUENT], counts[counts <= _FREQUENT]
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


@fuse(shape._embedding, vjp=_embedding_vjp)
def _embedding(weight, /, indices, padding_idx):
    if weight.flags.c_contiguous:
        return np.take(weight, indices, axis=0)
    return np.ascontiguousarray(weight[indices])  # take() would first copy the whole table

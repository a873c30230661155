"""Looking up rows of a table, and adding gradients back into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..op import either, function, op
from ..tensor import Tensor, unwrap

__all__ = ["embedding"]


@op(rows=lambda g, indices: np.take(g, indices, axis=0))
def scatter_rows(rows, /, indices, length):
    """Zeros (length, d) with `rows` (..., d) added at `indices`: the gradient of a look-up."""
    rows = np.asarray(rows)
    width = rows.shape[-1]
    indices = np.asarray(indices).reshape(-1)
    rows = np.ascontiguousarray(rows).reshape(len(indices), width)
    if length <= 256:  # a product with one-hot rows is fastest
        hot = np.zeros((length, len(indices)), rows.dtype)
        hot[indices, np.arange(len(indices))] = 1
        return hot @ rows
    table = np.zeros((length, width), rows.dtype)
    order = np.argsort(indices, kind="stable")
    found = indices[order]
    starts = np.flatnonzero(np.r_[True, found[1:] != found[:-1]]) if len(found) else order
    counts = np.diff(np.r_[starts, len(found)])
    for start, count in zip(starts[counts > 8], counts[counts > 8]):  # frequent ones, such as padding
        table[found[start]] = np.add.reduce(rows[order[start : start + count]], axis=0)
    starts, counts = starts[counts <= 8], counts[counts <= 8]
    for k in range(counts.max(initial=0)):  # the k-th occurrence of each: no index is there twice
        starts, counts = starts[counts > k], counts[counts > k]
        table[found[starts]] += rows[order[starts + k]]
    return table


_scattered: Any = either(scatter_rows)


def _embedding_gradient(g: Any, weight_shape: Any, indices: Any, padding_idx: Any) -> Any:
    if padding_idx is not None:
        g = np.where((indices != padding_idx)[..., None], g, 0)
    return _scattered(g, indices, weight_shape[0])


@op(weight=_embedding_gradient)
def _embedding(weight, /, indices, padding_idx):
    # of a table in another order than C's, take() would first copy all
    return np.take(weight, indices, axis=0) if weight.flags.c_contiguous else np.ascontiguousarray(weight[indices])


@function()
def embedding(weight: Any, indices: Any, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` (n, d) at integer `indices` (...): (..., d). Row `padding_idx` gets no gradient."""
    indices, length = np.asarray(unwrap(indices)), np.shape(weight)[0]
    if indices.dtype.kind not in "iu":
        raise TypeError(f"embedding: expected integer indices, got dtype {indices.dtype}")
    if indices.size and not (indices.min() >= 0 and indices.max() < length):
        raise IndexError(f"embedding: expected indices from 0 to {length - 1}, got {indices.min()} to {indices.max()}")
    return _embedding(weight, indices=indices, padding_idx=padding_idx)

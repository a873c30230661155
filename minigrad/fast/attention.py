"""Kernel of attention: products of heads, softmax in place, for a few sequences at a time.

The backward pass needs only the weights, which are saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fuse import fuse
from ..graph import unbroadcast
from ..ops import attention
from ..ops.attention import four_axes
from .blocks import BLOCK, needs_shift, row_blocks, row_sums


def softmax_in_place(scores: np.ndarray, mask: Any, factor: float) -> None:
    """Replace contiguous scores by softmax(scores) * factor over the last axis, where `mask`."""
    if not scores.size:
        return
    low, high = scores.min(), scores.max()
    if mask is not None and np.isnan(low):
        np.copyto(scores, 0, where=~mask)  # a masked NaN has no effect
    if needs_shift(low, high, scores.dtype):
        if mask is None:
            top = scores.max(-1, keepdims=True)
        else:
            top = np.max(scores, axis=-1, keepdims=True, where=mask, initial=-np.inf)
        np.subtract(scores, np.where(top == -np.inf, 0, top), out=scores)
        if mask is not None:
            np.minimum(scores, 0, out=scores)  # masked scores must not overflow
    np.exp(scores, out=scores)
    if mask is not None:
        scores *= mask
    length = scores.shape[-1]
    total = row_sums(scores.reshape(-1, length))[:, 0]
    total[total == 0] = 1  # rows that may attend to nothing
    np.divide(factor, total, out=total)
    # for a short last axis, repeated values are multiplied faster than broadcast ones
    scores *= np.repeat(total, length).reshape(scores.shape)


def _batches(shape: tuple[int, ...]) -> Sequence[slice]:
    """Return slices of the batch whose weights fit the cache."""
    return row_blocks(shape[0], math.prod(shape[1:]), 2 * BLOCK)


def _attention_vjp(
    g: Any,
    y: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    mask: Any,
    scale: Any,
    drop_mask: Any,
    drop_scale: Any,
    saved: Any,
    needs: Any,
) -> tuple[Any, ...]:
    """Return the gradients of query, key, value and bias.

    With weights P, dropout mask M and its factor c, dV = (cMP)ᵀ dO and dS = P (cM dO Vᵀ - D), where
    D are the row sums of dO * O. The gradient of the bias is dS. Those of queries and keys are the
    products of dS * scale with keys and queries.
    """
    weights = saved  # c P, (N, h_kv, group * L_q, L_kv)
    n, kv_heads, rows, _ = weights.shape
    q, g, y = (x.reshape(n, kv_heads, rows, x.shape[-1]) for x in (query, g, y))
    drop_mask = None if drop_mask is None else drop_mask.reshape(weights.shape)
    dq, dk, dv = (np.empty_like(x, g.dtype) for x in (q, key, value))
    dbias = np.zeros(four_axes(bias).shape, bias.dtype) if needs[3] else None
    for part in _batches(weights.shape):
        p, dy = weights[part], g[part]
        dropped = p if drop_mask is None else p * drop_mask[part]
        np.matmul(dropped.mT, dy, out=dv[part])
        ds = np.matmul(dy, value[part].mT, out=None if drop_mask is None else dropped)
        if drop_mask is not None:
            ds *= drop_mask[part]
        row = np.einsum("nhld,nhld->nhl", dy, y[part])[..., None]  # Σ_j P_ij dP_ij
        row /= drop_scale
        ds -= row
        ds *= p
        if dbias is not None:
            target = _part_of(dbias, part)
            target += unbroadcast(_each_head(ds, query), target.shape, "attention")
        ds *= scale
        np.matmul(ds, key[part], out=dq[part])
        np.matmul(ds.mT, q[part], out=dk[part])
    return dq.reshape(query.shape), dk, dv, None if dbias is None else dbias.reshape(bias.shape)


def _part_of(x: np.ndarray, part: slice) -> np.ndarray:
    """Return the rows `part` of a mask or bias, or all if its first axis has length 1."""
    return x[part] if len(x) > 1 else x


def _each_head(scores: np.ndarray, query: np.ndarray) -> np.ndarray:
    """View scores (n, h_kv, group * L_q, L_kv) as scores of each head, (n, h, L_q, L_kv)."""
    return scores.reshape(len(scores), *query.shape[1:3], scores.shape[-1])


def _attend(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None,
    mask: np.ndarray | None,
    scale: float,
    drop_mask: np.ndarray | None,
    drop_scale: float,
    keep_weights: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the heads (N, h, L_q, d_v), and the weights: of the last part if none are kept."""
    n, num_heads, length, d_k = query.shape
    _, kv_heads, kv_length, d_v = value.shape
    rows = num_heads // kv_heads * length  # the queries that share a head of keys and values
    q = query.reshape(n, kv_heads, rows, d_k)
    shape = (n, kv_heads, rows, kv_length)
    parts = _batches(shape)
    if not keep_weights and len(parts) > 1:
        shape = (parts[0].stop, *shape[1:])
    weights = np.empty(shape, query.dtype)
    y = np.empty((n, rows, kv_heads, d_v), query.dtype)  # merge_heads is then a view
    y = y.transpose(0, 2, 1, 3) if rows == length else y.reshape(n, kv_heads, rows, d_v)
    bias = None if bias is None else four_axes(bias)
    for part in parts:
        kept = weights[part] if keep_weights else weights[: len(q[part])]
        np.matmul(q[part], key[part].mT, out=kept)
        kept *= scale
        w = _each_head(kept, query)
        if bias is not None:
            w += _part_of(bias, part)
        softmax_in_place(w, None if mask is None else _part_of(mask, part), drop_scale)
        w = w if drop_mask is None else w * drop_mask[part]
        np.matmul(w.reshape(kept.shape), value[part], out=y[part])
    return y.reshape(n, num_heads, length, d_v), weights


@fuse(attention._attention, vjp=_attention_vjp)
def _attention(query, key, value, bias, /, mask, scale, drop_mask, drop_scale):
    return _attend(query, key, value, bias, mask, scale, drop_mask, drop_scale, True)


def forward_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None,
    mask: np.ndarray | None,
    scale: float,
) -> np.ndarray:
    """Compute the heads of arrays, with memory for the weights of a few sequences at a time."""
    return _attend(query, key, value, bias, mask, scale, None, 1.0, False)[0]

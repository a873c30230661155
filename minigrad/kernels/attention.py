"""Scaled dot-product attention over several heads: Vaswani et al. (2017), arXiv:1706.03762, section
3.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor
from ..ops.axes import booleans, number, shape_of
from ..ops.linalg import matmul
from ..ops.softmax import softmax
from .blocks import BLOCK, needs_shift, ones, row_blocks
from .definitions import kernel
from .dropout import dropout_mask

__all__ = ["scaled_dot_product_attention"]


def split_heads(x: Any, num_heads: int) -> Any:
    """(N, L, h·d), a tensor or an array, as (N, h, L, d)."""
    n, length, width = x.shape
    return x.reshape(n, length, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def merge_heads(x: Any) -> Any:
    """(N, h, L, d), a tensor or an array, as (N, L, h·d)."""
    n, num_heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(n, length, num_heads * width)


def attention_weights(
    query: Any, key: Any, num_heads: int = 1, mask: Any = None, scale: float | None = None
) -> Tensor:
    """softmax(query · keyᵀ · scale) of each head, (N, h, Lq, Lk); rows with nothing to attend to
    are 0.
    """
    q, k = (
        split_heads(query, num_heads),
        split_heads(key, num_heads),
    )  # (N, h, Lq, d), (N, h, Lk, d)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return softmax(matmul(q, k.swapaxes(-1, -2)) * scale, where=mask)


def attention_definition(
    query: Any,
    key: Any,
    value: Any,
    num_heads: int,
    mask: Any,
    scale: float,
    drop_mask: Any,
    drop_scale: float,
) -> Tensor:
    """dropout(softmax(query · keyᵀ · scale)) · value of each head, side by side."""
    weights = attention_weights(query, key, num_heads, mask, scale)
    if drop_mask is not None:
        weights = weights * drop_mask * drop_scale
    return merge_heads(matmul(weights, split_heads(value, num_heads)))


def softmax_in_place(scores: np.ndarray, mask: Any, factor: float) -> None:
    """scores to softmax(scores) · factor over the last axis, counting only where `mask`."""
    low, high = scores.min(initial=0), scores.max(initial=0)
    if mask is not None and np.isnan(low):
        np.copyto(scores, 0, where=~mask)  # a NaN that is masked does not count
    if needs_shift(low, high, scores.dtype):
        if mask is None:
            scores -= scores.max(-1, keepdims=True)
        else:
            top = np.max(scores, axis=-1, keepdims=True, where=mask, initial=-np.inf)
            np.subtract(scores, np.where(np.isfinite(top), top, 0), out=scores)
            np.minimum(scores, 0, out=scores)  # where masked, anything that does not overflow
    np.exp(scores, out=scores)
    if mask is not None:
        scores *= mask
    total = scores @ ones(scores.shape[-1], scores.dtype)
    if mask is not None or not scores.shape[-1]:
        total[total == 0] = 1  # nothing to attend to
    np.divide(factor, total, out=total)
    scores *= total


def _attention_vjp(
    g: Any,
    y: Any,
    query: Any,
    key: Any,
    value: Any,
    num_heads: Any,
    mask: Any,
    scale: Any,
    drop_mask: Any,
    drop_scale: Any,
    saved: Any,
) -> tuple[Any, Any, Any]:
    """With P the weights, M the dropout mask, c its factor: dV = (cMP)ᵀ dO and dS = P (cM dO Vᵀ -
    rows of dO · O).
    """
    weights = saved  # c P, (N, h, Lq, Lk)
    g = np.ascontiguousarray(g)
    q, k, v, dout, out = (split_heads(x, num_heads) for x in (query, key, value, g, y))
    dq, dk, dv = (np.empty_like(x, order="C") for x in (query, key, value))
    dqh, dkh, dvh = (split_heads(x, num_heads) for x in (dq, dk, dv))
    for part in _batches(weights.shape):
        p = weights[part]
        dropped = p if drop_mask is None else p * drop_mask[part]
        np.matmul(dropped.swapaxes(-1, -2), dout[part], out=dvh[part])
        ds = np.matmul(
            dout[part], v[part].swapaxes(-1, -2), out=None if drop_mask is None else dropped
        )
        if drop_mask is not None:
            ds *= drop_mask[part]
        row = np.einsum("nhld,nhld->nhl", dout[part], out[part])[..., None]  # Σ_j P_ij dP_ij
        row /= drop_scale
        ds -= row
        ds *= p
        ds *= scale
        np.matmul(ds, k[part], out=dqh[part])
        np.matmul(ds.swapaxes(-1, -2), q[part], out=dkh[part])
    return dq, dk, dv


def _batches(shape: tuple[int, ...]) -> Sequence[slice]:
    """Slices of the batch whose weights fit the cache."""
    return row_blocks(shape[0], math.prod(shape[1:]), 2 * BLOCK)


@kernel(vjp=_attention_vjp, definition=attention_definition)
def _attention(query, key, value, /, num_heads, mask, scale, drop_mask, drop_scale):
    n, length, _ = query.shape
    q, k, v = (split_heads(x, num_heads) for x in (query, key, value))
    weights = np.empty((n, num_heads, length, key.shape[1]), query.dtype)
    y = np.empty((n, length, value.shape[2]), query.dtype)
    yh = split_heads(y, num_heads)
    for part in _batches(weights.shape):
        w = np.matmul(q[part], k[part].swapaxes(-1, -2), out=weights[part])
        w *= scale
        softmax_in_place(
            w, None if mask is None else mask[part] if len(mask) > 1 else mask, drop_scale
        )
        np.matmul(w if drop_mask is None else w * drop_mask[part], v[part], out=yh[part])
    return y, weights


@function()
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    num_heads: int = 1,
    scale: float | None = None,
    dropout: float = 0.0,
    generator: np.random.Generator | None = None,
) -> Tensor:
    """softmax(query · keyᵀ / √d) · value, in `num_heads` heads side by side: (N, Lq, h·dv).

    Query (N, Lq, h·d), key (N, Lk, h·d), value (N, Lk, h·dv). `mask` holds booleans that broadcast
    to (N, h, Lq, Lk): True = may attend. A row with nothing to attend to gives zeros, with zero
    gradient. `scale` replaces 1/√d; `dropout` is the probability of leaving out a weight.
    """
    q, k, v = [shape_of(x) for x in (query, key, value)]
    fits = len(q) == len(k) == len(v) == 3 and q[0] == k[0] == v[0] and k[1] == v[1]
    if not fits or q[2] != k[2] or q[2] % num_heads or v[2] % num_heads:
        raise ValueError(
            f"scaled_dot_product_attention: expected query (N, Lq, h·d), key (N, Lk, h·d) and "
            "value (N, Lk, h·dv) "
            f"for h = {num_heads} heads, got {q}, {k} and {v}"
        )
    full = (q[0], num_heads, q[1], k[1])
    mask = None if mask is None else checked_mask(mask, full, "scaled_dot_product_attention")
    name = "scaled_dot_product_attention"
    scale = 1 / math.sqrt(q[2] // num_heads) if scale is None else number(name, "scale", scale)
    drop_mask, drop_scale = dropout_mask(full, dropout, generator) if dropout else (None, 1.0)
    return _attention(query, key, value, num_heads, mask, scale, drop_mask, drop_scale)


def checked_mask(mask: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """A boolean mask with four axes, which broadcasts to `shape`."""
    mask = booleans(name, mask, "True = may attend")
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    if any(m not in (1, s) for m, s in zip(mask.shape, shape)):
        raise ValueError(
            f"{name}: a mask of shape {mask.shape} does not broadcast to (N, h, Lq, Lk) = {shape}"
        )
    return mask

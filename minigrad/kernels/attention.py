"""Scaled dot-product attention: Vaswani et al. (2017), arXiv:1706.03762, section 3.2.

Heads have a separate axis everywhere in this library: (N, h, L, d). `split_heads` and
`merge_heads` return views if the memory layout permits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.batched import as_array
from ..core.graph import unbroadcast
from ..core.registry import function, op
from ..core.tensor import Tensor
from ..ops.axes import booleans, check_broadcast, number
from ..ops.linalg import matmul
from ..ops.shape import broadcast_to, expand_dims, swapaxes
from ..ops.softmax import softmax
from .blocks import BLOCK, needs_shift, row_sums
from .definitions import kernel
from .dropout import dropout_mask

__all__ = ["merge_heads", "scaled_dot_product_attention", "split_heads"]


# -- heads


def _split(x: Any, num_heads: int) -> Any:
    n, length, width = x.shape
    return x.reshape(n, length, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def _merge(x: Any) -> Any:
    n, num_heads, length, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(n, length, num_heads * d)


@op(view=True, x=lambda g: _merge(g))
def split_heads(x, /, num_heads):
    """Split x (N, L, h·d) into heads (N, h, L, d).

    Parameters
    ----------
    x : Tensor, shape (N, L, h·d)
    num_heads : int
        Number of heads, h.

    Returns
    -------
    Tensor, shape (N, h, L, d)
        View of x if its memory layout permits.
    """
    if np.ndim(x) != 3:
        raise ValueError(f"x must have shape (N, L, h * d), got {np.shape(x)}")
    if num_heads < 1 or x.shape[-1] % num_heads:
        raise ValueError(f"num_heads must divide the last axis of x, got {num_heads=}")
    return _split(x, num_heads)


@op(view=True, x=lambda g, x_shape: _split(g, x_shape[1]))
def merge_heads(x, /):
    """Concatenate heads (N, h, L, d) to (N, L, h·d).

    Parameters
    ----------
    x : Tensor, shape (N, h, L, d)

    Returns
    -------
    Tensor, shape (N, L, h·d)
        Heads of each position side by side.
    """
    if np.ndim(x) != 4:
        raise ValueError(f"x must have shape (N, h, L, d), got {np.shape(x)}")
    return _merge(x)


# -- the definition


def attention_weights(
    query: Any, key: Any, mask: Any = None, bias: Any = None, scale: float | None = None
) -> Tensor:
    """Compute softmax(query @ key.T * scale + bias) of each head, (N, h, L_q, L_kv).

    The arguments are those of `scaled_dot_product_attention`. Dropout is not applied.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = matmul(query, swapaxes(_repeat_heads(key, query.shape[1]), -1, -2)) * scale
    return softmax(scores if bias is None else scores + bias, where=mask)


def attention_definition(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    mask: Any,
    scale: float,
    drop_mask: Any,
    drop_scale: float,
) -> Tensor:
    """Compute dropout(softmax(query @ key.T * scale + bias)) @ value of each head."""
    weights = attention_weights(query, key, mask, bias, scale)
    if drop_mask is not None:
        weights = weights * drop_mask * drop_scale
    return matmul(weights, _repeat_heads(value, query.shape[1]))


def _repeat_heads(x: Any, num_heads: int) -> Any:
    """Repeat each head of keys or values for the group of queries that shares it."""
    n, kv_heads, length, d = x.shape
    if kv_heads == num_heads:
        return x
    groups = broadcast_to(expand_dims(x, 2), (n, kv_heads, num_heads // kv_heads, length, d))
    return groups.reshape(n, num_heads, length, d)


# -- the kernel


def softmax_in_place(scores: np.ndarray, mask: Any, factor: float) -> None:
    """Replace contiguous scores by softmax(scores) * factor over the last axis, where `mask`."""
    if not scores.size:
        return
    low, high = scores.min(initial=0), scores.max(initial=0)
    if mask is not None and np.isnan(low):
        np.copyto(scores, 0, where=~mask)  # a masked NaN has no effect
    if needs_shift(low, high, scores.dtype):
        if mask is None:
            scores -= scores.max(-1, keepdims=True)
        else:
            top = np.max(scores, axis=-1, keepdims=True, where=mask, initial=-np.inf)
            np.subtract(scores, np.where(top == -np.inf, 0, top), out=scores)
            np.minimum(scores, 0, out=scores)  # masked scores must not overflow
    np.exp(scores, out=scores)
    if mask is not None:
        scores *= mask
    length = scores.shape[-1]
    total = row_sums(scores.reshape(-1, length))[:, 0]
    if mask is not None:
        total[total == 0] = 1  # rows that may attend to nothing
    np.divide(factor, total, out=total)
    # for a short last axis, repeated values are multiplied faster than broadcast ones
    scores *= np.repeat(total, length).reshape(scores.shape)


def _batches(shape: tuple[int, ...]) -> Sequence[slice]:
    """Return slices of the batch whose weights fit the cache."""
    step = max(1, 2 * BLOCK // max(1, math.prod(shape[1:])))
    return [slice(start, start + step) for start in range(0, shape[0], step)]


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
    dbias = np.zeros(_four_axes(bias).shape, bias.dtype) if needs[3] else None
    for part in _batches(weights.shape):
        p, dy = weights[part], g[part]
        dropped = p if drop_mask is None else p * drop_mask[part]
        np.matmul(dropped.swapaxes(-1, -2), dy, out=dv[part])
        ds = np.matmul(dy, value[part].swapaxes(-1, -2), out=None if drop_mask is None else dropped)
        if drop_mask is not None:
            ds *= drop_mask[part]
        row = np.einsum("nhld,nhld->nhl", dy, y[part])[..., None]  # Σ_j P_ij dP_ij
        row /= drop_scale
        ds -= row
        ds *= p
        if dbias is not None:
            target = _part_of(dbias, part)
            target += unbroadcast(_each_head(ds, query), target.shape)
        ds *= scale
        np.matmul(ds, key[part], out=dq[part])
        np.matmul(ds.swapaxes(-1, -2), q[part], out=dk[part])
    return dq.reshape(query.shape), dk, dv, None if dbias is None else dbias.reshape(bias.shape)


def _part_of(x: np.ndarray, part: slice) -> np.ndarray:
    """Return the rows `part` of a mask or bias, or all if its first axis has length 1."""
    return x[part] if len(x) > 1 else x


def _each_head(scores: np.ndarray, query: np.ndarray) -> np.ndarray:
    """View scores (n, h_kv, group * L_q, L_kv) as scores of each head, (n, h, L_q, L_kv)."""
    return scores.reshape(len(scores), *query.shape[1:3], scores.shape[-1])


def _four_axes(x: Any) -> Any:
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


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
    bias = None if bias is None else _four_axes(bias)
    for part in parts:
        kept = weights[part] if keep_weights else weights[: len(q[part])]
        np.matmul(q[part], key[part].swapaxes(-1, -2), out=kept)
        kept *= scale
        w = _each_head(kept, query)
        if bias is not None:
            w += _part_of(bias, part)
        softmax_in_place(w, None if mask is None else _part_of(mask, part), drop_scale)
        w = w if drop_mask is None else w * drop_mask[part]
        np.matmul(w.reshape(kept.shape), value[part], out=y[part])
    return y.reshape(n, num_heads, length, d_v), weights


@kernel(vjp=_attention_vjp, definition=attention_definition)
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


@function()
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    bias: Any = None,
    scale: float | None = None,
    dropout: float = 0.0,
    generator: np.random.Generator | None = None,
) -> Tensor:
    """Compute softmax(query @ key.T * scale + bias) @ value of each head.

    Parameters
    ----------
    query : Tensor, shape (N, h, L_q, d_k)
    key : Tensor, shape (N, h_kv, L_kv, d_k)
        `h_kv` divides h. Each head of keys and values serves h / h_kv consecutive heads of queries.
    value : Tensor, shape (N, h_kv, L_kv, d_v)
    mask : array of bool, shape (L_q, L_kv) or broadcastable to (N, h, L_q, L_kv), optional
        True = may attend. Rows without a True give zeros and zero gradients.
    bias : Tensor, broadcastable to (N, h, L_q, L_kv), optional
        Added to the scores, with a gradient.
    scale : float, optional
        Factor of the scores; 1 / sqrt(d_k) by default.
    dropout : float, default 0
        Probability of setting a weight to 0. The other weights are divided by 1 - dropout.
    generator : numpy.random.Generator, optional
        Source of the random numbers for dropout.

    Returns
    -------
    Tensor, shape (N, h, L_q, d_v)
        Weighted sums of values for each query.

    References
    ----------
    Vaswani et al. (2017), section 3.2.1. Grouped heads: Ainslie et al. (2023), arXiv:2305.13245.
    """
    query, key, value = (x if isinstance(x, Tensor) else as_array(x) for x in (query, key, value))
    q, k, v = query.shape, key.shape, value.shape
    fits = len(q) == len(k) == len(v) == 4 and q[0] == k[0] == v[0] and k[1:3] == v[1:3]
    if not fits or q[3] != k[3] or not k[1] or q[1] % k[1]:
        raise ValueError(
            "scaled_dot_product_attention: query, key and value must have shapes (N, h, L_q, d_k), "
            f"(N, h_kv, L_kv, d_k) and (N, h_kv, L_kv, d_v), h_kv dividing h, got {q}, {k} and {v}"
        )
    shape = (*q[:3], k[2])
    if mask is not None:
        mask = checked_mask(mask, shape)
    if bias is not None:
        bias = bias if isinstance(bias, Tensor) else as_array(bias)
        check_broadcast("scaled_dot_product_attention", "bias", bias, shape, "(N, h, L_q, L_kv)")
        if bias.dtype.kind != "f":
            raise TypeError(
                f"scaled_dot_product_attention: bias must be floating, got {bias.dtype}. "
                "Pass a mask, booleans with True = may attend, as mask"
            )
    if scale is None:
        scale = 1 / math.sqrt(q[3])
    elif type(scale) is not float:
        scale = number("scaled_dot_product_attention", "scale", scale)
    drop_mask, drop_scale = dropout_mask(shape, dropout, generator) if dropout else (None, 1.0)
    return _attention(
        query, key, value, bias, mask=mask, scale=scale, drop_mask=drop_mask, drop_scale=drop_scale
    )


def checked_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a boolean mask with four axes that broadcasts to `shape`, (N, h, L_q, L_kv)."""
    if type(mask) is not np.ndarray or mask.dtype != bool:
        mask = booleans("mask", mask, "True = may attend")
    if mask.ndim not in (2, 4):
        raise ValueError(
            "mask must have two axes (L_q, L_kv), or four that broadcast to (N, h, L_q, L_kv), "
            f"got shape {mask.shape}. Write mask[:, None] for a mask of each sequence "
            "(N, L_q, L_kv), mask[:, None, None] for a padding mask (N, L_kv)"
        )
    if any(m not in (1, n) for m, n in zip(mask.shape[::-1], shape[::-1])):
        check_broadcast("attention", "mask", mask, shape, "(N, h, L_q, L_kv)")  # raises the error
    return _four_axes(mask)

"""Scaled dot-product attention: Vaswani et al. (2017), arXiv:1706.03762, section 3.2.

Heads have an axis of their own everywhere in this library: (N, h, L, d). `attention_weights` is the
formula of the paper. Look at it first. `_attention` multiplies its weights by the values, and
`scaled_dot_product_attention` checks the arguments.
"""

from __future__ import annotations

import math

import numpy as np

from ..arguments import booleans, check_broadcast, number
from ..arrays import Array, ArrayLike, Mask, Shape
from ..fuse import fusible
from ..registry import function, op
from ..tensor import Tensor, as_operand
from .network import dropout_mask, matmul, softmax
from .shape import broadcast_to, expand_dims

__all__ = ["merge_heads", "scaled_dot_product_attention", "split_heads"]


def _split(x: Array, num_heads: int) -> Array:
    n, length, width = x.shape
    return x.reshape(n, length, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def _merge(x: Array) -> Array:
    n, num_heads, length, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(n, length, num_heads * d)


@op(view=True, x=lambda g: _merge(g))
def split_heads(x, /, num_heads):
    """Return the heads (N, h, L, d) of x (N, L, h·d), a view if its memory layout permits.

    Parameters
    ----------
    x : Tensor, shape (N, L, h·d)
    num_heads : int
        Number of heads, h.
    """
    if len(x.shape) != 3:
        raise ValueError(f"x must have shape (N, L, h * d), got {x.shape}")
    if num_heads < 1 or x.shape[-1] % num_heads:
        raise ValueError(f"num_heads must divide the last axis of x, got {num_heads=}")
    return _split(x, num_heads)


@op(view=True, x=lambda g, x_shape: _split(g, x_shape[1]))
def merge_heads(x, /):
    """Return heads (N, h, L, d) side by side, (N, L, h·d).

    Parameters
    ----------
    x : Tensor, shape (N, h, L, d)
    """
    if len(x.shape) != 4:
        raise ValueError(f"x must have shape (N, h, L, d), got {x.shape}")
    return _merge(x)


def attention_weights(
    query: Array,
    key: Array,
    mask: Mask = None,
    bias: Array = None,
    scale: float | Tensor | None = None,
) -> Tensor:
    """Compute softmax(query @ key.T * scale + bias) of each head, (N, h, L_q, L_kv).

    The arguments are those of `scaled_dot_product_attention`. Dropout is not applied.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = matmul(query, _repeat_heads(key, query.shape[1]).mT) * scale
    if bias is None:
        return softmax(scores, where=mask)
    visible = True if mask is None else mask  # True: 0 for rows of -inf, not NaN
    return softmax(scores + bias, where=visible)


@fusible
def _attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Array,
    mask: Mask,
    scale: float | Tensor,
    drop_mask: Mask,
    drop_scale: float,
) -> Tensor:
    """Compute dropout(softmax(query @ key.T * scale + bias)) @ value of each head."""
    weights = attention_weights(query, key, mask, bias, scale)
    if drop_mask is not None:
        weights = weights * drop_mask * drop_scale
    return matmul(weights, _repeat_heads(value, query.shape[1]))


def _repeat_heads(x: Array, num_heads: int) -> Array:
    """Repeat each head of keys or values for the group of queries that shares it."""
    n, kv_heads, length, d = x.shape
    if kv_heads == num_heads:
        return x
    groups = broadcast_to(expand_dims(x, 2), (n, kv_heads, num_heads // kv_heads, length, d))
    return groups.reshape(n, num_heads, length, d)


def four_axes(x: ArrayLike) -> Array:
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


@function()
def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    mask: Mask = None,
    *,
    bias: ArrayLike = None,
    scale: float | Tensor | None = None,
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
        Added to the scores, with a gradient. A row of -inf alone gives zeros, as in `mask`.
    scale : float, optional
        Factor of the scores; 1 / sqrt(d_k) by default.
    dropout : float, default 0
        Probability of setting a weight to 0. The other weights are divided by 1 - dropout.
    generator : numpy.random.Generator, optional
        Source of the random numbers for dropout.

    References
    ----------
    Vaswani et al. (2017), section 3.2.1. Grouped heads: Ainslie et al. (2023), arXiv:2305.13245.
    """
    query, key, value = map(as_operand, (query, key, value))
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
        bias = as_operand(bias)
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


def checked_mask(mask: Mask, shape: Shape) -> np.ndarray:
    """Return a boolean mask with four axes that broadcasts to `shape`, (N, h, L_q, L_kv)."""
    mask = booleans("mask", mask, "True = may attend")
    if mask.ndim not in (2, 4):
        raise ValueError(
            "mask must have two axes (L_q, L_kv), or four that broadcast to (N, h, L_q, L_kv), "
            f"got shape {mask.shape}. Write mask[:, None] for a mask of each sequence "
            "(N, L_q, L_kv), mask[:, None, None] for a padding mask (N, L_kv)"
        )
    check_broadcast("attention", "mask", mask, shape, "(N, h, L_q, L_kv)")
    return mask if mask.ndim == 4 else four_axes(mask)

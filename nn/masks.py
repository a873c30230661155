"""Masks of attention: booleans, True = may attend.

A mask of attention has the shape (L_q, L_kv), or four axes that broadcast to (N, h, L_q, L_kv). A
padding mask (N, L) is True at real tokens. Pass it as `padding_mask[:, None, None]`. PyTorch's
`key_padding_mask` has the opposite polarity; its `scaled_dot_product_attention` has the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.tensor import unwrap

from .cache import AttentionCache

__all__ = ["causal_mask", "padding_mask_of"]


def causal_mask(length: int, start: int = 0) -> np.ndarray:
    """Return a mask in which each position attends to itself and to earlier positions.

    Parameters
    ----------
    length : int
        Number of queries.
    start : int, default 0
        Position of the first query. The keys are all positions from 0.

    Returns
    -------
    array of bool, shape (length, start + length)
        True = may attend.
    """
    return np.tri(length, start + length, start, dtype=bool)


def hide_later(mask: Any, length: int, cache: AttentionCache | None = None) -> Any:
    """Return a mask that also hides later positions, or None if a query sees all of them.

    Parameters
    ----------
    mask : array of bool, broadcastable to (N, h, L, L_kv), or None
        True = may attend.
    length : int
        Number of queries, L. They follow the positions in the cache.
    cache : AttentionCache, optional
        Keys and values of earlier positions.
    """
    if length == 1:
        return mask
    earlier = causal_mask(length, 0 if cache is None else cache.length)[None, None]
    return earlier if mask is None else mask & earlier


def padding_mask_of(ids: Any, pad_id: int = 0) -> np.ndarray:
    """Return the padding mask of token ids.

    Parameters
    ----------
    ids : array of int, shape (N, L)
    pad_id : int, default 0
        Id of the padding token.

    Returns
    -------
    array of bool, shape (N, L)
        True = not padding.
    """
    return np.asarray(unwrap(ids)) != pad_id

"""Masks of attention: booleans, True = may attend. Look at `attention_mask`.

A mask of attention has the shape (L_q, L_kv), or four axes that broadcast to (N, h, L_q, L_kv). A
padding mask (N, L) is True at real tokens. Pass it as `padding_mask[:, None, None]`. PyTorch's
`key_padding_mask` has the opposite polarity; its `scaled_dot_product_attention` has the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from minigrad.ops.attention import checked_mask
from minigrad.tensor import unwrap

__all__ = ["causal_mask", "padding_mask_of", "valid_lens_mask"]


def causal_mask(length: int, start: int = 0, window: int | None = None) -> np.ndarray:
    """Return a mask in which each position attends to itself and to earlier positions.

    Parameters
    ----------
    length : int
        Number of queries.
    start : int, default 0
        Position of the first query. The keys are all positions from 0.
    window : int, optional
        Limit attention to the last `window` positions, including the current one.

    Returns
    -------
    array of bool, shape (length, start + length)
        True = may attend.
    """
    shape = (length, start + length)
    mask = np.tri(*shape, start, dtype=bool)
    return mask if window is None else mask & ~np.tri(*shape, start - window, dtype=bool)


@lru_cache(8)
def _causal_mask(length: int, start: int, window: int | None) -> np.ndarray:
    mask = causal_mask(length, start, window)[None, None]
    mask.flags.writeable = False
    return mask


def attention_mask(
    mask: Any, is_causal: bool, shape: tuple[int, int, int, int], window: int | None = None
) -> np.ndarray | None:
    """Combine a mask with causality and a window.

    Parameters
    ----------
    mask : array of bool, shape (L_q, L_kv) or broadcastable to `shape`, or None
        True = may attend.
    is_causal : bool
        The queries are at the last L_q of the L_kv positions, and attend to none after their own.
    shape : (N, h, L_q, L_kv)
    window : int, optional
        Number of positions up to and including its own that a causal query attends to.

    Returns
    -------
    array of bool with four axes, or None if every query may attend to every key
        True = may attend.
    """
    mask = None if mask is None else checked_mask(mask, shape)
    l_q, l_kv = shape[2:]
    if not is_causal or (l_q == 1 and (window is None or window >= l_kv)):
        return mask
    if l_q > l_kv:
        raise ValueError(f"is_causal: keys must be at least as many as queries ({l_q}), got {l_kv}")
    causal = _causal_mask(l_q, l_kv - l_q, window)
    return causal if mask is None else mask & causal


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


def valid_lens_mask(valid_lens: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a mask of the first `valid_lens` keys.

    Parameters
    ----------
    valid_lens : array of int, shape (N,) or (N, L_q)
        Number of keys for each sequence or query.
    shape : (N, L_q, L_kv)
        Shape of the mask or of the scores.

    Returns
    -------
    array of bool, shape (N, 1, L_kv) or (N, L_q, L_kv)
        True = may attend.
    """
    lens = np.asarray(unwrap(valid_lens))
    if lens.dtype.kind not in "iu" or lens.shape not in (shape[:1], shape[:2]):
        raise ValueError(
            f"valid_lens must be integers of shape {shape[:1]} or {shape[:2]}, got {lens.dtype} "
            f"{lens.shape}"
        )
    if lens.size and not (lens.min() >= 0 and lens.max() <= shape[2]):
        raise ValueError(
            f"valid_lens must be from 0 to {shape[2]}, got {lens.min()} to {lens.max()}"
        )
    lens = lens[:, None] if lens.ndim == 1 else lens
    return np.arange(shape[2]) < lens[..., None]

"""Who may attend to whom. Everywhere in this library: booleans, True = may attend.

A padding mask (N, L) says which tokens are real. An attention takes a mask of two axes (L_q, L_kv),
which keys each query may see, or of four that broadcast to (N, h, L_q, L_kv): a padding mask
becomes one by `padding_mask[:, None, None]`. (PyTorch's `key_padding_mask` has the opposite
polarity; its `scaled_dot_product_attention` the same as here.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from minigrad.core.tensor import unwrap
from minigrad.kernels import checked_mask

__all__ = ["causal_mask", "padding_mask_of", "valid_lens_mask"]


def causal_mask(length: int, start: int = 0, window: int | None = None) -> np.ndarray:
    """(length, start + length): each position sees itself and those before it, at most `window` in
    all.

    With `start`, the queries are the positions from `start` on, and the keys all positions.
    """
    mask = np.tri(length, start + length, start, dtype=bool)
    return (
        mask
        if window is None
        else mask & ~np.tri(length, start + length, start - window, dtype=bool)
    )


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
    """
    mask = None if mask is None else checked_mask(mask, shape)
    l_q, l_kv = shape[2:]
    if not is_causal or (l_q == 1 and (window is None or window >= l_kv)):
        return mask
    if l_q > l_kv:
        raise ValueError(
            f"is_causal: expected at least as many keys as queries, got {l_kv} and {l_q}"
        )
    causal = _causal_mask(l_q, l_kv - l_q, window)
    return causal if mask is None else mask & causal


def padding_mask_of(ids: Any, pad_id: int = 0) -> np.ndarray:
    """(N, L): which of the token ids (N, L) are not padding."""
    return np.asarray(unwrap(ids)) != pad_id


def valid_lens_mask(valid_lens: Any, shape: tuple[int, ...]) -> np.ndarray:
    """(N, 1, L_kv) from one length for each sequence (N,), or (N, L_q, L_kv) from one for each
    query (N, L_q).

    The first `valid_lens` keys are real; `shape` is (N, L_q, L_kv).
    """
    lens = np.asarray(unwrap(valid_lens))
    if lens.dtype.kind not in "iu" or lens.shape not in (shape[:1], shape[:2]):
        raise ValueError(
            f"valid_lens: expected integers {shape[:1]} or {shape[:2]}, got {lens.dtype} "
            f"{lens.shape}"
        )
    if lens.size and not (lens.min() >= 0 and lens.max() <= shape[2]):
        raise ValueError(
            f"valid_lens: expected lengths from 0 to {shape[2]}, got {lens.min()} to {lens.max()}"
        )
    lens = lens.reshape(shape[0], -1, 1)
    return np.arange(shape[2]) < lens

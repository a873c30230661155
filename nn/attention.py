"""Multi-head attention: Vaswani et al. (2017), "Attention is all you need", section 3.2.

Look at `MultiHeadAttention.forward`: project, attend, merge, project. What came later overrides
`project` or `attend`: see `nn.ExtendedAttention`.
"""

from __future__ import annotations

import numpy as np

from minigrad.arrays import Array, DType, Ids, Mask
from minigrad.ops.attention import merge_heads, scaled_dot_product_attention, split_heads
from minigrad.tensor import Tensor, to_array

from .config import check_heads
from .layers import Linear
from .module import Module

__all__ = [
    "AttentionCache",
    "KeysAndValues",
    "MultiHeadAttention",
    "causal_mask",
    "padding_mask_of",
]


class KeysAndValues:
    """Projected keys and values of one attention.

    Parameters
    ----------
    keys, values : Tensor or array, shape (N, h_kv, L_kv, d_k)
    """

    def __init__(self, keys: Array, values: Array) -> None:
        self.keys, self.values = keys, values

    def select(self, rows: np.ndarray) -> None:
        """Keep the rows of the batch with these indices, which may repeat, in this order.

        Parameters
        ----------
        rows : array of int
        """
        self.keys, self.values = self.keys[rows], self.values[rows]


class AttentionCache:
    """Keys and values of earlier positions of one self-attention, for decoding step by step."""

    def __init__(self) -> None:
        self.length = 0
        self._keys = self._values = np.empty((0, 0, 0, 0))

    def append(self, keys: Array, values: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return keys and values of all positions, (N, h_kv, length, d_k), after appending some.

        Gradients cannot flow through a cache, so recorded ones raise a RuntimeError.

        Parameters
        ----------
        keys, values : Tensor or array, shape (N, h_kv, L_new, d_k)
        """
        if any(isinstance(x, Tensor) and x.requires_grad for x in (keys, values)):
            raise RuntimeError(
                "a cache keeps no graph for gradients: decode inside `with mg.no_grad():`"
            )
        keys, values = (x.data if isinstance(x, Tensor) else x for x in (keys, values))
        end = self.length + keys.shape[2]
        if end > self._keys.shape[2]:
            self._keys = self._grow(self._keys, keys, end)
            self._values = self._grow(self._values, values, end)
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _grow(self, old: np.ndarray, new: np.ndarray, end: int) -> np.ndarray:
        n, heads, _, d = new.shape
        larger = np.empty((n, heads, max(16, 2 * self.length, end), d), new.dtype)
        if self.length:
            larger[:, :, : self.length] = old[:, :, : self.length]
        return larger

    def select(self, rows: np.ndarray) -> None:
        """Keep some rows of the batch.

        Parameters: as `KeysAndValues.select`.
        """
        if self.length:
            self._keys, self._values = self._keys[rows], self._values[rows]


def causal_mask(length: int, start: int = 0) -> np.ndarray:
    """Return a mask (length, start + length): each position attends to itself and earlier ones.

    Parameters
    ----------
    length : int
        Number of queries.
    start : int, default 0
        Position of the first query. The keys are all positions from 0.
    """
    return np.tri(length, start + length, start, dtype=bool)


def hide_later(mask: Mask, length: int, cache: AttentionCache | None = None) -> Mask:
    """Return a mask that also hides later positions, or None if a query sees all of them.

    The queries, `length` of them, follow the positions in the cache.
    """
    if length == 1:
        return mask
    earlier = causal_mask(length, 0 if cache is None else cache.length)[None, None]
    return earlier if mask is None else mask & earlier


def padding_mask_of(ids: Ids, pad_id: int = 0) -> np.ndarray:
    """Return the padding mask of token ids (N, L), which is True where they are not padding.

    Parameters
    ----------
    ids : array of int, shape (N, L)
    pad_id : int, default 0
        Id of the padding token.
    """
    return to_array(ids) != pad_id


class MultiHeadAttention(Module):
    """Multi-head attention.

    Query, key and value are projected, each head attends with its part of the projections, and the
    results of all heads are projected once more.

    Other parameters: as `Linear`.

    Parameters
    ----------
    d_model : int
        Size of queries, keys, values and output.
    num_heads : int
        Number of heads, a divisor of `d_model`.
    dropout : float, default 0
        Probability of dropping an attention weight in training.

    References
    ----------
    Vaswani et al. (2017), "Attention is all you need", section 3.2.2.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        dtype: DType = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        check_heads(d_model, num_heads)
        self.num_heads, self.dropout, self.generator = num_heads, dropout, generator
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            Linear(d_model, d_model, dtype=dtype, generator=generator) for _ in range(4)
        )

    def forward(
        self,
        query: Array,
        memory: Array = None,
        mask: Mask = None,
        cache: AttentionCache | None = None,
    ) -> Tensor:
        """Return (N, L_q, d_model): each query attends to the positions that the mask allows.

        Parameters
        ----------
        query : Tensor, shape (N, L_q, d_model)
        memory : Tensor, shape (N, L_kv, d_model), or KeysAndValues, optional
            The sequence that is attended to; `query` by default (self-attention).
        mask : array of bool, shape (L_q, L_kv) or broadcastable to (N, h, L_q, L_kv), optional
            True = may attend. Pass a padding mask (N, L_kv) as `mask[:, None, None]`.
        cache : AttentionCache, optional
            Keys and values of earlier positions. The keys and values of this call are appended.
        """
        q, k, v = self.project(query, query if memory is None else memory)  # (N, h, L, d_k)
        if cache is not None:
            k, v = cache.append(k, v)
        return self.out_proj(merge_heads(self.attend(q, k, v, mask)))

    def project(self, query: Array, memory: Array) -> tuple[Array, Array, Array]:
        """Return queries (N, h, L_q, d_k), keys and values (N, h, L_kv, d_k).

        Parameters: as `MultiHeadAttention.forward`.
        """
        q = split_heads(self.q_proj(query), num_heads=self.num_heads)
        if not isinstance(memory, KeysAndValues):
            memory = self.keys_and_values(memory)
        return q, memory.keys, memory.values

    def keys_and_values(self, memory: Array) -> KeysAndValues:
        """Return a memory's keys and values, for many calls: `forward` takes them as `memory`.

        Parameters
        ----------
        memory : Tensor, shape (N, L_kv, d_model)
        """
        k, v = self.k_proj(memory), self.v_proj(memory)
        return KeysAndValues(*(split_heads(x, num_heads=self.num_heads) for x in (k, v)))

    def attend(self, q: Array, k: Array, v: Array, mask: Mask) -> Array:
        """Return the weighted values of each head, (N, h, L_q, d_k).

        Parameters
        ----------
        q : Tensor, shape (N, h, L_q, d_k)
        k, v : Tensor, shape (N, h, L_kv, d_k)
        mask : array of bool, broadcastable to (N, h, L_q, L_kv), or None
        """
        dropout = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(
            q, k, v, mask, dropout=dropout, generator=self.generator
        )

    @property
    def d_model(self) -> int:
        """Size of the output."""
        return self.out_proj.out_features

    @property
    def d_k(self) -> int:
        """Size of a head."""
        return self.q_proj.out_features // self.num_heads

    def extra_repr(self) -> str:
        """Return d_model, h and d_k."""
        return f"d_model={self.d_model}, num_heads={self.num_heads}, d_k={self.d_k}"

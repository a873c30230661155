"""Multi-head attention: Vaswani et al. (2017), "Attention is all you need", section 3.2.

Look at `MultiHeadAttention.forward`: project, attend, merge, project. What came later overrides
`project` or `attend`: see `nn.ExtendedAttention`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.ops.attention import merge_heads, scaled_dot_product_attention, split_heads
from minigrad.tensor import Tensor

from .cache import AttentionCache, KeysAndValues
from .linear import Linear
from .module import Module

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(Module):
    """Multi-head attention.

    Query, key and value are projected, each head attends with its part of the projections, and the
    results of all heads are projected once more.

    Parameters
    ----------
    d_model : int
        Size of queries, keys, values and output.
    num_heads : int
        Number of heads, a divisor of `d_model`.
    dropout : float, default 0
        Probability of dropping an attention weight in training.
    dtype : dtype, default float32
        dtype of the parameters.
    generator : numpy.random.Generator, optional
        Draws the weights and dropout; the default generator if not given.

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
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(
                f"d_model must be divisible by num_heads, got {d_model=} and {num_heads=}"
            )
        self.num_heads, self.dropout, self.generator = num_heads, dropout, generator
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            Linear(d_model, d_model, dtype=dtype, generator=generator) for _ in range(4)
        )

    def forward(
        self, query: Any, memory: Any = None, mask: Any = None, cache: AttentionCache | None = None
    ) -> Tensor:
        """Attend from each query to all positions of the memory that the mask allows.

        Parameters
        ----------
        query : Tensor, shape (N, L_q, d_model)
        memory : Tensor, shape (N, L_kv, d_model), or KeysAndValues, optional
            The sequence that is attended to; `query` by default (self-attention).
            `keys_and_values` projects it beforehand.
        mask : array of bool, shape (L_q, L_kv) or broadcastable to (N, h, L_q, L_kv), optional
            True = may attend. Pass a padding mask (N, L_kv) as `mask[:, None, None]`.
        cache : AttentionCache, optional
            Keys and values of earlier positions. The keys and values of this call are appended.

        Returns
        -------
        Tensor, shape (N, L_q, d_model)
            The output projection of the merged heads.
        """
        q, k, v = self.project(query, query if memory is None else memory)  # (N, h, L, d_k)
        if cache is not None:
            k, v = cache.append(k, v)
        return self.out_proj(merge_heads(self.attend(q, k, v, mask)))

    def project(self, query: Any, memory: Any) -> tuple[Any, Any, Any]:
        """Return queries (N, h, L_q, d_k), keys and values (N, h, L_kv, d_k).

        Parameters
        ----------
        query : Tensor, shape (N, L_q, d_model)
        memory : Tensor, shape (N, L_kv, d_model), or KeysAndValues
        """
        q = split_heads(self.q_proj(query), num_heads=self.num_heads)
        if not isinstance(memory, KeysAndValues):
            memory = self.keys_and_values(memory)
        return q, memory.keys, memory.values

    def keys_and_values(self, memory: Any) -> KeysAndValues:
        """Return a memory's keys and values, for many calls: `forward` takes them as `memory`.

        Parameters
        ----------
        memory : Tensor, shape (N, L_kv, d_model)
        """
        k, v = self.k_proj(memory), self.v_proj(memory)
        return KeysAndValues(*(split_heads(x, num_heads=self.num_heads) for x in (k, v)))

    def attend(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        """Return the weighted values of each head, (N, h, L_q, d_k).

        Parameters
        ----------
        q : Tensor, shape (N, h, L_q, d_k)
        k, v : Tensor, shape (N, h, L_kv, d_k)
        mask : array of bool, broadcastable to (N, h, L_q, L_kv), or None
            True = may attend. None: each query attends to all keys.
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

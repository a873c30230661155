"""Attention by a score of one head: additive (Bahdanau et al. 2015), and dot-product.

The general, several-headed form is in `nn.layers.attention`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from .linear import Linear
from .masks import valid_lens_mask
from .module import Module

__all__ = ["AdditiveAttention", "DotProductAttention"]


class _ScoredAttention(Module):
    """Weights the values by the softmax of a score; keys past `valid_lens` get weight 0."""

    def __init__(
        self, *, dropout: float = 0.0, generator: np.random.Generator | None = None
    ) -> None:
        self.dropout = dropout
        self.generator = generator
        self.weights: Tensor | None = None  # of the last call, (N, L_q, L_kv)

    def scores(self, query: Any, key: Any) -> Tensor:
        raise NotImplementedError

    def forward(self, query: Any, key: Any, value: Any, valid_lens: Any = None) -> Tensor:
        """(N, L_q, d_v), from query (N, L_q, d_q), key (N, L_kv, d_k) and value (N, L_kv, d_v).

        `valid_lens` has one length for each sequence (N,) or one for each query (N, L_q). The
        weights are kept in `weights`.
        """
        scores = self.scores(query, key)  # (N, L_q, L_kv)
        mask = None if valid_lens is None else valid_lens_mask(valid_lens, scores.shape)
        self.weights = mg.softmax(scores, where=mask)
        return mg.matmul(
            mg.dropout(self.weights, self.dropout, self.training, generator=self.generator), value
        )


class DotProductAttention(_ScoredAttention):
    """softmax(Q Kᵀ / √d) V: query and key are of one size."""

    def scores(self, query: Any, key: Any) -> Tensor:
        return mg.matmul(query, mg.swapaxes(key, 1, 2)) * (np.shape(query)[-1] ** -0.5)


class AdditiveAttention(_ScoredAttention):
    """softmax(wᵀ tanh(W_q q + W_k k)) V: query and key can be of different sizes."""

    def __init__(
        self,
        query_size: int,
        key_size: int,
        num_hiddens: int,
        *,
        dropout: float = 0.0,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__(dropout=dropout, generator=generator)
        self.query_proj = Linear(
            query_size, num_hiddens, bias=False, dtype=dtype, generator=generator
        )
        self.key_proj = Linear(key_size, num_hiddens, bias=False, dtype=dtype, generator=generator)
        self.score_proj = Linear(num_hiddens, 1, bias=False, dtype=dtype, generator=generator)

    def scores(self, query: Any, key: Any) -> Tensor:
        q, k = self.query_proj(query), self.key_proj(key)  # (N, L_q, hidden), (N, L_kv, hidden)
        features = mg.tanh(mg.expand_dims(q, 2) + mg.expand_dims(k, 1))  # (N, L_q, L_kv, hidden)
        return mg.squeeze(self.score_proj(features), -1)

"""Attention of one head: additive and dot-product.

Multi-head attention is in `nn.attention`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.tensor import Tensor, unwrap

from ..layers import Linear
from ..module import Module, as_input

__all__ = ["AdditiveAttention", "DotProductAttention", "valid_lens_mask"]


def valid_lens_mask(valid_lens: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a mask of the first `valid_lens` keys, (N, 1, L_kv) or (N, L_q, L_kv).

    Parameters
    ----------
    valid_lens : array of int, shape (N,) or (N, L_q)
        Number of keys for each sequence or query.
    shape : (N, L_q, L_kv)
        Shape of the mask or of the scores.
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


class _ScoredAttention(Module):
    """Base of attentions: the softmax of a score weights the values."""

    def __init__(
        self, *, dropout: float = 0.0, generator: np.random.Generator | None = None
    ) -> None:
        self.dropout, self.generator = dropout, generator
        self.weights: Tensor | None = None  # of the last call, (N, L_q, L_kv)

    def scores(self, query: Any, key: Any) -> Tensor:
        """Return the scores (N, L_q, L_kv) of queries and keys.

        Parameters
        ----------
        query : Tensor, shape (N, L_q, d_q)
        key : Tensor, shape (N, L_kv, d_k)
        """
        raise NotImplementedError

    def forward(self, query: Any, key: Any, value: Any, valid_lens: Any = None) -> Tensor:
        """Return a weighted mean of values for each query, (N, L_q, d_v), and keep the `weights`.

        Parameters
        ----------
        query : Tensor, shape (N, L_q, d_q)
        key : Tensor, shape (N, L_kv, d_k)
        value : Tensor, shape (N, L_kv, d_v)
        valid_lens : array of int, shape (N,) or (N, L_q), optional
            Number of keys that each sequence or query attends to.
        """
        scores = self.scores(query, key)  # (N, L_q, L_kv)
        mask = None if valid_lens is None else valid_lens_mask(valid_lens, scores.shape)
        self.weights = mg.softmax(scores, where=mask)
        return mg.matmul(
            mg.dropout(self.weights, self.dropout, self.training, generator=self.generator), value
        )


class DotProductAttention(_ScoredAttention):
    """Dot-product attention: softmax(Q Kᵀ / √d) V, for queries and keys of one size.

    Parameters
    ----------
    dropout : float, default 0
        Probability of dropping a weight in training.
    generator : numpy.random.Generator, optional
        Draws dropout; the default generator if not given.
    """

    def scores(self, query: Any, key: Any) -> Tensor:
        """Return Q Kᵀ / √d, (N, L_q, L_kv), for queries (N, L_q, d) and keys (N, L_kv, d)."""
        return mg.matmul(query, mg.swapaxes(key, 1, 2)) * (np.shape(query)[-1] ** -0.5)


class AdditiveAttention(_ScoredAttention):
    """Additive attention: softmax(wᵀ tanh(W_q q + W_k k)) V.

    Other parameters: as `DotProductAttention`.

    Parameters
    ----------
    query_size, key_size : int
        Sizes of queries and keys.
    num_hiddens : int
        Size of the projections of queries and keys.
    dtype : dtype, default float32
        dtype of the parameters.

    References
    ----------
    Bahdanau et al. (2015), arXiv:1409.0473.
    """

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
        linear = partial(Linear, bias=False, dtype=dtype, generator=generator)
        self.query_proj = linear(query_size, num_hiddens)
        self.key_proj = linear(key_size, num_hiddens)
        self.score_proj = linear(num_hiddens, 1)

    def forward(self, query: Any, key: Any, value: Any, valid_lens: Any = None) -> Tensor:
        """Compute the weighted values: see `DotProductAttention.forward`."""
        value = as_input(self, value, self.query_proj.weight.dtype)
        return super().forward(query, key, value, valid_lens)

    def scores(self, query: Any, key: Any) -> Tensor:
        """Return wᵀ tanh(W_q q + W_k k), (N, L_q, L_kv)."""
        q, k = self.query_proj(query), self.key_proj(key)  # (N, L_q, hidden), (N, L_kv, hidden)
        features = mg.tanh(mg.expand_dims(q, 2) + mg.expand_dims(k, 1))  # (N, L_q, L_kv, hidden)
        return mg.squeeze(self.score_proj(features), -1)

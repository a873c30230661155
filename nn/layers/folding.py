"""Attention of one sequence to fixed keys and values, with fewer numbers to read."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.core.tensor import Tensor, unwrap
from minigrad.kernels.attention import softmax_in_place

from .linear import Linear

__all__ = ["FoldedAttention"]


class FoldedAttention:
    """Multi-head attention to fixed keys and values, into which the projections of query and output are folded.

    The score of key k in a head, (W x + b) · k / √d_k, is x · (Wᵀ k) / √d_k plus a constant, and the output is
    the sum of the values, each times its weight and the head's columns of the output's projection. Both
    products depend on the source alone. For a short source they hold fewer numbers than the projections
    do, and a step of decoding takes as long as reading them.
    """

    def __init__(self, query: Linear, out: Linear, keys: np.ndarray, values: np.ndarray, num_heads: int) -> None:
        h, (_, length, width) = num_heads, keys.shape
        d_k = width // h
        k, v = (x.reshape(length, h, d_k).transpose(1, 0, 2) for x in (keys, values))  # (h, L, d_k)
        k = k * k.dtype.type(d_k**-0.5)
        w_out = out.weight.data.reshape(-1, h, d_k).transpose(1, 2, 0)  # (h, d_k, d_model)
        self.shape = (-1, h, length)
        self.keys = (k @ query.weight.data.reshape(h, d_k, -1)).reshape(h * length, -1)  # (h·L, d_model)
        self.values = (v @ w_out).reshape(h * length, -1)
        self.bias = None if out.bias is None else out.bias.data
        self.constants: Any = 0
        if query.bias is not None:
            self.constants = (k @ query.bias.data.reshape(h, d_k, 1))[..., 0]  # (h, L)

    @staticmethod
    def pays(keys: np.ndarray, num_heads: int) -> bool:
        """Whether there is one source, and what is folded is at most half as large as the projections."""
        n, length, d_model = keys.shape
        return n == 1 and 2 * num_heads * length <= d_model

    def __call__(self, x: Any) -> Tensor:
        """(1, L_q, d_model) from x of that shape."""
        x = unwrap(x)
        scores = (x[0] @ self.keys.T).reshape(self.shape)  # (L_q, h, L)
        scores += self.constants
        softmax_in_place(scores, None, 1.0)
        y = scores.reshape(len(scores), -1) @ self.values
        if self.bias is not None:
            y += self.bias
        return Tensor(y[None])

"""Transformer layers: Vaswani et al. (2017), section 3.1.

Look at `residual`, the line of the paper through which every sublayer passes, and at `forward` of
the two layers. What came later is in `nn.ExtendedEncoderLayer` and `nn.ExtendedDecoderLayer`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.tensor import Tensor

from .attention import MultiHeadAttention
from .cache import AttentionCache
from .feedforward import FeedForward
from .linear import Dropout
from .masks import hide_later
from .module import Module, as_input
from .norm import LayerNorm

__all__ = ["TransformerDecoderLayer", "TransformerEncoderLayer"]


class TransformerLayer(Module):
    """Base of the layers of an encoder and of a decoder."""

    has_cross_attention = False
    norm2: Module

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int = 2048,
        *,
        dropout: float = 0.1,
        activation: str = "relu",
        norm_first: bool = False,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        shared: dict[str, Any] = {"dropout": dropout, "dtype": dtype, "generator": generator}
        self.norm_first = norm_first
        self.dropout = Dropout(dropout, generator=generator)
        self.self_attention = MultiHeadAttention(d_model, num_heads, **shared)
        self.norm1 = LayerNorm(d_model, dtype=dtype)
        if self.has_cross_attention:
            self.cross_attention = MultiHeadAttention(d_model, num_heads, **shared)
            self.norm2 = LayerNorm(d_model, dtype=dtype)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation, **shared)
        if self.has_cross_attention:
            self.norm3 = LayerNorm(d_model, dtype=dtype)
        else:
            self.norm2 = LayerNorm(d_model, dtype=dtype)

    def residual(self, x: Any, norm: Module, sublayer: Callable[[Any], Tensor]) -> Tensor:
        """Return LayerNorm(x + Dropout(Sublayer(x))), or x + Dropout(Sublayer(LayerNorm(x))).

        Every sublayer of a layer passes through this method. Override it to add something else
        than the paper does.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        norm : Module
            Norm of this sublayer.
        sublayer : function
            Attention or the feed-forward network.
        """
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class TransformerEncoderLayer(TransformerLayer):
    """Transformer layer of self-attention and a feed-forward network.

    With a causal mask, it is a layer of a decoder-only model.

    Parameters
    ----------
    d_model : int
        Size of input and output.
    num_heads : int
        Number of heads.
    d_ff : int, default 2048
        Size of the hidden layer of the feed-forward network.
    dropout : float, default 0.1
        Probability of dropping an element of the output of a sublayer, of the hidden layer of the
        feed-forward network, or an attention weight.
    activation : str, default "relu"
        A name in `nn.ACTIVATIONS`.
    norm_first : bool, default False
        Compute x + dropout(f(norm(x))) for a sublayer f. Otherwise, as in the paper,
        norm(x + dropout(f(x))).
    dtype : dtype, default float32
        dtype of the parameters.
    generator : numpy.random.Generator, optional
        Draws the weights and dropout; the default generator if not given.
    """

    def forward(self, x: Any, *, mask: Any = None, **options: Any) -> Tensor:
        """Compute the layer.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        mask : array of bool, shape (L, L) or broadcastable to (N, h, L, L), optional
            True = may attend.
        **options
            `cache` of `MultiHeadAttention.forward`.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            The output of the layer.
        """
        x = as_input(self, x, self.feed_forward.linear1.weight.dtype)
        x = self.residual(x, self.norm1, lambda h: self.self_attention(h, mask=mask, **options))
        return self.residual(x, self.norm2, self.feed_forward)


class TransformerDecoderLayer(TransformerLayer):
    """Transformer layer of self-attention, cross-attention and a feed-forward network.

    Parameters: as `TransformerEncoderLayer`.
    """

    has_cross_attention = True

    def forward(
        self,
        x: Any,
        memory: Any,
        *,
        mask: Any = None,
        memory_mask: Any = None,
        cache: AttentionCache | None = None,
        **options: Any,
    ) -> Tensor:
        """Compute the layer.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        memory : Tensor, shape (N, L_m, d_model), or KeysAndValues
            Output of the encoder, or the result of `cross_attention.keys_and_values`.
        mask : array of bool, shape (L, L) or broadcastable to (N, h, L, L), optional
            True = may attend. By default each position attends to itself and to earlier ones.
        memory_mask : array of bool, broadcastable to (N, h, L, L_m), optional
            True = may attend.
        cache : AttentionCache, optional
            Keys and values of earlier positions of the self-attention.
        **options
            Further arguments of the self-attention.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            The output of the layer.
        """
        x = as_input(self, x, self.feed_forward.linear1.weight.dtype)
        mask = hide_later(None, x.shape[1], cache) if mask is None else mask
        options |= {"mask": mask, "cache": cache}
        x = self.residual(x, self.norm1, lambda h: self.self_attention(h, **options))
        x = self.residual(
            x, self.norm2, lambda h: self.cross_attention(h, memory, mask=memory_mask)
        )
        return self.residual(x, self.norm3, self.feed_forward)

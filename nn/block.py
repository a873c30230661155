"""Transformer layers, and stacks of them: Vaswani et al. (2017), section 3.1.

Look at `residual`, the line of the paper through which every sublayer passes, at `forward` of the
two layers, and at `Encoder.forward`: the mask of all layers is made once, then each layer is
called. What came later is in `nn.ExtendedEncoderLayer` and `nn.ExtendedDecoderLayer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from minigrad.arrays import Array, DType, Ids, Mask, Options
from minigrad.tensor import Tensor

from .attention import AttentionCache, KeysAndValues, MultiHeadAttention, hide_later
from .layers import (
    Dropout,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    SinusoidalPositions,
)
from .module import Module, ModuleList, as_input

__all__ = [
    "Decoder",
    "Encoder",
    "InputEmbedding",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
]


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
        dtype: DType = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        shared: Options = {"dropout": dropout, "dtype": dtype, "generator": generator}
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

    def residual(self, x: Array, norm: Module, sublayer: Callable[[Array], Tensor]) -> Tensor:
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

    Other parameters: as `FeedForward`.

    Parameters
    ----------
    num_heads : int
        Number of heads.
    dropout : float, default 0.1
        Probability of dropping an element of the output of a sublayer, of the hidden layer of the
        feed-forward network, or an attention weight.
    norm_first : bool, default False
        Compute x + dropout(f(norm(x))) for a sublayer f. Otherwise, as in the paper,
        norm(x + dropout(f(x))).
    """

    def forward(self, x: Array, *, mask: Mask = None, **options: Any) -> Tensor:
        """Return the output of the layer, (N, L, d_model).

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        mask : array of bool, shape (L, L) or broadcastable to (N, h, L, L), optional
            True = may attend.
        **options
            `cache` of `MultiHeadAttention.forward`.
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
        x: Array,
        memory: Array,
        *,
        mask: Mask = None,
        memory_mask: Mask = None,
        cache: AttentionCache | None = None,
        **options: Any,
    ) -> Tensor:
        """Return the output of the layer, (N, L, d_model).

        Other parameters: as `TransformerEncoderLayer.forward`.

        Parameters
        ----------
        memory : Tensor, shape (N, L_m, d_model), or KeysAndValues
            Output of the encoder, or the result of `cross_attention.keys_and_values`.
        mask : array of bool, shape (L, L) or broadcastable to (N, h, L, L), optional
            By default each position attends to itself and to earlier ones.
        memory_mask : array of bool, broadcastable to (N, h, L, L_m), optional
            True = may attend.
        cache : AttentionCache, optional
            Keys and values of earlier positions of the self-attention.
        """
        x = as_input(self, x, self.feed_forward.linear1.weight.dtype)
        mask = hide_later(None, x.shape[1], cache) if mask is None else mask
        options |= {"mask": mask, "cache": cache}
        x = self.residual(x, self.norm1, lambda h: self.self_attention(h, **options))
        x = self.residual(
            x, self.norm2, lambda h: self.cross_attention(h, memory, mask=memory_mask)
        )
        return self.residual(x, self.norm3, self.feed_forward)


class InputEmbedding(Module):
    """Embeddings of tokens, times a factor, with embeddings of positions added.

    Other parameters: as `Encoder`.

    Parameters
    ----------
    vocab_size : int
        Number of tokens.
    scale : float
        Factor of the embeddings: sqrt(d_model) in section 3.4 of the paper.
    std : float, optional
        Standard deviation of the weights; 1 / scale by default.
    """

    def __init__(
        self,
        config: Any,
        vocab_size: int,
        generator: Generator | None = None,
        *,
        scale: float = 1.0,
        std: float | None = None,
    ) -> None:
        d_model = config.d_model
        shared: Options = {"dtype": config.dtype, "generator": generator}
        self.scale = scale
        std = 1 / scale if std is None else std
        self.tokens = Embedding(vocab_size, d_model, config.masked_id, std=std, **shared)
        self.positions: Any
        if config.positions == "learned":
            self.positions = LearnedPositions(config.max_len, d_model, **shared)
        else:
            self.positions = SinusoidalPositions(config.max_len, d_model, dtype=config.dtype)
        self.dropout = Dropout(config.dropout, generator=generator)

    def forward(self, ids: Ids, positions: Ids = 0) -> Tensor:
        """Return the vectors of tokens, (N, L, d_model).

        Parameters
        ----------
        ids : array of int, shape (N, L)
        positions : int or array of int, shape (L,) or (N, L)
            Position of the first token, or of each.
        """
        x = self.tokens(ids)
        x = x if self.scale == 1 else x * self.scale
        return self.dropout(self.positions(x, positions))


class Stack(Module):
    """Base of stacks of equal layers."""

    layer_class: type[Module]

    def __init__(self, config: Any, num_layers: int, generator: Generator | None = None) -> None:
        d_model, num_heads, d_ff = config.d_model, config.num_heads, config.d_ff
        layer = config.parts.get(self.layer_class, self.layer_class)
        options = {
            "dropout": config.dropout,
            "activation": config.activation,
            "norm_first": config.norm_first,
            "dtype": config.dtype,
            "generator": generator,
        }
        self.layers = ModuleList(
            layer(d_model, num_heads, d_ff, **options) for _ in range(num_layers)
        )
        self.norm = LayerNorm(d_model, dtype=config.dtype) if config.norm_first else None


class Encoder(Stack):
    """A stack of encoder layers.

    Parameters
    ----------
    config : ModelConfig
        Sizes and options of the layers.
    num_layers : int
        Number of layers.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout.
    causal : bool
        Attend to earlier positions only, as a decoder-only model.
    """

    layer_class = TransformerEncoderLayer

    def __init__(
        self,
        config: Any,
        num_layers: int,
        generator: Generator | None = None,
        *,
        causal: bool = False,
    ) -> None:
        super().__init__(config, num_layers, generator)
        self.causal = causal

    def forward(
        self,
        x: Array,
        mask: Mask = None,
        caches: Sequence[AttentionCache] | None = None,
        positions: Ids = 0,
    ) -> Tensor:
        """Return the output of the last layer, normalized if there is a final norm.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        mask : array of bool, broadcastable to (N, h, L, L_kv), optional
            True = may attend.
        caches : sequence of AttentionCache, optional
            Keys and values of earlier positions, one for each layer, which grow.
        positions : int or array of int, optional
            Not used: in the paper, positions are part of x. A subclass may rotate by them.
        """
        if self.causal:
            mask = hide_later(mask, x.shape[1], caches[0] if caches else None)
        for i, layer in enumerate(self.calls(positions)):
            x = layer(x, mask=mask, cache=caches and caches[i])
        return x if self.norm is None else self.norm(x)

    def calls(self, positions: Ids) -> Iterable[Callable[..., Tensor]]:
        """Return the layers in the order of their calls.

        Parameters
        ----------
        positions : int or array of int
            As in `Encoder.forward`.
        """
        return self.layers


class Decoder(Stack):
    """A stack of decoder layers.

    Parameters: as `Encoder`.
    """

    layer_class = TransformerDecoderLayer

    def project_memory(self, memory: Array) -> list[KeysAndValues]:
        """Return the keys and values of each layer's cross-attention.

        Parameters
        ----------
        memory : Tensor, shape (N, L_m, d_model)
            Output of the encoder.
        """
        layers: list[Any] = [*self.layers]
        return [layer.cross_attention.keys_and_values(memory) for layer in layers]

    def forward(
        self,
        x: Array,
        memory: Array,
        mask: Mask = None,
        memory_mask: Mask = None,
        caches: Sequence[AttentionCache] | None = None,
        positions: Ids = 0,
    ) -> Tensor:
        """Return the output of the last layer, normalized if there is a final norm.

        Other parameters: as `Encoder.forward`.

        Parameters
        ----------
        memory : Tensor, shape (N, L_m, d_model), or list of KeysAndValues
            Output of the encoder, or of `project_memory`.
        mask : array of bool, broadcastable to (N, h, L, L_kv), optional
            True = may attend, in addition to causality.
        memory_mask : array of bool, broadcastable to (N, h, L, L_m), optional
            True = may attend to this position of the memory.
        """
        mask = hide_later(mask, x.shape[1], caches[0] if caches else None)
        for i, layer in enumerate(self.layers):
            source = memory[i] if isinstance(memory, list) else memory
            x = layer(x, source, mask=mask, memory_mask=memory_mask, cache=caches and caches[i])
        return x if self.norm is None else self.norm(x)

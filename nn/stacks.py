"""Parts of models: embeddings of tokens, and stacks of layers.

Look at `Encoder.forward`. The mask of all layers is made once, then each layer is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.random import Generator

from minigrad.tensor import Tensor

from .block import TransformerDecoderLayer, TransformerEncoderLayer
from .cache import AttentionCache, KeysAndValues
from .linear import Dropout, Embedding
from .masks import hide_later
from .module import Module, ModuleList
from .norm import LayerNorm
from .positions import LearnedPositions, SinusoidalPositions

__all__ = ["Decoder", "Encoder", "InputEmbedding"]


class InputEmbedding(Module):
    """Embeddings of tokens, times a factor, with embeddings of positions added.

    Parameters
    ----------
    config : ModelConfig
        Options of the model.
    vocab_size : int
        Number of tokens.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout.
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
        shared: dict[str, Any] = {"dtype": config.dtype, "generator": generator}
        self.scale = scale
        std = 1 / scale if std is None else std
        self.tokens = Embedding(vocab_size, d_model, config.masked_id, std=std, **shared)
        self.positions: Any
        if config.positions == "learned":
            self.positions = LearnedPositions(config.max_len, d_model, **shared)
        else:
            self.positions = SinusoidalPositions(config.max_len, d_model, dtype=config.dtype)
        self.dropout = Dropout(config.dropout, generator=generator)

    def forward(self, ids: Any, positions: Any = 0) -> Tensor:
        """Return the vectors of tokens.

        Parameters
        ----------
        ids : array of int, shape (N, L)
            Token ids.
        positions : int or array of int, shape (L,) or (N, L)
            Position of the first token, or of each.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            A vector for each token.
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
        x: Any,
        mask: Any = None,
        caches: Sequence[AttentionCache] | None = None,
        positions: Any = 0,
    ) -> Tensor:
        """Apply all layers.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
            Input of the first layer.
        mask : array of bool, broadcastable to (N, h, L, L_kv), optional
            True = may attend.
        caches : sequence of AttentionCache, optional
            Keys and values of earlier positions, one for each layer, which grow.
        positions : int or array of int, optional
            Not used: in the paper, positions are part of x. A subclass may rotate by them.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            The output of the last layer, normalized if the stack has a final norm.
        """
        if self.causal:
            mask = hide_later(mask, x.shape[1], caches[0] if caches else None)
        for i, layer in enumerate(self.layers):
            x = layer(x, mask=mask, cache=caches and caches[i])
        return x if self.norm is None else self.norm(x)


class Decoder(Stack):
    """A stack of decoder layers.

    Parameters: as `Encoder`.
    """

    layer_class = TransformerDecoderLayer

    def project_memory(self, memory: Any) -> list[KeysAndValues]:
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
        x: Any,
        memory: Any,
        mask: Any = None,
        memory_mask: Any = None,
        caches: Sequence[AttentionCache] | None = None,
        positions: Any = 0,
    ) -> Tensor:
        """Apply all layers.

        Other parameters: as `Encoder.forward`.

        Parameters
        ----------
        memory : Tensor, shape (N, L_m, d_model), or list of KeysAndValues
            Output of the encoder, or of `project_memory`.
        mask : array of bool, broadcastable to (N, h, L, L_kv), optional
            True = may attend, in addition to causality.
        memory_mask : array of bool, broadcastable to (N, h, L, L_m), optional
            True = may attend to this position of the memory.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            The output of the last layer, normalized if the stack has a final norm.
        """
        mask = hide_later(mask, x.shape[1], caches[0] if caches else None)
        for i, layer in enumerate(self.layers):
            source = memory[i] if isinstance(memory, list) else memory
            x = layer(x, source, mask=mask, memory_mask=memory_mask, cache=caches and caches[i])
        return x if self.norm is None else self.norm(x)

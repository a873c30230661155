"""Parts of models: embeddings of tokens, and stacks of layers.

On a first reading: `Encoder.forward`. The masks of all layers are made once, then each layer is
called. The configuration of the model makes the parts: see `nn.config`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from minigrad.tensor import Tensor

from .cache import AttentionCache, KeysAndValues
from .config import ModelConfig
from .linear import Dropout, Embedding, Linear
from .masks import attention_mask
from .module import Module, ModuleList

__all__ = ["Decoder", "Encoder", "InputEmbedding"]


class InputEmbedding(Module):
    """Embeddings of tokens: scaled, with embeddings of positions and segment types added.

    Parameters
    ----------
    config : ModelConfig
        Options of the model.
    vocab_size : int
        Number of tokens.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout.
    num_types : int
        Number of segment types. 0: there are none.
    std : float, optional
        Standard deviation of the weights. By default d_model ** -0.5 if embeddings are scaled,
        otherwise 1.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        generator: Generator | None = None,
        *,
        num_types: int = 0,
        std: float | None = None,
    ) -> None:
        d_model, width = config.d_model, config.embedding_size
        self.scale = config.embedding_scale
        if std is None:
            std = 1.0 if self.scale == 1 else d_model**-0.5
        shared: dict[str, Any] = {"dtype": config.dtype, "generator": generator}
        self.tokens = Embedding(vocab_size, width, config.masked_id, std=std, **shared)
        self.types = Embedding(num_types, width, None, std=std, **shared) if num_types else None
        self.positions = config.new_positions(width, generator)
        self.norm = config.new_embedding_norm()
        self.dropout = Dropout(config.dropout, generator=generator)
        self.projection = Linear(width, d_model, **shared) if width != d_model else None

    def forward(self, ids: Any, positions: Any = 0, types: Any = None) -> Tensor:
        """Return the vectors of tokens.

        Parameters
        ----------
        ids : array of int, shape (N, L)
            Token ids.
        positions : int or array of int, shape (L,) or (N, L)
            Position of the first token, or of each.
        types : array of int, shape (N, L), optional
            Segment types; 0 by default.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            A vector for each token.
        """
        x = self.tokens(ids)
        if self.scale != 1:
            x = x * self.scale
        if self.types is not None:
            x = x + self.types(np.zeros_like(ids) if types is None else types)
        if self.positions is not None:
            x = self.positions(x, positions)
        for part in (self.norm, self.dropout, self.projection):
            x = x if part is None else part(x)
        return x


def _layers(
    config: ModelConfig, count: int, generator: Generator | None, *, causal: bool, cross: bool
) -> ModuleList:
    """Return `count` new layers of a stack."""
    options = config.layer_options(count, causal=causal, cross=cross, generator=generator)
    return ModuleList([config.new_layer(cross, generator, **layer) for layer in options])


def _masks(
    layers: Sequence[Any],
    x: Any,
    mask: Any,
    causal: bool,
    caches: Sequence[AttentionCache] | None,
) -> dict[int | None, np.ndarray | None]:
    """Make the masks of a forward pass: one for each window of a self-attention."""
    n, length = x.shape[:2]
    past = caches[0].length if caches else 0
    masks: dict[int | None, np.ndarray | None] = {}
    for attention in [layer.self_attention for layer in layers]:
        if attention.window not in masks:
            shape = (n, attention.num_heads, length, past + length)
            masks[attention.window] = attention_mask(mask, causal, shape, attention.window)
    return masks


class Encoder(Module):
    """A stack of encoder layers.

    Parameters
    ----------
    config : ModelConfig
        Options of the model.
    num_layers : int
        Number of layers.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout.
    causal : bool
        Each position attends only to itself and to those before it.
    shared : bool
        Use one layer `num_layers` times.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_layers: int,
        generator: Generator | None = None,
        *,
        causal: bool = False,
        shared: bool = False,
    ) -> None:
        self.causal, self.repeats = causal, num_layers if shared else 1
        count = min(num_layers, 1) if shared else num_layers
        self.layers = _layers(config, count, generator, causal=causal, cross=False)
        self.norm = config.new_final_norm()

    def forward(
        self,
        x: Any,
        mask: Any = None,
        caches: Sequence[AttentionCache] | None = None,
        positions: Any = None,
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
            Positions for rotation, see `MultiHeadAttention`.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            The output of the last layer, normalized if the stack has a final norm.
        """
        layers: list[Any] = [*self.layers]
        masks = _masks(layers, x, mask, self.causal, caches)
        for i, layer in enumerate(layers * self.repeats):
            mask = masks[layer.self_attention.window]  # causal already, if the stack is
            x = layer(x, mask=mask, cache=caches and caches[i], positions=positions)
        return x if self.norm is None else self.norm(x)


class Decoder(Module):
    """A stack of decoder layers.

    Parameters
    ----------
    config : ModelConfig
        Sizes and options of the layers.
    num_layers : int
        Number of layers.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout.
    """

    def __init__(
        self, config: ModelConfig, num_layers: int, generator: Generator | None = None
    ) -> None:
        self.layers = _layers(config, num_layers, generator, causal=True, cross=True)
        self.norm = config.new_final_norm()

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
        positions: Any = None,
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
        layers: list[Any] = [*self.layers]
        masks = _masks(layers, x, mask, True, caches)
        for i, layer in enumerate(layers):
            x = layer(
                x,
                memory[i] if isinstance(memory, list) else memory,
                mask=masks[layer.self_attention.window],
                memory_mask=memory_mask,
                is_causal=False,  # the mask is causal already
                cache=caches and caches[i],
                positions=positions,
            )
        return x if self.norm is None else self.norm(x)

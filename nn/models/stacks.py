"""Parts of models: embeddings of tokens and images, and stacks of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.random import Generator

import minigrad as mg
from minigrad.core.tensor import Tensor

from ..layers import init
from ..layers.block import TransformerDecoderLayer, TransformerEncoderLayer, norm_named
from ..layers.cache import AttentionCache, KeysAndValues
from ..layers.linear import Dropout, Embedding, Linear
from ..layers.masks import attention_mask
from ..layers.module import Module, ModuleList, Parameter, as_input
from ..layers.norm import LayerNorm, RMSNorm
from ..layers.position import LearnedPositions, SinusoidalPositions
from ..layers.position_bias import POSITION_BIASES
from .config import EncoderConfig, ModelConfig, PositionConfig

__all__ = ["Decoder", "Encoder", "InputEmbedding", "PatchEmbedding"]


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
        d_model, dtype = config.d_model, config.dtype
        embeddings: Any = config.effective().embeddings
        width, self.scale = embeddings.size, embeddings.scale
        if std is None:
            std = 1.0 if self.scale == 1 else d_model**-0.5
        self.tokens = Embedding(
            vocab_size, width, config.hidden_id, std=std, dtype=dtype, generator=generator
        )
        self.types = (
            Embedding(num_types, width, None, std=std, dtype=dtype, generator=generator)
            if num_types
            else None
        )
        self.positions = _positions(config, width, generator)
        self.norm = (
            norm_named(config.norm, width, config.norm_eps, dtype)
            if config.embeddings.norm
            else None
        )
        self.dropout = Dropout(config.dropout, generator=generator)
        self.projection = (
            Linear(width, d_model, dtype=dtype, generator=generator) if width != d_model else None
        )

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


def _positions(config: ModelConfig, width: int, generator: Generator | None) -> Module | None:
    """Return the module that adds positions to embeddings, if there is one."""
    positions = cast(PositionConfig, config.positions)
    table: dict[str, Any] = {"dtype": config.dtype, "offset": positions.offset}
    if positions.kind.startswith("learned"):
        return LearnedPositions(config.max_len, width, generator=generator, **table)
    if not positions.kind.startswith("sinusoidal"):
        return None
    halves, last = positions.kind != "sinusoidal", positions.kind == "sinusoidal_last"
    return SinusoidalPositions(config.max_len, width, halves=halves, last=last, **table)


class PatchEmbedding(Module):
    """Embeddings of images: a learned vector, then that of each patch, row by row.

    Parameters
    ----------
    config : EncoderConfig
        Options of the model.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout.

    References
    ----------
    Dosovitskiy et al. (2021), arXiv:2010.11929.
    """

    def __init__(self, config: EncoderConfig, generator: Generator | None = None) -> None:
        channels, side, d_model, dtype = (
            config.num_channels,
            config.patch_size,
            config.d_model,
            config.dtype,
        )
        self.shape = (channels, config.image_size, config.image_size)
        self.first = Parameter(np.zeros((1, d_model), dtype))
        self.weight = init.xavier_uniform_(
            Parameter(np.zeros((d_model, channels, side, side), dtype)), 1, generator
        )
        self.bias = Parameter(np.zeros(d_model, dtype))
        self.positions = _positions(config, d_model, generator)
        self.dropout = Dropout(config.dropout, generator=generator)

    def forward(self, images: Any, positions: Any = 0, types: Any = None) -> Tensor:
        """Return the vectors of images.

        Parameters
        ----------
        images : array of float, shape (N, C, H, W)
            Images of `config.image_size`.
        positions, types : Any
            Not used; they are those of tokens.

        Returns
        -------
        Tensor, shape (N, 1 + patches, d_model)
            The learned vector, then a vector for each patch.
        """
        shape, dtype = np.shape(images), getattr(images, "dtype", None)
        if shape[1:] != self.shape or len(shape) != 4 or np.dtype(dtype).kind != "f":
            raise ValueError(
                f"images must be floats (N, {', '.join(map(str, self.shape))}), got {dtype} {shape}"
            )
        (n, channels, size, _), (d_model, *_, side) = shape, self.weight.shape
        x = as_input(self, images, self.weight.dtype)
        x = mg.reshape(x, n, channels, size // side, side, size // side, side)
        patches = mg.reshape(mg.transpose(x, (0, 2, 4, 1, 3, 5)), n, -1, channels * side * side)
        x = mg.linear(patches, mg.reshape(self.weight, d_model, -1), self.bias)
        x = mg.concatenate([mg.broadcast_to(self.first, (n, 1, d_model)), x], 1)
        return self.dropout(x if self.positions is None else self.positions(x))


def _attention_options(config: ModelConfig) -> dict[str, Any]:
    """Return the options that all attentions of a model share."""
    attention = config.effective().attention
    bias: Any = attention.bias
    if isinstance(bias, str):
        bias = {name: name[0] in bias for name in ("q", "k", "v", "out")}
    return {
        "num_kv_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
        "scale": attention.scale,
        "bias": bias,
        "qk_norm": config.norm_eps if attention.qk_norm else None,
        "dropout": attention.dropout,
    }


def _position_options(
    config: ModelConfig, bidirectional: bool, generator: Generator | None
) -> dict[str, Any]:
    """Return the options of positions, which the self-attentions of a stack share."""
    positions = cast(PositionConfig, config.positions)
    if positions.kind == "rotary":
        return {"rotary": config.rotary()}
    if positions.kind in POSITION_BIASES:
        make_bias = POSITION_BIASES[positions.kind]
        return {"position_bias": make_bias(config, bidirectional, generator)}
    return {}


def _layers(
    kind: Any,
    config: ModelConfig,
    count: int,
    generator: Generator | None,
    causal: bool,
    **options: Any,
) -> ModuleList:
    """Return `count` layers of a class, which differ in their self-attention at most."""
    shared = _attention_options(config) | _position_options(config, not causal, generator)
    names = (
        "dropout",
        "activation_dropout",
        "activation",
        "gated",
        "norm",
        "norm_eps",
        "norm_first",
        "bias",
        "dtype",
    )
    options |= {"generator": generator, **{name: getattr(config, name) for name in names}}
    attention, positions = config.attention, cast(PositionConfig, config.positions)
    layers = ModuleList()
    for i in range(count):
        changes: dict[str, Any] = {"rotary": None} if i in positions.no_rotary_layers else {}
        if attention.window_layers is None or i in attention.window_layers:
            changes["window"] = attention.window
        layers.append(
            kind(
                config.d_model, config.num_heads, config.d_ff, attention=shared | changes, **options
            )
        )
    return layers


def _final_norm(config: ModelConfig) -> LayerNorm | RMSNorm | None:
    return (
        norm_named(config.norm, config.d_model, config.norm_eps, config.dtype)
        if config.effective().final_norm
        else None
    )


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
        parallel = getattr(config, "parallel", False)
        self.layers = _layers(
            TransformerEncoderLayer, config, count, generator, causal, parallel=parallel
        )
        self.norm = _final_norm(config)

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
            mask = masks[layer.self_attention.window]
            x = layer(x, mask=mask, cache=caches and caches[i], positions=positions)
        return x if self.norm is None else self.norm(x)


class Decoder(Module):
    """A stack of decoder layers.

    Parameters
    ----------
    config : ModelConfig
        Options of the model.
    num_layers : int
        Number of layers.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout.
    """

    def __init__(
        self, config: ModelConfig, num_layers: int, generator: Generator | None = None
    ) -> None:
        cross = _attention_options(config)
        self.layers = _layers(
            TransformerDecoderLayer, config, num_layers, generator, True, cross_attention=cross
        )
        self.norm = _final_norm(config)

    def project_memory(self, memory: Any) -> list[KeysAndValues]:
        """Return the keys and values of each layer's cross-attention.

        Parameters
        ----------
        memory : Tensor, shape (N, L_m, d_model)
            Output of the encoder.

        Returns
        -------
        list of KeysAndValues
            One for each layer.
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

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
            Input of the first layer.
        memory : Tensor, shape (N, L_m, d_model), or list of KeysAndValues
            Output of the encoder, or of `project_memory`.
        mask : array of bool, broadcastable to (N, h, L, L_kv), optional
            True = may attend, in addition to causality.
        memory_mask : array of bool, broadcastable to (N, h, L, L_m), optional
            True = may attend to this position of the memory.
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

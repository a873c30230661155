"""The Transformer and its parts: Vaswani et al. (2017), "Attention is all you need".

With `norm_first=False`, as in the paper, each sublayer f computes LayerNorm(x + dropout(f(x))); with
`norm_first=True` x + dropout(f(LayerNorm(x))), and each stack ends in a norm. Masks are booleans,
True = may attend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from ..layers import init
from ..layers.attention import MultiHeadAttention, MultiHeadCrossAttention, MultiHeadSelfAttention
from ..layers.cache import LayerCache
from ..layers.feedforward import FeedForward
from ..layers.linear import Dropout, Embedding, Linear
from ..layers.masks import attention_mask_of, causal_mask, padding_mask_of
from ..layers.module import Module, ModuleList
from ..layers.norm import LayerNorm, RMSNorm
from ..layers.position import LearnedPositions, SinusoidalPositions
from .config import TransformerConfig

__all__ = [
    "Decoder", "DecodingState", "Encoder", "EncoderClassifier", "InputEmbedding", "LanguageModel", "Transformer",
    "TransformerDecoderLayer", "TransformerEncoderLayer",
]  # fmt: skip

if TYPE_CHECKING:
    Generator = np.random.Generator


def _norm(config: TransformerConfig) -> LayerNorm | RMSNorm:
    kind = LayerNorm if config.norm == "layer" else RMSNorm
    return kind(config.d_model, eps=config.norm_eps, dtype=config.dtype)


class _Layer(Module):
    """What encoder and decoder layers share: residual sublayers."""

    def __init__(self, config: TransformerConfig, generator: Generator | None) -> None:
        self.norm_first = config.norm_first
        self.dropout = Dropout(config.dropout, generator)

    def _residual(self, x: Any, norm: LayerNorm | RMSNorm, sublayer: Callable[[Any], Tensor]) -> Tensor:
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


def _attention(kind: Any, config: TransformerConfig, generator: Generator | None) -> Any:
    dropout = config.dropout if config.attention_dropout is None else config.attention_dropout
    return kind(
        config.d_model, config.num_heads, dropout=dropout, bias=config.bias, dtype=config.dtype, generator=generator
    )


def _feed_forward(config: TransformerConfig, generator: Generator | None) -> FeedForward:
    dropout = config.dropout if config.activation_dropout is None else config.activation_dropout
    return FeedForward(
        config.d_model, config.d_ff, config.activation, dropout, config.gated, config.bias, config.dtype, generator
    )


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward net. With a causal mask, a layer of a decoder-only model."""

    def __init__(self, config: TransformerConfig, generator: Generator | None = None) -> None:
        super().__init__(config, generator)
        self.self_attention: MultiHeadSelfAttention = _attention(MultiHeadSelfAttention, config, generator)
        self.norm1 = _norm(config)
        self.feed_forward = _feed_forward(config, generator)
        self.norm2 = _norm(config)

    def forward(self, x: Any, mask: Any = None, cache: LayerCache | None = None) -> Tensor:
        """(N, L, d_model) from x of that shape; `mask` broadcasts to (N, h, L, L)."""
        own = None if cache is None else cache.self_attention
        x = self._residual(x, self.norm1, lambda h: self.self_attention(h, attention_mask=mask, cache=own))
        return self._residual(x, self.norm2, self.feed_forward)


class TransformerDecoderLayer(_Layer):
    """Masked self-attention, attention to the encoder's output, then a feed-forward net."""

    def __init__(self, config: TransformerConfig, generator: Generator | None = None) -> None:
        super().__init__(config, generator)
        self.self_attention: MultiHeadSelfAttention = _attention(MultiHeadSelfAttention, config, generator)
        self.norm1 = _norm(config)
        self.cross_attention: MultiHeadCrossAttention = _attention(MultiHeadCrossAttention, config, generator)
        self.norm2 = _norm(config)
        self.feed_forward = _feed_forward(config, generator)
        self.norm3 = _norm(config)

    def forward(
        self, x: Any, memory: Any, mask: Any = None, memory_mask: Any = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(N, L, d_model) from x of that shape and memory (N, L_m, d_model).

        `mask` broadcasts to (N, h, L, L) and `memory_mask` to (N, h, L, L_m).
        """
        own, cross = (None, None) if cache is None else (cache.self_attention, cache.cross_attention)
        if cross is not None and cross.length:
            memory = None  # its keys and values are in the cache
        x = self._residual(x, self.norm1, lambda h: self.self_attention(h, attention_mask=mask, cache=own))
        attend = lambda h: self.cross_attention(h, memory, attention_mask=memory_mask, cache=cross)
        x = self._residual(x, self.norm2, attend)
        return self._residual(x, self.norm3, self.feed_forward)


class Encoder(Module):
    """A stack of encoder layers."""

    def __init__(self, config: TransformerConfig, num_layers: int, generator: Generator | None = None) -> None:
        self.layers = ModuleList(TransformerEncoderLayer(config, generator) for _ in range(num_layers))
        self.norm = _norm(config) if config.has_final_norm else None

    def forward(self, x: Any, mask: Any = None, caches: list[LayerCache] | None = None) -> Tensor:
        """(N, L, d_model) from x of that shape; `mask` broadcasts to (N, h, L, L)."""
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, None if caches is None else caches[i])
        return x if self.norm is None else self.norm(x)


class Decoder(Module):
    """A stack of decoder layers."""

    def __init__(self, config: TransformerConfig, num_layers: int, generator: Generator | None = None) -> None:
        self.layers = ModuleList(TransformerDecoderLayer(config, generator) for _ in range(num_layers))
        self.norm = _norm(config) if config.has_final_norm else None

    def forward(
        self, x: Any, memory: Any, mask: Any = None, memory_mask: Any = None, caches: list[LayerCache] | None = None
    ) -> Tensor:
        """(N, L, d_model) from x of that shape and memory (N, L_m, d_model)."""
        for i, layer in enumerate(self.layers):
            x = layer(x, memory, mask, memory_mask, None if caches is None else caches[i])
        return x if self.norm is None else self.norm(x)


class InputEmbedding(Module):
    """Token ids (N, L) to vectors (N, L, d_model): looked up, scaled, with their positions added."""

    def __init__(self, config: TransformerConfig, vocab_size: int, generator: Generator | None = None) -> None:
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        std = config.d_model**-0.5 if config.scale_embedding else 1.0
        self.tokens = Embedding(vocab_size, config.d_model, config.pad_id, std, config.dtype, generator)
        self.positions: LearnedPositions | SinusoidalPositions | None = None
        if config.positions == "learned":
            self.positions = LearnedPositions(config.max_len, config.d_model, dtype=config.dtype, generator=generator)
        elif config.positions != "none":
            halves = config.positions == "sinusoidal_halves"
            self.positions = SinusoidalPositions(config.max_len, config.d_model, halves, config.dtype)
        self.dropout = Dropout(config.dropout, generator)

    def forward(self, ids: Any, start: int = 0) -> Tensor:
        x = self.tokens(ids) * self.scale
        return self.dropout(x if self.positions is None else self.positions(x, start))


class DecodingState:
    """What decoding step by step carries along: the encoder's output, its mask, and a cache for each layer."""

    def __init__(self, num_layers: int, memory: Any = None, memory_mask: np.ndarray | None = None) -> None:
        self.memory = memory
        self.memory_mask = memory_mask  # (N, L_m)
        self.caches = [LayerCache() for _ in range(num_layers)]

    @property
    def length(self) -> int:
        """How many target positions have been read."""
        return self.caches[0].length if self.caches else 0

    def select(self, rows: np.ndarray) -> None:
        """Keep these rows of the batch, in this order; a row can be taken more than once."""
        if self.memory is not None:
            self.memory = self.memory[rows]
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask[rows]
        for cache in self.caches:
            cache.select(rows)


class _Model(Module):
    """What the models share: a configuration, how their weights start, and heads that can be removed."""

    config: TransformerConfig

    def _reset(self, generator: Generator | None) -> None:
        """Matrices by Xavier's rule, as PyTorch's Transformer; embeddings keep their own."""
        tables = {id(m.weight) for m in self.modules() if isinstance(m, (Embedding, LearnedPositions))}
        for module in self.modules():
            if isinstance(module, Linear):
                if id(module.weight) not in tables:
                    init.xavier_uniform_(module.weight, generator=generator)
                if module.bias is not None:
                    init.zeros_(module.bias)
        if self.config.pruned_heads:
            self.prune_heads(self.config.pruned_heads)

    def prune_heads(self, heads: Mapping[str, Iterable[int]]) -> None:
        """Remove heads for good, by the name of their attention: `{"encoder.layers.0.self_attention": [1, 3]}`.

        `MultiHeadAttention.prune_heads` tells more. An error leaves the model as it was. The heads are
        listed in `config.pruned_heads`, so that a model made from `config` loads the pruned weights.
        """
        found = {name: module for name, module in self.named_modules() if isinstance(module, MultiHeadAttention)}
        if unknown := sorted(set(heads) - set(found)):
            raise KeyError(f"prune_heads: no multi-head attention is named {unknown}; there are {list(found)}")
        lists = {name: list(some) for name, some in heads.items()}
        for name, some in lists.items():
            found[name]._without(some)  # an error here comes before any change
        for name, some in lists.items():
            found[name].prune_heads(some)
        pruned = {name: list(module.pruned_heads) for name, module in found.items() if module.pruned_heads}
        self.config = replace(self.config, pruned_heads=pruned)


class Transformer(_Model):
    """The encoder-decoder model: source and target token ids to scores of the next target token."""

    def __init__(self, config: TransformerConfig, generator: Generator | None = None) -> None:
        if config.source_vocab_size < 1 or config.target_vocab_size < 1:
            raise ValueError(
                f"Transformer: expected both vocabulary sizes, got source_vocab_size={config.source_vocab_size} and "
                f"target_vocab_size={config.target_vocab_size}"
            )
        self.config = config
        self.source_embedding = InputEmbedding(config, config.source_vocab_size, generator)
        self.target_embedding = InputEmbedding(config, config.target_vocab_size, generator)
        self.encoder = Encoder(config, config.num_encoder_layers, generator)
        self.decoder = Decoder(config, config.num_decoder_layers, generator)
        self.output = Linear(config.d_model, config.target_vocab_size, config.output_bias, config.dtype, generator)
        if config.tie == "all":
            self.source_embedding.tokens.weight = self.target_embedding.tokens.weight
        if config.tie != "none":
            self.output.weight = self.target_embedding.tokens.weight
        self._reset(generator)

    def encode(self, source: Any, padding_mask: Any = None) -> Tensor:
        """The memory (N, L_s, d_model) of source ids (N, L_s); the mask is made from `pad_id` unless given."""
        mask = padding_mask_of(source, self.config.pad_id) if padding_mask is None else padding_mask
        return self.encoder(self.source_embedding(_ids("source", source)), attention_mask_of(mask))

    def decode(
        self, target: Any, memory: Any, memory_padding_mask: Any = None, caches: list[LayerCache] | None = None
    ) -> Tensor:
        """The decoder's output (N, L_t, d_model) for target ids (N, L_t) and the encoder's output.

        Each position sees itself and those before it. Padding after the end of a target needs no
        mask: no real position sees it.
        """
        start = caches[0].length if caches else 0
        x = self.target_embedding(_ids("target", target), start)
        memory_mask = attention_mask_of(memory_padding_mask)
        length = np.shape(target)[1]
        causal = attention_mask_of(None, causal_mask(length, start)) if length > 1 else None
        return self.decoder(x, memory, causal, memory_mask, caches)

    def hidden(self, source: Any, target: Any, source_padding_mask: Any = None) -> Tensor:
        """What the output projection sees, (N, L_t, d_model)."""
        mask = padding_mask_of(source, self.config.pad_id) if source_padding_mask is None else source_padding_mask
        return self.decode(target, self.encode(source, mask), mask)

    def forward(self, source: Any, target: Any, source_padding_mask: Any = None) -> Tensor:
        """Scores (N, L_t, target_vocab_size): at each target position, for the token that comes next.

        Source ids (N, L_s), target ids (N, L_t) that begin with the start token.
        """
        return self.output(self.hidden(source, target, source_padding_mask))

    def loss(self, source: Any, target: Any, label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
        """The cross-entropy of each target token given those before it; target (N, L) with start and end token."""
        target = np.asarray(target)
        hidden = self.hidden(source, target[:, :-1])
        return mg.linear_cross_entropy(
            hidden, self.output.weight, self.output.bias, target[:, 1:], ignore_index=self.config.pad_id,
            label_smoothing=label_smoothing, reduction=reduction,
        )  # fmt: skip

    def num_targets(self, source: Any, target: Any) -> int:
        """How many tokens `loss` predicts."""
        return int((np.asarray(target)[:, 1:] != self.config.pad_id).sum())

    def start(self, source: Any, source_padding_mask: Any = None) -> DecodingState:
        """The state from which `step` decodes these sources."""
        given = padding_mask_of(source, self.config.pad_id) if source_padding_mask is None else source_padding_mask
        mask = None if np.all(given) else np.asarray(given)
        return DecodingState(self.config.num_decoder_layers, self.encode(source, given).data, mask)

    def step(self, tokens: Any, state: DecodingState) -> np.ndarray:
        """Scores (N, vocab) for the token after the next target ids (N, L), usually one each; `state` moves on."""
        hidden = self.decode(tokens, state.memory, state.memory_mask, state.caches)
        return self.output(hidden[:, -1]).data


class EncoderClassifier(_Model):
    """An encoder, the mean of its outputs over the real tokens, and a linear layer: scores of classes."""

    def __init__(self, config: TransformerConfig, num_classes: int, generator: Generator | None = None) -> None:
        self.config = config
        self.embedding = InputEmbedding(config, config.source_vocab_size, generator)
        self.encoder = Encoder(config, config.num_encoder_layers, generator)
        self.dropout = Dropout(config.dropout, generator)
        self.output = Linear(config.d_model, num_classes, dtype=config.dtype, generator=generator)
        self._reset(generator)

    def forward(self, ids: Any, padding_mask: Any = None) -> Tensor:
        """Scores (N, num_classes) from token ids (N, L)."""
        mask = padding_mask_of(ids, self.config.pad_id) if padding_mask is None else np.asarray(padding_mask)
        x = self.encoder(self.embedding(_ids("ids", ids)), attention_mask_of(mask))  # (N, L, d_model)
        share = mask / np.maximum(mask.sum(-1, keepdims=True), 1)
        pooled = mg.sum(x * share[..., None].astype(x.dtype), 1)  # (N, d_model)
        return self.output(self.dropout(pooled))

    def loss(self, ids: Any, classes: Any, label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
        """The cross-entropy of the classes, integers (N,)."""
        return mg.cross_entropy(self.forward(ids), classes, label_smoothing=label_smoothing, reduction=reduction)

    def num_targets(self, ids: Any, classes: Any) -> int:
        """How many classes `loss` predicts."""
        return len(classes)


class LanguageModel(_Model):
    """A decoder-only model: token ids to scores of the next token, each position seeing those before it."""

    def __init__(self, config: TransformerConfig, generator: Generator | None = None) -> None:
        self.config = config
        self.embedding = InputEmbedding(config, config.target_vocab_size, generator)
        self.layers = Encoder(config, config.num_decoder_layers, generator)
        self.output = Linear(config.d_model, config.target_vocab_size, config.output_bias, config.dtype, generator)
        if config.tie != "none":
            self.output.weight = self.embedding.tokens.weight
        self._reset(generator)

    def hidden(self, ids: Any, caches: list[LayerCache] | None = None) -> Tensor:
        """What the output projection sees, (N, L, d_model)."""
        start = caches[0].length if caches else 0
        length = np.shape(ids)[1]
        causal = attention_mask_of(None, causal_mask(length, start)) if length > 1 else None
        return self.layers(self.embedding(_ids("ids", ids), start), causal, caches)

    def forward(self, ids: Any) -> Tensor:
        """Scores (N, L, target_vocab_size) of the token after each of the ids (N, L)."""
        return self.output(self.hidden(ids))

    def loss(self, ids: Any, label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
        """The cross-entropy of each token given those before it, for ids (N, L)."""
        ids = np.asarray(ids)
        return mg.linear_cross_entropy(
            self.hidden(ids[:, :-1]), self.output.weight, self.output.bias, ids[:, 1:],
            ignore_index=self.config.pad_id, label_smoothing=label_smoothing, reduction=reduction,
        )  # fmt: skip

    def num_targets(self, ids: Any) -> int:
        """How many tokens `loss` predicts."""
        return int((np.asarray(ids)[:, 1:] != self.config.pad_id).sum())

    def start(self) -> DecodingState:
        """The state from which `step` goes on; give the prompt to the first step."""
        return DecodingState(self.config.num_decoder_layers)

    def step(self, tokens: Any, state: DecodingState) -> np.ndarray:
        """Scores (N, vocab) for the token after the next ids (N, L); `state` moves on."""
        return self.output(self.hidden(tokens, state.caches)[:, -1]).data


def _ids(name: str, ids: Any) -> np.ndarray:
    """Token ids (N, L), with at least one position."""
    ids = np.asarray(ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integer token ids (N, L), got {ids.dtype} {ids.shape}")
    if ids.shape[1] == 0:
        raise ValueError(f"{name}: expected at least one token in each sequence, got shape {ids.shape}")
    return ids

"""The sequence-to-sequence model: Vaswani et al. (2017), "Attention is all you need"."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.core.modes import no_grad
from minigrad.core.tensor import Tensor

from ..layers.linear import Linear
from .base import IGNORED, DecodingState, Model, checked_ids, key_mask, positions_of
from .config import TransformerConfig
from .stacks import Decoder, Encoder, InputEmbedding

__all__ = ["Transformer"]


class Transformer(Model):
    """The encoder-decoder model: source and target token ids to logits of the next target token."""

    config: TransformerConfig

    def _build(self, config: TransformerConfig, generator: np.random.Generator | None) -> None:
        source, target = config.source_vocab_size, config.target_vocab_size
        if source < 1 or target < 1:
            sizes = f"source_vocab_size={source} and target_vocab_size={target}"
            raise ValueError(f"Transformer: expected both vocabulary sizes, got {sizes}")
        self.source_embedding = InputEmbedding(config, source, generator)
        self.target_embedding = InputEmbedding(config, target, generator)
        self.encoder = Encoder(config, config.num_encoder_layers, generator)
        self.decoder = Decoder(config, config.num_decoder_layers, generator)
        self.output = Linear(config.d_model, target, config.output_bias, config.dtype, generator)
        if config.tie in ("embeddings", "all"):
            self.source_embedding.tokens.weight = self.target_embedding.tokens.weight
        if config.tie in ("target", "all"):
            self.output.weight = self.target_embedding.tokens.weight

    def encode(self, source: Any, padding_mask: Any = None) -> Tensor:
        """The memory (N, L_s, d_model) of source ids (N, L_s) with this `padding_mask` (N, L_s)."""
        source = checked_ids("source", source)
        real = self._padding(source, padding_mask)
        at = positions_of(real)
        return self.encoder(self.source_embedding(source, at), key_mask(real), positions=at)

    def decode(
        self, target: Any, memory: Any, memory_mask: Any = None, state: DecodingState | None = None
    ) -> Tensor:
        """What the output projection sees, (N, L_t, d_model), for target ids (N, L_t) and the
        encoder's output.

        `memory_mask` (N, L_s) says which positions of the memory are real. Each target position
        sees itself and those before it: padding after the end of a target needs no mask.
        """
        target = checked_ids("target", target)
        start, caches = (0, None) if state is None else (state.length, state.caches)
        x = self.target_embedding(target, start)
        x = self.decoder(x, memory, None, key_mask(memory_mask), caches)
        return x if self.config.output_scale == 1 else x * self.config.output_scale

    def hidden(self, source: Any, target: Any, padding_mask: Any = None) -> Tensor:
        """What the output projection sees, (N, L_t, d_model)."""
        source = checked_ids("source", source)
        return self.decode(
            target, self.encode(source, padding_mask), self._padding(source, padding_mask)
        )

    def forward(self, source: Any, target: Any, padding_mask: Any = None) -> Tensor:
        """Logits (N, L_t, target_vocab_size): at each target position, for the token that comes
        next.

        Source ids (N, L_s), target ids (N, L_t) that begin with the BOS token.
        """
        return self.output(self.hidden(source, target, padding_mask))

    def loss(
        self,
        source: Any,
        target: Any,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        padding_mask: Any = None,
    ) -> Tensor:
        """The cross-entropy of each target token given those before it; target (N, L) from BOS to
        EOS.
        """
        target = checked_ids("target", target)
        hidden = self.hidden(source, target[:, :-1], padding_mask)
        return self._cross_entropy(hidden, self.targets(source, target), label_smoothing, reduction)

    def targets(self, source: Any, target: Any) -> np.ndarray:
        """The tokens of target (N, L) after the first; padding is IGNORED."""
        following, hidden = np.asarray(target)[:, 1:], self.config.hidden_id
        return following if hidden is None else np.where(following == hidden, IGNORED, following)

    @no_grad()
    def start(self, source: Any, padding_mask: Any = None) -> DecodingState:
        """The state from which `step` decodes these sources; no gradient is recorded."""
        source = checked_ids("source", source)
        memory = self.decoder.project_memory(self.encode(source, padding_mask).data)
        return DecodingState(
            self.config.num_decoder_layers, memory, self._padding(source, padding_mask)
        )

    @no_grad()
    def step(self, tokens: Any, state: DecodingState) -> np.ndarray:
        """Logits (N, vocab) for the token after the next target ids (N, L), usually one each;
        `state` moves on.
        """
        hidden = self.decode(tokens, state.memory, state.padding_mask, state)
        state.length += np.shape(tokens)[1]
        return self.output(hidden[:, -1]).data

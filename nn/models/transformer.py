"""The sequence-to-sequence model: Vaswani et al. (2017), "Attention is all you need"."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.core.modes import no_grad
from minigrad.core.tensor import Tensor, unwrap

from ..layers.linear import Linear
from .base import IGNORED, Batch, DecodingState, Model, checked_ids
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
        self.output = Linear(
            config.d_model, target, config.output_bias, dtype=config.dtype, generator=generator
        )
        if config.tie in ("embeddings", "all"):
            self.source_embedding.tokens.weight = self.target_embedding.tokens.weight
        if config.tie in ("target", "all"):
            self.output.weight = self.target_embedding.tokens.weight

    def _encode(self, source: Batch) -> Tensor:
        x = self.source_embedding(source.ids, source.positions)
        return self.encoder(x, source.mask, positions=source.positions)

    def _decode(self, target: Batch, memory: Any, memory_mask: Any, caches: Any = None) -> Tensor:
        x = self.target_embedding(target.ids, target.positions)
        x = self.decoder(x, memory, None, memory_mask, caches)
        return x if self.config.output_scale == 1 else x * self.config.output_scale

    def _pair(self, source: Any, target: Any, padding_mask: Any) -> tuple[Batch, np.ndarray]:
        """Check source and target ids. Padding after the end of a target needs no mask."""
        batch, target = self._batch("source", source, padding_mask), checked_ids("target", target)
        if len(target) != len(batch.ids):
            raise ValueError(
                f"target must have as many sequences as source ({len(batch.ids)}), got "
                f"{len(target)}"
            )
        return batch, target

    def _next_tokens(self, target: np.ndarray) -> Batch:
        """Make the targets' batch of a loss: at each token but the last, predict the next one."""
        targets, hidden = target[:, 1:], self.config.hidden_id
        if hidden is not None:
            targets = np.where(targets == hidden, IGNORED, targets)
        return Batch(target[:, :-1], targets=targets)

    def encode(self, source: Any, padding_mask: Any = None) -> Tensor:
        """Return the memory (N, L_s, d_model) of source ids (N, L_s)."""
        return self._encode(self._batch("source", source, padding_mask))

    def decode(self, target: Any, memory: Any, memory_mask: Any = None) -> Tensor:
        """Return what the output projection sees, (N, L_t, d_model), for target ids (N, L_t).

        `memory` is the encoder's output. `memory_mask` (N, L_s) is True at its real tokens. Each
        target position sees itself and those before it.
        """
        batch = Batch(checked_ids("target", target))
        if len(memory) != len(batch.ids):
            raise ValueError(
                f"memory must have as many sequences as target ({len(batch.ids)}), got "
                f"{len(memory)}"
            )
        mask = None if memory_mask is None else np.asarray(memory_mask)[:, None, None]
        return self._decode(batch, memory, mask)

    def hidden(self, source: Any, target: Any, padding_mask: Any = None) -> Tensor:
        """Return what the output projection sees, (N, L_t, d_model)."""
        batch, target = self._pair(source, target, padding_mask)
        return self._decode(Batch(target), self._encode(batch), batch.mask)

    def forward(self, source: Any, target: Any, padding_mask: Any = None) -> Tensor:
        """Return logits (N, L_t, target_vocab_size) of the token after each target position.

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
        """Compute the cross-entropy of each target token given those before it.

        The target ids (N, L) go from BOS to EOS.
        """
        batch, target = self._pair(source, target, padding_mask)
        following = self._next_tokens(target)
        hidden = self._decode(following, self._encode(batch), batch.mask)
        return self._cross_entropy(hidden, following.targets, label_smoothing, reduction)

    def targets(self, source: Any, target: Any) -> np.ndarray:
        """Return the tokens of target (N, L) after the first, IGNORED where they are padding."""
        return self._next_tokens(checked_ids("target", target)).targets

    @no_grad()
    def start(self, source: Any, padding_mask: Any = None) -> DecodingState:
        """Return the state from which `step` decodes these sources; no gradient is recorded."""
        batch = self._batch("source", source, padding_mask)
        memory = self.decoder.project_memory(self._encode(batch).data)
        return DecodingState(self.config.num_decoder_layers, memory, batch.mask)

    @no_grad()
    def step(self, tokens: Any, state: DecodingState) -> np.ndarray:
        """Logits (N, vocab) for the token after the next target ids (N, L), usually one each;
        `state` moves on.
        """
        batch = Batch(checked_ids("tokens", tokens), positions=state.length)
        state.length += batch.ids.shape[1]
        hidden = self._decode(batch, state.memory, state.padding_mask, state.caches)
        return unwrap(self.output(hidden.data[:, -1]))

"""The decoder-only model: Radford et al. (2019), "Language models are unsupervised multitask
learners".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.core.modes import no_grad
from minigrad.core.tensor import Tensor, unwrap

from ..layers.linear import Linear
from .base import IGNORED, Batch, DecodingState, Model, checked_ids, positions_of
from .config import LanguageModelConfig
from .stacks import Encoder, InputEmbedding

__all__ = ["LanguageModel"]


class LanguageModel(Model):
    """Token ids to logits of the next token, each position seeing itself and those before it.

    Padding can stand left or right of a text.
    """

    config: LanguageModelConfig

    def _build(self, config: LanguageModelConfig, generator: np.random.Generator | None) -> None:
        if config.vocab_size < 1:
            raise ValueError(
                f"LanguageModel: expected a vocabulary, got vocab_size={config.vocab_size}"
            )
        if config.tie and config.embeddings.size not in (None, config.d_model):
            raise ValueError(
                f"embeddings.size must be d_model ({config.d_model}) with tie=True, got "
                f"{config.embeddings.size}"
            )
        # Tied rows are classes too: logits near 0 need them small, also where a token predicts
        # itself.
        std = min(0.02, 2 / config.d_model) if config.tie else None
        self.embedding = InputEmbedding(config, config.vocab_size, generator, std=std)
        self.layers = Encoder(config, config.num_layers, generator, causal=True)
        self.output = Linear(
            config.d_model,
            config.vocab_size,
            config.output_bias,
            dtype=config.dtype,
            generator=generator,
        )
        if config.tie:
            self.output.weight = self.embedding.tokens.weight

    def _hidden(self, batch: Batch, caches: Any = None) -> Tensor:
        x = self.embedding(batch.ids, batch.positions)
        x = self.layers(x, batch.mask, caches, batch.positions)
        return x if self.config.output_scale == 1 else x * self.config.output_scale

    def _next_tokens(self, ids: Any, padding_mask: Any) -> Batch:
        """Make the batch of a loss: at each token but the last, predict the token after it."""
        batch = self._batch("ids", ids, padding_mask)
        ids, mask, positions = batch.ids, batch.mask, batch.positions
        if mask is None:
            return Batch(ids[:, :-1], targets=ids[:, 1:])
        positions = positions[:, :-1] if np.ndim(positions) else positions
        both = mask[:, 0, 0, 1:] & mask[:, 0, 0, :-1]
        return Batch(ids[:, :-1], mask[..., :-1], positions, np.where(both, ids[:, 1:], IGNORED))

    def hidden(self, ids: Any, padding_mask: Any = None) -> Tensor:
        """Return what the output projection sees, (N, L, d_model)."""
        return self._hidden(self._batch("ids", ids, padding_mask))

    def forward(self, ids: Any, padding_mask: Any = None) -> Tensor:
        """Return logits (N, L, vocab_size) of the token after each of the ids (N, L)."""
        return self.output(self._hidden(self._batch("ids", ids, padding_mask)))

    def loss(
        self,
        ids: Any,
        padding_mask: Any = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Tensor:
        """Compute the cross-entropy of each real token given those before it, for ids (N, L)."""
        batch = self._next_tokens(ids, padding_mask)
        return self._cross_entropy(self._hidden(batch), batch.targets, label_smoothing, reduction)

    def targets(self, ids: Any, padding_mask: Any = None) -> np.ndarray:
        """Return the token after each of the ids (N, L) but the last, IGNORED next to padding."""
        return self._next_tokens(ids, padding_mask).targets

    def start(self, padding_mask: Any = None) -> DecodingState:
        """The state from which `step` goes on; give the prompt to the first step.

        Where prompts of different lengths are padded at the left, `padding_mask` (N, L) is theirs.
        """
        mask = None if padding_mask is None or np.all(padding_mask) else np.asarray(padding_mask)
        return DecodingState(self.config.num_layers, padding_mask=mask)

    @no_grad()
    def step(self, tokens: Any, state: DecodingState) -> np.ndarray:
        """Logits (N, vocab) for the token after the next ids (N, L); `state` moves on."""
        ids, mask, start = checked_ids("tokens", tokens), state.padding_mask, state.length
        state.length += ids.shape[1]
        if mask is None:
            batch = Batch(ids, positions=start)
        else:
            if (missing := state.length - mask.shape[1]) > 0:
                mask = np.concatenate([mask, np.ones((len(ids), missing), bool)], 1)
            state.padding_mask, mask = mask, mask[:, : state.length]
            positions = positions_of(mask)
            positions = positions[:, start:] if np.ndim(positions) else start
            batch = Batch(ids, mask[:, None, None], positions)
        return unwrap(self.output(self._hidden(batch, state.caches).data[:, -1]))

"""The decoder-only model: Radford et al. (2019), "Language models are unsupervised multitask
learners".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.core.modes import no_grad
from minigrad.core.tensor import Tensor

from ..layers.linear import Linear
from .base import IGNORED, DecodingState, Model, checked_ids, key_mask, positions_of
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
            config.d_model, config.vocab_size, config.output_bias, config.dtype, generator
        )
        if config.tie:
            self.output.weight = self.embedding.tokens.weight

    def hidden(
        self, ids: Any, padding_mask: Any = None, state: DecodingState | None = None
    ) -> Tensor:
        """What the output projection sees, (N, L, d_model).

        With the `state` of decoding, the ids go on from what it holds, and the mask is for all of
        it.
        """
        ids = checked_ids("ids", ids)
        if state is None:
            real, caches, start = self._padding(ids, padding_mask), None, 0
        else:
            real, caches, start = padding_mask, state.caches, state.length
        at = positions_of(real)
        at = at[:, start:] if np.ndim(at) else start
        x = self.layers(self.embedding(ids, at), key_mask(real), caches, at)
        return x if self.config.output_scale == 1 else x * self.config.output_scale

    def forward(self, ids: Any, padding_mask: Any = None) -> Tensor:
        """Logits (N, L, vocab_size) of the token after each of the ids (N, L)."""
        return self.output(self.hidden(ids, padding_mask))

    def loss(
        self,
        ids: Any,
        padding_mask: Any = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Tensor:
        """The cross-entropy of each real token given those before it, for ids (N, L)."""
        ids = checked_ids("ids", ids)
        real = self._padding(ids, padding_mask)
        hidden = self.hidden(ids[:, :-1], None if real is None else real[:, :-1])
        return self._cross_entropy(hidden, self.targets(ids, real), label_smoothing, reduction)

    def targets(self, ids: Any, padding_mask: Any = None) -> np.ndarray:
        """The token after each of the ids (N, L) but the last; IGNORED after padding, and where
        that itself follows.
        """
        ids = checked_ids("ids", ids)
        real = self._padding(ids, padding_mask)
        return (
            ids[:, 1:]
            if real is None
            else np.where(real[:, 1:] & real[:, :-1], ids[:, 1:], IGNORED)
        )

    def start(self, padding_mask: Any = None) -> DecodingState:
        """The state from which `step` goes on; give the prompt to the first step.

        Where prompts of different lengths are padded at the left, `padding_mask` (N, L) is theirs.
        """
        mask = None if padding_mask is None or np.all(padding_mask) else np.asarray(padding_mask)
        return DecodingState(self.config.num_layers, padding_mask=mask)

    @no_grad()
    def step(self, tokens: Any, state: DecodingState) -> np.ndarray:
        """Logits (N, vocab) for the token after the next ids (N, L); `state` moves on."""
        n, length = np.shape(tokens)
        mask, end = state.padding_mask, state.length + length
        if mask is not None and mask.shape[1] < end:
            mask = np.concatenate([mask, np.ones((n, end - mask.shape[1]), bool)], 1)
        hidden = self.hidden(tokens, None if mask is None else mask[:, :end], state)
        state.padding_mask, state.length = mask, end
        return self.output(hidden[:, -1]).data

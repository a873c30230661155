"""Decoder-only language models: Radford et al. (2019).

Look at `loss`, then at `start` and `step`, which decoding calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.arguments import checked_count
from minigrad.modes import no_grad
from minigrad.tensor import Tensor, unwrap

from .config import LanguageModelConfig
from .model import IGNORED, Batch, DecodingState, Model, checked_ids, positions_of
from .stacks import Encoder, InputEmbedding

__all__ = ["LanguageModel"]


class LanguageModel(Model):
    """A decoder-only model: logits of the token after each token of a sequence.

    Padding may be left or right of a sequence.

    Parameters
    ----------
    config : LanguageModelConfig
        Options of the model.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout.

    References
    ----------
    Radford et al. (2019), Language models are unsupervised multitask learners.

    Examples
    --------
    >>> model = nn.LanguageModel(nn.LanguageModelConfig(9, 8, 2, 1, 16), np.random.default_rng(0))
    >>> model(np.array([[1, 4, 2]])).shape
    (1, 3, 9)
    """

    config: LanguageModelConfig
    config_class = LanguageModelConfig

    def __init__(
        self, config: LanguageModelConfig, generator: np.random.Generator | None = None
    ) -> None:
        super().__init__(config, generator)
        checked_count("LanguageModel", "vocab_size", config.vocab_size)
        # A tied table is also the output projection. With elements of size 1, first logits would
        # be of size √d_model, and each token would predict itself.
        std = min(0.02, 2 / config.d_model) if config.tie else None
        self.embedding = self.make(InputEmbedding, config.vocab_size, std=std)
        self.layers = self.make(Encoder, config.num_layers, causal=True)
        self.output = self.make_output(
            config.vocab_size, self.embedding.tokens if config.tie else None
        )
        self.draw_weights(LanguageModel)

    def _hidden(self, batch: Batch, caches: Any = None) -> Tensor:
        x = self.embedding(batch.ids, batch.positions)
        return self.layers(x, batch.mask, caches, batch.positions)

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
        """Return the input of the output projection.

        Parameters
        ----------
        ids : array of int, shape (N, L)
            Token ids.
        padding_mask : array of bool, shape (N, L), optional
            True = a real token. By default the tokens other than `config.pad_id` are real,
            or all tokens if `pad_id` is one of `eos_id`.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            A vector for each token.
        """
        return self._hidden(self._batch("ids", ids, padding_mask))

    def forward(self, ids: Any, padding_mask: Any = None) -> Tensor:
        """Return logits of the token after each token.

        Parameters
        ----------
        ids : array of int, shape (N, L)
            Token ids. Each position attends to itself and to those before it.
        padding_mask : array of bool, shape (N, L), optional
            True = a real token. By default the tokens other than `config.pad_id` are real,
            or all tokens if `pad_id` is one of `eos_id`.

        Returns
        -------
        Tensor, shape (N, L, vocab_size)
            Unnormalized log-probabilities.
        """
        return self.output(self._hidden(self._batch("ids", ids, padding_mask)))

    def loss(
        self,
        ids: Any,
        padding_mask: Any = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Tensor:
        """Compute the cross-entropy of each real token given those before it.

        Other parameters: as `hidden`.

        Parameters
        ----------
        label_smoothing : float
            Part of the probability of a target that is spread over all tokens.
        reduction : {"mean", "sum", "none"}
            "none" returns a loss for each position.

        Returns
        -------
        Tensor
            A scalar, or shape (N, L - 1) with reduction="none".
        """
        batch = self._next_tokens(ids, padding_mask)
        return self._cross_entropy(self._hidden(batch), batch.targets, label_smoothing, reduction)

    def targets(self, ids: Any, padding_mask: Any = None) -> np.ndarray:
        """Return the targets of `loss`: the token after each token but the last.

        Parameters: as `hidden`.

        Returns
        -------
        array of int, shape (N, L - 1)
            -100 at and before padding.
        """
        return self._next_tokens(ids, padding_mask).targets

    def start(self, padding_mask: Any = None) -> DecodingState:
        """Return the state for the first `step`, which takes the prompts.

        Parameters
        ----------
        padding_mask : array of bool, shape (N, L), optional
            True = a real token, for prompts of different lengths that are padded on the left.
        """
        mask = None if padding_mask is None or np.all(padding_mask) else np.asarray(padding_mask)
        return DecodingState(self.config.num_layers, padding_mask=mask)

    @no_grad()
    def step(self, tokens: Any, state: DecodingState, every: bool = False) -> np.ndarray:
        """Return logits of the next token, without gradients, and advance the state.

        Parameters
        ----------
        tokens : array of int, shape (N, L)
            Tokens that follow those of the steps before.
        state : DecodingState
            Changed in place.
        every : bool
            Return the logits after each of the tokens.

        Returns
        -------
        array, shape (N, vocab_size), or (N, L, vocab_size)
            Unnormalized log-probabilities of the next token.
        """
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
        hidden = self._hidden(batch, state.caches).data
        return unwrap(self.output(hidden if every else hidden[:, -1]))

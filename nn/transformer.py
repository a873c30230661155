"""Encoder-decoder models: Vaswani et al. (2017), "Attention is all you need".

Look at `loss`, which encodes the source and predicts each token of the target from those before
it, then at `start` and `step`, which decoding calls.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad.arguments import checked_count
from minigrad.modes import no_grad
from minigrad.tensor import Tensor, unwrap

from .config import TransformerConfig
from .model import IGNORED, Batch, DecodingState, Model, checked_ids, checked_padding_mask
from .stacks import Decoder, Encoder, InputEmbedding

__all__ = ["Transformer"]


class Transformer(Model):
    """An encoder-decoder model: logits of the next target token, given a source sequence.

    Parameters
    ----------
    config : TransformerConfig
        Options of the model.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout.

    References
    ----------
    Vaswani et al. (2017), Attention is all you need, arXiv:1706.03762.

    Examples
    --------
    >>> config = nn.TransformerConfig(9, 7, d_model=8, num_heads=2, d_ff=16)
    >>> model = nn.Transformer(config, np.random.default_rng(0))
    >>> model(np.array([[3, 4, 5]]), np.array([[1, 6]])).shape
    (1, 2, 7)
    """

    config: TransformerConfig
    config_class = TransformerConfig

    def __init__(
        self, config: TransformerConfig, generator: np.random.Generator | None = None
    ) -> None:
        super().__init__(config, generator)
        source, target = config.source_vocab_size, config.target_vocab_size
        checked_count("Transformer", "source_vocab_size", source)
        checked_count("Transformer", "target_vocab_size", target)
        scale = math.sqrt(config.d_model)
        self.source_embedding = self.make(InputEmbedding, source, scale=scale)
        self.target_embedding = self.make(InputEmbedding, target, scale=scale)
        self.encoder = self.make(Encoder, config.num_encoder_layers)
        self.decoder = self.make(Decoder, config.num_decoder_layers)
        table = self.target_embedding.tokens
        self.output = self.make_output(target, table if config.tie in ("target", "all") else None)
        self.draw_weights(Transformer)
        if config.tie in ("embeddings", "all"):
            self.source_embedding.tokens.weight = table.weight

    def _encode(self, source: Batch) -> Tensor:
        x = self.source_embedding(source.ids, source.positions)
        return self.encoder(x, source.mask, positions=source.positions)

    def _decode(self, target: Batch, memory: Any, memory_mask: Any, caches: Any = None) -> Tensor:
        x = self.target_embedding(target.ids, target.positions)
        return self.decoder(x, memory, None, memory_mask, caches)

    def _pair(self, source: Any, target: Any, padding_mask: Any) -> tuple[Batch, np.ndarray]:
        """Check source and target ids. Padding after the end of a target needs no mask."""
        batch, target = self._batch("source", source, padding_mask), checked_ids("target", target)
        if len(target) != len(batch.ids):
            raise ValueError(
                f"target must have as many sequences as source ({len(batch.ids)}), got "
                f"{len(target)}"
            )
        return batch, target

    def _next_tokens(self, target: np.ndarray, target_mask: Any = None) -> Batch:
        """Make the targets' batch of a loss: at each token but the last, predict the next one."""
        targets, hidden = target[:, 1:], self.config.masked_id
        if target_mask is not None:
            mask = checked_padding_mask(target_mask, target.shape, "target_mask")
            if (mask[:, 1:] > mask[:, :-1]).any():
                raise ValueError(
                    "target_mask must have its padding at the right, got it before tokens"
                )
            targets = np.where(mask[:, 1:], targets, IGNORED)
        elif hidden is not None:
            targets = np.where(targets == hidden, IGNORED, targets)
        return Batch(target[:, :-1], targets=targets)

    def encode(self, source: Any, padding_mask: Any = None) -> Tensor:
        """Return the output of the encoder.

        Parameters
        ----------
        source : array of int, shape (N, L_s)
            Source token ids.
        padding_mask : array of bool, shape (N, L_s), optional
            True = a real source token. By default the tokens other than `config.pad_id` are real,
            or all tokens if `pad_id` is one of `eos_id`.

        Returns
        -------
        Tensor, shape (N, L_s, d_model)
            A vector for each source token.
        """
        return self._encode(self._batch("source", source, padding_mask))

    def decode(self, target: Any, memory: Any, memory_mask: Any = None) -> Tensor:
        """Return the input of the output projection, given the output of the encoder.

        Parameters
        ----------
        target : array of int, shape (N, L_t)
            Target token ids. Each position attends to itself and to those before it.
        memory : Tensor, shape (N, L_s, d_model)
            Output of `encode`.
        memory_mask : array of bool, shape (N, L_s), optional
            True = a real source token. By default all are.

        Returns
        -------
        Tensor, shape (N, L_t, d_model)
            A vector for each target token.
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
        """Return the input of the output projection.

        Other parameters: as `encode`.

        Parameters
        ----------
        target : array of int, shape (N, L_t)
            Target token ids.

        Returns
        -------
        Tensor, shape (N, L_t, d_model)
            A vector for each target token.
        """
        batch, target = self._pair(source, target, padding_mask)
        return self._decode(Batch(target), self._encode(batch), batch.mask)

    def forward(self, source: Any, target: Any, padding_mask: Any = None) -> Tensor:
        """Return logits of the token after each target position.

        Other parameters: as `encode`.

        Parameters
        ----------
        target : array of int, shape (N, L_t)
            Target token ids, beginning with `config.bos_id`.

        Returns
        -------
        Tensor, shape (N, L_t, target_vocab_size)
            Unnormalized log-probabilities.
        """
        return self.output(self.hidden(source, target, padding_mask))

    def loss(
        self,
        source: Any,
        target: Any,
        padding_mask: Any = None,
        target_mask: Any = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Tensor:
        """Compute the cross-entropy of each target token given those before it.

        Other parameters: as `encode`.

        Parameters
        ----------
        target : array of int, shape (N, L_t)
            Target token ids from `config.bos_id` to `config.eos_id`. Padding is ignored.
        target_mask : array of bool, shape (N, L_t), optional
            True = a real target token, with the same default. Padding must be at the right.
        label_smoothing : float
            Part of the probability of a target that is spread over all tokens.
        reduction : {"mean", "sum", "none"}
            "none" returns a loss for each position.

        Returns
        -------
        Tensor
            A scalar, or shape (N, L_t - 1) with reduction="none".
        """
        batch, target = self._pair(source, target, padding_mask)
        following = self._next_tokens(target, target_mask)
        hidden = self._decode(following, self._encode(batch), batch.mask)
        return self._cross_entropy(hidden, following.targets, label_smoothing, reduction)

    def targets(
        self, source: Any, target: Any, padding_mask: Any = None, target_mask: Any = None
    ) -> np.ndarray:
        """Return the targets of `loss`: the target tokens after the first.

        Parameters
        ----------
        source : array of int, shape (N, L_s)
            Not used.
        target : array of int, shape (N, L_t)
            Target token ids.
        padding_mask : array of bool, optional
            Not used.
        target_mask : array of bool, shape (N, L_t), optional
            As in `loss`.

        Returns
        -------
        array of int, shape (N, L_t - 1)
            -100 at padding.
        """
        return self._next_tokens(checked_ids("target", target), target_mask).targets

    @no_grad()
    def start(self, source: Any, padding_mask: Any = None) -> DecodingState:
        """Return the state for the first `step`, without gradients.

        Parameters: as `encode`.
        """
        batch = self._batch("source", source, padding_mask)
        memory = self.decoder.project_memory(self._encode(batch).data)
        return DecodingState(self.config.num_decoder_layers, memory, batch.mask)

    @no_grad()
    def step(self, tokens: Any, state: DecodingState) -> np.ndarray:
        """Return logits of the next token, without gradients, and advance the state.

        Parameters
        ----------
        tokens : array of int, shape (N, L)
            Target tokens that follow those of the steps before.
        state : DecodingState
            Changed in place.

        Returns
        -------
        array, shape (N, target_vocab_size)
            Unnormalized log-probabilities of the next token.
        """
        batch = Batch(checked_ids("tokens", tokens), positions=state.length)
        state.length += batch.ids.shape[1]
        hidden = self._decode(batch, state.memory, state.padding_mask, state.caches)
        return unwrap(self.output(hidden.data[:, -1]))

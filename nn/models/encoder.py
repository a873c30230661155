"""Encoders with heads: BERT's form (Devlin et al. 2019, arXiv:1810.04805)."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from ..layers.block import norm_named
from ..layers.linear import Dropout, Linear, activation_named
from .base import IGNORED, Model, checked_ids, key_mask, positions_of
from .config import EncoderConfig
from .stacks import Encoder, InputEmbedding, PatchEmbedding

__all__ = ["EncoderClassifier", "EncoderModel", "MaskedLanguageModel", "TokenClassifier"]


class EncoderModel(Model):
    """Token ids to a vector for each token, which sees all real tokens.

    `types` (N, L) are the kinds of segments, where the model tells them apart. Where `config` has a
    patch_size, images (N, C, H, W), as `pixels` makes them, stand for ids, and L is 1 + the number
    of patches.
    """

    config: EncoderConfig

    def _build(self, config: EncoderConfig, generator: np.random.Generator | None) -> None:
        self.embedding: InputEmbedding | PatchEmbedding
        if config.patch_size:
            self.embedding = PatchEmbedding(config, generator)
        elif config.vocab_size < 1:
            raise ValueError(
                f"{type(self).__name__}: expected a vocabulary, got vocab_size={config.vocab_size}"
            )
        else:
            self.embedding = InputEmbedding(
                config, config.vocab_size, generator, num_types=config.num_types
            )
        self.encoder = Encoder(config, config.num_layers, generator, shared=config.shared_layers)

    def hidden(self, ids: Any, padding_mask: Any = None, types: Any = None) -> Tensor:
        """The vectors (N, L, d_model) of token ids (N, L)."""
        real = self._padding(ids, padding_mask)
        at = positions_of(real)
        return self.encoder(self.embedding(ids, at, types), key_mask(real), positions=at)

    def _padding(self, ids: Any, given: Any = None) -> np.ndarray | None:
        if not self.config.patch_size:
            return super()._padding(checked_ids("ids", ids), given)
        if given is not None:
            raise ValueError("padding_mask: images have no padding")
        return None

    forward = hidden


class _WithOutput(EncoderModel):
    """An encoder with an output projection: what the heads share."""

    features = EncoderModel.hidden  # what the output projection sees

    def forward(self, ids: Any, padding_mask: Any = None, types: Any = None) -> Tensor:
        """Logits of what the output projection sees: (N, num_classes), or for each token (N, L,
        ...).
        """
        return self.output(self.features(ids, padding_mask, types))

    def targets(
        self, ids: Any, targets: Any, padding_mask: Any = None, types: Any = None
    ) -> np.ndarray:
        """The targets, as integers of which -100 counts nothing."""
        return np.asarray(targets)

    def loss(
        self,
        ids: Any,
        targets: Any,
        padding_mask: Any = None,
        types: Any = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Tensor:
        """The cross-entropy of the targets: integers, one for each row of logits, of which -100
        counts nothing.
        """
        x = self.features(ids, padding_mask, types)
        return self._cross_entropy(
            x, self.targets(ids, targets, padding_mask), label_smoothing, reduction
        )


class _Classifier(_WithOutput):
    def _build(self, config: EncoderConfig, generator: np.random.Generator | None) -> None:
        super()._build(config, generator)
        if config.num_classes < 1:
            raise ValueError(
                f"{type(self).__name__}: expected num_classes of at least 1, got "
                f"{config.num_classes}"
            )
        self.dropout = Dropout(
            config.dropout if config.head_dropout is None else config.head_dropout, generator
        )
        self.dense: Linear | None = None
        if config.head_activation != "none":
            self.dense = Linear(
                config.d_model, config.d_model, dtype=config.dtype, generator=generator
            )
        self.output = Linear(
            config.d_model, config.num_classes, dtype=config.dtype, generator=generator
        )

    def features(self, ids: Any, padding_mask: Any = None, types: Any = None) -> Tensor:
        x = self.pooled(ids, padding_mask, types)
        if self.dense is not None:
            x = activation_named(self.config.head_activation)(self.dense(x))
        return self.dropout(x)

    pooled = EncoderModel.hidden  # the vectors that are classified


class EncoderClassifier(_Classifier):
    """An encoder, one vector for all its outputs, and a linear layer: logits (N, num_classes) of
    the classes of a text.

    The targets of `loss` are classes (N,).
    """

    def pooled(self, ids: Any, padding_mask: Any = None, types: Any = None) -> Tensor:
        """(N, d_model): the mean over the real tokens, or the first token, as `config.pool` says."""
        x = self.hidden(ids, padding_mask, types)  # (N, L, d_model)
        if self.config.pool == "first":
            return x[:, 0]
        real = self._padding(ids, padding_mask)
        real = np.ones(x.shape[:2], bool) if real is None else real
        weights = real / np.maximum(real.sum(-1, keepdims=True), 1)
        return mg.sum(x * weights[..., None].astype(x.dtype), 1)


class TokenClassifier(_Classifier):
    """An encoder and a linear layer: logits (N, L, num_classes) of the classes of each token.

    The targets of `loss` are classes (N, L); those of padding count nothing.
    """

    def targets(
        self, ids: Any, targets: Any, padding_mask: Any = None, types: Any = None
    ) -> np.ndarray:
        real = self._padding(ids, padding_mask)
        return np.asarray(targets) if real is None else np.where(real, targets, IGNORED)


class MaskedLanguageModel(_WithOutput):
    """An encoder that tells which tokens were there: dense layer, activation, norm, and the tied
    embedding.

    Logits are (N, L, vocab_size), the targets of `loss` tokens (N, L).
    """

    def _build(self, config: EncoderConfig, generator: np.random.Generator | None) -> None:
        super()._build(config, generator)
        if not isinstance(self.embedding, InputEmbedding):
            raise ValueError(
                f"{type(self).__name__}: expected a vocabulary, got patch_size={config.patch_size}"
            )
        width, dtype = config.embeddings.size or config.d_model, config.dtype
        self.dense = Linear(config.d_model, width, dtype=dtype, generator=generator)
        self.norm = norm_named(config.norm, width, config.norm_eps, dtype)
        self.output = Linear(width, config.vocab_size, config.output_bias, dtype, generator)
        self.output.weight = self.embedding.tokens.weight

    def features(self, ids: Any, padding_mask: Any = None, types: Any = None) -> Tensor:
        activation = activation_named(self.config.activation)
        return self.norm(activation(self.dense(self.hidden(ids, padding_mask, types))))

"""Encoders with heads: BERT's form (Devlin et al. 2019, arXiv:1810.04805)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from ..layers.block import norm_named
from ..layers.linear import Dropout, Linear, activation_named
from .base import IGNORED, Batch, Model
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

    def _sequences(
        self, ids: Any, padding_mask: Any = None, types: Any = None, targets: Any = None
    ) -> Batch:
        """Check a batch of token ids, or of images, which have no padding."""
        if not self.config.patch_size:
            batch = self._batch("ids", ids, padding_mask)
        elif padding_mask is None:
            batch = Batch(ids)
        else:
            raise ValueError("padding_mask: images have no padding")
        return replace(batch, types=types, targets=None if targets is None else np.asarray(targets))

    def _hidden(self, batch: Batch) -> Tensor:
        x = self.embedding(batch.ids, batch.positions, batch.types)
        return self.encoder(x, batch.mask, positions=batch.positions)

    def hidden(self, ids: Any, padding_mask: Any = None, types: Any = None) -> Tensor:
        """Return the vectors (N, L, d_model) of token ids (N, L)."""
        return self._hidden(self._sequences(ids, padding_mask, types))

    forward = hidden


class _WithOutput(EncoderModel):
    """An encoder with an output projection: what the heads share."""

    def _features(self, batch: Batch) -> Tensor:
        """Return what the output projection sees."""
        return self._hidden(batch)

    def forward(self, ids: Any, padding_mask: Any = None, types: Any = None) -> Tensor:
        """Return logits: (N, num_classes), or for each token (N, L, ...)."""
        return self.output(self._features(self._sequences(ids, padding_mask, types)))

    def targets(
        self, ids: Any, targets: Any, padding_mask: Any = None, types: Any = None
    ) -> np.ndarray:
        """Return the targets as integers, IGNORED where they count nothing."""
        return self._sequences(ids, padding_mask, types, targets).targets

    def loss(
        self,
        ids: Any,
        targets: Any,
        padding_mask: Any = None,
        types: Any = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Tensor:
        """Compute the cross-entropy of the targets.

        Targets are integers, one for each row of logits. Targets of -100 count nothing.
        """
        batch = self._sequences(ids, padding_mask, types, targets)
        return self._cross_entropy(self._features(batch), batch.targets, label_smoothing, reduction)


class _Classifier(_WithOutput):
    def _build(self, config: EncoderConfig, generator: np.random.Generator | None) -> None:
        super()._build(config, generator)
        if config.num_classes < 1:
            raise ValueError(
                f"{type(self).__name__}: expected num_classes of at least 1, got "
                f"{config.num_classes}"
            )
        self.dropout = Dropout(
            config.dropout if config.head_dropout is None else config.head_dropout,
            generator=generator,
        )
        self.dense: Linear | None = None
        if config.head_activation != "none":
            self.dense = Linear(
                config.d_model, config.d_model, dtype=config.dtype, generator=generator
            )
        self.output = Linear(
            config.d_model, config.num_classes, dtype=config.dtype, generator=generator
        )

    def _features(self, batch: Batch) -> Tensor:
        x = self._pooled(batch)
        if self.dense is not None:
            x = activation_named(self.config.head_activation)(self.dense(x))
        return self.dropout(x)

    def _pooled(self, batch: Batch) -> Tensor:
        """Return the vectors that are classified."""
        return self._hidden(batch)


class EncoderClassifier(_Classifier):
    """An encoder, one vector for all its outputs, and a linear layer: logits (N, num_classes) of
    the classes of a text.

    The targets of `loss` are classes (N,).
    """

    def _pooled(self, batch: Batch) -> Tensor:
        """Return the mean over the real tokens, or the first token: (N, d_model)."""
        x = self._hidden(batch)  # (N, L, d_model)
        if self.config.pool == "first":
            return x[:, 0]
        real = np.ones(x.shape[:2], bool) if batch.mask is None else batch.mask[:, 0, 0]
        weights = real / np.maximum(real.sum(-1, keepdims=True), 1)
        return mg.sum(x * weights[..., None].astype(x.dtype), 1)


class TokenClassifier(_Classifier):
    """An encoder and a linear layer: logits (N, L, num_classes) of the classes of each token.

    The targets of `loss` are classes (N, L); those of padding count nothing.
    """

    def _sequences(
        self, ids: Any, padding_mask: Any = None, types: Any = None, targets: Any = None
    ) -> Batch:
        batch = super()._sequences(ids, padding_mask, types, targets)
        if batch.mask is None or targets is None:
            return batch
        return replace(batch, targets=np.where(batch.mask[:, 0, 0], batch.targets, IGNORED))


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
        self.output = Linear(
            width, config.vocab_size, config.output_bias, dtype=dtype, generator=generator
        )
        self.output.weight = self.embedding.tokens.weight

    def _features(self, batch: Batch) -> Tensor:
        activation = activation_named(self.config.activation)
        return self.norm(activation(self.dense(self._hidden(batch))))

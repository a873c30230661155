"""Encoders with heads: BERT's form (Devlin et al. 2019, arXiv:1810.04805)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.arguments import checked_count
from minigrad.tensor import Tensor

from ..block import Encoder, InputEmbedding
from ..initial import by_xavier, skipped
from ..layers import Dropout, Linear, activation_named
from ..models import IGNORED, Batch, Model
from .config import EncoderConfig
from .images import PatchEmbedding
from .norms import norm_named
from .parts import ExtendedEmbedding

__all__ = ["EncoderClassifier", "EncoderModel", "MaskedLanguageModel", "TokenClassifier"]


@dataclass(frozen=True)
class TypedBatch(Batch):
    """A batch with segment types (N, L), or of images (N, C, H, W)."""

    types: Any = None


class EncoderModel(Model):
    """An encoder: vectors of the tokens of a sequence, each of which attends to all others.

    If `config.patch_size` is set, it takes images, as `pixels` returns them. Its tokens are a
    learned one and the patches.

    Other parameters: as `Model`.

    Parameters
    ----------
    config : EncoderConfig
        Options of the model.
    """

    config: EncoderConfig
    config_class = EncoderConfig

    def __init__(self, config: EncoderConfig, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.embedding: ExtendedEmbedding | PatchEmbedding
        if config.patch_size:
            self.embedding = PatchEmbedding(config, generator)
        else:
            checked_count(type(self).__name__, "vocab_size", config.vocab_size)
            self.embedding = self.make(
                InputEmbedding, config.vocab_size, num_types=config.num_types
            )
        self.encoder = self.make(Encoder, config.num_layers, shared=config.shared_layers)

    def _sequences(
        self, ids: Any, padding_mask: Any = None, types: Any = None, targets: Any = None
    ) -> TypedBatch:
        """Check a batch of token ids, or of images, which have no padding."""
        if not self.config.patch_size:
            batch = self._batch("ids", ids, padding_mask)
        elif padding_mask is None:
            batch = Batch(ids)
        else:
            raise ValueError("padding_mask must be None for images, which have no padding")
        if types is not None and np.shape(types) != batch.ids.shape:
            raise ValueError(f"types must have shape {batch.ids.shape}, got {np.shape(types)}")
        targets = None if targets is None else np.asarray(targets)
        return TypedBatch(batch.ids, batch.mask, batch.positions, targets, types)

    def _hidden(self, batch: TypedBatch) -> Tensor:
        x = self.embedding(batch.ids, batch.positions, batch.types)
        return self.encoder(x, batch.mask, positions=batch.positions)

    def hidden(self, ids: Any, padding_mask: Any = None, types: Any = None) -> Tensor:
        """Return the vectors of the tokens, (N, L, d_model).

        Other parameters: as `LanguageModel.hidden`.

        Parameters
        ----------
        ids : array of int, shape (N, L), or of float, shape (N, C, H, W)
            Token ids, or images if `config.patch_size` is set, which have no padding.
        types : array of int, shape (N, L), optional
            Segment types; 0 by default.
        """
        return self._hidden(self._sequences(ids, padding_mask, types))

    forward = hidden


class _WithOutput(EncoderModel):
    """Base of the encoders with an output projection."""

    def _sequences(
        self, ids: Any, padding_mask: Any = None, types: Any = None, targets: Any = None
    ) -> TypedBatch:
        """Check a batch, and ignore targets (N, L) of padding."""
        batch = super()._sequences(ids, padding_mask, types, targets)
        if batch.mask is None or np.shape(batch.targets) != batch.ids.shape:
            return batch
        return replace(batch, targets=np.where(batch.mask[:, 0, 0], batch.targets, IGNORED))

    def _features(self, batch: TypedBatch) -> Tensor:
        """Return the input of the output projection, before `config.output_scale`."""
        return self._hidden(batch)

    def _scaled(self, batch: TypedBatch) -> Tensor:
        x = self._features(batch)
        return x if self.config.output_scale == 1 else x * self.config.output_scale

    def forward(self, ids: Any, padding_mask: Any = None, types: Any = None) -> Tensor:
        """Return logits of the classes, (N, classes) or (N, L, classes), or of the tokens."""
        return self.output(self._scaled(self._sequences(ids, padding_mask, types)))

    def targets(
        self, ids: Any, targets: Any, padding_mask: Any = None, types: Any = None
    ) -> np.ndarray:
        """Return the targets as integers, -100 where they are ignored."""
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

        Other parameters: as `EncoderModel.hidden` and `LanguageModel.loss`.

        Parameters
        ----------
        targets : array of int
            A target for each row of logits. -100 is ignored.
        """
        if self.output.weight.shape[0] == 1:
            raise ValueError(
                f"{type(self).__name__}: num_classes must be at least 2 for a cross-entropy, got "
                "1; train scores with minigrad.binary_cross_entropy_with_logits(model(ids)[..., "
                "0], targets)"
            )
        batch = self._sequences(ids, padding_mask, types, targets)
        return self._cross_entropy(self._scaled(batch), batch.targets, label_smoothing, reduction)


class _Classifier(_WithOutput):
    def __init__(self, config: EncoderConfig, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        checked_count(type(self).__name__, "num_classes", config.num_classes)
        linear = partial(Linear, config.d_model, dtype=config.dtype, generator=generator)
        has_dense = config.head_activation != "none"
        self.dropout = Dropout(config.effective.head_dropout or 0.0, generator=generator)
        with by_xavier():
            self.dense = linear(config.d_model, config.bias) if has_dense else None
            norm = (config.norm, config.d_model, config.norm_eps, config.dtype)
            self.norm = norm_named(*norm) if config.head_norm else None
            self.output = linear(config.num_classes)

    def _features(self, batch: TypedBatch) -> Tensor:
        x = self._pooled(batch)
        if self.dense is not None:
            x = activation_named(self.config.head_activation)(self.dense(x))
        return self.dropout(x if self.norm is None else self.norm(x))

    def _pooled(self, batch: TypedBatch) -> Tensor:
        """Return the vectors that are classified."""
        return self._hidden(batch)


class EncoderClassifier(_Classifier):
    """A classifier of sequences or images: logits (N, num_classes).

    One vector is made of those of the tokens by `config.pool`. The targets of `loss` are
    classes, (N,).

    Parameters: as `EncoderModel`.
    """

    def _pooled(self, batch: TypedBatch) -> Tensor:
        """Return the mean over the real tokens, or the first token: (N, d_model)."""
        x = self._hidden(batch)  # (N, L, d_model)
        if self.config.pool == "first":
            return x[:, 0]
        real = np.ones(x.shape[:2], bool) if batch.mask is None else batch.mask[:, 0, 0]
        weights = real / np.maximum(real.sum(-1, keepdims=True), 1)
        return mg.sum(x * weights[..., None].astype(x.dtype), 1)


class TokenClassifier(_Classifier):
    """A classifier of tokens: logits (N, L, num_classes).

    The targets of `loss` are classes, (N, L). Those of padding are ignored.

    Parameters: as `EncoderModel`.
    """


class MaskedLanguageModel(_WithOutput):
    """A masked language model: logits (N, L, vocab_size) of the tokens that were masked.

    Its head is a linear layer, an activation, a norm, and an output projection that shares its
    weight with the embedding. The targets of `loss` are tokens, (N, L). Those of padding are
    ignored.

    Parameters: as `EncoderModel`.
    """

    def __init__(self, config: EncoderConfig, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        if not isinstance(self.embedding, InputEmbedding):
            raise ValueError(
                f"{type(self).__name__}: patch_size must be 0, got {config.patch_size}"
            )
        width = config.embeddings.size or config.d_model
        shared: dict[str, Any] = {"dtype": config.dtype, "generator": generator}
        with by_xavier():
            self.dense = Linear(config.d_model, width, config.bias, **shared)
        self.norm = norm_named(config.norm, width, config.norm_eps, config.dtype)
        with skipped():
            self.output = Linear(width, config.vocab_size, config.output_bias, **shared)
        self.output.weight = self.embedding.tokens.weight

    def _features(self, batch: TypedBatch) -> Tensor:
        activation = activation_named(self.config.activation)
        return self.norm(activation(self.dense(self._hidden(batch))))

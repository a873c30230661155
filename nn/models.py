"""The models: encoder-decoder (Vaswani et al. 2017), and decoder-only (Radford et al. 2019).

Look at `Transformer.loss`, which encodes the source and predicts each token of the target from
those before it, then at `start` and `step`, which decoding calls. `checked_ids` checks token ids,
and `Model._batch` those of inputs, with their mask. A step of decoding changes a `DecodingState`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minigrad.arguments import checked_count
from minigrad.arrays import Array, Ids, Mask, Options, as_array
from minigrad.modes import no_grad
from minigrad.ops.loss import cross_entropy, linear_cross_entropy
from minigrad.tensor import Tensor, unwrap

from .attention import AttentionCache, KeysAndValues, padding_mask_of
from .block import Decoder, Encoder, InputEmbedding
from .config import LanguageModelConfig, ModelConfig, TransformerConfig
from .initial import by_xavier, skipped
from .layers import Embedding, Linear
from .module import Module

__all__ = ["DecodingState", "LanguageModel", "Model", "Transformer"]


IGNORED = -100
"""Target of a position that a loss ignores."""


class Model(Module):
    """Base of the models.

    Parameters
    ----------
    config : ModelConfig
        Options of the model.
    generator : numpy.random.Generator, optional
        Draws the weights, and the masks of dropout. By default that of `minigrad.manual_seed`.
    """

    config: Any
    config_class: ClassVar[type[ModelConfig]] = ModelConfig
    output: Linear

    def __init__(self, config: ModelConfig, generator: np.random.Generator | None = None) -> None:
        name, expected = type(self).__name__, self.config_class.__name__
        if not isinstance(config, self.config_class):
            raise TypeError(
                f"{name}: config must be a {expected}, got {config!r:.60}; write "
                f"nn.{name}(nn.{expected}(...))"
            )
        self.config, self.generator = config, generator

    def make(self, part: type[Module], *sizes: int, **options: Any) -> Any:
        """Return a new embedding or stack of this model.

        Parameters
        ----------
        part : type
            `InputEmbedding`, `Encoder` or `Decoder`. `config.parts` may name another class.
        *sizes, **options
            Arguments of the class.
        """
        made_class = self.config.parts.get(part, part)
        with by_xavier():
            return made_class(self.config, *sizes, self.generator, **options)

    def make_output(self, size: int, shared: Embedding | None) -> Linear:
        """Return a new output projection.

        Parameters
        ----------
        size : int
            Number of outputs.
        shared : Embedding, optional
            Embedding whose weight it shares.
        """
        config = self.config
        options: Options = {"dtype": config.dtype, "generator": self.generator}
        layer = config.parts.get(Linear, Linear)
        with by_xavier(), skipped(skip=shared is not None):
            output = layer(config.d_model, size, config.output_bias, **options)
        if shared is not None:
            output.weight = shared.weight  # in place of the matrix that the layer made
        return output

    def _batch(self, name: str, ids: Ids, padding_mask: Mask = None) -> Batch:
        """Check token ids (N, L), the argument `name`, and make their mask and positions."""
        ids, mask = checked_ids(name, ids), None
        if padding_mask is not None:
            mask = checked_padding_mask(padding_mask, ids.shape)
        elif self.config.masked_id is not None:
            mask = padding_mask_of(ids, self.config.masked_id)
        if mask is None or mask.all():
            return Batch(ids)
        return Batch(ids, mask[:, None, None], positions_of(mask))

    def targets(self, *batch: Array) -> np.ndarray:
        """Return the targets of `loss` as integers, -100 where a position is ignored.

        Parameters
        ----------
        *batch
            The first arguments of `loss`.
        """
        raise NotImplementedError

    def num_targets(self, *batch: Array, **masks: Mask) -> int:
        """Return the number of targets that are not ignored: the divisor of a mean loss.

        Parameters
        ----------
        *batch, **masks
            Arguments of `targets`.
        """
        return int((self.targets(*batch, **masks) != IGNORED).sum())

    def _cross_entropy(
        self, hidden: Tensor, targets: np.ndarray, label_smoothing: float, reduction: str
    ) -> Tensor:
        """Return the loss of the output projection's logits for these targets."""
        options: Options = {
            "label_smoothing": label_smoothing,
            "reduction": reduction,
            "ignore_index": IGNORED,
        }
        # A subclass, such as an adapter, or a tool computes more than the product. The fused kernel
        # keeps no loss of each position.
        is_product = type(self.output) is Linear and self.output._call is None
        if not is_product or reduction == "none":
            return cross_entropy(self.output(hidden), targets, **options)
        return linear_cross_entropy(
            hidden, self.output.weight, targets, linear_bias=self.output.bias, **options
        )


@dataclass(frozen=True)
class Batch:
    """Sequences of a batch, after their check, with masks and positions.

    Attributes
    ----------
    ids : array of int, shape (N, L)
    mask : array of bool, shape (N, 1, 1, L_kv), optional
        True = a real token, of all tokens that attention sees. None: all are real.
    positions : int or array of int, shape (N, L)
        Position of the first token in every sequence, or of each token.
    targets : array of int, optional
        -100 where nothing is predicted.
    """

    ids: np.ndarray
    mask: np.ndarray | None = None
    positions: Ids = 0
    targets: Ids = None


class DecodingState:
    """State of decoding step by step, which `start` of a model returns and `step` advances.

    Parameters
    ----------
    num_layers : int
        Number of layers with self-attention.
    memory : sequence of KeysAndValues
        Keys and values of the cross-attention of each layer.
    padding_mask : array of bool, optional
        True = a real token: of the memory, (N, 1, 1, L_m), or of all tokens of a language model so
        far, (N, L). By default all are real.

    Attributes
    ----------
    caches : list of AttentionCache
        Keys and values of the self-attention of each layer.
    length : int
        Number of tokens so far.
    """

    def __init__(
        self,
        num_layers: int,
        memory: Sequence[KeysAndValues] = (),
        padding_mask: np.ndarray | None = None,
    ) -> None:
        self.memory = list(memory)
        self.padding_mask = padding_mask
        self.caches = [AttentionCache() for _ in range(num_layers)]
        self.length = 0

    def select(self, rows: np.ndarray) -> None:
        """Keep some rows of the batch.

        Parameters
        ----------
        rows : array of int, shape (N,)
            Indices of the rows, in their new order. A row may occur more than once.
        """
        if self.padding_mask is not None:
            self.padding_mask = self.padding_mask[rows]
        for memory in self.memory:
            memory.select(rows)
        for cache in self.caches:
            cache.select(rows)


def checked_ids(name: str, ids: Ids) -> np.ndarray:
    """Return token ids (N, L) as an array, or raise a ValueError with the name of the argument."""
    if not isinstance(ids, np.ndarray) and has_rows_of_different_lengths(ids):
        lengths = [len(row) for row in ids]
        raise ValueError(
            f"{name} must be integer token ids (N, L), got rows of {min(lengths)} to "
            f"{max(lengths)} ids; {_BATCH}"
        )
    ids = as_array(ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        is_row = ids.ndim == 1 and ids.dtype.kind in "iu"
        fix = "put a single sequence in a list" if is_row else _BATCH
        raise ValueError(
            f"{name} must be integer token ids (N, L), got {ids.dtype} {ids.shape}; {fix}"
        )
    if ids.shape[1] == 0:
        raise ValueError(
            f"{name} must have at least one token in each sequence, got shape {ids.shape}"
        )
    return ids


_BATCH = "text.batch(texts) of a tokenizer returns padded ids with their mask"


def has_rows_of_different_lengths(ids: Ids) -> bool:
    """Return whether ids are a list of lists, or of arrays (L,), that are not equally long."""
    if not isinstance(ids, (list, tuple)) or not all(
        isinstance(row, (list, tuple, np.ndarray)) for row in ids
    ):
        return False
    return len({np.shape(row)[:1] for row in ids}) > 1


def checked_padding_mask(
    padding_mask: Mask,
    shape: tuple[int, ...],
    name: str = "padding_mask",
    true: str = "a real token",
) -> np.ndarray:
    """Return a mask of tokens (N, L) as an array, or raise a ValueError."""
    mask = as_array(padding_mask)
    if mask.dtype != bool or mask.shape != shape:
        raise ValueError(
            f"{name} must be booleans {shape}, True = {true}, got {mask.dtype} {mask.shape}"
        )
    return mask


def positions_of(mask: np.ndarray) -> Ids:
    """Return the position of each token among the real ones, (N, L), or 0 if padding comes last."""
    if (mask[:, 1:] <= mask[:, :-1]).all():
        return 0
    return np.maximum(np.cumsum(mask, -1) - 1, 0)


class Transformer(Model):
    """An encoder-decoder model: logits of the next target token, given a source sequence.

    Other parameters: as `Model`.

    Parameters
    ----------
    config : TransformerConfig
        Sizes and choices.

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
        if config.tie in ("embeddings", "all"):
            self.source_embedding.tokens.weight = table.weight

    def _encode(self, source: Batch) -> Tensor:
        x = self.source_embedding(source.ids, source.positions)
        return self.encoder(x, source.mask, positions=source.positions)

    def _decode(
        self,
        target: Batch,
        memory: Array,
        memory_mask: Mask,
        caches: Sequence[AttentionCache] | None = None,
    ) -> Tensor:
        x = self.target_embedding(target.ids, target.positions)
        return self.decoder(x, memory, None, memory_mask, caches)

    def _pair(self, source: Ids, target: Ids, padding_mask: Mask) -> tuple[Batch, np.ndarray]:
        """Check source and target ids. Padding after the end of a target needs no mask."""
        batch, target = self._batch("source", source, padding_mask), checked_ids("target", target)
        if len(target) != len(batch.ids):
            raise ValueError(
                f"target must have as many sequences as source ({len(batch.ids)}), got "
                f"{len(target)}"
            )
        return batch, target

    def _next_tokens(self, target: np.ndarray, target_mask: Mask = None) -> Batch:
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

    def encode(self, source: Ids, padding_mask: Mask = None) -> Tensor:
        """Return the output of the encoder, (N, L_s, d_model).

        Parameters
        ----------
        source : array of int, shape (N, L_s)
            Source token ids.
        padding_mask : array of bool, shape (N, L_s), optional
            True = a real source token. By default the tokens other than `config.pad_id` are real,
            or all tokens if `pad_id` is one of `eos_id`.
        """
        return self._encode(self._batch("source", source, padding_mask))

    def decode(self, target: Ids, memory: Array, memory_mask: Mask = None) -> Tensor:
        """Return the input of the output projection, (N, L_t, d_model).

        Parameters
        ----------
        target : array of int, shape (N, L_t)
            Target token ids. Each position attends to itself and to those before it.
        memory : Tensor, shape (N, L_s, d_model)
            Output of `encode`.
        memory_mask : array of bool, shape (N, L_s), optional
            True = a real source token. By default all are.
        """
        batch = Batch(checked_ids("target", target))
        if len(memory) != len(batch.ids):
            raise ValueError(
                f"memory must have as many sequences as target ({len(batch.ids)}), got "
                f"{len(memory)}"
            )
        mask = None if memory_mask is None else as_array(memory_mask)[:, None, None]
        return self._decode(batch, memory, mask)

    def hidden(self, source: Ids, target: Ids, padding_mask: Mask = None) -> Tensor:
        """Return the input of the output projection, (N, L_t, d_model).

        Other parameters: as `encode`.

        Parameters
        ----------
        target : array of int, shape (N, L_t)
            Target token ids, beginning with `config.bos_id`.
        """
        batch, target = self._pair(source, target, padding_mask)
        return self._decode(Batch(target), self._encode(batch), batch.mask)

    def forward(self, source: Ids, target: Ids, padding_mask: Mask = None) -> Tensor:
        """Return logits of the token after each target position, (N, L_t, target_vocab_size).

        Parameters: as `hidden`.
        """
        return self.output(self.hidden(source, target, padding_mask))

    def loss(
        self,
        source: Ids,
        target: Ids,
        padding_mask: Mask = None,
        target_mask: Mask = None,
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
            "none" returns a loss for each position, (N, L_t - 1).
        """
        batch, target = self._pair(source, target, padding_mask)
        following = self._next_tokens(target, target_mask)
        hidden = self._decode(following, self._encode(batch), batch.mask)
        return self._cross_entropy(hidden, following.targets, label_smoothing, reduction)

    def targets(
        self, source: Ids, target: Ids, padding_mask: Mask = None, target_mask: Mask = None
    ) -> np.ndarray:
        """Return the targets of `loss`: the target tokens after the first, -100 at padding.

        Parameters: as `loss`.
        """
        return self._next_tokens(checked_ids("target", target), target_mask).targets

    @no_grad()
    def start(self, source: Ids, padding_mask: Mask = None) -> DecodingState:
        """Return the state for the first `step`, without gradients.

        Parameters: as `encode`.
        """
        batch = self._batch("source", source, padding_mask)
        memory = self.decoder.project_memory(self._encode(batch).data)
        return DecodingState(self.config.num_decoder_layers, memory, batch.mask)

    @no_grad()
    def step(self, tokens: Ids, state: DecodingState) -> np.ndarray:
        """Return logits of the next token, (N, target_vocab_size), and advance the state.

        Parameters
        ----------
        tokens : array of int, shape (N, L)
            Target tokens that follow those of the steps before.
        state : DecodingState
            Changed in place.
        """
        batch = Batch(checked_ids("tokens", tokens), positions=state.length)
        state.length += batch.ids.shape[1]
        hidden = self._decode(batch, state.memory, state.padding_mask, state.caches)
        return unwrap(self.output(hidden.data[:, -1]))


class LanguageModel(Model):
    """A decoder-only model: logits of the token after each token of a sequence.

    Padding may be left or right of a sequence.

    Other parameters: as `Model`.

    Parameters
    ----------
    config : LanguageModelConfig
        Sizes and choices.

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
        # be of size √d_model, and each token would predict itself. So the size of logits,
        # std · √d_model, is at most 0.2.
        std = min(0.02, 2 / config.d_model) if config.tie else None
        self.embedding = self.make(InputEmbedding, config.vocab_size, std=std)
        self.layers = self.make(Encoder, config.num_layers, causal=True)
        self.output = self.make_output(
            config.vocab_size, self.embedding.tokens if config.tie else None
        )

    def _hidden(self, batch: Batch, caches: Sequence[AttentionCache] | None = None) -> Tensor:
        x = self.embedding(batch.ids, batch.positions)
        return self.layers(x, batch.mask, caches, batch.positions)

    def _next_tokens(self, ids: Ids, padding_mask: Mask, target_mask: Mask = None) -> Batch:
        """Make the batch of a loss: at each token but the last, predict the token after it."""
        batch = self._batch("ids", ids, padding_mask)
        ids, mask, positions = batch.ids, batch.mask, batch.positions
        targets = ids[:, 1:]
        if target_mask is not None:
            predicted = checked_padding_mask(
                target_mask, ids.shape, "target_mask", "a token to predict"
            )
            targets = np.where(predicted[:, 1:], targets, IGNORED)
        if mask is None:
            return Batch(ids[:, :-1], targets=targets)
        positions = positions[:, :-1] if np.ndim(positions) else positions
        both = mask[:, 0, 0, 1:] & mask[:, 0, 0, :-1]
        return Batch(ids[:, :-1], mask[..., :-1], positions, np.where(both, targets, IGNORED))

    def hidden(self, ids: Ids, padding_mask: Mask = None) -> Tensor:
        """Return the input of the output projection, (N, L, d_model).

        Parameters
        ----------
        ids : array of int, shape (N, L)
            Token ids. Each position attends to itself and to those before it.
        padding_mask : array of bool, shape (N, L), optional
            True = a real token. By default the tokens other than `config.pad_id` are real,
            or all tokens if `pad_id` is one of `eos_id`.
        """
        return self._hidden(self._batch("ids", ids, padding_mask))

    def forward(self, ids: Ids, padding_mask: Mask = None) -> Tensor:
        """Return logits of the token after each token, (N, L, vocab_size).

        Parameters: as `hidden`.
        """
        return self.output(self._hidden(self._batch("ids", ids, padding_mask)))

    def loss(
        self,
        ids: Ids,
        padding_mask: Mask = None,
        target_mask: Mask = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Tensor:
        """Compute the cross-entropy of each real token given those before it.

        Other parameters: as `hidden`.

        Parameters
        ----------
        target_mask : array of bool, shape (N, L), optional
            True = a token whose loss counts, such as one of an answer. By default all real tokens.
        label_smoothing : float
            Part of the probability of a target that is spread over all tokens.
        reduction : {"mean", "sum", "none"}
            "none" returns a loss for each position, (N, L - 1).
        """
        batch = self._next_tokens(ids, padding_mask, target_mask)
        return self._cross_entropy(self._hidden(batch), batch.targets, label_smoothing, reduction)

    def targets(self, ids: Ids, padding_mask: Mask = None, target_mask: Mask = None) -> np.ndarray:
        """Return the token after each token but the last, -100 at padding and where none counts.

        Parameters: as `loss`.
        """
        return self._next_tokens(ids, padding_mask, target_mask).targets

    def start(self, padding_mask: Mask = None) -> DecodingState:
        """Return the state for the first `step`, which takes the prompts.

        Parameters
        ----------
        padding_mask : array of bool, shape (N, L), optional
            True = a real token, for prompts of different lengths that are padded on the left.
        """
        mask = None if padding_mask is None or np.all(padding_mask) else as_array(padding_mask)
        return DecodingState(self.config.num_layers, padding_mask=mask)

    @no_grad()
    def step(self, tokens: Ids, state: DecodingState, every: bool = False) -> np.ndarray:
        """Return logits of the next token, (N, vocab_size), and advance the state.

        Other parameters: as `Transformer.step`.

        Parameters
        ----------
        every : bool
            Return the logits after each of the tokens, (N, L, vocab_size).
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

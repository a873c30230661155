"""Base of the models: construction, padding, and decoding step by step.

Look at `Model._batch`, where token ids enter, are checked, and get a mask. `DecodingState` is what
a step of decoding changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minigrad.ops.loss import cross_entropy, linear_cross_entropy
from minigrad.tensor import Tensor

from .cache import AttentionCache, KeysAndValues
from .config import ModelConfig
from .initial import xavier_uniform_
from .linear import Embedding, Linear
from .masks import padding_mask_of
from .module import Module

__all__ = ["DecodingState", "Model"]

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
        output = Linear(
            config.d_model, size, config.output_bias, dtype=config.dtype, generator=self.generator
        )
        if shared is not None:
            output.weight = shared.weight
        return output

    def draw_weights(self, model_class: type[Model]) -> None:
        """Draw the matrices of linear layers by Xavier's rule, and begin with biases of zero.

        The constructor of each model class calls it last.

        Parameters
        ----------
        model_class : type
            Class whose constructor calls. A subclass with its own constructor draws later.
        """
        if type(self).__init__ is not model_class.__init__:
            return
        tables = {id(m.weight) for m in self.modules() if isinstance(m, Embedding)}
        for module in self.modules():
            if isinstance(module, Linear):
                if id(module.weight) not in tables:
                    xavier_uniform_(module.weight, generator=self.generator)
                if module.bias is not None:
                    module.bias.data[...] = 0

    def _batch(self, name: str, ids: Any, padding_mask: Any = None) -> Batch:
        """Check token ids (N, L), the argument `name`, and make their mask and positions."""
        ids, mask = checked_ids(name, ids), None
        if padding_mask is not None:
            mask = checked_padding_mask(padding_mask, ids.shape)
        elif self.config.masked_id is not None:
            mask = padding_mask_of(ids, self.config.masked_id)
        if mask is None or mask.all():
            return Batch(ids)
        return Batch(ids, mask[:, None, None], positions_of(mask))

    def targets(self, *batch: Any) -> np.ndarray:
        """Return the targets of `loss` as integers, -100 where a position is ignored.

        Parameters
        ----------
        *batch
            The first arguments of `loss`.
        """
        raise NotImplementedError

    def num_targets(self, *batch: Any, **masks: Any) -> int:
        """Return the number of targets that are not ignored: the divisor of a mean loss.

        Parameters
        ----------
        *batch
            The first arguments of `loss`.
        **masks
            Arguments of `targets` by name, such as `padding_mask`.
        """
        return int((self.targets(*batch, **masks) != IGNORED).sum())

    def _cross_entropy(
        self, hidden: Tensor, targets: np.ndarray, label_smoothing: float, reduction: str
    ) -> Tensor:
        """Return the loss of the output projection's logits for these targets."""
        options: dict[str, Any] = {
            "label_smoothing": label_smoothing,
            "reduction": reduction,
            "ignore_index": IGNORED,
        }
        # A subclass, such as an adapter, or a hook computes more than the product. The fused kernel
        # keeps no loss of each position.
        is_product = type(self.output) is Linear and not self.output.has_hooks
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

    ids: Any
    mask: np.ndarray | None = None
    positions: Any = 0
    targets: Any = None


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


def checked_ids(name: str, ids: Any) -> np.ndarray:
    """Return token ids (N, L) as an array, or raise a ValueError with the name of the argument."""
    if not isinstance(ids, np.ndarray) and has_rows_of_different_lengths(ids):
        lengths = [len(row) for row in ids]
        raise ValueError(
            f"{name} must be integer token ids (N, L), got rows of {min(lengths)} to "
            f"{max(lengths)} ids; {_BATCH}"
        )
    ids = np.asarray(ids)
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


def has_rows_of_different_lengths(ids: Any) -> bool:
    """Return whether ids are a list of lists, or of arrays (L,), that are not equally long."""
    if not isinstance(ids, (list, tuple)) or not all(
        isinstance(row, (list, tuple, np.ndarray)) for row in ids
    ):
        return False
    return len({np.shape(row)[:1] for row in ids}) > 1


def checked_padding_mask(
    padding_mask: Any, shape: tuple[int, ...], name: str = "padding_mask"
) -> np.ndarray:
    """Return a padding mask (N, L) as an array, or raise a ValueError."""
    mask = np.asarray(padding_mask)
    if mask.dtype != bool or mask.shape != shape:
        raise ValueError(
            f"{name} must be booleans {shape}, True = a real token, got {mask.dtype} {mask.shape}"
        )
    return mask


def positions_of(mask: np.ndarray) -> Any:
    """Return the position of each token among the real ones, (N, L), or 0 if padding comes last."""
    if (mask[:, 1:] <= mask[:, :-1]).all():
        return 0
    return np.maximum(np.cumsum(mask, -1) - 1, 0)

"""Base of the models: construction, initialization, padding, and decoding step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from ..layers import init
from ..layers.cache import AttentionCache, KeysAndValues
from ..layers.init import skipped
from ..layers.linear import Embedding, Linear
from ..layers.module import Module
from ..layers.position import LearnedPositions
from ..layers.probes import attentions_of, expect_attentions
from ..layers.pruning import heads_without, prune_heads
from .config import ModelConfig

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
    init : bool
        Draw the weights. False leaves them zero, for weights that are loaded afterwards.
    """

    config: Any
    origin: Any = None  # the directory of a published model, set by `nn.load`

    def __init__(
        self, config: ModelConfig, generator: np.random.Generator | None = None, init: bool = True
    ) -> None:
        self.config = config
        with skipped(skip=not init):
            self._build(config, generator)
            self._reset(generator)

    def _build(self, config: Any, generator: np.random.Generator | None) -> None:
        raise NotImplementedError

    def _reset(self, generator: np.random.Generator | None) -> None:
        """Draw matrices by Xavier's rule, as PyTorch's Transformer does, but no embeddings."""
        tables = {
            id(m.weight) for m in self.modules() if isinstance(m, (Embedding, LearnedPositions))
        }
        for module in self.modules():
            if isinstance(module, Linear):
                if id(module.weight) not in tables:
                    init.xavier_uniform_(module.weight, generator=generator)
                if module.bias is not None:
                    init.zeros_(module.bias)
        if self.config.pruned_heads:
            self.prune_heads(self.config.pruned_heads)

    def prune_heads(self, heads: Mapping[str, Iterable[int]]) -> None:
        """Remove heads of attentions, see `nn.prune_heads`.

        They are listed in `config.pruned_heads`, so that a model made from `config` loads the
        pruned weights.

        Parameters
        ----------
        heads : mapping of iterable of int
            Indices of heads by the path of an attention, such as
            `{"encoder.layers.0.self_attention": [1, 3]}`.

        Raises
        ------
        KeyError, ValueError
            There is no such attention, or no such head. The model is left unchanged.
        """
        expect_attentions("prune_heads", "heads", self, heads)
        attentions = attentions_of(self)
        lists = {name: list(indices) for name, indices in heads.items()}
        for name, indices in lists.items():
            heads_without(attentions[name], indices)  # an error here comes before any change
        for name, indices in lists.items():
            prune_heads(attentions[name], indices)
        pruned = {
            name: list(attention.pruned_heads)
            for name, attention in attentions.items()
            if attention.pruned_heads
        }
        self.config = replace(self.config, pruned_heads=pruned)

    def _batch(self, name: str, ids: Any, padding_mask: Any = None) -> Batch:
        """Check token ids (N, L), the argument `name`, and make their mask and positions."""
        ids = checked_ids(name, ids)
        mask = padding_mask
        if mask is not None:
            mask = np.asarray(mask)
            if mask.dtype != bool or mask.shape != ids.shape:
                raise ValueError(
                    f"padding_mask must be booleans {ids.shape}, True = a real token, got "
                    f"{mask.dtype} {mask.shape}"
                )
        elif self.config.hidden_id is not None:
            mask = ids != self.config.hidden_id
        if mask is None or mask.all():
            return Batch(ids)
        return Batch(ids, mask[:, None, None], positions_of(mask))

    def targets(self, *batch: Any) -> np.ndarray:
        """Return the targets of `loss` as integers, -100 where a position is ignored.

        Parameters
        ----------
        *batch
            The first arguments of `loss`.

        Returns
        -------
        array of int
            A target for each loss that `loss` adds up.
        """
        raise NotImplementedError

    def num_targets(self, *batch: Any) -> int:
        """Return the number of targets that are not ignored: the divisor of a mean loss.

        Parameters
        ----------
        *batch
            The first arguments of `loss`.

        Returns
        -------
        int
            Number of targets.
        """
        return int((self.targets(*batch) != IGNORED).sum())

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
            return mg.cross_entropy(self.output(hidden), targets, **options)
        return mg.linear_cross_entropy(
            hidden, self.output.weight, targets, linear_bias=self.output.bias, **options
        )

    output: Linear


@dataclass(frozen=True)
class Batch:
    """Sequences of a batch, after their check, with masks and positions.

    Attributes
    ----------
    ids : array of int, shape (N, L), or images (N, C, H, W)
    mask : array of bool, shape (N, 1, 1, L_kv), optional
        True = a real token, of all tokens that attention sees. None: all are real.
    positions : int or array of int, shape (N, L)
        Position of the first token in every sequence, or of each token.
    targets : array of int, optional
        -100 where nothing is predicted.
    types : array of int, shape (N, L), optional
        Segment types.
    """

    ids: Any
    mask: np.ndarray | None = None
    positions: Any = 0
    targets: Any = None
    types: Any = None


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
    ids = np.asarray(ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integer token ids (N, L), got {ids.dtype} {ids.shape}")
    if ids.shape[1] == 0:
        raise ValueError(
            f"{name} must have at least one token in each sequence, got shape {ids.shape}"
        )
    return ids


def positions_of(mask: np.ndarray) -> Any:
    """Return the position of each token among the real ones, (N, L), or 0 if padding comes last."""
    if (mask[:, 1:] <= mask[:, :-1]).all():
        return 0
    return np.maximum(np.cumsum(mask, -1) - 1, 0)

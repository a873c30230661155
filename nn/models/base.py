"""What all models share: a configuration, how weights start, padding, and decoding step by step."""

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
from ..layers.probes import attentions_of
from ..layers.pruning import heads_without, prune_heads
from .config import ModelConfig

__all__ = ["DecodingState", "Model"]

IGNORED = -100
"""The target of a position that counts nothing in a loss."""


class Model(Module):
    """Base of the models: made from `config`, with its weights drawn from `generator` unless `init`
    is False.

    Where a model takes a `padding_mask` (N, L), that holds booleans, True = a real token. Unless
    given it is made from `config.pad_id`; where that is None, all tokens are real.
    """

    config: Any
    origin: Any = None  # the folder of others that `nn.load` took it from

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
        """Matrices by Xavier's rule, as PyTorch's Transformer; embeddings keep their own."""
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
        """Remove heads for good, by the name of their attention:
        `{"encoder.layers.0.self_attention": [1, 3]}`.

        `nn.prune_heads` tells more. An error leaves the model as it was. The heads are listed in
        `config.pruned_heads`, so that a model made from `config` loads the pruned weights.
        """
        found = attentions_of(self)
        if unknown := sorted(set(heads) - set(found)):
            raise KeyError(
                f"prune_heads: no multi-head attention is named {unknown}; there are {list(found)}"
            )
        lists = {name: list(some) for name, some in heads.items()}
        for name, some in lists.items():
            heads_without(found[name], some)  # an error here comes before any change
        for name, some in lists.items():
            prune_heads(found[name], some)
        pruned = {
            name: list(module.pruned_heads) for name, module in found.items() if module.pruned_heads
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
                    f"padding_mask: expected booleans {ids.shape}, True = a real token, got "
                    f"{mask.dtype} {mask.shape}"
                )
        elif self.config.hidden_id is not None:
            mask = ids != self.config.hidden_id
        if mask is None or mask.all():
            return Batch(ids)
        return Batch(ids, mask[:, None, None], positions_of(mask))

    def targets(self, *batch: Any) -> np.ndarray:
        """The targets of `loss` for this batch; those that are IGNORED count nothing."""
        raise NotImplementedError

    def num_targets(self, *batch: Any) -> int:
        """How many targets count: what the mean of `loss` is divided by."""
        return int((self.targets(*batch) != IGNORED).sum())

    def _cross_entropy(
        self, hidden: Tensor, targets: np.ndarray, label_smoothing: float, reduction: str
    ) -> Tensor:
        """The loss of the output projection's logits for these targets."""
        options: dict[str, Any] = {
            "label_smoothing": label_smoothing,
            "reduction": reduction,
            "ignore_index": IGNORED,
        }
        if (
            type(self.output) is not Linear or self.output.has_hooks
        ):  # its weight is not all that it adds
            return mg.cross_entropy(self.output(hidden), targets, **options)
        return mg.linear_cross_entropy(
            hidden, self.output.weight, targets, linear_bias=self.output.bias, **options
        )

    output: Linear


@dataclass(frozen=True)
class Batch:
    """Sequences of a batch, checked once, with what embeddings and attentions need to know.

    Attributes
    ----------
    ids : array of int, shape (N, L), or images (N, C, H, W)
    mask : array of bool, shape (N, 1, 1, L_kv), optional
        True = a real token, of all tokens that attention sees. None: all are real.
    positions : int or array of int, shape (N, L)
        Position of the first token in every sequence, or of each token.
    targets : array of int, optional
        IGNORED where nothing is to be predicted.
    types : array of int, shape (N, L), optional
        Kinds of segments.
    """

    ids: Any
    mask: np.ndarray | None = None
    positions: Any = 0
    targets: Any = None
    types: Any = None


class DecodingState:
    """What decoding step by step carries along.

    `caches` are those of the self-attentions. `memory` has, for each layer, what its
    cross-attention attends to. `padding_mask` is True at real tokens: of the memory (N, 1, 1, L_m),
    or in a language model of all tokens so far (N, L). None: all are real.
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
        """Keep these rows of the batch, in this order; a row can be taken more than once."""
        if self.padding_mask is not None:
            self.padding_mask = self.padding_mask[rows]
        for memory in self.memory:
            memory.select(rows)
        for cache in self.caches:
            cache.select(rows)


def checked_ids(name: str, ids: Any) -> np.ndarray:
    """Token ids (N, L), with at least one position."""
    ids = np.asarray(ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integer token ids (N, L), got {ids.dtype} {ids.shape}")
    if ids.shape[1] == 0:
        raise ValueError(
            f"{name}: expected at least one token in each sequence, got shape {ids.shape}"
        )
    return ids


def positions_of(mask: np.ndarray) -> Any:
    """Return the position of each token among the real ones, (N, L), or 0 if padding comes last."""
    if (mask[:, 1:] <= mask[:, :-1]).all():
        return 0
    return np.maximum(np.cumsum(mask, -1) - 1, 0)

"""Pruning of the heads of a model: Michel et al. (2019), arXiv:1905.10650."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from minigrad.registry import add_methods

from ..models import Model
from .config import extended
from .heads import heads_without, prune_heads, pruned_heads_of
from .probes import attentions_of, expect_attentions

__all__: list[str] = []


def prune_model(self: Any, heads: Mapping[str, Iterable[int]]) -> None:
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
        name: list(removed)
        for name, attention in attentions.items()
        if (removed := pruned_heads_of(attention))
    }
    self.config = replace(extended(self.config), pruned_heads=pruned)


add_methods(Model, {"prune_heads": prune_model})

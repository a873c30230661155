"""Pruning of attention heads: Michel et al. (2019), arXiv:1905.10650."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..attention import MultiHeadAttention
from ..model import Model
from .probes import attentions_of, expect_attentions

__all__ = ["prune_heads"]


def prune_heads(attention: MultiHeadAttention, heads: Iterable[int]) -> None:
    """Remove heads from an attention, as if their outputs were zero.

    `num_heads` and the parameters shrink, gradients are dropped, and an optimizer that was created
    before refuses its next step. To save a pruned model, call `model.prune_heads` instead.

    Parameters
    ----------
    attention : MultiHeadAttention
        Changed in place.
    heads : iterable of int
        Original indices of the heads, 0 to h - 1, whatever was pruned before.
        `attention.pruned_heads` contains the removed ones.
    """
    remaining, indices = heads_without(attention, heads)
    rows = (np.array(indices)[:, None] * attention.d_k + np.arange(attention.d_k)).reshape(-1)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight.replace(projection.weight.data[rows])
        if projection.bias is not None:
            projection.bias.replace(projection.bias.data[rows])
        projection.out_features = len(rows)
    out = attention.out_proj
    out.weight.replace(np.ascontiguousarray(out.weight.data[:, rows]))
    out.in_features = len(rows)
    total = attention.num_heads + len(attention.pruned_heads)
    attention.pruned_heads = tuple(head for head in range(total) if head not in remaining)
    attention.num_heads = attention.num_kv_heads = len(remaining)
    attention.zero_grad()


def heads_without(
    attention: MultiHeadAttention, heads: Iterable[int]
) -> tuple[list[int], list[int]]:
    """Return the original indices of the heads that stay, and their present indices."""
    heads = [operator.index(head) for head in heads]
    total = attention.num_heads + len(attention.pruned_heads)
    present = [head for head in range(total) if head not in attention.pruned_heads]
    if attention.num_kv_heads != attention.num_heads or attention.position_bias is not None:
        raise ValueError(
            "prune_heads: attention must have keys and values for each head, and no position bias"
        )
    if wrong := [head for head in heads if not 0 <= head < total]:
        raise IndexError(f"prune_heads: heads must be from 0 to {total - 1}, got {wrong}")
    if pruned := [head for head in heads if head in attention.pruned_heads]:
        raise ValueError(
            f"prune_heads: heads must be some of {present}, got {pruned}, which are pruned already"
        )
    if len(set(heads)) < len(heads):
        raise ValueError(f"prune_heads: heads must be distinct, got {heads}")
    remaining = [head for head in present if head not in heads]
    if not remaining:
        raise ValueError(f"prune_heads: heads must leave at least one of {present}, got {heads}")
    return remaining, [present.index(head) for head in remaining]


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
        name: list(attention.pruned_heads)
        for name, attention in attentions.items()
        if attention.pruned_heads
    }
    self.config = replace(self.config, pruned_heads=pruned)


Model.prune_heads = prune_model  # type: ignore[attr-defined]

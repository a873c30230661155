"""Pruning of the heads of one attention: Michel et al. (2019), arXiv:1905.10650."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np

from ..attention import MultiHeadAttention
from .modules import replace_array

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
        replace_array(projection.weight, projection.weight.data[rows])
        if projection.bias is not None:
            replace_array(projection.bias, projection.bias.data[rows])
        projection.out_features = len(rows)
    out = attention.out_proj
    replace_array(out.weight, np.ascontiguousarray(out.weight.data[:, rows]))
    out.in_features = len(rows)
    total = attention.num_heads + len(pruned_heads_of(attention))
    vars(attention)["pruned_heads"] = tuple(head for head in range(total) if head not in remaining)
    attention.num_heads = len(remaining)
    attention.zero_grad()


def pruned_heads_of(attention: MultiHeadAttention) -> tuple[int, ...]:
    """Return the original indices of the heads that were removed."""
    return vars(attention).get("pruned_heads", ())


def heads_without(
    attention: MultiHeadAttention, heads: Iterable[int]
) -> tuple[list[int], list[int]]:
    """Return the original indices of the heads that stay, and their present indices."""
    heads = [operator.index(head) for head in heads]
    removed = pruned_heads_of(attention)
    total = attention.num_heads + len(removed)
    present = [head for head in range(total) if head not in removed]
    if (
        attention.k_proj.out_features != attention.q_proj.out_features
        or getattr(attention, "position_bias", None) is not None
    ):
        raise ValueError(
            "prune_heads: attention must have keys and values for each head, and no position bias"
        )
    if wrong := [head for head in heads if not 0 <= head < total]:
        raise IndexError(f"prune_heads: heads must be from 0 to {total - 1}, got {wrong}")
    if pruned := [head for head in heads if head in removed]:
        raise ValueError(
            f"prune_heads: heads must be some of {present}, got {pruned}, which are pruned already"
        )
    if len(set(heads)) < len(heads):
        raise ValueError(f"prune_heads: heads must be distinct, got {heads}")
    remaining = [head for head in present if head not in heads]
    if not remaining:
        raise ValueError(f"prune_heads: heads must leave at least one of {present}, got {heads}")
    return remaining, [present.index(head) for head in remaining]

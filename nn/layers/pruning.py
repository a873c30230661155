"""Heads that are removed for good: Michel et al. (2019), arXiv:1905.10650."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np

from .attention import MultiHeadAttention

__all__ = ["prune_heads"]


def prune_heads(attention: MultiHeadAttention, heads: Iterable[int]) -> None:
    """Remove heads: their rows of the query, key and value projections, their columns of the
    output's.

    The result is what it would be with the output of these heads set to zero; `num_heads` and the
    parameters shrink, `d_model` and `d_k` stay. Heads keep the numbers that they were made with,
    0 to h - 1, whatever was pruned before; `pruned_heads` lists those that are gone. Gradients are
    dropped, and an optimizer is to be made afterwards: one made before refuses its next step. To
    keep what was pruned in the configuration of a model, use the model's own `prune_heads`.
    """
    left, places = heads_without(attention, heads)
    rows = (np.array(places)[:, None] * attention.d_k + np.arange(attention.d_k)).reshape(-1)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight.replace(projection.weight.data[rows])
        if projection.bias is not None:
            projection.bias.replace(projection.bias.data[rows])
        projection.out_features = len(rows)
    out = attention.out_proj
    out.weight.replace(np.ascontiguousarray(out.weight.data[:, rows]))
    out.in_features = len(rows)
    made = attention.num_heads + len(attention.pruned_heads)
    attention.pruned_heads = tuple(head for head in range(made) if head not in left)
    attention.num_heads = attention.num_kv_heads = len(left)
    attention.zero_grad()


def heads_without(
    attention: MultiHeadAttention, heads: Iterable[int]
) -> tuple[list[int], list[int]]:
    """The numbers of the heads that would stay, and their places among the present ones."""
    heads = [operator.index(head) for head in heads]
    made = attention.num_heads + len(attention.pruned_heads)
    present = [head for head in range(made) if head not in attention.pruned_heads]
    if attention.num_kv_heads != attention.num_heads or attention.position_bias is not None:
        raise ValueError(
            "prune_heads: heads that share keys and values, or have a position bias, cannot be "
            "removed"
        )
    if wrong := [head for head in heads if not 0 <= head < made]:
        raise IndexError(f"prune_heads: expected heads from 0 to {made - 1}, got {wrong}")
    if gone := [head for head in heads if head in attention.pruned_heads]:
        raise ValueError(f"prune_heads: heads {gone} are pruned already; left are {present}")
    if len(set(heads)) < len(heads):
        raise ValueError(f"prune_heads: a head is given twice in {heads}")
    left = [head for head in present if head not in heads]
    if not left:
        raise ValueError(f"prune_heads: no head would be left of {present}")
    return left, [present.index(head) for head in left]

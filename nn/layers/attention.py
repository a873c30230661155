"""Attention: additive, dot-product, and in several heads.

Vaswani et al. (2017), "Attention is all you need", section 3.2; Bahdanau et al. (2015) for the
additive form. Masks are booleans, True = may attend: see `nn.masks`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor, unwrap
from minigrad.kernels.attention import attention_weights, merge_heads, split_heads

from .cache import AttentionCache
from .folding import FoldedAttention
from .linear import JoinedLinear, Linear
from .masks import attention_mask_of, valid_lens_mask
from .module import Module

__all__ = [
    "AdditiveAttention", "DotProductAttention", "MultiHeadAttention", "MultiHeadCrossAttention",
    "MultiHeadSelfAttention", "gate_heads", "record_attention",
]  # fmt: skip

if TYPE_CHECKING:
    Generator = np.random.Generator


class _ScoredAttention(Module):
    """Weights the values by the softmax of a score; keys past `valid_lens` get weight 0."""

    def __init__(self, dropout: float, generator: Generator | None) -> None:
        self.dropout = dropout
        self.generator = generator
        self.weights: Tensor | None = None  # of the last call, (N, L_q, L_kv)

    def scores(self, query: Any, key: Any) -> Tensor:
        raise NotImplementedError

    def forward(self, query: Any, key: Any, value: Any, valid_lens: Any = None) -> Tensor:
        """(N, L_q, d_v), from query (N, L_q, d_q), key (N, L_kv, d_k) and value (N, L_kv, d_v).

        `valid_lens` has one length for each sequence (N,) or one for each query (N, L_q). The weights
        are kept in `weights`.
        """
        scores = self.scores(query, key)  # (N, L_q, L_kv)
        mask = None if valid_lens is None else valid_lens_mask(valid_lens, scores.shape)
        self.weights = mg.softmax(scores, where=mask)
        return mg.matmul(mg.dropout(self.weights, self.dropout, self.training, self.generator), value)


class DotProductAttention(_ScoredAttention):
    """softmax(Q Kᵀ / √d) V: query and key are of one size."""

    def __init__(self, dropout: float = 0.0, generator: Generator | None = None) -> None:
        super().__init__(dropout, generator)

    def scores(self, query: Any, key: Any) -> Tensor:
        return mg.matmul(query, mg.swapaxes(key, 1, 2)) * (np.shape(query)[-1] ** -0.5)


class AdditiveAttention(_ScoredAttention):
    """softmax(wᵀ tanh(W_q q + W_k k)) V: query and key can be of different sizes."""

    def __init__(
        self, query_size: int, key_size: int, num_hiddens: int, dropout: float = 0.0, dtype: Any = np.float32,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dropout, generator)
        self.query_proj = Linear(query_size, num_hiddens, bias=False, dtype=dtype, generator=generator)
        self.key_proj = Linear(key_size, num_hiddens, bias=False, dtype=dtype, generator=generator)
        self.score_proj = Linear(num_hiddens, 1, bias=False, dtype=dtype, generator=generator)

    def scores(self, query: Any, key: Any) -> Tensor:
        q, k = self.query_proj(query), self.key_proj(key)  # (N, L_q, hidden), (N, L_kv, hidden)
        features = mg.tanh(mg.expand_dims(q, 2) + mg.expand_dims(k, 1))  # (N, L_q, L_kv, hidden)
        return mg.squeeze(self.score_proj(features), -1)


class MultiHeadAttention(Module):
    """Attention in `num_heads` heads of size d_model / num_heads, each with projections of its own.

    Query, key and value are projected to d_model; each head attends with its slice of the
    projections; the heads side by side are projected once more. The sizes of query, key and value
    are d_model unless given. `dropout` leaves out attention weights in training.
    """

    def __init__(
        self, d_model: int, num_heads: int, query_size: int | None = None, key_size: int | None = None,
        value_size: int | None = None, dropout: float = 0.0, bias: bool = True, dtype: Any = np.float32,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(f"d_model must be divisible by num_heads, got d_model={d_model} and num_heads={num_heads}")
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = d_model // num_heads
        self.pruned_heads: tuple[int, ...] = ()
        self.dropout = dropout
        self.generator = generator
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            Linear(size or d_model, d_model, bias, dtype, generator)
            for size in (query_size, key_size, value_size, None)
        )
        self.joined: JoinedLinear | None = None  # set by lay_out_for_decoding
        self.recorder: list[np.ndarray] | None = None  # set by record_attention
        self.head_gate: Any = None  # set by gate_heads

    def forward(
        self, query: Any, key: Any, value: Any, padding_mask: Any = None, attention_mask: Any = None,
        need_weights: bool = False, cache: AttentionCache | None = None,
    ) -> Any:  # fmt: skip
        """(N, L_q, d_model), from query (N, L_q, ·), key and value (N, L_kv, ·).

        `padding_mask` (N, L_kv) and `attention_mask` (L_q, L_kv), or with axes for batch and heads,
        are booleans, True = may attend. With `need_weights` the weights of each head (N, h, L_q, L_kv)
        are returned too. With a `cache`, key and value are added to those it holds; a key of None means
        that it holds them all.
        """
        q: Any
        k: Any
        v: Any
        joined = None if mg.is_grad_enabled() or not query is key is value else self.joined
        if joined is not None and joined.stands_for(self.q_proj, self.k_proj, self.v_proj):
            q, k, v = joined(query)
        else:
            q = self.q_proj(query)
            k, v = (None, None) if key is None else (self.k_proj(key), self.v_proj(value))
        if cache is not None:
            k, v = cache.get() if k is None else cache.append(unwrap(k), unwrap(v))
        mask = attention_mask_of(padding_mask, attention_mask)
        dropout = self.dropout if self.training else 0.0
        if not need_weights and self.recorder is None:
            out = mg.scaled_dot_product_attention(
                q, k, v, mask, self.num_heads, dropout=dropout, generator=self.generator
            )
            return self.out_proj(self._gated(out))
        weights = attention_weights(q, k, self.num_heads, mask)  # (N, h, L_q, L_kv)
        if self.recorder is not None:
            self.recorder.append(unwrap(weights))
        dropped = mg.dropout(weights, dropout, self.training, self.generator)
        out = self.out_proj(self._gated(merge_heads(mg.matmul(dropped, split_heads(v, self.num_heads)))))
        return (out, weights) if need_weights else out

    def _gated(self, heads: Tensor) -> Tensor:
        """The heads side by side (N, L_q, h·d_k), each times its gate."""
        if self.head_gate is None:
            return heads
        n, length, width = heads.shape
        gate = mg.astype(self.head_gate, heads.dtype)
        h = self.num_heads
        if gate.shape not in ((h,), (n, h)):
            raise ValueError(f"gate_heads: expected a gate of shape ({h},) or {n, h}, got {gate.shape}")
        parts = mg.reshape(heads, n, length, h, self.d_k)  # (N, L_q, h, d_k)
        return mg.reshape(parts * mg.reshape(gate, -1, 1, h, 1), n, length, width)

    def prune_heads(self, heads: Iterable[int]) -> None:
        """Remove heads for good: their rows of the query, key and value projections, their columns of the output's.

        The result is what it would be with the output of these heads set to zero; `num_heads` and the
        parameters shrink, `d_model` and `d_k` stay. Heads keep the numbers that they were made with,
        0 to h - 1, whatever was pruned before; `pruned_heads` lists those that are gone. Gradients are
        dropped, and an optimizer is to be made afterwards: one made before refuses its next step. To
        keep what was pruned in the configuration of a model, use the model's own `prune_heads`.
        """
        left, kept = self._without(heads)  # numbers of the heads that stay, and their places among the present ones
        rows = (np.array(kept)[:, None] * self.d_k + np.arange(self.d_k)).reshape(-1)
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            projection.weight.replace(projection.weight.data[rows])
            if projection.bias is not None:
                projection.bias.replace(projection.bias.data[rows])
            projection.out_features = len(rows)
        self.out_proj.weight.replace(np.ascontiguousarray(self.out_proj.weight.data[:, rows]))
        self.out_proj.in_features = len(rows)
        made = self.num_heads + len(self.pruned_heads)
        self.pruned_heads = tuple(head for head in range(made) if head not in left)
        self.num_heads = len(left)
        self.zero_grad()

    def _without(self, heads: Iterable[int]) -> tuple[list[int], list[int]]:
        """The heads that would stay, and their places among the present ones."""
        heads = [operator.index(head) for head in heads]
        made = self.num_heads + len(self.pruned_heads)
        present = [head for head in range(made) if head not in self.pruned_heads]
        if wrong := [head for head in heads if not 0 <= head < made]:
            raise IndexError(f"prune_heads: expected heads from 0 to {made - 1}, got {wrong}")
        if gone := [head for head in heads if head in self.pruned_heads]:
            raise ValueError(f"prune_heads: heads {gone} are pruned already; left are {present}")
        if len(set(heads)) < len(heads):
            raise ValueError(f"prune_heads: a head is given twice in {heads}")
        left = [head for head in present if head not in heads]
        if not left:
            raise ValueError(f"prune_heads: no head would be left of {present}")
        return left, [present.index(head) for head in left]

    def extra_repr(self) -> str:
        pruned = f", pruned_heads={self.pruned_heads}" if self.pruned_heads else ""
        return f"d_model={self.d_model}, num_heads={self.num_heads}{pruned}"


class MultiHeadSelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself."""

    def forward(self, x: Any, padding_mask: Any = None, attention_mask: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """(N, L, d_model) from x (N, L, d_model); the rest as in `MultiHeadAttention`."""
        return super().forward(x, x, x, padding_mask, attention_mask, **options)


class MultiHeadCrossAttention(MultiHeadAttention):
    """Multi-head attention of one sequence (the queries) to another (keys and values)."""

    def forward(  # type: ignore[override]
        self, x_q: Any, x_kv: Any, padding_mask: Any = None, attention_mask: Any = None, **options: Any
    ) -> Any:
        """(N, L_q, d_model) from x_q (N, L_q, ·) and x_kv (N, L_kv, ·); the rest as in `MultiHeadAttention`."""
        cache = options.get("cache")
        if x_kv is None and cache is not None and padding_mask is None and attention_mask is None:
            folded = self._folded(cache, options)
            if folded is not None:
                return folded(x_q)
        return super().forward(x_q, x_kv, x_kv, padding_mask, attention_mask, **options)

    def _folded(self, cache: AttentionCache, options: dict[str, Any]) -> FoldedAttention | None:
        """This module with the keys and values of `cache`, if that pays and nobody asks what happens inside."""
        asked = options.get("need_weights") or self.recorder is not None or self.head_gate is not None
        if asked or self.q_proj.has_hooks or self.out_proj.has_hooks or self.training or mg.is_grad_enabled():
            return None
        keys, values = cache.get()
        if cache.folded is None and FoldedAttention.pays(keys, self.num_heads):
            cache.folded = FoldedAttention(self.q_proj, self.out_proj, keys, values, self.num_heads)
        return cache.folded


@contextmanager
def record_attention(model: Module) -> Iterator[dict[str, list[np.ndarray]]]:
    """Within this block, every multi-head attention of `model` adds its weights to a list, by its name.

    Each entry is (N, h, L_q, L_kv), one for each call. Recording uses the readable form of attention
    in place of the fused one.
    """
    found = {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    recorded: dict[str, list[np.ndarray]] = {name: [] for name in found}
    try:
        for name, module in found.items():
            module.recorder = recorded[name]
        yield recorded
    finally:
        for module in found.values():
            module.recorder = None


@contextmanager
def gate_heads(model: Module, gates: Mapping[str, Any]) -> Iterator[None]:
    """Within this block, the output of each head is multiplied by its gate, before the output projection.

    `gates` has, by the name of a multi-head attention in `model` (the names that `record_attention`
    gives), one number for each head (h,), or for each sequence and head (N, h). A gate of 0 silences a
    head; the gradient at a gate of 1 tells how much the loss depends on it.
    """
    found = {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    if unknown := sorted(set(gates) - set(found)):
        raise KeyError(f"gate_heads: no multi-head attention is named {unknown}; there are {list(found)}")
    try:
        for name, gate in gates.items():
            found[name].head_gate = gate
        yield
    finally:
        for name in gates:
            found[name].head_gate = None

"""Multi-head attention: Vaswani et al. (2017), "Attention is all you need", section 3.2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from .cache import AttentionCache, KeysAndValues
from .linear import Linear
from .masks import allowed_keys
from .module import Module
from .norm import RMSNorm
from .rotary import RotaryPositions

__all__ = ["MultiHeadAttention", "MultiHeadCrossAttention", "MultiHeadSelfAttention"]


class MultiHeadAttention(Module):
    """Attention in `num_heads` heads, each with projections of its own.

    Query, key and value are projected; each head attends with its slice of the projections; the
    heads side by side are projected once more. The sizes of query, key and value are d_model, and
    that of a head is d_model / num_heads, unless given. `dropout` leaves out attention weights in
    training.

    `bias` is one bool, or one for each of "q", "k", "v" and "out". With `num_kv_heads`, so many
    heads of keys and values are each shared by a group of queries (Ainslie et al. 2023,
    arXiv:2305.13245). `rotary` turns queries and keys by their positions. `qk_norm` is the eps of
    an RMS norm of each head's queries and keys, before that. With a `window`, a causal query sees
    so many keys, itself included. `position_bias(L_q, L_kv)` is added to the scores of the heads
    (h, L_q, L_kv). `scale` replaces 1 / √head_dim.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        query_size: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        dropout: float = 0.0,
        bias: bool | Mapping[str, bool] = True,
        scale: float | None = None,
        rotary: RotaryPositions | None = None,
        qk_norm: float | None = None,
        window: int | None = None,
        position_bias: Callable[[int, int], Tensor] | None = None,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        check_heads(d_model, num_heads, num_kv_heads, head_dim)
        if window is not None and window < 1:
            raise ValueError(f"window: expected at least 1, got {window}")
        self.d_model, self.num_heads, self.num_kv_heads = (
            d_model,
            num_heads,
            num_kv_heads or num_heads,
        )
        self.d_k = d_model // num_heads if head_dim is None else head_dim
        self.dropout, self.generator = dropout, generator
        self.scale = self.d_k**-0.5 if scale is None else scale
        self.rotary, self.window, self.position_bias = rotary, window, position_bias
        has_bias = dict.fromkeys(("q", "k", "v", "out"), bias) if isinstance(bias, bool) else bias
        wide, narrow = self.num_heads * self.d_k, self.num_kv_heads * self.d_k
        self.q_proj = Linear(query_size or d_model, wide, has_bias["q"], dtype, generator)
        self.k_proj = Linear(key_size or d_model, narrow, has_bias["k"], dtype, generator)
        self.v_proj = Linear(value_size or d_model, narrow, has_bias["v"], dtype, generator)
        self.out_proj = Linear(wide, d_model, has_bias["out"], dtype, generator)
        self.q_norm = None if qk_norm is None else RMSNorm(self.d_k, qk_norm, dtype)
        self.k_norm = None if qk_norm is None else RMSNorm(self.d_k, qk_norm, dtype)
        self.pruned_heads: tuple[int, ...] = ()

    def forward(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        mask: Any = None,
        *,
        is_causal: bool = False,
        cache: AttentionCache | None = None,
        positions: Any = None,
    ) -> Tensor:
        """(N, L_q, d_model), from query (N, L_q, ·), key and value (N, L_kv, ·).

        A key of None is the query (self-attention), a value of None the key. A key can also be what
        `keys_and_values` returned. `mask` (True = may attend) has the axes that `nn.layers.masks`
        tells. With `is_causal`, each query sees the keys up to its own place, the last query being
        at the last key. With a `cache`, keys and values are added to those it holds. `positions`,
        integers (L,) or (N, L), are for rotary positions; unless given, they go on from those in
        the cache.
        """
        at = positions if positions is not None else 0 if cache is None else cache.length
        q, k, v = self.projected(query, query if key is None else key, value, at)
        if cache is not None:
            k, v = cache.append(k, v)
        allowed = allowed_keys(mask, is_causal, q.shape[1], k.shape[1], self.window)
        attend = ATTEND.get() or type(self).attend
        heads = attend(self, q, k, v, allowed)  # (N, L_q, h·d_k)
        return self.out_proj(heads)

    def projected(self, query: Any, key: Any, value: Any, positions: Any) -> tuple[Any, Any, Any]:
        """Queries (N, L_q, h·d_k), keys and values (N, L_kv, h_kv·d_k); with rotary positions,
        turned by them.
        """
        q = self.queries(query)
        k, v = key if isinstance(key, KeysAndValues) else self.keys_and_values(key, value)
        if self.rotary is not None:
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        return q, k, v

    def queries(self, x: Any) -> Tensor:
        """The projected queries, (N, L_q, h·d_k)."""
        return _each_head(self.q_norm, self.q_proj(x))

    def keys_and_values(self, key: Any, value: Any = None) -> KeysAndValues:
        """The projected keys and values, (N, L_kv, h_kv·d_k): give them to `forward` as the key.

        What is attended to again and again, as the memory in decoding, is so projected once.
        """
        return KeysAndValues(
            _each_head(self.k_norm, self.k_proj(key)), self.v_proj(key if value is None else value)
        )

    def attend(self, q: Any, k: Any, v: Any, mask: np.ndarray | None) -> Tensor:
        """softmax(q · kᵀ · scale + bias) · v of each head, side by side: (N, L_q, h·d_k)."""
        if self.position_bias is not None:
            return weighted_values(self, attention_weights(self, q, k, mask), v)
        (n, length, _), kv, d = q.shape, self.num_kv_heads, self.d_k
        groups = self.num_heads // kv
        if groups > 1:  # queries that share keys and values become one longer sequence of queries
            q = mg.transpose(mg.reshape(q, n, length, kv, groups, d), 0, 3, 1, 2, 4)
            q, mask = mg.reshape(q, n, groups * length, kv * d), _stacked(mask, groups)
        dropout = self.dropout if self.training else 0.0
        heads = mg.scaled_dot_product_attention(
            q, k, v, mask, kv, self.scale, dropout, self.generator
        )
        if groups > 1:
            heads = mg.transpose(mg.reshape(heads, n, groups, length, kv, d), 0, 2, 3, 1, 4)
            heads = mg.reshape(heads, n, length, groups * kv * d)
        return heads

    def extra_repr(self) -> str:
        shared = (
            f", num_kv_heads={self.num_kv_heads}" if self.num_kv_heads != self.num_heads else ""
        )
        pruned = f", pruned_heads={self.pruned_heads}" if self.pruned_heads else ""
        return f"d_model={self.d_model}, num_heads={self.num_heads}{shared}{pruned}"


def check_heads(
    d_model: int, num_heads: int, num_kv_heads: int | None, head_dim: int | None
) -> None:
    """An error for heads that cannot be of one size, or cannot share keys and values evenly."""
    if num_heads < 1 or (head_dim is None and d_model % num_heads):
        raise ValueError(
            f"d_model must be divisible by num_heads, got d_model={d_model} and "
            f"num_heads={num_heads}"
        )
    if num_heads % (num_kv_heads or num_heads):
        raise ValueError(
            f"num_heads must be divisible by num_kv_heads, got {num_heads=} and {num_kv_heads=}"
        )


class MultiHeadSelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself."""

    def forward(self, x: Any, mask: Any = None, **options: Any) -> Tensor:  # type: ignore[override]
        """(N, L, d_model) from x (N, L, d_model); the rest as in `MultiHeadAttention`."""
        return super().forward(x, None, None, mask, **options)


class MultiHeadCrossAttention(MultiHeadAttention):
    """Multi-head attention of one sequence (the queries) to another (keys and values)."""

    def forward(self, x_q: Any, x_kv: Any, mask: Any = None, **options: Any) -> Tensor:  # type: ignore[override]
        """(N, L_q, d_model) from x_q (N, L_q, ·) and x_kv (N, L_kv, ·); the rest as in
        `MultiHeadAttention`.
        """
        return super().forward(x_q, x_kv, None, mask, **options)


# -- what the heads do
# ------------------------------------------------------------------------------------


ATTEND: ContextVar[Callable[..., Tensor] | None] = ContextVar("nn.attend", default=None)
"""What is called in place of `MultiHeadAttention.attend`, in this thread or task: see
`nn.layers.probes`.
"""


def attention_weights(
    module: MultiHeadAttention, q: Any, k: Any, mask: np.ndarray | None
) -> Tensor:
    """softmax(q · kᵀ · scale + bias) of each head, (N, h, L_q, L_kv); rows with nothing to attend
    to are 0.
    """
    (n, rows, _), columns, h, kv = q.shape, k.shape[1], module.num_heads, module.num_kv_heads
    queries = mg.transpose(
        mg.reshape(q, n, rows, kv, h // kv, module.d_k), 0, 2, 3, 1, 4
    )  # (N, kv, group, L_q, d_k)
    keys = mg.transpose(
        mg.reshape(k, n, columns, kv, 1, module.d_k), 0, 2, 3, 4, 1
    )  # (N, kv, 1, d_k, L_kv)
    scores = mg.reshape(mg.matmul(queries, keys), n, h, rows, columns) * module.scale
    if module.position_bias is not None:
        scores = scores + module.position_bias(rows, columns)
    return mg.softmax(scores, where=mask)


def weighted_values(module: MultiHeadAttention, weights: Any, v: Any) -> Tensor:
    """The values of each head weighted and summed, side by side: (N, L_q, h·d_k)."""
    n, h, kv, length = len(v), module.num_heads, module.num_kv_heads, weights.shape[2]
    dropped = mg.dropout(weights, module.dropout, module.training, module.generator)
    dropped = mg.reshape(dropped, n, kv, h // kv, length, v.shape[1])
    values = mg.transpose(
        mg.reshape(v, n, v.shape[1], kv, 1, module.d_k), 0, 2, 3, 1, 4
    )  # (N, kv, 1, L_kv, d_k)
    heads = mg.matmul(dropped, values)  # (N, kv, group, L_q, d_k)
    return mg.reshape(mg.transpose(heads, 0, 3, 1, 2, 4), n, length, h * module.d_k)


def _each_head(norm: RMSNorm | None, x: Any) -> Tensor:
    """The norm of each head of (N, L, h·d) by itself, where there is one."""
    if norm is None:
        return x
    n, length, width = x.shape
    d_k = norm.normalized_shape[0]
    return mg.reshape(norm(mg.reshape(x, n, length, width // d_k, d_k)), n, length, width)


def _stacked(mask: np.ndarray | None, groups: int) -> np.ndarray | None:
    """A mask (N, h, L_q, L_kv), or that broadcasts to it, for `groups` heads of queries one after
    the other.
    """
    if mask is None or mask.shape[1:3] == (1, 1):
        return mask
    n, h, length, keys = mask.shape
    parts = mask.reshape(n, -1, groups if h > 1 else 1, length, keys)
    return np.broadcast_to(parts, (n, parts.shape[1], groups, length, keys)).reshape(
        n, -1, groups * length, keys
    )

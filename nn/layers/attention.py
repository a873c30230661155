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
from .masks import attention_mask
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
        self.q_proj = Linear(
            query_size or d_model, wide, has_bias["q"], dtype=dtype, generator=generator
        )
        self.k_proj = Linear(
            key_size or d_model, narrow, has_bias["k"], dtype=dtype, generator=generator
        )
        self.v_proj = Linear(
            value_size or d_model, narrow, has_bias["v"], dtype=dtype, generator=generator
        )
        self.out_proj = Linear(wide, d_model, has_bias["out"], dtype=dtype, generator=generator)
        self.q_norm = None if qk_norm is None else RMSNorm(self.d_k, qk_norm, dtype=dtype)
        self.k_norm = None if qk_norm is None else RMSNorm(self.d_k, qk_norm, dtype=dtype)
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
        """Project query, key and value, attend in each head, and project the heads once more.

        Parameters
        ----------
        query : Tensor, shape (N, L_q, query_size)
        key : Tensor, shape (N, L_kv, key_size), or KeysAndValues, optional
            `query` by default (self-attention). `keys_and_values` projects a key beforehand.
        value : Tensor, shape (N, L_kv, value_size), optional
            `key` by default.
        mask : array of bool, shape (L_q, L_kv) or broadcastable to (N, h, L_q, L_kv), optional
            True = may attend. A padding mask (N, L_kv) becomes one by `mask[:, None, None]`.
        is_causal : bool
            Each query attends to the keys up to its own position. The last query is at the position
            of the last key.
        cache : AttentionCache, optional
            Keys and values of earlier positions. Those of this call are added to it.
        positions : int or array of int, shape (L,) or (N, L), optional
            For rotary positions; by default they continue those in the cache.

        Returns
        -------
        Tensor, shape (N, L_q, d_model)
        """
        start = positions if positions is not None else 0 if cache is None else cache.length
        q, k, v = self.project(query, query if key is None else key, value, start)
        if cache is not None:
            k, v = cache.append(k, v)
        if is_causal:
            mask = attention_mask(mask, True, (*q.shape[:3], k.shape[2]), self.window)
        return self.out_proj(self.attend(q, k, v, mask))

    def project(self, query: Any, key: Any, value: Any, positions: Any) -> tuple[Any, Any, Any]:
        """Return queries (N, h, L_q, d_k), and keys and values (N, h_kv, L_kv, d_k)."""
        q = mg.split_heads(self.q_proj(query), num_heads=self.num_heads)
        if self.q_norm is not None:
            q = self.q_norm(q)
        if isinstance(key, KeysAndValues):
            k, v = key.keys, key.values
        else:
            k, v = self._project_memory(key, value)
        if self.rotary is not None:
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        return q, k, v

    def keys_and_values(self, key: Any, value: Any = None) -> KeysAndValues:
        """Project what is attended to: pass the result to `forward` as `key`.

        A memory that many decoding steps attend to is thus projected once.
        """
        return KeysAndValues(*self._project_memory(key, value))

    def _project_memory(self, key: Any, value: Any = None) -> tuple[Any, Any]:
        k = mg.split_heads(self.k_proj(key), num_heads=self.num_kv_heads)
        if self.k_norm is not None:
            k = self.k_norm(k)
        values = self.v_proj(key if value is None else value)
        return k, mg.split_heads(values, num_heads=self.num_kv_heads)

    def attend(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        """Attend in each head and join the heads: (N, L_q, h·d_k)."""
        probe, function = PROBE.get(), mg.scaled_dot_product_attention
        if probe is not None:
            function = probe(self, function)
        heads = function(
            q,
            k,
            v,
            mask,
            bias=None if self.position_bias is None else self.position_bias(q.shape[2], k.shape[2]),
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
            generator=self.generator,
        )
        return mg.merge_heads(heads)

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


PROBE: ContextVar[Callable[..., Any] | None] = ContextVar("nn.probe", default=None)
"""`probe(module, function)` returns what `attend` calls instead of `function`, the kernel.

It holds for this thread or task: see `nn.layers.probes`.
"""

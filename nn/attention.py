"""Multi-head attention: Vaswani et al. (2017), "Attention is all you need", section 3.2.

On a first reading: `MultiHeadAttention.forward`, which is the paper's line, and the methods that it
calls: `project` (linear layers, then an axis of heads) and `attend` (a softmax of the scores). What
came later enters by two arguments: `rotary`, a function of heads and their positions, and
`position_bias`, a function that returns a bias of the scores. `nn.options` has such functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from minigrad.arguments import checked_count
from minigrad.ops.attention import merge_heads, scaled_dot_product_attention, split_heads
from minigrad.tensor import Tensor

from .cache import AttentionCache, KeysAndValues
from .linear import Linear
from .masks import attention_mask
from .module import Module
from .norm import RMSNorm

__all__ = ["MultiHeadAttention", "MultiHeadCrossAttention", "MultiHeadSelfAttention"]


PROBE: ContextVar[Callable[..., Any] | None] = ContextVar("nn.probe", default=None)
"""Function of this thread or task that replaces the attention kernel: see `nn.options.probes`.

`probe(module, function)` returns the function that `attend` calls instead of `function`.
"""


class MultiHeadAttention(Module):
    """Multi-head attention.

    Query, key and value are projected, each head attends with its part of the projections, and the
    results of all heads are projected once more.

    Parameters
    ----------
    d_model : int
        Size of the output, and of query, key and value by default.
    num_heads : int
        Number of heads.
    num_kv_heads : int, optional
        Number of heads of keys and values, a divisor of `num_heads`, which is the default. Groups
        of queries share them (Ainslie et al. 2023, arXiv:2305.13245).
    head_dim : int, optional
        Size of a head; d_model / num_heads by default.
    query_size, key_size, value_size : int, optional
        Sizes of query, key and value; d_model by default.
    dropout : float, default 0
        Probability of dropping an attention weight in training.
    bias : bool or mapping of str to bool, default True
        Add a bias in the linear layers, or in each of "q", "k", "v" and "out".
    scale : float, optional
        Factor of the scores; 1 / sqrt(head_dim) by default.
    rotary : callable, optional
        `rotary(heads, positions)` rotates queries and keys (N, h, L, d_k) by their positions, as
        `nn.RotaryPositions` does.
    qk_norm : float, optional
        eps of an RMS norm of the queries and keys of each head, before they are rotated. No norm
        by default.
    window : int, optional
        Limit causal attention to the last `window` positions, including the current one.
    position_bias : callable, optional
        `position_bias(L_q, L_kv)` returns a bias of the scores, broadcastable to (N, h, L_q, L_kv).
    dtype : dtype, default float32
        dtype of the parameters.
    generator : numpy.random.Generator, optional
        Draws the weights and dropout; the default generator if not given.

    References
    ----------
    Vaswani et al. (2017), "Attention is all you need", section 3.2.2.
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
        rotary: Callable[[Any, Any], Tensor] | None = None,
        qk_norm: float | None = None,
        window: int | None = None,
        position_bias: Callable[[int, int], Tensor] | None = None,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        check_heads(d_model, num_heads, num_kv_heads, head_dim)
        if window is not None:
            checked_count("MultiHeadAttention", "window", window)
        self.d_model, self.num_heads = d_model, num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        self.d_k = d_model // num_heads if head_dim is None else head_dim
        self.dropout, self.generator = dropout, generator
        self.scale = self.d_k**-0.5 if scale is None else scale
        self.rotary, self.window, self.position_bias = rotary, window, position_bias
        has_bias = dict.fromkeys(("q", "k", "v", "out"), bias) if isinstance(bias, bool) else bias
        if not isinstance(has_bias, Mapping) or has_bias.keys() != {"q", "k", "v", "out"}:
            raise ValueError(
                "MultiHeadAttention: bias must be True, False, or a mapping with the keys q, k, v "
                f"and out, got {bias!r:.80}"
            )
        linear = partial(Linear, dtype=dtype, generator=generator)
        q_width, kv_width = self.num_heads * self.d_k, self.num_kv_heads * self.d_k
        self.q_proj = linear(query_size or d_model, q_width, has_bias["q"])
        self.k_proj = linear(key_size or d_model, kv_width, has_bias["k"])
        self.v_proj = linear(value_size or d_model, kv_width, has_bias["v"])
        self.out_proj = linear(q_width, d_model, has_bias["out"])
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
        """Attend from each query to all keys that the mask allows.

        Parameters
        ----------
        query : Tensor, shape (N, L_q, query_size)
        key : Tensor, shape (N, L_kv, key_size), or KeysAndValues, optional
            `query` by default (self-attention). `keys_and_values` projects a key beforehand.
        value : Tensor, shape (N, L_kv, value_size), optional
            `key` by default.
        mask : array of bool, shape (L_q, L_kv) or broadcastable to (N, h, L_q, L_kv), optional
            True = may attend. Pass a padding mask (N, L_kv) as `mask[:, None, None]`.
        is_causal : bool
            Attend to the keys up to the query's own position only. The last query has the position
            of the last key.
        cache : AttentionCache, optional
            Keys and values of earlier positions. The keys and values of this call are appended.
        positions : int or array of int, shape (L,) or (N, L), optional
            Positions for `rotary`. By default they follow the positions in the cache.

        Returns
        -------
        Tensor, shape (N, L_q, d_model)
            The output projection of the merged heads.
        """
        start = positions if positions is not None else 0 if cache is None else cache.length
        q, k, v = self.project(query, query if key is None else key, value, start)
        if cache is not None:
            k, v = cache.append(k, v)
        if is_causal:
            mask = attention_mask(mask, True, (*q.shape[:3], k.shape[2]), self.window)
        return self.out_proj(self.attend(q, k, v, mask))

    def project(self, query: Any, key: Any, value: Any, positions: Any) -> tuple[Any, Any, Any]:
        """Return queries (N, h, L_q, d_k), and keys and values (N, h_kv, L_kv, d_k).

        Parameters
        ----------
        query : Tensor, shape (N, L_q, query_size)
        key : Tensor, shape (N, L_kv, key_size), or KeysAndValues
            Projected keys and values are used unchanged, except for rotation.
        value : Tensor, shape (N, L_kv, value_size), or None
            None: `key`. Not used with `KeysAndValues`.
        positions : int or array of int, shape (L,) or (N, L)
            Positions for `rotary`; an int is the first position.
        """
        q = split_heads(self.q_proj(query), num_heads=self.num_heads)
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
        """Project keys and values once for many calls: pass the result to `forward` as `key`.

        Parameters
        ----------
        key : Tensor, shape (N, L_kv, key_size)
        value : Tensor, shape (N, L_kv, value_size), optional
            `key` by default.

        Returns
        -------
        KeysAndValues
            The projected keys and values, without rotation.
        """
        return KeysAndValues(*self._project_memory(key, value))

    def _project_memory(self, key: Any, value: Any = None) -> tuple[Any, Any]:
        k = split_heads(self.k_proj(key), num_heads=self.num_kv_heads)
        if self.k_norm is not None:
            k = self.k_norm(k)
        values = self.v_proj(key if value is None else value)
        return k, split_heads(values, num_heads=self.num_kv_heads)

    def attend(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        """Attend in each head and merge the heads.

        Parameters
        ----------
        q : Tensor, shape (N, h, L_q, d_k)
        k, v : Tensor, shape (N, h_kv, L_kv, d_k)
        mask : array of bool, broadcastable to (N, h, L_q, L_kv), or None
            True = may attend. None: each query attends to all keys.

        Returns
        -------
        Tensor, shape (N, L_q, h * d_k)
            The results of all heads, side by side.
        """
        probe, function = PROBE.get(), scaled_dot_product_attention
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
        return merge_heads(heads)

    def extra_repr(self) -> str:
        """Return the sizes."""
        shared = (
            f", num_kv_heads={self.num_kv_heads}" if self.num_kv_heads != self.num_heads else ""
        )
        pruned = f", pruned_heads={self.pruned_heads}" if self.pruned_heads else ""
        return f"d_model={self.d_model}, num_heads={self.num_heads}{shared}{pruned}"


def check_heads(
    d_model: int, num_heads: int, num_kv_heads: int | None, head_dim: int | None
) -> None:
    """Raise an error if heads cannot have equal sizes, or cannot share keys evenly."""
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
    """Multi-head attention of a sequence to itself.

    Parameters: as `MultiHeadAttention`.
    """

    def forward(self, x: Any, mask: Any = None, **options: Any) -> Tensor:  # type: ignore[override]
        """Attend from each position to all positions that the mask allows.

        Parameters
        ----------
        x : Tensor, shape (N, L, query_size)
        mask : array of bool, shape (L, L) or broadcastable to (N, h, L, L), optional
            True = may attend.
        **options
            `is_causal`, `cache` and `positions` of `MultiHeadAttention.forward`.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            The output projection of the merged heads.
        """
        return super().forward(x, None, None, mask, **options)


class MultiHeadCrossAttention(MultiHeadAttention):
    """Multi-head attention of one sequence to another one.

    Parameters: as `MultiHeadAttention`.
    """

    def forward(  # type: ignore[override]
        self, x_q: Any, x_kv: Any, mask: Any = None, **options: Any
    ) -> Tensor:
        """Attend from each position of `x_q` to all positions of `x_kv` that the mask allows.

        Parameters
        ----------
        x_q : Tensor, shape (N, L_q, query_size)
        x_kv : Tensor, shape (N, L_kv, key_size), or KeysAndValues
        mask : array of bool, shape (L_q, L_kv) or broadcastable to (N, h, L_q, L_kv), optional
            True = may attend.
        **options
            `is_causal`, `cache` and `positions` of `MultiHeadAttention.forward`.

        Returns
        -------
        Tensor, shape (N, L_q, d_model)
            The output projection of the merged heads.
        """
        return super().forward(x_q, x_kv, None, mask, **options)

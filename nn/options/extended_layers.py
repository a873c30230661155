"""Layers of models after the paper: shared heads, rotary positions, gates, other norms and sizes.

Look at `ExtendedAttention.project` and `attend`: what they do beside the methods of
`MultiHeadAttention` are the options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.arguments import checked_count
from minigrad.ops.attention import merge_heads, scaled_dot_product_attention, split_heads
from minigrad.ops.network import dropout as dropped
from minigrad.tensor import Tensor

from ..attention import AttentionCache, KeysAndValues, MultiHeadAttention
from ..block import TransformerDecoderLayer, TransformerEncoderLayer, TransformerLayer
from ..config import check_heads
from ..layers import Dropout, FeedForward, Linear, activation_named
from ..module import Module, as_input
from .norms import RMSNorm, norm_named

__all__ = [
    "ExtendedAttention",
    "ExtendedDecoderLayer",
    "ExtendedEncoderLayer",
    "ExtendedFeedForward",
]


class ExtendedAttention(MultiHeadAttention):
    """Multi-head attention with the options of later models.

    Other parameters: as `MultiHeadAttention`.

    Parameters
    ----------
    d_model : int
        Size of the output, and of query, memory and value by default.
    num_kv_heads : int, optional
        Number of heads of keys and values, a divisor of `num_heads`, which is the default. Groups
        of queries share them (Ainslie et al. 2023, arXiv:2305.13245).
    head_dim : int, optional
        Size of a head; d_model / num_heads by default.
    query_size, key_size, value_size : int, optional
        Sizes of query, memory and value; d_model by default.
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
    zero_centred : bool, default False
        These norms multiply by 1 + `weight`, see `RMSNorm`.
    softcap : float, optional
        Replace each score s by softcap * tanh(s / softcap), as Gemma 2 does.
    window : int, optional
        Hide keys that are `window` or more positions before or after the query.
    position_bias : callable, optional
        `position_bias(L_q, L_kv)` returns a bias of the scores, broadcastable to (N, h, L_q, L_kv).
    """

    rotary: Callable[[Any, Any], Tensor] | None = None
    position_bias: Callable[[int, int], Tensor] | None = None
    scale: float | None = None
    softcap: float | None = None
    window: int | None = None
    q_norm: RMSNorm | None = None
    k_norm: RMSNorm | None = None
    pruned_heads: tuple[int, ...] = ()

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
        zero_centred: bool = False,
        softcap: float | None = None,
        window: int | None = None,
        position_bias: Callable[[int, int], Tensor] | None = None,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        check_shared_heads(d_model, num_heads, num_kv_heads, head_dim)
        if window is not None:
            checked_count("ExtendedAttention", "window", window)
        has_bias = dict.fromkeys(("q", "k", "v", "out"), bias) if isinstance(bias, bool) else bias
        if not isinstance(has_bias, Mapping) or has_bias.keys() != {"q", "k", "v", "out"}:
            raise ValueError(
                "ExtendedAttention: bias must be True, False, or a mapping with the keys q, k, v "
                f"and out, got {bias!r:.80}"
            )
        self.num_heads, self.dropout, self.generator = num_heads, dropout, generator
        self.scale, self.softcap, self.window = scale, softcap, window
        self.rotary, self.position_bias = rotary, position_bias
        d_k = d_model // num_heads if head_dim is None else head_dim
        linear = partial(Linear, dtype=dtype, generator=generator)
        width, kv_width = num_heads * d_k, (num_kv_heads or num_heads) * d_k
        self.q_proj = linear(query_size or d_model, width, has_bias["q"])
        self.k_proj = linear(key_size or d_model, kv_width, has_bias["k"])
        self.v_proj = linear(value_size or d_model, kv_width, has_bias["v"])
        self.out_proj = linear(width, d_model, has_bias["out"])
        if qk_norm is not None:
            norm = partial(RMSNorm, d_k, qk_norm, dtype=dtype, zero_centred=zero_centred)
            self.q_norm, self.k_norm = norm(), norm()

    def forward(
        self,
        query: Any,
        memory: Any = None,
        mask: Any = None,
        cache: AttentionCache | None = None,
        *,
        value: Any = None,
        positions: Any = None,
    ) -> Tensor:
        """Return (N, L_q, d_model): each query attends to the positions that the mask allows.

        Other parameters: as `MultiHeadAttention.forward`.

        Parameters
        ----------
        value : Tensor, shape (N, L_kv, value_size), optional
            `memory` by default.
        positions : int or array of int, shape (L,) or (N, L), optional
            Positions for `rotary`; an int is the first position. By default they follow the
            positions in the cache.
        """
        if positions is None:
            positions = 0 if cache is None else cache.length
        q, k, v = self.project(query, query if memory is None else memory, value, positions)
        if cache is not None:
            k, v = cache.append(k, v)
        return self.out_proj(merge_heads(self.attend(q, k, v, mask)))

    def project(
        self, query: Any, memory: Any, value: Any = None, positions: Any = 0
    ) -> tuple[Any, Any, Any]:
        """Return queries (N, h, L_q, d_k), and keys and values (N, h_kv, L_kv, d_k).

        Projected keys and values are used unchanged, except for rotation.

        Parameters: as `ExtendedAttention.forward`.
        """
        q = split_heads(self.q_proj(query), num_heads=self.num_heads)
        q = q if self.q_norm is None else self.q_norm(q)
        if not isinstance(memory, KeysAndValues):
            memory = self.keys_and_values(memory, value)
        k, v = memory.keys, memory.values
        if self.rotary is not None:
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        return q, k, v

    def keys_and_values(self, memory: Any, value: Any = None) -> KeysAndValues:
        """Return keys and values for many calls, without rotation."""
        k = split_heads(self.k_proj(memory), num_heads=self.num_kv_heads)
        v = self.v_proj(memory if value is None else value)
        return KeysAndValues(
            k if self.k_norm is None else self.k_norm(k),
            split_heads(v, num_heads=self.num_kv_heads),
        )

    def attend(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        """Return the weighted values of each head, (N, h, L_q, d_k)."""
        return scaled_dot_product_attention(
            q,
            k,
            v,
            **self.score_options(q, k, mask),
            dropout=self.dropout if self.training else 0.0,
            generator=self.generator,
        )

    def score_options(self, q: Any, k: Any, mask: Any) -> dict[str, Any]:
        """Return mask, bias and scale of `scaled_dot_product_attention`.

        Capped scores are a bias, beside a scale of 0.

        Parameters
        ----------
        q : Tensor, shape (N, h, L_q, d_k)
        k : Tensor, shape (N, h_kv, L_kv, d_k)
        mask : array of bool, broadcastable to (N, h, L_q, L_kv), or None
        """
        lengths = q.shape[2], k.shape[2]
        bias = None if self.position_bias is None else self.position_bias(*lengths)
        if bias is not None and bias.dtype != q.dtype:  # of a model that was converted
            bias = mg.astype(bias, q.dtype)
        scale = q.shape[3] ** -0.5 if self.scale is None else self.scale
        if self.softcap is not None:
            keys = mg.repeat(k, q.shape[1] // k.shape[1], axis=1)
            capped = soft_cap(mg.matmul(q, mg.swapaxes(keys, 2, 3)) * scale, self.softcap)
            bias, scale = capped if bias is None else capped + bias, 0.0
        return {"mask": within_window(mask, *lengths, self.window), "bias": bias, "scale": scale}

    @property
    def num_kv_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.k_proj.out_features // self.d_k

    def extra_repr(self) -> str:
        """Return the sizes."""
        shared = (
            f", num_kv_heads={self.num_kv_heads}" if self.num_kv_heads != self.num_heads else ""
        )
        pruned = f", pruned_heads={self.pruned_heads}" if self.pruned_heads else ""
        return f"{super().extra_repr()}{shared}{pruned}"


def within_window(mask: Any, l_q: int, l_kv: int, window: int | None) -> Any:
    """Return a mask that also hides keys `window` or more positions before or after the query.

    The last query has the position of the last key.
    """
    if window is None or window >= l_kv:
        return mask
    before = np.tri(l_q, l_kv, l_kv - l_q - window, dtype=bool)
    is_near = np.tri(l_q, l_kv, l_kv - l_q + window - 1, dtype=bool) & ~before
    return is_near if mask is None else mask & is_near


def soft_cap(x: Any, cap: float) -> Tensor:
    """Return cap * tanh(x / cap)."""
    return mg.tanh(x * (1 / cap)) * cap


class CappedLinear(Linear):
    """A linear layer whose outputs y become cap * tanh(y / cap), as in Gemma 2, if `cap` is set."""

    def __init__(self, *sizes: Any, cap: float | None = None, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.cap = cap

    def forward(self, x: Any) -> Tensor:
        """Return the outputs (..., out_features)."""
        return self.bounded(super().forward(x))

    def bounded(self, y: Any) -> Tensor:
        """Return outputs within the bound."""
        return y if self.cap is None else soft_cap(y, self.cap)


def check_shared_heads(
    d_model: int, num_heads: int, num_kv_heads: int | None, head_dim: int | None
) -> None:
    """Raise an error if heads cannot have equal sizes, or cannot share keys evenly."""
    if head_dim is None or num_heads < 1:
        check_heads(d_model, num_heads)
    if num_heads % (num_kv_heads or num_heads):
        raise ValueError(
            f"num_heads must be divisible by num_kv_heads, got {num_heads=} and {num_kv_heads=}"
        )


class ExtendedFeedForward(FeedForward):
    """Feed-forward network that may have a gate, and no biases.

    Other parameters: as `FeedForward`.

    Parameters
    ----------
    gated : bool, default False
        Multiply the activation by a second projection, activation(x W₁) · (x W₃). With "silu", this
        is SwiGLU (Shazeer 2020, arXiv:2002.05202).
    bias : bool, default True
        Add biases in the linear layers.
    """

    gate: Linear | None = None

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        gated: bool = False,
        bias: bool = True,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.activation, self.dropout, self.generator = activation, dropout, generator
        self.function = activation_named(activation)
        linear = partial(Linear, bias=bias, dtype=dtype, generator=generator)
        self.linear1 = linear(d_model, d_ff)
        if gated:
            self.gate = linear(d_model, d_ff)
        self.linear2 = linear(d_ff, d_model)

    def forward(self, x: Any) -> Tensor:
        """Return the result (..., d_model) for x (..., d_model)."""
        if self.gate is None:
            return super().forward(x)
        h = self.function(self.linear1(x)) * self.gate(x)
        return self.linear2(dropped(h, self.dropout, self.training, generator=self.generator))


class SandwichNorm(Module):
    """Norms before and after a sublayer, as in Gemma 2."""

    def __init__(self, before: Module, after: Module) -> None:
        self.before, self.after = before, after


class ExtendedLayer(TransformerLayer):
    """Base of the layers with the options of later models."""

    parallel = False

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.1,
        activation_dropout: float | None = None,
        activation: str = "relu",
        gated: bool = False,
        norm: str = "layer",
        norm_eps: float = 1e-5,
        norm_first: bool = False,
        norm_after: bool = False,
        parallel: bool = False,
        bias: bool = True,
        attention: Mapping[str, Any] | None = None,
        cross_attention: Mapping[str, Any] | None = None,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        if cross_attention and not self.has_cross_attention:
            raise TypeError(
                f"{type(self).__name__}: cross_attention must be None, got {cross_attention!r:.60}"
            )
        if parallel and (self.has_cross_attention or not norm_first):
            raise ValueError(
                f"{type(self).__name__}: parallel must be False, except in encoder layers with "
                "norm_first=True, got True"
            )
        shared: dict[str, Any] = {"bias": bias, "dtype": dtype, "generator": generator}
        if norm_after and (parallel or not norm_first):
            raise ValueError(
                f"{type(self).__name__}: norm_after must be False, except with norm_first=True and "
                "parallel=False, got True"
            )
        one_norm: Any = partial(norm_named, norm, d_model, norm_eps, dtype)
        new_norm: Any = (lambda: SandwichNorm(one_norm(), one_norm())) if norm_after else one_norm
        new_attention = partial(ExtendedAttention, d_model, num_heads)
        inner_dropout = dropout if activation_dropout is None else activation_dropout
        self.norm_first, self.parallel = norm_first, parallel
        self.dropout = Dropout(dropout, generator=generator)
        self.self_attention = new_attention(**{"dropout": dropout, **shared, **(attention or {})})
        self.norm1 = new_norm()
        if self.has_cross_attention:
            options = {"dropout": dropout, **shared, **(cross_attention or {})}
            self.cross_attention = new_attention(**options)
            self.norm2 = new_norm()
        self.feed_forward = ExtendedFeedForward(
            d_model, d_ff, activation=activation, gated=gated, dropout=inner_dropout, **shared
        )
        if self.has_cross_attention:
            self.norm3 = new_norm()
        else:
            self.norm2 = new_norm()

    def residual(
        self, x: Any, norm: Module, sublayer: Callable[[Any], Tensor], onto: Any = None
    ) -> Tensor:
        """Return the result of a sublayer, as `TransformerEncoderLayer.residual`.

        If two sublayers get the same x, the output of the second is added to `onto`.
        """
        if isinstance(norm, SandwichNorm):
            return x + self.dropout(norm.after(sublayer(norm.before(x))))
        if onto is None:
            return super().residual(x, norm, sublayer)
        return onto + self.dropout(sublayer(norm(x)))


class ExtendedEncoderLayer(ExtendedLayer, TransformerEncoderLayer):
    """Encoder layer with the options of later models.

    Other parameters: as `TransformerEncoderLayer` and `ExtendedConfig`.

    Parameters
    ----------
    parallel : bool, default False
        Pass the same x to both sublayers. Requires `norm_first`.
    attention : mapping, optional
        Further options of `ExtendedAttention`. They override `dropout` and `bias`.
    cross_attention : mapping, optional
        Not available in an encoder layer.
    """

    def forward(self, x: Any, *, mask: Any = None, **options: Any) -> Tensor:
        """Return the output of the layer, (N, L, d_model); `options` can have `positions`, too."""
        if not self.parallel:
            return super().forward(x, mask=mask, **options)
        x = as_input(self, x, self.feed_forward.linear1.weight.dtype)
        after = self.residual(x, self.norm1, lambda h: self.self_attention(h, mask=mask, **options))
        return self.residual(x, self.norm2, self.feed_forward, onto=after)


class ExtendedDecoderLayer(ExtendedLayer, TransformerDecoderLayer):
    """Decoder layer with the options of later models.

    Other parameters: as `ExtendedEncoderLayer`.

    Parameters
    ----------
    parallel : bool, default False
        Not available in a decoder layer.
    attention : mapping, optional
        Further options of the self-attention. They override `dropout` and `bias`.
    cross_attention : mapping, optional
        Further options of the attention to the output of the encoder.
    """

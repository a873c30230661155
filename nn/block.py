"""Transformer layers: Vaswani et al. (2017), section 3.1.

Look at `residual`, the line of the paper through which every sublayer passes, and at `forward` of
the two layers. `gated`, `norm`, `norm_first`, `parallel` and `bias` are choices of later models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minigrad.arguments import check_choice
from minigrad.tensor import Tensor

from .attention import MultiHeadCrossAttention, MultiHeadSelfAttention
from .feedforward import FeedForward
from .linear import Dropout
from .module import Module, as_input
from .norm import LayerNorm, RMSNorm

__all__ = ["TransformerDecoderLayer", "TransformerEncoderLayer"]


NORMS = ("layer", "rms", "rms_zero_centred")


def norm_named(kind: str, d: int, eps: float, dtype: Any) -> LayerNorm | RMSNorm:
    """Return a new norm."""
    check_choice("", "norm", kind, *NORMS)
    if kind == "layer":
        return LayerNorm(d, eps, dtype=dtype)
    return RMSNorm(d, eps, dtype=dtype, zero_centred=kind == "rms_zero_centred")


class TransformerLayer(Module):
    """Base of the layers of an encoder and of a decoder."""

    has_cross_attention = False
    norm2: Module

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int = 2048,
        *,
        dropout: float = 0.1,
        activation_dropout: float | None = None,
        activation: str = "relu",
        gated: bool = False,
        norm: str = "layer",
        norm_eps: float = 1e-5,
        norm_first: bool = False,
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
        inner_dropout = dropout if activation_dropout is None else activation_dropout
        new_norm = lambda: norm_named(norm, d_model, norm_eps, dtype)
        self.norm_first, self.parallel = norm_first, parallel
        self.dropout = Dropout(dropout, generator=generator)
        self.self_attention = MultiHeadSelfAttention(
            d_model, num_heads, **{"dropout": dropout, **shared, **(attention or {})}
        )
        self.norm1 = new_norm()
        if self.has_cross_attention:
            self.cross_attention = MultiHeadCrossAttention(
                d_model, num_heads, **{"dropout": dropout, **shared, **(cross_attention or {})}
            )
            self.norm2 = new_norm()
        self.feed_forward = FeedForward(
            d_model, d_ff, activation=activation, gated=gated, dropout=inner_dropout, **shared
        )
        if self.has_cross_attention:
            self.norm3 = new_norm()
        else:
            self.norm2 = new_norm()

    def residual(
        self, x: Any, norm: Module, sublayer: Callable[[Any], Tensor], onto: Any = None
    ) -> Tensor:
        """Return LayerNorm(x + Dropout(Sublayer(x))), or x + Dropout(Sublayer(LayerNorm(x))).

        Every sublayer of a layer passes through this method. Override it to add something else
        than the paper does.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        norm : Module
            Norm of this sublayer.
        sublayer : function
            Attention or the feed-forward network.
        onto : Tensor, shape (N, L, d_model), optional
            Added to the sublayer's output in place of x, if two sublayers get the same x.
        """
        if self.norm_first:
            return (x if onto is None else onto) + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class TransformerEncoderLayer(TransformerLayer):
    """Transformer layer of self-attention and a feed-forward network.

    With `is_causal`, it is a layer of a decoder-only model.

    Parameters
    ----------
    d_model : int
        Size of input and output.
    num_heads : int
        Number of heads.
    d_ff : int, default 2048
        Size of the hidden layer of the feed-forward network.
    dropout : float, default 0.1
        Probability of dropping an element of the output of a sublayer, or an attention weight.
    activation_dropout : float, optional
        Dropout inside the feed-forward network; `dropout` by default.
    activation : str, default "relu"
        A name in `nn.ACTIVATIONS`.
    gated : bool, default False
        Multiply the activation by a second projection: see `FeedForward`.
    norm : str, default "layer"
        "layer", "rms" or "rms_zero_centred".
    norm_eps : float, default 1e-5
        Added to the variance or mean square.
    norm_first : bool, default False
        Compute x + dropout(f(norm(x))) for a sublayer f. Otherwise, as in the paper,
        norm(x + dropout(f(x))).
    parallel : bool, default False
        Pass the same x to both sublayers. Requires `norm_first`.
    bias : bool, default True
        Add biases in all linear layers.
    attention : mapping, optional
        Further options of `MultiHeadAttention`. They override `dropout` and `bias`.
    cross_attention : mapping, optional
        Not available in an encoder layer.
    dtype : dtype, default float32
        dtype of the parameters.
    generator : numpy.random.Generator, optional
        Draws the weights and dropout; the default generator if not given.
    """

    def forward(self, x: Any, *, mask: Any = None, **options: Any) -> Tensor:
        """Compute the layer.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        mask : array of bool, shape (L, L) or broadcastable to (N, h, L, L), optional
            True = may attend.
        **options
            `is_causal`, `cache` and `positions` of `MultiHeadAttention.forward`.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            The output of the layer.
        """
        x = as_input(self, x, self.feed_forward.linear1.weight.dtype)
        after = self.residual(x, self.norm1, lambda h: self.self_attention(h, mask=mask, **options))
        if self.parallel:
            return self.residual(x, self.norm2, self.feed_forward, onto=after)
        return self.residual(after, self.norm2, self.feed_forward)


class TransformerDecoderLayer(TransformerLayer):
    """Transformer layer of causal self-attention, cross-attention and a feed-forward network.

    Other parameters: as `TransformerEncoderLayer`.

    Parameters
    ----------
    parallel : bool, default False
        Not available in a decoder layer.
    attention : mapping, optional
        Further options of the self-attention. They override `dropout` and `bias`.
    cross_attention : mapping, optional
        Further options of the attention to the output of the encoder.
    """

    has_cross_attention = True

    def forward(
        self,
        x: Any,
        memory: Any,
        *,
        mask: Any = None,
        memory_mask: Any = None,
        is_causal: bool = True,
        **options: Any,
    ) -> Tensor:
        """Compute the layer.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        memory : Tensor, shape (N, L_m, d_model), or KeysAndValues
            Output of the encoder, or the result of `cross_attention.keys_and_values`.
        mask : array of bool, shape (L, L) or broadcastable to (N, h, L, L), optional
            True = may attend.
        memory_mask : array of bool, broadcastable to (N, h, L, L_m), optional
            True = may attend.
        is_causal : bool, default True
            Attend to the positions up to the current one only.
        **options
            `cache` and `positions` of `MultiHeadAttention.forward`.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            The output of the layer.
        """
        x = as_input(self, x, self.feed_forward.linear1.weight.dtype)
        options["is_causal"] = is_causal
        x = self.residual(x, self.norm1, lambda h: self.self_attention(h, mask=mask, **options))
        x = self.residual(
            x, self.norm2, lambda h: self.cross_attention(h, memory, mask=memory_mask)
        )
        return self.residual(x, self.norm3, self.feed_forward)

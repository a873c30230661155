"""The layers of a Transformer: Vaswani et al. (2017), section 3.1.

With `norm_first=False`, as in the paper, a sublayer f becomes norm(x + dropout(f(x))); with
`norm_first=True` x + dropout(f(norm(x))). Where `parallel`, both sublayers of an encoder layer see
the same x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minigrad.core.tensor import Tensor

from .attention import MultiHeadCrossAttention, MultiHeadSelfAttention
from .feedforward import FeedForward
from .linear import Dropout
from .module import Module
from .norm import LayerNorm, RMSNorm

__all__ = ["TransformerDecoderLayer", "TransformerEncoderLayer", "norm_named"]


NORMS = ("layer", "rms", "rms_zero_centred")


def norm_named(kind: str, d: int, eps: float, dtype: Any) -> LayerNorm | RMSNorm:
    """A norm of rows: one of `NORMS`."""
    if kind not in NORMS:
        raise ValueError(f"norm: expected one of {', '.join(NORMS)}, got {kind!r}")
    return (
        LayerNorm(d, eps, dtype=dtype)
        if kind == "layer"
        else RMSNorm(d, eps, dtype=dtype, zero_centred=kind == "rms_zero_centred")
    )


class _Layer(Module):
    """What encoder and decoder layers share: their parts, in the order of computation, and residual
    sublayers.
    """

    crosses = False  # whether there is an attention to the output of another stack
    norm2: Module

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
        parallel: bool = False,
        bias: bool = True,
        attention: Mapping[str, Any] | None = None,
        cross_attention: Mapping[str, Any] | None = None,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        if cross_attention and not self.crosses:
            raise TypeError(f"{type(self).__name__}: there is no cross_attention")
        if parallel and (self.crosses or not norm_first):
            raise ValueError(
                f"{type(self).__name__}: parallel is for encoder layers with norm_first=True"
            )
        shared: dict[str, Any] = {
            "dropout": dropout,
            "bias": bias,
            "dtype": dtype,
            "generator": generator,
        }
        self.norm_first, self.parallel = norm_first, parallel
        self.dropout = Dropout(dropout, generator=generator)
        self.self_attention = MultiHeadSelfAttention(
            d_model, num_heads, **{**shared, **(attention or {})}
        )
        self.norm1 = norm_named(norm, d_model, norm_eps, dtype)
        if self.crosses:
            self.cross_attention = MultiHeadCrossAttention(
                d_model, num_heads, **{**shared, **(cross_attention or {})}
            )
            self.norm2 = norm_named(norm, d_model, norm_eps, dtype)
        inner = dropout if activation_dropout is None else activation_dropout
        self.feed_forward = FeedForward(
            d_model, d_ff, activation=activation, gated=gated, **{**shared, "dropout": inner}
        )
        setattr(
            self, "norm3" if self.crosses else "norm2", norm_named(norm, d_model, norm_eps, dtype)
        )

    def _residual(self, x: Any, norm: Module, sublayer: Callable[[Any], Tensor]) -> Tensor:
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward net. Where `is_causal`, a layer of a decoder-only model.

    `norm` is "layer", "rms" or "rms_zero_centred". `attention` has further options of
    `MultiHeadAttention`; `bias` and `dropout` hold for it too, unless said otherwise there.
    `activation_dropout` acts inside the feed-forward net (None: as `dropout`).
    """

    def forward(self, x: Any, *, mask: Any = None, **options: Any) -> Tensor:
        """(N, L, d_model) from x of that shape; the rest as in `MultiHeadAttention`."""
        after = self._residual(
            x, self.norm1, lambda h: self.self_attention(h, mask=mask, **options)
        )
        if self.parallel:
            return after + self.dropout(self.feed_forward(self.norm2(x)))
        return self._residual(after, self.norm2, self.feed_forward)


class TransformerDecoderLayer(_Layer):
    """Causal self-attention, attention to the encoder's output, then a feed-forward net.

    Options as in `TransformerEncoderLayer`; `cross_attention` has those of the second attention.
    """

    crosses = True
    norm3: Module

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
        """(N, L, d_model) from x of that shape.

        `memory` is the encoder's output (N, L_m, d_model), or what
        `cross_attention.keys_and_values` made of it. `mask` broadcasts to (N, h, L, L) and
        `memory_mask` to (N, h, L, L_m).
        """
        options["is_causal"] = is_causal
        x = self._residual(x, self.norm1, lambda h: self.self_attention(h, mask=mask, **options))
        x = self._residual(
            x, self.norm2, lambda h: self.cross_attention(h, memory, mask=memory_mask)
        )
        return self._residual(x, self.norm3, self.feed_forward)

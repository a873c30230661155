"""The position-wise feed-forward net: Vaswani et al. (2017), section 3.3."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from .linear import Linear, activation_named
from .module import Module

__all__ = ["FeedForward"]


class FeedForward(Module):
    """activation(x W₁ + b₁) W₂ + b₂ at each position: d_model to d_ff and back.

    With `gated`, the activation multiplies a second projection (Shazeer 2020, arXiv:2002.05202):
    activation(x W₁) · (x W₃), with "silu" the SwiGLU of newer models. `dropout` acts between the
    two.
    """

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
        self.activation = activation
        self.dropout = dropout
        self.generator = generator
        self.function = activation_named(activation)
        self.linear1 = Linear(d_model, d_ff, bias, dtype=dtype, generator=generator)
        self.gate = Linear(d_model, d_ff, bias, dtype=dtype, generator=generator) if gated else None
        self.linear2 = Linear(d_ff, d_model, bias, dtype=dtype, generator=generator)

    def forward(self, x: Any) -> Tensor:
        training = self.training
        h = self.linear1(x)
        if self.activation == "relu" and self.gate is None:
            return self.linear2(
                mg.relu_dropout(h, p=self.dropout, training=training, generator=self.generator)
            )
        h = self.function(h)
        if self.gate is not None:
            h = h * self.gate(x)
        return self.linear2(mg.dropout(h, self.dropout, training, generator=self.generator))

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}, dropout={self.dropout}"

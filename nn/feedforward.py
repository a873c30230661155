"""Position-wise feed-forward networks: Vaswani et al. (2017), section 3.3.

On a first reading: the paper's network is the branch for "relu" without a gate.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from minigrad.ops.dropout import dropout, relu_dropout
from minigrad.tensor import Tensor

from .linear import Linear, activation_named
from .module import Module

__all__ = ["FeedForward"]


class FeedForward(Module):
    """Feed-forward network: activation(x W₁ + b₁) W₂ + b₂ at each position.

    Parameters
    ----------
    d_model : int
        Size of input and output.
    d_ff : int
        Size of the hidden layer.
    activation : str, default "relu"
        A name in `nn.ACTIVATIONS`.
    dropout : float, default 0
        Probability of dropping an element of the hidden layer in training.
    gated : bool, default False
        Multiply the activation by a second projection, activation(x W₁) · (x W₃). With "silu", this
        is SwiGLU (Shazeer 2020, arXiv:2002.05202).
    bias : bool, default True
        Add biases in the linear layers.
    dtype : dtype, default float32
        dtype of the parameters.
    generator : numpy.random.Generator, optional
        Draws the weights and dropout; the default generator if not given.
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
        self.activation, self.dropout, self.generator = activation, dropout, generator
        self.function = activation_named(activation)
        linear = partial(Linear, bias=bias, dtype=dtype, generator=generator)
        self.linear1 = linear(d_model, d_ff)
        self.gate = linear(d_model, d_ff) if gated else None
        self.linear2 = linear(d_ff, d_model)

    def forward(self, x: Any) -> Tensor:
        """Return the result (..., d_model) for x (..., d_model).

        Parameters
        ----------
        x : Tensor, shape (..., d_model)

        Returns
        -------
        Tensor, shape (..., d_model)
            The output of the network at each position.
        """
        training = self.training
        h = self.linear1(x)
        if self.activation == "relu" and self.gate is None:
            return self.linear2(
                relu_dropout(h, p=self.dropout, training=training, generator=self.generator)
            )
        h = self.function(h)
        if self.gate is not None:
            h = h * self.gate(x)
        return self.linear2(dropout(h, self.dropout, training, generator=self.generator))

    def extra_repr(self) -> str:
        """Return the activation and dropout."""
        return f"activation={self.activation!r}, dropout={self.dropout}"

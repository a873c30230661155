"""Position-wise feed-forward networks: Vaswani et al. (2017), section 3.3."""

from __future__ import annotations

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
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.activation, self.dropout, self.generator = activation, dropout, generator
        self.function = activation_named(activation)
        self.linear1, self.linear2 = (
            Linear(*sizes, dtype=dtype, generator=generator)
            for sizes in ((d_model, d_ff), (d_ff, d_model))
        )

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
        h, options = self.linear1(x), {"training": self.training, "generator": self.generator}
        if self.activation == "relu":
            return self.linear2(relu_dropout(h, p=self.dropout, **options))
        return self.linear2(dropout(self.function(h), self.dropout, **options))

    def extra_repr(self) -> str:
        """Return the activation and dropout."""
        return f"activation={self.activation!r}, dropout={self.dropout}"

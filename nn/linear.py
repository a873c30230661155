"""Linear layers, embeddings and dropout: the parts with which all others are built.

On a first reading: `Linear`. A layer keeps its parameters as attributes, and `forward` calls one
operation of minigrad.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.arguments import check_choice, checked_number
from minigrad.ops.activation import relu
from minigrad.ops.dropout import dropout
from minigrad.ops.product import linear
from minigrad.ops.select import embedding
from minigrad.tensor import Tensor

from .initial import normal_, uniform_
from .module import Module, Parameter, as_input

__all__ = ["ACTIVATIONS", "Dropout", "Embedding", "Linear"]


class Linear(Module):
    """Linear layer: x @ weight.T + bias.

    Parameters
    ----------
    in_features, out_features : int
        Lengths of the last axis of input and output.
    bias : bool, default True
        Add a bias.
    dtype : dtype, default float32
        dtype of weight and bias.
    generator : numpy.random.Generator, optional
        Draws weight and bias; the default generator if not given.

    Attributes
    ----------
    weight : Parameter, shape (out_features, in_features)
        Starts uniform within ± 1/√in_features, as the bias. A model draws again: see `Model`.
    bias : Parameter, shape (out_features,), or None
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        shape = out_features, in_features
        self.weight = Parameter(np.zeros(shape, dtype))
        self.bias = Parameter(np.zeros(out_features, dtype)) if bias else None
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        uniform_(self.weight, -bound, bound, generator)
        if self.bias is not None:
            uniform_(self.bias, -bound, bound, generator)

    def forward(self, x: Any) -> Tensor:
        """Return the result (..., out_features) for x (..., in_features).

        Parameters
        ----------
        x : Tensor, shape (..., in_features)

        Returns
        -------
        Tensor, shape (..., out_features)
            The product x @ weight.T, plus the bias.
        """
        return linear(as_input(self, x, self.weight.dtype), self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        bias = "" if self.bias is not None else ", bias=False"
        return f"{self.in_features}, {self.out_features}{bias}"


class Embedding(Module):
    """Lookup table of vectors.

    Parameters
    ----------
    num_embeddings : int
        Number of vectors.
    embedding_dim : int
        Length of a vector.
    padding_idx : int, optional
        Index of a vector that is zero and not trained.
    std : float, default 1
        Standard deviation of the initial values, which are normal.
    dtype : dtype, default float32
        dtype of the vectors.
    generator : numpy.random.Generator, optional
        Draws the vectors; the default generator if not given.

    Attributes
    ----------
    weight : Parameter, shape (num_embeddings, embedding_dim)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        std: float = 1.0,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        if padding_idx is not None and not 0 <= padding_idx < num_embeddings:
            raise ValueError(
                f"Embedding: padding_idx must be from 0 to {num_embeddings - 1}, got {padding_idx}"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.weight = Parameter(np.zeros((num_embeddings, embedding_dim), dtype))
        normal_(self.weight, 0.0, std, generator)
        if padding_idx is not None:
            self.weight.data[padding_idx] = 0

    def forward(self, indices: Any) -> Tensor:
        """Return the vectors (..., embedding_dim) of integers (...).

        Parameters
        ----------
        indices : array of int, shape (...)

        Returns
        -------
        Tensor, shape (..., embedding_dim)
            The vectors at the indices.
        """
        return embedding(self.weight, indices, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the sizes."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class Dropout(Module):
    """Dropout: in training, set elements to zero and divide the others by 1 - p.

    Parameters
    ----------
    p : float, default 0.5
        Probability of zero, at least 0 and less than 1.
    inplace : bool, default False
        Has no effect: it saves memory in PyTorch.
    generator : numpy.random.Generator, optional
        Draws the elements; the default generator if not given.
    """

    def __init__(
        self,
        p: float = 0.5,
        inplace: bool = False,
        *,
        generator: np.random.Generator | None = None,
    ) -> None:
        checked_number("Dropout", "p", p, high=1)
        self.p = p
        self.generator = generator

    def forward(self, x: Any) -> Tensor:
        """Return x with some elements set to zero in training.

        Parameters
        ----------
        x : Tensor

        Returns
        -------
        Tensor
            Of the shape of x; x itself in evaluation mode.
        """
        return dropout(x, self.p, self.training, generator=self.generator)

    def extra_repr(self) -> str:
        """Return the probability."""
        return f"p={self.p}"


ACTIVATIONS: dict[str, Callable[..., Tensor]] = {"relu": relu}
"""Activations by the names that a configuration can contain. `nn.options.activations` adds some."""


def activation_named(name: str) -> Callable[..., Tensor]:
    """Return the activation with a name in `ACTIVATIONS`."""
    check_choice("", "activation", name, *ACTIVATIONS)
    return ACTIVATIONS[name]

"""Layers: linear layers, embeddings, positions, dropout, norms and feed-forward networks.

On a first reading: `Linear`. A layer keeps its parameters as attributes, and `forward` calls one
operation of minigrad. Feed-forward networks and positions are sections 3.3 and 3.5 of Vaswani et
al. (2017): look at `sinusoidal_table` and `_Positions.forward`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from minigrad.arguments import check_choice, checked_number
from minigrad.arrays import Array, DType, Ids
from minigrad.ops.arithmetic import add
from minigrad.ops.network import dropout, layer_norm, linear, relu, relu_dropout
from minigrad.ops.shape import embedding, reshape
from minigrad.tensor import Tensor

from .initial import draw_linear, normal_
from .module import Module, Parameter, as_input

__all__ = [
    "ACTIVATIONS",
    "Dropout",
    "Embedding",
    "FeedForward",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "SinusoidalPositions",
    "sinusoidal_table",
]


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
        Starts uniform within ± 1/√in_features, as the bias. In a model, it starts by Xavier's rule,
        and the bias is 0.
    bias : Parameter, shape (out_features,), or None
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: DType = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        shape = out_features, in_features
        self.weight = Parameter(np.zeros(shape, dtype))
        self.bias = Parameter(np.zeros(out_features, dtype)) if bias else None
        draw_linear(self.weight, self.bias, generator)

    def forward(self, x: Array) -> Tensor:
        """Return x @ weight.T + bias, (..., out_features), for x (..., in_features)."""
        return linear(as_input(self, x, self.weight.dtype), self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        bias = "" if self.bias is not None else ", bias=False"
        return f"{self.in_features}, {self.out_features}{bias}"


class Embedding(Module):
    """Lookup table of vectors.

    Other parameters: as `Linear`.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Number of vectors, and length of a vector.
    padding_idx : int, optional
        Index of a vector that is zero and not trained.
    std : float, default 1
        Standard deviation of the initial values, which are normal.

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
        dtype: DType = np.float32,
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

    def forward(self, indices: Ids) -> Tensor:
        """Return the vectors (..., embedding_dim) at the indices (...)."""
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

    def forward(self, x: Array) -> Tensor:
        """Return x with some elements set to zero in training, and x itself in evaluation mode."""
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


# -- norms


def normalize_trailing_axes(
    normalize: Callable[..., Tensor],
    name: str,
    x: Array,
    shape: tuple[int, ...],
    eps: float | None,
    **parameters: Array,
) -> Tensor:
    """Apply a normalization of the last axis to several trailing axes at once."""
    size = x.shape if isinstance(x, Tensor) else np.shape(x)
    if not shape or size[-len(shape) :] != shape:
        raise ValueError(f"{name}: the last axes of x must have lengths {shape}, got shape {size}")
    if len(shape) == 1:
        return normalize(x, **parameters, eps=eps)
    for key, value in parameters.items():
        if value is not None and np.shape(value) != shape:
            raise ValueError(f"{name}: {key} must have shape {shape}, got {np.shape(value)}")
    rows = reshape(x, *size[: -len(shape)], math.prod(shape))
    flat = {key: None if p is None else reshape(p, -1) for key, p in parameters.items()}
    return reshape(normalize(rows, **flat, eps=eps), size)


class TrailingNorm(Module):
    """Base of norms over the last axes."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None) -> None:
        self.normalized_shape = tuple(map(index, np.ravel(normalized_shape)))
        self.eps = eps

    def extra_repr(self) -> str:
        """Return the normalized shape and eps."""
        shape = self.normalized_shape
        return f"{shape[0] if len(shape) == 1 else shape}, eps={self.eps}"


class LayerNorm(TrailingNorm):
    """Layer normalization: mean 0 and variance 1 along the last axes, times `weight`, plus `bias`.

    The variance is the biased one, and eps is added to it, as in PyTorch.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Length of the last axis, or lengths of the last axes that are normalized together.
    eps : float, default 1e-5
        Added to the variance.
    elementwise_affine : bool, default True
        Create a `weight`.
    bias : bool, default True
        Create a `bias`, beside a `weight`.
    dtype : dtype, default float32
        Floating dtype of `weight` and `bias`.

    References
    ----------
    Ba, Kiros, Hinton (2016), arXiv:1607.06450.
    """

    eps: float

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: DType = np.float32,
    ) -> None:
        super().__init__(normalized_shape, eps)
        shape = self.normalized_shape
        self.weight = Parameter(np.ones(shape, dtype)) if elementwise_affine else None
        self.bias = Parameter(np.zeros(shape, dtype)) if elementwise_affine and bias else None

    def forward(self, x: Array) -> Tensor:
        """Return x (..., *normalized_shape), normalized."""
        shape, weight, bias = self.normalized_shape, self.weight, self.bias
        x = x if weight is None else as_input(self, x, weight.dtype)
        return normalize_trailing_axes(
            layer_norm, "LayerNorm", x, shape, self.eps, weight=weight, bias=bias
        )


# -- feed-forward networks


class FeedForward(Module):
    """Feed-forward network: activation(x W₁ + b₁) W₂ + b₂ at each position.

    Other parameters: as `Linear`.

    Parameters
    ----------
    d_model, d_ff : int
        Size of input and output, and of the hidden layer.
    activation : str, default "relu"
        A name in `nn.ACTIVATIONS`.
    dropout : float, default 0
        Probability of dropping an element of the hidden layer in training.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        dtype: DType = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.activation, self.dropout, self.generator = activation, dropout, generator
        self.function = activation_named(activation)
        self.linear1, self.linear2 = (
            Linear(*sizes, dtype=dtype, generator=generator)
            for sizes in ((d_model, d_ff), (d_ff, d_model))
        )

    def forward(self, x: Array) -> Tensor:
        """Return the result (..., d_model) for x (..., d_model)."""
        h, options = self.linear1(x), {"training": self.training, "generator": self.generator}
        if self.activation == "relu":  # relu and dropout together have a kernel
            return self.linear2(relu_dropout(h, p=self.dropout, **options))
        return self.linear2(dropout(self.function(h), self.dropout, **options))

    def extra_repr(self) -> str:
        """Return the activation and dropout."""
        return f"activation={self.activation!r}, dropout={self.dropout}"


# -- positions


def sinusoidal_table(max_len: int, d_model: int) -> np.ndarray:
    """Return the sines and cosines of positions, an array of float64 (max_len, d_model).

    PE(pos, 2i) = sin(pos / 10000^(2i/d)) and PE(pos, 2i+1) = cos(pos / 10000^(2i/d)).

    Parameters
    ----------
    max_len : int
        Number of positions.
    d_model : int
        Even size of a vector.

    References
    ----------
    Vaswani et al. (2017), section 3.5.
    """
    if d_model % 2:
        raise ValueError(f"sinusoidal_table: d_model must be even, got {d_model}")
    angle = np.arange(max_len)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(max_len, d_model)


def checked_positions(name: str, positions: Ids, length: int) -> tuple[Ids, int]:
    """Return positions, an int or an array (..., length), and the length of a table of them."""
    if np.ndim(positions):
        positions = np.asarray(positions)
        if positions.dtype.kind not in "iu" or positions.shape[-1] != length:
            raise ValueError(
                f"{name}: positions must be integers of shape ({length},) or (N, {length}), got "
                f"{positions.dtype} {positions.shape}"
            )
        low, end = int(positions.min(initial=0)), int(positions.max(initial=0)) + 1
    else:
        positions = low = index(positions)
        end = low + length
    if low < 0:
        raise ValueError(f"{name}: positions must be at least 0, got {low}")
    return positions, end


class _Positions(Module):
    """Module that adds row position + offset of `weight` (max_len + offset, d_model)."""

    weight: Any

    def __init__(self, max_len: int, d_model: int, offset: int) -> None:
        self.max_len = max_len
        self.d_model = d_model
        self.offset = offset

    def forward(self, x: Array, positions: Ids = 0) -> Tensor:
        """Add the vectors of positions.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        positions : int or array of int, shape (L,) or (N, L), default 0
            Position of the first vector, or of each one.
        """
        x = as_input(self, x, self.weight.dtype)
        positions, end = checked_positions(type(self).__name__, positions, x.shape[1])
        if end > self.max_len:
            raise ValueError(
                f"{type(self).__name__}: x must have at most {self.max_len} positions, got {end}; "
                "shorten it, or build the model with a larger max_len"
            )
        if np.ndim(positions):
            return add(x, embedding(self.weight, positions + self.offset))
        return add(x, self.weight[self.offset + positions : self.offset + end])

    def extra_repr(self) -> str:
        """Return the sizes."""
        offset = f", offset={self.offset}" if self.offset else ""
        return f"max_len={self.max_len}, d_model={self.d_model}{offset}"


class SinusoidalPositions(_Positions):
    """Positional encoding by fixed sines and cosines.

    Other parameters: as `sinusoidal_table`.

    Parameters
    ----------
    dtype : dtype, default float32
        dtype of the table.
    offset : int, default 0
        Row of position 0 in the table.
    """

    def __init__(
        self,
        max_len: int,
        d_model: int,
        *,
        dtype: DType = np.float32,
        offset: int = 0,
    ) -> None:
        super().__init__(max_len, d_model, offset)
        self.register_buffer("weight", self.table(max_len + offset).astype(dtype), persistent=False)

    def table(self, length: int) -> np.ndarray:
        """Return the vectors of the first positions, (length, d_model).

        Parameters
        ----------
        length : int
        """
        return sinusoidal_table(length, self.d_model)


class LearnedPositions(_Positions):
    """Positional encoding by a trained vector for each position.

    Other parameters: as `SinusoidalPositions` and `Linear`.

    Parameters
    ----------
    max_len, d_model : int
        Number of positions, and size of a vector.
    std : float, default 0.02
        Standard deviation of the initial values, which are normal.
    """

    def __init__(
        self,
        max_len: int,
        d_model: int,
        *,
        std: float = 0.02,
        dtype: DType = np.float32,
        generator: np.random.Generator | None = None,
        offset: int = 0,
    ) -> None:
        super().__init__(max_len, d_model, offset)
        self.weight = normal_(
            Parameter(np.zeros((max_len + offset, d_model), dtype)), 0.0, std, generator
        )

"""Linear layers, embeddings, dropout and activations."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor
from minigrad.ops.axes import check_choice
from minigrad.optim.settings import checked_number

from . import init
from .module import Module, Parameter, as_input

__all__ = [
    "ACTIVATIONS",
    "ELU",
    "GELU",
    "Activation",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "activation_named",
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
        Starts uniform within ± 1/√in_features, as the bias.
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
        self.weight = Parameter(np.zeros((out_features, in_features), dtype))
        self.bias = Parameter(np.zeros(out_features, dtype)) if bias else None
        init.kaiming_uniform_(self.weight, math.sqrt(5), generator=generator)
        if self.bias is not None:
            bound = 1 / math.sqrt(in_features) if in_features else 0.0
            init.uniform_(self.bias, -bound, bound, generator)

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
        return mg.linear(as_input(self, x, self.weight.dtype), self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes.

        Returns
        -------
        str
            Sizes for `repr`.
        """
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
        init.normal_(self.weight, 0.0, std, generator)
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
        return mg.embedding(self.weight, indices, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the sizes.

        Returns
        -------
        str
            Sizes for `repr`.
        """
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
        return mg.dropout(x, self.p, self.training, generator=self.generator)

    def extra_repr(self) -> str:
        """Return the probability.

        Returns
        -------
        str
            The probability for `repr`.
        """
        return f"p={self.p}"


class Identity(Module):
    """Layer that returns its input.

    Parameters
    ----------
    *_, **__
        Ignored, as in PyTorch.
    """

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def forward(self, x: Any) -> Any:
        """Return x.

        Parameters
        ----------
        x : Tensor

        Returns
        -------
        Tensor
            The argument x.
        """
        return x


class Flatten(Module):
    """Layer that merges axes: (n, a, b) to (n, a * b) by default.

    Parameters
    ----------
    start_dim, end_dim : int, default 1 and -1
        First and last axis to merge.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Any) -> Tensor:
        """Return x with merged axes.

        Parameters
        ----------
        x : Tensor

        Returns
        -------
        Tensor
            With one axis in place of the merged ones.
        """
        return mg.flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the axes.

        Returns
        -------
        str
            The axes for `repr`.
        """
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class FunctionModule(Module):
    """Base of layers that call a function with fixed `options`.

    A subclass names the function: `class ReLU(Activation, function=mg.relu)`.
    """

    function: Callable[..., Tensor]
    options: dict[str, Any]

    def __init_subclass__(cls, function: Callable[..., Tensor] | None = None) -> None:
        if function is not None:
            cls.function = staticmethod(function)

    def extra_repr(self) -> str:
        """Return the options."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class Activation(FunctionModule):
    """Base of layers that apply a function to each element.

    A subclass names the function: `class ReLU(Activation, function=mg.relu)`.

    Parameters
    ----------
    **options
        Keyword arguments of the function.
    """

    def __init__(self, **options: Any) -> None:
        known = list(inspect.signature(type(self).function).parameters)[1:]
        if unknown := options.keys() - known:
            raise TypeError(
                f"{type(self).__name__}: option must be one of {', '.join(known) or 'no options'}, "
                f"got {min(unknown)}"
            )
        self.options = options

    def forward(self, x: Any) -> Tensor:
        """Return the function of each element of x.

        Parameters
        ----------
        x : Tensor

        Returns
        -------
        Tensor
            Of the shape of x.
        """
        return type(self).function(x, **self.options)


class ReLU(Activation, function=mg.relu):
    """Rectified linear unit: max(x, 0).

    Parameters
    ----------
    inplace : bool, default False
        Has no effect: it saves memory in PyTorch.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class LeakyReLU(Activation, function=mg.leaky_relu):
    """Leaky rectified linear unit: x if positive, else negative_slope * x.

    Parameters
    ----------
    negative_slope : float, default 0.01
        Factor of negative elements.
    inplace : bool, default False
        Has no effect: it saves memory in PyTorch.
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope)


class ELU(Activation, function=mg.elu):
    """Exponential linear unit: x if positive, else alpha * (eˣ - 1).

    Parameters
    ----------
    alpha : float, default 1
        The limit for large negative x is -alpha.
    inplace : bool, default False
        Has no effect: it saves memory in PyTorch.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha)


class GELU(Activation, function=mg.gelu):
    """Gaussian error linear unit: x * Φ(x).

    Parameters
    ----------
    approximate : str, default "none"
        "tanh" for an approximation by tanh, as in GPT-2.
    """

    def __init__(self, approximate: str = "none") -> None:
        check_choice("GELU", "approximate", approximate, "none", "tanh")
        super().__init__(approximate=approximate)


class SiLU(Activation, function=mg.silu):
    """Sigmoid linear unit, also called swish: x * sigmoid(x).

    Parameters
    ----------
    inplace : bool, default False
        Has no effect: it saves memory in PyTorch.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class Sigmoid(Activation, function=mg.sigmoid):
    """Logistic function: 1 / (1 + e⁻ˣ).

    Parameters
    ----------
    **options
        Not used: the function has no options.
    """


class Tanh(Activation, function=mg.tanh):
    """Hyperbolic tangent.

    Parameters
    ----------
    **options
        Not used: the function has no options.
    """


class Softplus(Activation, function=mg.softplus):
    """Smooth form of ReLU: log(1 + e^(beta * x)) / beta.

    Parameters
    ----------
    beta : float, default 1
        Sharpness of the bend at 0: the larger, the closer to ReLU.
    """

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__(beta=beta)


class LogSigmoid(Activation, function=mg.log_sigmoid):
    """Logarithm of the sigmoid, without underflow.

    Parameters
    ----------
    **options
        Not used: the function has no options.
    """


class Softmax(Activation, function=mg.softmax):
    """Softmax: eˣ divided by its sum.

    Parameters
    ----------
    dim : int, default -1
        Axis of the sum.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__(axis=dim)


class LogSoftmax(Activation, function=mg.log_softmax):
    """Logarithm of the softmax, without underflow.

    Parameters
    ----------
    dim : int, default -1
        Axis of the sum.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__(axis=dim)


ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": mg.relu,
    "gelu": mg.gelu,
    "gelu_tanh": partial(mg.gelu, approximate="tanh"),
    "silu": mg.silu,
    "elu": mg.elu,
    "leaky_relu": mg.leaky_relu,
    "tanh": mg.tanh,
    "sigmoid": mg.sigmoid,
}
"""Activations by the names that a configuration can contain."""


def activation_named(name: str) -> Callable[..., Tensor]:
    """Return the activation with a name in `ACTIVATIONS`.

    Parameters
    ----------
    name : str
        A key of `ACTIVATIONS`.

    Returns
    -------
    callable
        A function of a tensor.
    """
    check_choice("", "activation", name, *ACTIVATIONS)
    return ACTIVATIONS[name]

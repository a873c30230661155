"""The layers of every network: linear maps, look-up tables, dropout, activations."""

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

from . import init
from .module import Module, Parameter

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
    """x @ weight.T + bias: (..., in_features) to (..., out_features).

    `weight` is (out, in), as in PyTorch, and both start uniform within ± 1/√in_features.
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
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(np.zeros((out_features, in_features), dtype))
        self.bias = Parameter(np.zeros(out_features, dtype)) if bias else None
        init.kaiming_uniform_(self.weight, math.sqrt(5), generator=generator)
        if self.bias is not None:
            bound = 1 / math.sqrt(in_features) if in_features else 0.0
            init.uniform_(self.bias, -bound, bound, generator)

    def forward(self, x: Any) -> Tensor:
        return mg.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}" + (
            "" if self.bias is not None else ", bias=False"
        )


class Embedding(Module):
    """Rows of a table: integers (...) to vectors (..., embedding_dim).

    Row `padding_idx` starts at zero and is not trained. The others start normal with standard
    deviation `std`.
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
                f"Embedding: expected padding_idx from 0 to {num_embeddings - 1}, got {padding_idx}"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.weight = Parameter(np.zeros((num_embeddings, embedding_dim), dtype))
        init.normal_(self.weight, 0.0, std, generator)
        if padding_idx is not None:
            self.weight.data[padding_idx] = 0

    def forward(self, indices: Any) -> Tensor:
        return mg.embedding(self.weight, indices, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class Dropout(Module):
    """In training, sets elements to 0 with probability `p` and divides the others by 1 - p.

    Each call draws anew, from `generator` or the default one. `inplace` changes nothing.
    """

    def __init__(
        self,
        p: float = 0.5,
        inplace: bool = False,
        *,
        generator: np.random.Generator | None = None,
    ) -> None:
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: expected 0 <= p < 1, got {p}")
        self.p = p
        self.generator = generator

    def forward(self, x: Any) -> Tensor:
        return mg.dropout(x, self.p, self.training, generator=self.generator)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Identity(Module):
    """x as it is: what stands where a layer is left out. Arguments are taken and not read."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def forward(self, x: Any) -> Any:
        return x


class Flatten(Module):
    """The axes from `start_dim` to `end_dim`, both counted in, as one: (n, a, b) to (n, a·b)."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Any) -> Tensor:
        return mg.flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class FunctionModule(Module):
    """A function as a module: `class ReLU(Activation, function=mg.relu)`; its `options` go to the
    function.
    """

    function: Callable[..., Tensor]
    options: dict[str, Any]

    def __init_subclass__(cls, function: Callable[..., Tensor] | None = None) -> None:
        if function is not None:
            cls.function = staticmethod(function)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class Activation(FunctionModule):
    """Apply a function to each element: `class ReLU(Activation, function=mg.relu)`.

    `options` are keyword arguments of the function.
    """

    def __init__(self, **options: Any) -> None:
        known = list(inspect.signature(type(self).function).parameters)[1:]
        for name in options.keys() - set(known):
            takes = ", ".join(known) or "no options"
            raise TypeError(f"{type(self).__name__}: option must be one of {takes}, got {name}")
        self.options = options

    def forward(self, x: Any) -> Tensor:
        return type(self).function(x, **self.options)


class ReLU(Activation, function=mg.relu):
    """max(x, 0). `inplace` changes nothing: it saves memory in PyTorch."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class LeakyReLU(Activation, function=mg.leaky_relu):
    """x where positive, else `negative_slope` · x. `inplace` changes nothing."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope)


class ELU(Activation, function=mg.elu):
    """x where positive, else `alpha` · (eˣ - 1). `inplace` changes nothing."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha)


class GELU(Activation, function=mg.gelu):
    """x · Φ(x); `approximate="tanh"` for its tanh form."""

    def __init__(self, approximate: str = "none") -> None:
        check_choice("GELU", "approximate", approximate, "none", "tanh")
        super().__init__(approximate=approximate)


class SiLU(Activation, function=mg.silu):
    """x · sigmoid(x). `inplace` changes nothing."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class Sigmoid(Activation, function=mg.sigmoid):
    """1 / (1 + e⁻ˣ)."""


class Tanh(Activation, function=mg.tanh):
    """The hyperbolic tangent."""


class Softplus(Activation, function=mg.softplus):
    """log(1 + e^(beta x)) / beta."""

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__(beta=beta)


class LogSigmoid(Activation, function=mg.log_sigmoid):
    """log(sigmoid(x))."""


class Softmax(Activation, function=mg.softmax):
    """eˣ, divided by its sum over the axis `dim`."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__(axis=dim)


class LogSoftmax(Activation, function=mg.log_softmax):
    """log(softmax(x)) over the axis `dim`."""

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
"""The activations that a configuration can name."""


def activation_named(name: str) -> Callable[..., Tensor]:
    """The activation of this name, or an error that lists the names."""
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}; expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]

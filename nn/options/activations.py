"""Layers without parameters: activations, `Identity`, `Flatten`, and names of activations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import minigrad as mg
from minigrad.arguments import check_choice
from minigrad.tensor import Tensor

from ..layers import ACTIVATIONS
from ..module import Module

__all__ = [
    "ELU",
    "GELU",
    "Activation",
    "Flatten",
    "Identity",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
]

ACTIVATIONS |= {
    "gelu": mg.gelu,
    "gelu_tanh": partial(mg.gelu, approximate="tanh"),
    "silu": mg.silu,
    "elu": mg.elu,
    "leaky_relu": mg.leaky_relu,
    "tanh": mg.tanh,
    "sigmoid": mg.sigmoid,
}


class Identity(Module):
    """Layer that returns its input.

    Parameters
    ----------
    *_, **__
        Ignored, as in PyTorch.
    """

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def forward(self, x: Any) -> Any:
        """Return x."""
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
        """Return x with merged axes."""
        return mg.flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class FunctionModule(Module):
    """Base of layers that call a function, which a subclass names, with fixed `options`."""

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
        """Return the function of each element of x."""
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

    Parameters: as `leaky_relu` and `ReLU`.
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope)


class ELU(Activation, function=mg.elu):
    """Exponential linear unit: x if positive, else alpha * (eˣ - 1).

    Parameters: as `elu` and `ReLU`.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha)


class GELU(Activation, function=mg.gelu):
    """Gaussian error linear unit: x * Φ(x).

    Parameters: as `gelu`.
    """

    def __init__(self, approximate: str = "none") -> None:
        check_choice("GELU", "approximate", approximate, "none", "tanh")
        super().__init__(approximate=approximate)


class SiLU(Activation, function=mg.silu):
    """Sigmoid linear unit, also called swish: x * sigmoid(x).

    Parameters: as `ReLU`.
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

    Parameters: as `Sigmoid`.
    """


class Softplus(Activation, function=mg.softplus):
    """Smooth form of ReLU: log(1 + e^(beta * x)) / beta.

    Parameters: as `softplus`.
    """

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__(beta=beta)


class LogSigmoid(Activation, function=mg.log_sigmoid):
    """Logarithm of the sigmoid, without underflow.

    Parameters: as `Sigmoid`.
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

    Parameters: as `Softmax`.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__(axis=dim)

"""Initialization of parameters, in place, by PyTorch's names.

`fan_in` is the number of inputs of a unit, `fan_out` the number of outputs: columns and rows of a
weight (out, in). Glorot, Bengio (2010); He et al. (2015), arXiv:1502.01852.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from minigrad.arguments import check_choice
from minigrad.changes import mark_changed
from minigrad.random import default_generator
from minigrad.tensor import Tensor

from ..initial import SKIPPED, check_floating, drawn, fans, normal_, uniform_, xavier_uniform_
from ..initial import skipped as skipped

__all__ = [
    "constant_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_",
    "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip


def _fill(tensor: Tensor, values: np.ndarray | float) -> Tensor:
    tensor.data[...] = values
    mark_changed(tensor.data)
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Return a tensor, filled with a value.

    Parameters
    ----------
    tensor : Tensor
        Filled in place.
    val : float
        Value of all elements.
    """
    return _fill(tensor, val)


def zeros_(tensor: Tensor) -> Tensor:
    """Return a tensor, filled with 0.

    Parameters: as `constant_`.
    """
    return _fill(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Return a tensor, filled with 1.

    Parameters: as `constant_`.
    """
    return _fill(tensor, 1)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Return a tensor, filled from a normal distribution with std gain * √(2 / (fan_in + fan_out)).

    Parameters: as `xavier_uniform_`.
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(fans(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    check_choice("", "mode", mode, "fan_in", "fan_out")
    check_choice("", "nonlinearity", nonlinearity, "leaky_relu", "relu", "linear")
    gains = {"leaky_relu": 2 / (1 + a * a), "relu": 2.0, "linear": 1.0}
    return math.sqrt(gains[nonlinearity] / fans(tensor)[mode == "fan_out"])


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Return a tensor, filled uniformly within ± √(6 / ((1 + a²) * fan_in)).

    Other parameters: as `xavier_uniform_`.

    Parameters
    ----------
    a : float, default 0
        Negative slope of the leaky ReLU that follows.
    mode : {"fan_in", "fan_out"}
        Number that keeps the variance: of inputs, or of outputs for the variance of gradients.
    nonlinearity : {"leaky_relu", "relu", "linear"}
        What follows; "relu" has the slope 0, and "linear" divides the variance by 2.
    """
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Return a tensor, filled from a normal distribution with std √(2 / ((1 + a²) * fan_in)).

    Parameters: as `kaiming_uniform_`.
    """
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Return a tensor, filled with normal random numbers within [a, b].

    Other parameters: as `normal_`.

    Parameters
    ----------
    a, b : float, default -2 and 2
        Limits of the values.
    """
    if not a < b:
        raise ValueError(f"trunc_normal_: a must be less than b ({b}), got {a}")
    nearest = min(max(mean, a), b)
    if not std > 0 or abs(nearest - mean) > 4 * std:
        raise ValueError(
            f"trunc_normal_: [a, b] must be within 4 std of the mean {mean}, got [{a}, {b}] and "
            f"std {std}"
        )

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        rng = default_generator(generator)
        values = rng.normal(mean, std, shape)
        while (outside := (values < a) | (values > b)).any():
            values[outside] = rng.normal(mean, std, np.count_nonzero(outside))
        return values

    return drawn(tensor, draw)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Return a tensor, filled with orthonormal rows or columns, times `gain`.

    Later axes are joined.

    Parameters: as `xavier_uniform_`.

    References
    ----------
    Saxe, McClelland, Ganguli (2013), arXiv:1312.6120.
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: tensor must have at least two axes, got {tensor.shape}")
    check_floating(tensor)
    if SKIPPED.get():
        return tensor
    rows, columns = len(tensor.data), int(np.prod(tensor.shape[1:]))
    normal = default_generator(generator).standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q *= np.sign(np.diag(r))  # uniform over the orthogonal matrices
    return _fill(tensor, gain * (q if rows >= columns else q.T).reshape(tensor.shape))


def __dir__() -> list[str]:
    return __all__

"""Initialization of parameters, in place, by PyTorch's names.

`fan_in` is the number of inputs of a unit, `fan_out` the number of outputs: columns and rows of a
weight (out, in). Glorot, Bengio (2010); He et al. (2015), arXiv:1502.01852.
"""

from __future__ import annotations

import math

from numpy.random import Generator

from minigrad.changes import mark_changed
from minigrad.tensor import Tensor

from ..initial import fans, normal_, skipped, uniform_, xavier_uniform_

__all__ = [
    "constant_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "skipped",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Set all elements to a value.

    Parameters
    ----------
    tensor : Tensor
        Filled in place.
    val : float
        Value of all elements.

    Returns
    -------
    Tensor
        The same tensor.
    """
    tensor.data[...] = val
    mark_changed(tensor.data)
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """Set all elements to 0.

    Parameters
    ----------
    tensor : Tensor
        Filled in place.

    Returns
    -------
    Tensor
        The same tensor.
    """
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Set all elements to 1.

    Parameters
    ----------
    tensor : Tensor
        Filled in place.

    Returns
    -------
    Tensor
        The same tensor.
    """
    return constant_(tensor, 1)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw from a normal distribution with std gain * √(2 / (fan_in + fan_out)).

    Other parameters: as `uniform_`.

    Parameters
    ----------
    gain : float, default 1
        Factor of the standard deviation.

    Returns
    -------
    Tensor
        The same tensor.
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, *, generator: Generator | None = None
) -> Tensor:
    """Draw uniformly within ± √(6 / ((1 + a²) * fan_in)).

    Other parameters: as `uniform_`.

    Parameters
    ----------
    a : float, default 0
        Negative slope of the leaky ReLU that follows.

    Returns
    -------
    Tensor
        The same tensor.
    """
    bound = math.sqrt(6 / ((1 + a * a) * fans(tensor)[0]))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, *, generator: Generator | None = None
) -> Tensor:
    """Draw from a normal distribution with std √(2 / ((1 + a²) * fan_in)).

    Other parameters: as `uniform_`.

    Parameters
    ----------
    a : float, default 0
        Negative slope of the leaky ReLU that follows.

    Returns
    -------
    Tensor
        The same tensor.
    """
    return normal_(tensor, 0.0, math.sqrt(2 / ((1 + a * a) * fans(tensor)[0])), generator)

"""Initialization of parameters, in place. Look at `xavier_uniform_`, which models use.

`fan_in` is the number of inputs of a unit, `fan_out` the number of outputs: columns and rows of a
weight (out, in). Glorot, Bengio (2010); He et al. (2015), arXiv:1502.01852.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.random import Generator

from minigrad.changes import mark_changed
from minigrad.random import default_generator
from minigrad.tensor import Tensor

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

_SKIPPED: ContextVar[bool] = ContextVar("nn.init.skipped", default=False)
_AT_ONCE = 1 << 18


@contextmanager
def skipped(*, skip: bool = True) -> Iterator[None]:
    """Draw nothing within this block, for a model whose weights are loaded next.

    Parameters
    ----------
    skip : bool, default True
        False has no effect.

    Yields
    ------
    None
        The block has no value.
    """
    token = _SKIPPED.set(skip or _SKIPPED.get())
    try:
        yield
    finally:
        _SKIPPED.reset(token)


def _fans(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ValueError(
            f"tensor must have at least two axes for fan_in and fan_out, got shape {tensor.shape}"
        )
    rows, columns, *field = tensor.shape
    size = math.prod(field)
    return max(columns * size, 1), max(rows * size, 1)  # an empty tensor draws nothing


def _draw(tensor: Tensor, draw: Callable[[tuple[int, ...]], np.ndarray]) -> Tensor:
    """Fill a tensor in blocks of rows, since numbers are drawn in double precision."""
    if _SKIPPED.get():
        return tensor
    data = np.atleast_1d(tensor.data)
    step = 1 + _AT_ONCE // max(1, math.prod(data.shape[1:]))
    for start in range(0, len(data), step):
        rows = slice(start, start + step)
        data[rows] = draw(data[rows].shape)
    mark_changed(tensor.data)
    return tensor


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


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Draw from the uniform distribution on [a, b).

    Parameters
    ----------
    tensor : Tensor
        Filled in place.
    a, b : float, default 0 and 1
        Lower and upper end of the interval.
    generator : numpy.random.Generator, optional
        The default generator if not given.

    Returns
    -------
    Tensor
        The same tensor.
    """
    return _draw(tensor, lambda shape: default_generator(generator).uniform(a, b, shape))


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Draw from a normal distribution.

    Other parameters: as `uniform_`.

    Parameters
    ----------
    mean, std : float, default 0 and 1
        Mean and standard deviation of the distribution.

    Returns
    -------
    Tensor
        The same tensor.
    """
    return _draw(tensor, lambda shape: default_generator(generator).normal(mean, std, shape))


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Draw uniformly within ± gain * √(6 / (fan_in + fan_out)), as PyTorch's Transformer.

    Other parameters: as `uniform_`.

    Parameters
    ----------
    gain : float, default 1
        Factor of the bound.

    Returns
    -------
    Tensor
        The same tensor.
    """
    bound = gain * math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


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
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))), generator)


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
    bound = math.sqrt(6 / ((1 + a * a) * _fans(tensor)[0]))
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
    return normal_(tensor, 0.0, math.sqrt(2 / ((1 + a * a) * _fans(tensor)[0])), generator)

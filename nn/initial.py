"""Initial values of parameters, drawn in place. Look at `xavier_uniform_`, which models use.

`fan_in` is the number of inputs of a unit, `fan_out` the number of outputs: columns and rows of a
weight (out, in). Glorot, Bengio (2010).
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

__all__: list[str] = []  # names of `nn.init`

SKIPPED: ContextVar[bool] = ContextVar("nn.init.skipped", default=False)
_XAVIER: ContextVar[bool] = ContextVar("nn.init.xavier", default=False)
_AT_ONCE = 1 << 18


@contextmanager
def skipped(*, skip: bool = True) -> Iterator[None]:
    """Draw nothing within this block, for a model whose weights are loaded next.

    Parameters
    ----------
    skip : bool, default True
        False has no effect.
    """
    token = SKIPPED.set(skip or SKIPPED.get())
    try:
        yield
    finally:
        SKIPPED.reset(token)


@contextmanager
def by_xavier() -> Iterator[None]:
    """Draw linear layers that are made within this block by Xavier's rule, as models do."""
    token = _XAVIER.set(True)
    try:
        yield
    finally:
        _XAVIER.reset(token)


def draw_linear(weight: Tensor, bias: Tensor | None, generator: Generator | None) -> None:
    """Draw a linear layer within ± 1/√in, or by Xavier's rule, with a bias of 0, in `by_xavier`."""
    if _XAVIER.get():
        xavier_uniform_(weight, generator=generator)
        return
    bound = 1 / math.sqrt(weight.shape[1]) if weight.shape[1] else 0.0
    uniform_(weight, -bound, bound, generator)
    if bias is not None:
        uniform_(bias, -bound, bound, generator)


def fans(tensor: Tensor) -> tuple[int, int]:
    """Return fan_in and fan_out of a weight (out, in)."""
    if tensor.ndim < 2:
        raise ValueError(
            f"tensor must have at least two axes for fan_in and fan_out, got shape {tensor.shape}"
        )
    rows, columns, *field = tensor.shape
    size = math.prod(field)
    return max(columns * size, 1), max(rows * size, 1)  # an empty tensor draws nothing


def check_floating(tensor: Tensor) -> None:
    """Raise a TypeError for a tensor of integers, which would cut off what is drawn."""
    if tensor.dtype.kind != "f":
        raise TypeError(f"tensor must have a floating dtype to be drawn, got {tensor.dtype}")


def drawn(tensor: Tensor, draw: Callable[[tuple[int, ...]], np.ndarray]) -> Tensor:
    """Fill a tensor in blocks of rows, since numbers are drawn in double precision."""
    check_floating(tensor)
    if SKIPPED.get():
        return tensor
    data = np.atleast_1d(tensor.data)
    step = 1 + _AT_ONCE // max(1, math.prod(data.shape[1:]))
    for start in range(0, len(data), step):
        rows = slice(start, start + step)
        data[rows] = draw(data[rows].shape)
    mark_changed(tensor.data)
    return tensor


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Return a tensor, filled with draws from the uniform distribution on [a, b).

    Parameters
    ----------
    tensor : Tensor
        Filled in place.
    a, b : float, default 0 and 1
        Lower and upper end of the interval.
    generator : numpy.random.Generator, optional
        The default generator if not given.
    """
    return drawn(tensor, lambda shape: default_generator(generator).uniform(a, b, shape))


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Return a tensor, filled with draws from a normal distribution.

    Other parameters: as `uniform_`.

    Parameters
    ----------
    mean, std : float, default 0 and 1
        Mean and standard deviation of the distribution.
    """
    return drawn(tensor, lambda shape: default_generator(generator).normal(mean, std, shape))


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Return a tensor, filled uniformly within ± gain * √(6 / (fan_in + fan_out)).

    Other parameters: as `uniform_`.

    Parameters
    ----------
    gain : float, default 1
        Factor of the bound.
    """
    bound = gain * math.sqrt(6 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)

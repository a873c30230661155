"""Ways to fill a parameter with random numbers, in place.

`fan_in` is the number of inputs of a unit and `fan_out` that of its outputs: columns and rows of a
(out, in) weight. Glorot & Bengio (2010); He et al. (2015), arXiv:1502.01852.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.random import Generator

from minigrad.core.changes import mark_changed
from minigrad.core.random import default_generator
from minigrad.core.tensor import Tensor

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
    """Within this block nothing random is drawn: for a model whose weights are about to be loaded."""
    token = _SKIPPED.set(skip or _SKIPPED.get())
    try:
        yield
    finally:
        _SKIPPED.reset(token)


def _fans(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ValueError(
            f"fan_in and fan_out need a tensor with at least two axes, got shape {tensor.shape}"
        )
    field = math.prod(tensor.shape[2:])
    return max(tensor.shape[1] * field, 1), max(
        tensor.shape[0] * field, 1
    )  # nothing is drawn where one is 0


def _draw(tensor: Tensor, draw: Callable[[tuple[int, ...]], np.ndarray]) -> Tensor:
    """Fill with random numbers, so many rows at a time that those in double precision take little
    memory.
    """
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
    """All elements to `value`."""
    tensor.data[...] = val
    mark_changed(tensor.data)
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """All elements to 0."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """All elements to 1."""
    return constant_(tensor, 1)


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers that are uniform in [a, b)."""
    return _draw(tensor, lambda shape: default_generator(generator).uniform(a, b, shape))


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal with this mean and standard deviation."""
    return _draw(tensor, lambda shape: default_generator(generator).normal(mean, std, shape))


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform within ± gain √(6 / (fan_in + fan_out)), as the Transformer's matrices in PyTorch."""
    bound = gain * math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with standard deviation gain √(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, *, generator: Generator | None = None
) -> Tensor:
    """Uniform within ± √(6 / ((1 + a²) fan_in)), for a leaky relu of slope `a` (0: a relu)."""
    bound = math.sqrt(6 / ((1 + a * a) * _fans(tensor)[0]))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, *, generator: Generator | None = None
) -> Tensor:
    """Normal with standard deviation √(2 / ((1 + a²) fan_in)), for a leaky relu of slope `a` (0: a
    relu).
    """
    return normal_(tensor, 0.0, math.sqrt(2 / ((1 + a * a) * _fans(tensor)[0])), generator)

"""Functions of `torch.nn.init`: those of `nn.init`, truncated normal and orthogonal weights."""

from __future__ import annotations

import typing as _typing
from typing import Any

import numpy as np

from minigrad.random import default_generator
from minigrad.tensor import Tensor
from nn.init import (
    constant_,
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    ones_,
    uniform_,
    xavier_normal_,
    xavier_uniform_,
    zeros_,
)

__all__ = [
    "constant_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_",
    "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip


def _fill(tensor: Tensor, values: np.ndarray) -> Tensor:
    constant_(tensor, 0.0)  # notes the change
    tensor.data[...] = values
    return tensor


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill a tensor with normal random numbers, drawn again until they are in [a, b].

    Parameters: as `torch.nn.init.trunc_normal_`.
    """
    if not a < b:
        raise ValueError(f"trunc_normal_: a must be less than b ({b}), got {a}")
    nearest = min(max(mean, a), b)
    if std <= 0 or abs(nearest - mean) > 4 * std:
        raise ValueError(
            f"trunc_normal_: [a, b] must be within 4 std of the mean {mean}, got [{a}, {b}] and "
            f"std {std}"
        )
    draw = default_generator(generator)
    values = draw.normal(mean, std, tensor.shape)
    while (outside := (values < a) | (values > b)).any():
        values[outside] = draw.normal(mean, std, np.count_nonzero(outside))
    return _fill(tensor, values)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill a tensor with orthonormal rows or columns, times `gain`; later axes are joined.

    Parameters: as `torch.nn.init.orthogonal_`.

    References
    ----------
    Saxe, McClelland, Ganguli (2013), arXiv:1312.6120.
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: tensor must have at least two axes, got {tensor.shape}")
    rows, columns = len(tensor.data), int(np.prod(tensor.shape[1:]))
    normal = default_generator(generator).standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q *= np.sign(np.diag(r))  # uniform over the orthogonal matrices
    return _fill(tensor, gain * (q if rows >= columns else q.T).reshape(tensor.shape))


if not _typing.TYPE_CHECKING:  # type checkers report a missing name

    def __getattr__(name: str) -> _typing.NoReturn:
        from ...check.missing import missing

        missing(__name__, name)

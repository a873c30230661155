"""Normalisation: of each row by itself (layer, RMS), or of each column over a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor, unwrap
from minigrad.ops.axes import shape_of
from minigrad.ops.reduction import centring_mean

from .module import Module, Parameter

__all__ = ["BatchNorm1d", "LayerNorm", "RMSNorm"]


def normalize_trailing_axes(
    normalize: Callable[..., Tensor],
    name: str,
    x: Any,
    shape: tuple[int, ...],
    *parameters: Any,
    eps: float,
) -> Tensor:
    """Apply `normalize`, which works along the last axis, to the axes of lengths `shape` at once.

    `parameters` are None or have the shape `shape`.
    """
    size = shape_of(x)
    if not shape or size[-len(shape) :] != shape:
        raise ValueError(f"{name}: the last axes of x must have lengths {shape}, got shape {size}")
    if len(shape) == 1:
        return normalize(x, *parameters, eps)
    rows = mg.reshape(x, *size[: -len(shape)], math.prod(shape))
    flat = [None if p is None else mg.reshape(p, -1) for p in parameters]
    return mg.reshape(normalize(rows, *flat, eps), size)


class LayerNorm(Module):
    """Layer normalization: mean 0 and variance 1 along the last axes, times `weight`, plus `bias`.

    The variance is the biased one, and eps is added to it, as in PyTorch.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Length of the last axis, or lengths of the last axes that are normalized together.
    eps : float
        Added to the variance.
    bias : bool
        Whether a bias is added.
    dtype : dtype
        Floating dtype of `weight` and `bias`.

    References
    ----------
    Ba, Kiros, Hinton (2016), arXiv:1607.06450.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        bias: bool = True,
        dtype: Any = np.float32,
    ) -> None:
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.weight = Parameter(np.ones(self.normalized_shape, dtype))
        self.bias = Parameter(np.zeros(self.normalized_shape, dtype)) if bias else None

    def forward(self, x: Any) -> Tensor:
        shape, weight, bias = self.normalized_shape, self.weight, self.bias
        return normalize_trailing_axes(
            mg.layer_norm, "LayerNorm", x, shape, weight, bias, eps=self.eps
        )

    def extra_repr(self) -> str:
        return f"{_shown(self.normalized_shape)}, eps={self.eps}"


class RMSNorm(Module):
    """RMS normalization: the last axes divided by the root of their mean square, times `weight`.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Length of the last axis, or lengths of the last axes that are normalized together.
    eps : float
        Added to the mean square.
    dtype : dtype
        Floating dtype of `weight`.
    zero_centred : bool
        Multiply by 1 + `weight` instead of `weight`, as Gemma does.

    References
    ----------
    Zhang, Sennrich (2019), arXiv:1910.07467.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-6,
        dtype: Any = np.float32,
        zero_centred: bool = False,
    ) -> None:
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.zero_centred = zero_centred
        initial = np.zeros if zero_centred else np.ones
        self.weight = Parameter(initial(self.normalized_shape, dtype))

    def forward(self, x: Any) -> Tensor:
        weight = self.weight + 1 if self.zero_centred else self.weight
        return normalize_trailing_axes(
            mg.rms_norm, "RMSNorm", x, self.normalized_shape, weight, eps=self.eps
        )

    def extra_repr(self) -> str:
        return f"{_shown(self.normalized_shape)}, eps={self.eps}"


def _as_shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, (int, np.integer)):
        return (int(normalized_shape),)
    return tuple(map(index, normalized_shape))


def _shown(shape: tuple[int, ...]) -> str:
    return str(shape[0] if len(shape) == 1 else shape)


class BatchNorm1d(Module):
    """Each column of (n, d) or (n, L, d), to mean 0 and variance 1 over the batch, times γ, plus β.

    In training the statistics are those of the batch (variance biased), and running ones are kept:
    running = (1 - momentum) · running + momentum · batch, with the unbiased variance, as in
    PyTorch. In evaluation the running ones are used. Ioffe, Szegedy (2015), arXiv:1502.03167.
    """

    def __init__(
        self, d: int, eps: float = 1e-5, momentum: float = 0.1, dtype: Any = np.float32
    ) -> None:
        self.d = d
        self.eps = eps
        self.momentum = momentum
        self.weight = Parameter(np.ones(d, dtype))
        self.bias = Parameter(np.zeros(d, dtype))
        self.register_buffer("running_mean", np.zeros(d, dtype))
        self.register_buffer("running_var", np.ones(d, dtype))

    running_mean: np.ndarray
    running_var: np.ndarray

    def forward(self, x: Any) -> Tensor:
        shape = np.shape(x)
        if len(shape) not in (2, 3) or shape[-1] != self.d:
            raise ValueError(
                f"BatchNorm1d: expected (n, {self.d}) or (n, L, {self.d}), got {shape}"
            )
        rows = tuple(range(len(shape) - 1))
        if self.training:
            n = int(np.prod(shape[:-1]))
            if n < 2:
                raise ValueError(
                    f"BatchNorm1d: expected more than one row in training, got shape {shape}"
                )
            mean = centring_mean(x, rows)
            var = mg.var(x, rows, mean=mean)
            self.running_mean += self.momentum * (unwrap(mean).reshape(-1) - self.running_mean)
            self.running_var += self.momentum * (unwrap(var) * (n / (n - 1)) - self.running_var)
        else:
            mean, var = Tensor(self.running_mean), Tensor(self.running_var)
        return (x - mean) / mg.sqrt(var + self.eps) * self.weight + self.bias

    def extra_repr(self) -> str:
        return f"{self.d}, eps={self.eps}, momentum={self.momentum}"

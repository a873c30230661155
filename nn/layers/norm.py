"""Normalisation: of each row by itself (layer, RMS), or of each column over a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor, unwrap
from minigrad.ops.reduction import centring_mean

from .module import Module, Parameter

__all__ = ["BatchNorm1d", "LayerNorm", "RMSNorm"]


def normalize_trailing_axes(
    normalize: Callable[..., Tensor],
    name: str,
    x: Any,
    shape: tuple[int, ...],
    eps: float | None,
    **parameters: Any,
) -> Tensor:
    """Apply `normalize`, which works along the last axis, to the axes of lengths `shape` at once.

    `parameters` are None or have the shape `shape`.
    """
    size = x.shape if isinstance(x, Tensor) else np.shape(x)
    if not shape or size[-len(shape) :] != shape:
        raise ValueError(f"{name}: the last axes of x must have lengths {shape}, got shape {size}")
    if len(shape) == 1:
        return normalize(x, **parameters, eps=eps)
    for key, value in parameters.items():
        if value is not None and np.shape(value) != shape:
            raise ValueError(f"{name}: {key} must have shape {shape}, got {np.shape(value)}")
    rows = mg.reshape(x, *size[: -len(shape)], math.prod(shape))
    flat = {key: None if p is None else mg.reshape(p, -1) for key, p in parameters.items()}
    return mg.reshape(normalize(rows, **flat, eps=eps), size)


class LayerNorm(Module):
    """Layer normalization: mean 0 and variance 1 along the last axes, times `weight`, plus `bias`.

    The variance is the biased one, and eps is added to it, as in PyTorch.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Length of the last axis, or lengths of the last axes that are normalized together.
    eps : float
        Added to the variance.
    elementwise_affine : bool
        Whether there is a `weight`.
    bias : bool
        Whether there is a `bias`, beside a `weight`.
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
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
    ) -> None:
        self.normalized_shape = shape = _as_shape(normalized_shape)
        self.eps = eps
        self.weight = Parameter(np.ones(shape, dtype)) if elementwise_affine else None
        self.bias = Parameter(np.zeros(shape, dtype)) if elementwise_affine and bias else None

    def forward(self, x: Any) -> Tensor:
        shape, weight, bias = self.normalized_shape, self.weight, self.bias
        return normalize_trailing_axes(
            mg.layer_norm, "LayerNorm", x, shape, self.eps, weight=weight, bias=bias
        )

    def extra_repr(self) -> str:
        return f"{_shown(self.normalized_shape)}, eps={self.eps}"


class RMSNorm(Module):
    """RMS normalization: the last axes divided by the root of their mean square, times `weight`.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Length of the last axis, or lengths of the last axes that are normalized together.
    eps : float, optional
        Added to the mean square; by default the machine epsilon of the input's dtype.
    elementwise_affine : bool
        Whether there is a `weight`.
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
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: Any = np.float32,
        zero_centred: bool = False,
    ) -> None:
        if zero_centred and not elementwise_affine:
            raise ValueError("RMSNorm: zero_centred must be False without elementwise_affine")
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.zero_centred = zero_centred
        initial = np.zeros if zero_centred else np.ones
        weight = Parameter(initial(self.normalized_shape, dtype))
        self.weight = weight if elementwise_affine else None

    def forward(self, x: Any) -> Tensor:
        shape, weight = self.normalized_shape, self.weight
        scale = weight + 1 if self.zero_centred and weight is not None else weight
        return normalize_trailing_axes(mg.rms_norm, "RMSNorm", x, shape, self.eps, weight=scale)

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
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        *,
        dtype: Any = np.float32,
    ) -> None:
        if not isinstance(momentum, (int, float)):
            raise TypeError(f"BatchNorm1d: momentum must be a number, got {momentum!r}")
        self.num_features = d = num_features
        self.eps = eps
        self.momentum = momentum
        self.weight = Parameter(np.ones(d, dtype)) if affine else None
        self.bias = Parameter(np.zeros(d, dtype)) if affine else None
        self.register_buffer("running_mean", np.zeros(d, dtype))
        self.register_buffer("running_var", np.ones(d, dtype))

    running_mean: np.ndarray
    running_var: np.ndarray

    def forward(self, x: Any) -> Tensor:
        shape = np.shape(x)
        d = self.num_features
        if len(shape) not in (2, 3) or shape[-1] != d:
            fix = "; write x.swapaxes(1, 2)" if len(shape) == 3 and shape[1] == d else ""
            raise ValueError(f"BatchNorm1d: x must be (n, {d}) or (n, L, {d}), got {shape}{fix}")
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
        y = (x - mean) / mg.sqrt(var + self.eps)
        return y if self.weight is None or self.bias is None else y * self.weight + self.bias

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"

"""Normalization layers: layer norm, RMS norm and batch norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor, unwrap
from minigrad.ops.reduction import centring_mean

from .module import Module, Parameter, as_input

__all__ = ["BatchNorm1d", "LayerNorm", "RMSNorm"]


def normalize_trailing_axes(
    normalize: Callable[..., Tensor],
    name: str,
    x: Any,
    shape: tuple[int, ...],
    eps: float | None,
    **parameters: Any,
) -> Tensor:
    """Apply a normalization of the last axis to several trailing axes at once.

    Parameters
    ----------
    normalize : callable
        `normalize(x, eps=..., **parameters)` normalizes the last axis.
    name : str
        Name of the caller, for messages.
    x : Tensor
    shape : tuple of int
        Lengths of the last axes of x.
    eps : float or None
    **parameters : Tensor or None
        Parameters of `normalize`, of shape `shape`.

    Returns
    -------
    Tensor
        Of the shape of x.
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


class _TrailingNorm(Module):
    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None) -> None:
        self.normalized_shape = tuple(map(index, np.ravel(normalized_shape)))
        self.eps = eps

    def extra_repr(self) -> str:
        """Return the normalized shape and eps.

        Returns
        -------
        str
            Normalized shape and eps for `repr`.
        """
        shape = self.normalized_shape
        return f"{shape[0] if len(shape) == 1 else shape}, eps={self.eps}"


class LayerNorm(_TrailingNorm):
    """Layer normalization: mean 0 and variance 1 along the last axes, times `weight`, plus `bias`.

    The variance is the biased one, and eps is added to it, as in PyTorch.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Length of the last axis, or lengths of the last axes that are normalized together.
    eps : float, default 1e-5
        Added to the variance.
    elementwise_affine : bool, default True
        Create a `weight`.
    bias : bool, default True
        Create a `bias`, beside a `weight`.
    dtype : dtype, default float32
        Floating dtype of `weight` and `bias`.

    References
    ----------
    Ba, Kiros, Hinton (2016), arXiv:1607.06450.
    """

    eps: float

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
    ) -> None:
        super().__init__(normalized_shape, eps)
        shape = self.normalized_shape
        self.weight = Parameter(np.ones(shape, dtype)) if elementwise_affine else None
        self.bias = Parameter(np.zeros(shape, dtype)) if elementwise_affine and bias else None

    def forward(self, x: Any) -> Tensor:
        """Return x (..., *normalized_shape), normalized.

        Parameters
        ----------
        x : Tensor, shape (..., *normalized_shape)

        Returns
        -------
        Tensor
            Of the shape of x.
        """
        shape, weight, bias = self.normalized_shape, self.weight, self.bias
        x = x if weight is None else as_input(self, x, weight.dtype)
        return normalize_trailing_axes(
            mg.layer_norm, "LayerNorm", x, shape, self.eps, weight=weight, bias=bias
        )


class RMSNorm(_TrailingNorm):
    """RMS normalization: the last axes divided by the root of their mean square, times `weight`.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Length of the last axis, or lengths of the last axes that are normalized together.
    eps : float, optional
        Added to the mean square; by default the machine epsilon of the input's dtype.
    elementwise_affine : bool, default True
        Create a `weight`.
    dtype : dtype, default float32
        Floating dtype of `weight`.
    zero_centred : bool, default False
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
            raise ValueError(
                "RMSNorm: zero_centred must be False without elementwise_affine, got True"
            )
        super().__init__(normalized_shape, eps)
        self.zero_centred = zero_centred
        initial = np.full(self.normalized_shape, 0 if zero_centred else 1, dtype)
        self.weight = Parameter(initial) if elementwise_affine else None

    def forward(self, x: Any) -> Tensor:
        """Return x (..., *normalized_shape), normalized.

        Parameters
        ----------
        x : Tensor, shape (..., *normalized_shape)

        Returns
        -------
        Tensor
            Of the shape of x.
        """
        shape, weight = self.normalized_shape, self.weight
        x = x if weight is None else as_input(self, x, weight.dtype)
        scale = weight + 1 if self.zero_centred and weight is not None else weight
        return normalize_trailing_axes(mg.rms_norm, "RMSNorm", x, shape, self.eps, weight=scale)


class BatchNorm1d(Module):
    """Batch normalization: mean 0 and variance 1 of each column, times `weight`, plus `bias`.

    In training, mean and (biased) variance of the batch are used, and running values are updated:
    running = (1 - momentum) * running + momentum * batch, with the unbiased variance, as in
    PyTorch. In evaluation, the running values are used.

    Parameters
    ----------
    num_features : int
        Number of columns d of inputs (n, d) or (n, L, d).
    eps : float, default 1e-5
        Added to the variance.
    momentum : float, default 0.1
        Weight of a batch in the running values.
    affine : bool, default True
        Create `weight` and `bias`.
    dtype : dtype, default float32
        dtype of the parameters and running values. float16 is normalized in float32.

    References
    ----------
    Ioffe, Szegedy (2015), arXiv:1502.03167.
    """

    running_mean: np.ndarray
    running_var: np.ndarray

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

    def forward(self, x: Any) -> Tensor:
        """Return x (n, d) or (n, L, d), normalized.

        Parameters
        ----------
        x : Tensor, shape (n, d) or (n, L, d)

        Returns
        -------
        Tensor
            Of the shape of x.
        """
        shape, d = np.shape(x), self.num_features
        if len(shape) not in (2, 3) or shape[-1] != d:
            fix = "; write x.swapaxes(1, 2)" if len(shape) == 3 and shape[1] == d else ""
            raise ValueError(f"BatchNorm1d: x must be (n, {d}) or (n, L, {d}), got {shape}{fix}")
        x = as_input(self, x, self.running_mean.dtype)
        dtype = x.dtype
        x = x.astype(np.float32) if dtype == np.float16 else x  # squares above 65,504 overflow
        if self.training:
            n = math.prod(shape[:-1])
            if n < 2:
                raise ValueError(
                    f"BatchNorm1d: x must have more than one row in training, got shape {shape}"
                )
            rows = tuple(range(len(shape) - 1))
            mean = centring_mean(x, rows)
            var = mg.var(x, rows, mean=mean)
            self.running_mean += self.momentum * (unwrap(mean).reshape(-1) - self.running_mean)
            self.running_var += self.momentum * (unwrap(var) * (n / (n - 1)) - self.running_var)
        else:
            mean, var = Tensor(self.running_mean), Tensor(self.running_var)
        y = (x - mean) / mg.sqrt(var + self.eps)
        y = y if self.weight is None or self.bias is None else y * self.weight + self.bias
        return y.astype(dtype) if dtype == np.float16 else y

    def extra_repr(self) -> str:
        """Return the number of columns, eps and momentum.

        Returns
        -------
        str
            Sizes and settings for `repr`.
        """
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"

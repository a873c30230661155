"""Layer normalization, which `minigrad.ops.norm` computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from minigrad.ops.norm import layer_norm
from minigrad.ops.shape import reshape
from minigrad.tensor import Tensor

from .module import Module, Parameter, as_input

__all__ = ["LayerNorm"]


def normalize_trailing_axes(
    normalize: Callable[..., Tensor],
    name: str,
    x: Any,
    shape: tuple[int, ...],
    eps: float | None,
    **parameters: Any,
) -> Tensor:
    """Apply a normalization of the last axis to several trailing axes at once."""
    size = x.shape if isinstance(x, Tensor) else np.shape(x)
    if not shape or size[-len(shape) :] != shape:
        raise ValueError(f"{name}: the last axes of x must have lengths {shape}, got shape {size}")
    if len(shape) == 1:
        return normalize(x, **parameters, eps=eps)
    for key, value in parameters.items():
        if value is not None and np.shape(value) != shape:
            raise ValueError(f"{name}: {key} must have shape {shape}, got {np.shape(value)}")
    rows = reshape(x, *size[: -len(shape)], math.prod(shape))
    flat = {key: None if p is None else reshape(p, -1) for key, p in parameters.items()}
    return reshape(normalize(rows, **flat, eps=eps), size)


class TrailingNorm(Module):
    """Base of norms over the last axes."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None) -> None:
        self.normalized_shape = tuple(map(index, np.ravel(normalized_shape)))
        self.eps = eps

    def extra_repr(self) -> str:
        """Return the normalized shape and eps."""
        shape = self.normalized_shape
        return f"{shape[0] if len(shape) == 1 else shape}, eps={self.eps}"


class LayerNorm(TrailingNorm):
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
        """
        shape, weight, bias = self.normalized_shape, self.weight, self.bias
        x = x if weight is None else as_input(self, x, weight.dtype)
        return normalize_trailing_axes(
            layer_norm, "LayerNorm", x, shape, self.eps, weight=weight, bias=bias
        )

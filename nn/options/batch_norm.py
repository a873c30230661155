"""Batch normalization: Ioffe, Szegedy (2015), arXiv:1502.03167."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.ops.reduce import centring_mean
from minigrad.tensor import Tensor, unwrap

from ..module import Module, Parameter, as_input

__all__ = ["BatchNorm1d"]


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

    uses_batch_statistics = True  # which several processes would compute of parts of a batch

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
        """Return x (n, d) or (n, L, d), normalized."""
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
        """Return the number of columns, eps and momentum."""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"

"""Normalisation: of each row by itself (layer, RMS), or of each column over a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor, unwrap

from .module import Module, Parameter

__all__ = ["BatchNorm1d", "LayerNorm", "RMSNorm"]


class LayerNorm(Module):
    """Each row (last axis, of length `d`) to mean 0 and variance 1, times `weight` γ, plus `bias`
    β.

    A row is normalised by itself, whatever else is in the batch: so it serves sequences and small
    batches alike. The variance is the biased one, and eps is added to it, as in PyTorch.
    Ba, Kiros, Hinton (2016), arXiv:1607.06450.
    """

    def __init__(
        self, d: int, eps: float = 1e-5, bias: bool = True, dtype: Any = np.float32
    ) -> None:
        self.d = d
        self.eps = eps
        self.weight = Parameter(np.ones(d, dtype))
        self.bias = Parameter(np.zeros(d, dtype)) if bias else None

    def forward(self, x: Any) -> Tensor:
        return mg.layer_norm(x, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.d}, eps={self.eps}"


class RMSNorm(Module):
    """Each row divided by the root of its mean square, times `weight`; where `zero_centred`, times
    1 + `weight`.

    Zhang, Sennrich (2019), arXiv:1910.07467.
    """

    def __init__(
        self, d: int, eps: float = 1e-6, dtype: Any = np.float32, zero_centred: bool = False
    ) -> None:
        self.d = d
        self.eps = eps
        self.zero_centred = zero_centred
        self.weight = Parameter(np.zeros(d, dtype) if zero_centred else np.ones(d, dtype))

    def forward(self, x: Any) -> Tensor:
        return mg.rms_norm(x, self.weight + 1 if self.zero_centred else self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.d}, eps={self.eps}"


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
            mean, var = mg.mean(x, rows), mg.var(x, rows)
            self.running_mean += self.momentum * (unwrap(mean) - self.running_mean)
            self.running_var += self.momentum * (unwrap(var) * (n / (n - 1)) - self.running_var)
        else:
            mean, var = Tensor(self.running_mean), Tensor(self.running_var)
        return (x - mean) / mg.sqrt(var + self.eps) * self.weight + self.bias

    def extra_repr(self) -> str:
        return f"{self.d}, eps={self.eps}, momentum={self.momentum}"

"""Where in the sequence a vector stands."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from . import init
from .module import Module, Parameter

__all__ = ["LearnedPositions", "SinusoidalPositions", "sinusoidal_table"]


def sinusoidal_table(max_len: int, d_model: int, halves: bool = False, base: float = 10000.0) -> np.ndarray:
    """The table of Vaswani et al. (2017), section 3.5, (max_len, d_model), in float64.

    PE(pos, 2i) = sin(pos / base^(2i/d)) and PE(pos, 2i+1) = cos(pos / base^(2i/d)); with `halves`, all
    sines come first and then all cosines, as in tensor2tensor and the OPUS-MT models.
    """
    if d_model % 2:
        raise ValueError(f"sinusoidal_table: expected an even d_model, got {d_model}")
    angle = np.arange(max_len)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)  # (max_len, d/2)
    if halves:
        return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    return np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(max_len, d_model)


class _Positions(Module):
    def __init__(self, max_len: int, d_model: int) -> None:
        self.max_len = max_len
        self.d_model = d_model

    def rows(self, start: int, length: int) -> Any:
        """The table's rows from `start` on."""
        if start + length > self.max_len:
            raise ValueError(
                f"{type(self).__name__}: a sequence of {start + length} positions is longer than the table of "
                f"{self.max_len}; shorten it, or build the model with a larger max_len"
            )
        return self.table()[start : start + length]

    def table(self) -> Any:
        raise NotImplementedError

    def forward(self, x: Any, start: int = 0) -> Tensor:
        """x (N, L, d_model) plus the positions start ... start + L - 1."""
        return mg.add(x, self.rows(start, np.shape(x)[1]))

    def extra_repr(self) -> str:
        return f"max_len={self.max_len}, d_model={self.d_model}"


class SinusoidalPositions(_Positions):
    """Adds the fixed sines and cosines of `sinusoidal_table`."""

    def __init__(self, max_len: int, d_model: int, halves: bool = False, dtype: Any = np.float32) -> None:
        super().__init__(max_len, d_model)
        self.register_buffer("values", sinusoidal_table(max_len, d_model, halves).astype(dtype), persistent=False)

    values: np.ndarray

    def table(self) -> np.ndarray:
        return self.values


class LearnedPositions(_Positions):
    """Adds a trained vector for each position."""

    def __init__(
        self, max_len: int, d_model: int, std: float = 0.02, dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(max_len, d_model)
        self.weight = init.normal_(Parameter(np.empty((max_len, d_model), dtype)), 0.0, std, generator)

    def table(self) -> Tensor:
        return self.weight

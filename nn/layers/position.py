"""Where in the sequence a vector stands."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from . import init
from .module import Module, Parameter

__all__ = ["LearnedPositions", "SinusoidalPositions", "sinusoidal_table"]


def sinusoidal_table(
    max_len: int, d_model: int, halves: bool = False, base: float = 10000.0, last: bool = False
) -> np.ndarray:
    """The table of Vaswani et al. (2017), section 3.5, (max_len, d_model), in float64.

    PE(pos, 2i) = sin(pos / base^(2i/d)) and PE(pos, 2i+1) = cos(pos / base^(2i/d)); with `halves`,
    all sines come first and then all cosines, as in the OPUS-MT models. With `last`, the exponents
    run to 1 itself, i/(d/2 - 1), as in tensor2tensor and fairseq.
    """
    if d_model % 2:
        raise ValueError(f"sinusoidal_table: expected an even d_model, got {d_model}")
    exponents = np.arange(0, d_model, 2) / (d_model - 2 if last else d_model)
    angle = np.arange(max_len)[:, None] / base**exponents  # (max_len, d/2)
    if halves:
        return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    return np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(max_len, d_model)


class _Positions(Module):
    """Adds a row of the table `weight` (max_len + offset, d_model) for each position; position 0 is
    row `offset`.
    """

    weight: Any

    def __init__(self, max_len: int, d_model: int, offset: int) -> None:
        self.max_len = max_len
        self.d_model = d_model
        self.offset = offset

    def forward(self, x: Any, positions: Any = 0) -> Tensor:
        """x (N, L, d_model) plus its positions: where it starts, or integers (L,) or (N, L)."""
        single = not np.ndim(positions)
        x = x if isinstance(x, Tensor) else Tensor(x)
        end = int(positions) + x.shape[1] if single else int(np.max(positions)) + 1
        if end > self.max_len:
            longer = f"a sequence of {end} positions is longer than the table of {self.max_len}"
            raise ValueError(
                f"{type(self).__name__}: {longer}; shorten it, or build the model with a larger "
                "max_len"
            )
        if single:
            return mg.add(x, self.weight[self.offset + int(positions) : self.offset + end])
        return mg.add(x, mg.embedding(self.weight, np.asarray(positions) + self.offset))

    def extra_repr(self) -> str:
        return f"max_len={self.max_len}, d_model={self.d_model}" + (
            f", offset={self.offset}" if self.offset else ""
        )


class SinusoidalPositions(_Positions):
    """Adds the fixed sines and cosines of `sinusoidal_table`."""

    def __init__(
        self,
        max_len: int,
        d_model: int,
        *,
        halves: bool = False,
        dtype: Any = np.float32,
        offset: int = 0,
        last: bool = False,
    ) -> None:
        super().__init__(max_len, d_model, offset)
        table = sinusoidal_table(max_len + offset, d_model, halves, last=last)
        self.register_buffer("weight", table.astype(dtype), persistent=False)


class LearnedPositions(_Positions):
    """Adds a trained vector for each position."""

    def __init__(
        self,
        max_len: int,
        d_model: int,
        *,
        std: float = 0.02,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
        offset: int = 0,
    ) -> None:
        super().__init__(max_len, d_model, offset)
        self.weight = init.normal_(
            Parameter(np.zeros((max_len + offset, d_model), dtype)), 0.0, std, generator
        )

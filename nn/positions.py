"""Positions that are added to embeddings: Vaswani et al. (2017), section 3.5.

On a first reading: `sinusoidal_table` and `_Positions.forward`.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from minigrad.ops.arithmetic import add
from minigrad.ops.select import embedding
from minigrad.tensor import Tensor

from .initial import normal_
from .module import Module, Parameter, as_input

__all__ = ["LearnedPositions", "SinusoidalPositions", "sinusoidal_table"]


def sinusoidal_table(
    max_len: int, d_model: int, halves: bool = False, base: float = 10000.0, last: bool = False
) -> np.ndarray:
    """Return the sines and cosines of positions.

    PE(pos, 2i) = sin(pos / base^(2i/d)) and PE(pos, 2i+1) = cos(pos / base^(2i/d)).

    Parameters
    ----------
    max_len : int
        Number of positions.
    d_model : int
        Even size of a vector.
    halves : bool, default False
        Put all sines first, then all cosines, as in the OPUS-MT models.
    base : float, default 10000
        Base of the wavelengths.
    last : bool, default False
        Use the exponents i / (d/2 - 1), the last of which is 1, as in tensor2tensor and fairseq.

    Returns
    -------
    array of float64, shape (max_len, d_model)
        A row for each position.

    References
    ----------
    Vaswani et al. (2017), section 3.5.
    """
    if d_model % 2:
        raise ValueError(f"sinusoidal_table: d_model must be even, got {d_model}")
    exponents = np.arange(0, d_model, 2) / (max(d_model - 2, 1) if last else d_model)
    angle = np.arange(max_len)[:, None] / base**exponents  # (max_len, d/2)
    if halves:
        return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    return np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(max_len, d_model)


def checked_positions(name: str, positions: Any, length: int) -> tuple[Any, int]:
    """Return positions, an int or an array (..., length), and the length of a table of them."""
    if np.ndim(positions):
        positions = np.asarray(positions)
        if positions.dtype.kind not in "iu" or positions.shape[-1] != length:
            raise ValueError(
                f"{name}: positions must be integers of shape ({length},) or (N, {length}), got "
                f"{positions.dtype} {positions.shape}"
            )
        low, end = int(positions.min(initial=0)), int(positions.max(initial=0)) + 1
    else:
        positions = low = index(positions)
        end = low + length
    if low < 0:
        raise ValueError(f"{name}: positions must be at least 0, got {low}")
    return positions, end


class _Positions(Module):
    """Module that adds row position + offset of `weight` (max_len + offset, d_model)."""

    weight: Any

    def __init__(self, max_len: int, d_model: int, offset: int) -> None:
        self.max_len = max_len
        self.d_model = d_model
        self.offset = offset

    def forward(self, x: Any, positions: Any = 0) -> Tensor:
        """Add the vectors of positions.

        Parameters
        ----------
        x : Tensor, shape (N, L, d_model)
        positions : int or array of int, shape (L,) or (N, L), default 0
            Position of the first vector, or of each one.

        Returns
        -------
        Tensor, shape (N, L, d_model)
            The sum of x and the vectors of its positions.
        """
        x = as_input(self, x, self.weight.dtype)
        positions, end = checked_positions(type(self).__name__, positions, x.shape[1])
        if end > self.max_len:
            raise ValueError(
                f"{type(self).__name__}: x must have at most {self.max_len} positions, got {end}; "
                "shorten it, or build the model with a larger max_len"
            )
        if np.ndim(positions):
            return add(x, embedding(self.weight, positions + self.offset))
        return add(x, self.weight[self.offset + positions : self.offset + end])

    def extra_repr(self) -> str:
        """Return the sizes."""
        offset = f", offset={self.offset}" if self.offset else ""
        return f"max_len={self.max_len}, d_model={self.d_model}{offset}"


class SinusoidalPositions(_Positions):
    """Positional encoding by fixed sines and cosines: see `sinusoidal_table`.

    Parameters
    ----------
    max_len : int
        Number of positions.
    d_model : int
        Even size of a vector.
    halves : bool, default False
        Put all sines first, then all cosines.
    dtype : dtype, default float32
        dtype of the table.
    offset : int, default 0
        Row of position 0 in the table.
    last : bool, default False
        Use the exponents of tensor2tensor and fairseq.
    """

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
    """Positional encoding by a trained vector for each position.

    Other parameters: as `SinusoidalPositions`.

    Parameters
    ----------
    d_model : int
        Size of a vector.
    std : float, default 0.02
        Standard deviation of the initial values, which are normal.
    dtype : dtype, default float32
        dtype of the vectors.
    generator : numpy.random.Generator, optional
        Draws the initial values; the default generator if not given.
    """

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
        self.weight = normal_(
            Parameter(np.zeros((max_len + offset, d_model), dtype)), 0.0, std, generator
        )

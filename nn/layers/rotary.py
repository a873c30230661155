"""Rotary positions: Su et al. (2021), arXiv:2104.09864, in the layout of halves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.op import either
from minigrad.core.tensor import Tensor

__all__ = ["RotaryPositions"]


class RotaryPositions:
    """Turns each pair of numbers in a head by an angle that grows with the position.

    Pair i of a head of size d is (i, i + d/2), and turns by position / base^(2i/d): a score then
    depends on how far apart query and key are. With a `rotary_dim` only so many of its first
    numbers turn, as if they were the head. `scaling` stretches the angles for longer sequences,
    with the words of published configurations: `rope_type` (or `type`) "default", "linear" (Chen et
    al. 2023, arXiv:2306.15595), "llama3" (Llama 3.1's) or "yarn" (Peng et al. 2023,
    arXiv:2309.00071), and its numbers. `inv_freq` (rotary_dim/2,) are the angles of position 1,
    `factor` multiplies sines and cosines.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10000.0,
        scaling: Mapping[str, Any] | None = None,
        rotary_dim: int | None = None,
    ) -> None:
        self.head_dim, self.base, self.scaling = head_dim, base, dict(scaling or {})
        self.rotary_dim = d = head_dim if rotary_dim is None else rotary_dim
        if d < 2 or d % 2 or d > head_dim:
            name = "head_dim" if rotary_dim is None else f"rotary_dim of at most {head_dim}"
            raise ValueError(f"RotaryPositions: expected an even {name}, got {d}")
        kind = self.scaling.get("rope_type", self.scaling.get("type", "default"))
        if kind not in _SCALINGS:
            raise ValueError(
                f"rotary scaling: expected a rope_type of {', '.join(_SCALINGS)}, got {kind!r}"
            )
        try:
            self.inv_freq, self.factor = _SCALINGS[kind](
                base ** (-np.arange(0, d, 2) / d), base, self.scaling
            )
        except KeyError as error:
            raise ValueError(
                f"rotary scaling: rope_type {kind!r} needs {error}, got {self.scaling}"
            ) from None
        self._table: tuple[np.ndarray, np.ndarray] = (np.empty((0, d)), np.empty((0, d)))

    def __call__(self, x: Any, positions: Any = 0) -> Tensor:
        """Rotate the heads x (N, h, L, d).

        `positions` is the position of the first token, or an array of int (L,) or (N, L).
        """
        cos, sin = self.cos_sin(positions, x.shape[2], x.dtype)
        return rotate(x, cos=cos, sin=sin)

    def cos_sin(self, positions: Any, length: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return cosines and sines (1 or N, 1, L, rotary_dim), each pair's twice."""
        if not np.ndim(positions):
            end = int(positions) + length
            cos, sin = (table[int(positions) : end][None] for table in self._tables(end, dtype))
        else:
            positions = np.atleast_2d(positions)
            cos, sin = (table[positions] for table in self._tables(int(positions.max()) + 1, dtype))
        return cos[:, None], sin[:, None]

    def _tables(self, end: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        tables = self._table
        if end > len(tables[0]) or tables[0].dtype != dtype:
            angles = np.arange(max(64, 2 * end))[:, None] * np.concatenate(
                [self.inv_freq, self.inv_freq]
            )
            tables = (
                (np.cos(angles) * self.factor).astype(dtype),
                (np.sin(angles) * self.factor).astype(dtype),
            )
            self._table = tables  # in one step: other threads may be reading
        return tables

    def __repr__(self) -> str:
        scaling = f", scaling={self.scaling}" if self.scaling else ""
        part = f", rotary_dim={self.rotary_dim}" if self.rotary_dim < self.head_dim else ""
        return f"RotaryPositions({self.head_dim}, base={self.base}{scaling}{part})"


@mg.custom_op(x=lambda g, cos, sin: _rotate(g, cos=cos, sin=-sin))
def rotate(x, /, cos, sin):
    """Rotate pairs of x (N, h, L, d); numbers after the last cosine stay."""
    y = np.array(x)
    rotate_in_place(y, cos, sin)
    return y


_rotate: Any = either(rotate)


def rotate_in_place(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> None:
    """Rotate pairs of x (N, h, L, d); numbers after the last cosine stay."""
    x, half = x[..., : cos.shape[-1]], cos.shape[-1] // 2
    rotated = x * sin
    x *= cos
    x[..., :half] -= rotated[..., half:]
    x[..., half:] += rotated[..., :half]


def _llama3(
    inv_freq: np.ndarray, base: float, scaling: Mapping[str, Any]
) -> tuple[np.ndarray, float]:
    """Slow pairs are stretched, fast ones stay, and between the two thresholds there is a blend."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = (
        scaling["original_max_position_embeddings"] * inv_freq / (2 * math.pi)
    )  # in the original length
    stays = np.clip((turns - low) / (high - low), 0, 1)
    return inv_freq * (stays + (1 - stays) / scaling["factor"]), 1.0


def _yarn(
    inv_freq: np.ndarray, base: float, scaling: Mapping[str, Any]
) -> tuple[np.ndarray, float]:
    """A ramp over the pairs, between those that turn `beta_slow` and `beta_fast` times in the
    original length.
    """
    stretch, d = scaling["factor"], 2 * len(inv_freq)
    length = scaling["original_max_position_embeddings"]

    def pair(turns: float) -> float:
        return d * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(scaling.get("beta_fast") or 32), pair(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    stretched = np.clip((np.arange(d // 2) - low) / max(high - low, 1e-3), 0, 1)
    factor = scaling.get("attention_factor")
    if factor is None:
        weight, whole = scaling.get("mscale"), scaling.get("mscale_all_dim")
        factor = _yarn_scale(stretch)
        if weight and whole:
            factor = _yarn_scale(stretch, weight) / _yarn_scale(stretch, whole)
    return inv_freq * (1 - stretched + stretched / stretch), factor


def _yarn_scale(stretch: float, weight: float = 1.0) -> float:
    return 0.1 * weight * math.log(stretch) + 1 if stretch > 1 else 1.0


_SCALINGS: dict[str, Callable[..., tuple[np.ndarray, float]]] = {
    "default": lambda inv_freq, base, scaling: (inv_freq, 1.0),
    "linear": lambda inv_freq, base, scaling: (inv_freq / scaling["factor"], 1.0),
    "llama3": _llama3,
    "yarn": _yarn,
}

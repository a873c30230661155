"""Rotary position embeddings: Su et al. (2021), arXiv:2104.09864, in the layout of halves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.arguments import check_choice, checked_number
from minigrad.ops.shape import floating
from minigrad.registry import either
from minigrad.tensor import Tensor

from ..layers import checked_positions

__all__ = ["RotaryPositions"]


class RotaryPositions:
    """Rotation of each pair of values in a head by an angle proportional to the position.

    Pair i of a head of size d consists of values i and i + d/2, and its angle is
    position / base^(2i/d). Scores then depend only on the distance of query and key.

    Parameters
    ----------
    head_dim : int
        Size of a head.
    base : float, default 10000
        Base of the wavelengths.
    scaling : mapping, optional
        Change of the angles for longer sequences, as in published configurations: `rope_type` (or
        `type`) is "default", "linear" (Chen et al. 2023, arXiv:2306.15595), "llama3" (Llama 3.1) or
        "yarn" (Peng et al. 2023, arXiv:2309.00071), beside its settings.
    rotary_dim : int, optional
        Rotate the first `rotary_dim` values of a head only; all by default.

    Attributes
    ----------
    inv_freq : array, shape (rotary_dim / 2,)
        Angles of position 1.
    factor : float
        Multiplies sines and cosines.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10000.0,
        scaling: Mapping[str, Any] | None = None,
        rotary_dim: int | None = None,
    ) -> None:
        self.head_dim, self.scaling = head_dim, dict(scaling or {})
        self.base = base = checked_number("RotaryPositions", "base", base, above=True)
        self.rotary_dim = d = head_dim if rotary_dim is None else rotary_dim
        if d < 2 or d % 2 or d > head_dim:
            name = "head_dim" if rotary_dim is None else "rotary_dim"
            raise ValueError(
                f"RotaryPositions: {name} must be even and from 2 to {head_dim}, got {d}"
            )
        kind = self.scaling.get("rope_type", self.scaling.get("type", "default"))
        check_choice("rotary scaling", "rope_type", kind, *_SCALINGS)
        try:
            self.inv_freq, self.factor = _SCALINGS[kind](
                base ** (-np.arange(0, d, 2) / d), base, self.scaling
            )
        except KeyError as error:
            raise ValueError(
                f"rotary scaling: rope_type {kind!r} needs {error}, got {self.scaling}"
            ) from None
        self._cos_sin: tuple[np.ndarray, np.ndarray] = (np.empty((0, d)), np.empty((0, d)))

    def __call__(self, x: Any, positions: Any = 0) -> Tensor:
        """Return heads (N, h, L, d), rotated; `positions` are the first one, or (L,) or (N, L)."""
        x = floating(x)
        if x.ndim != 4 or x.shape[-1] != self.head_dim:
            raise ValueError(
                f"RotaryPositions: x must have shape (N, h, L, {self.head_dim}), got {x.shape}"
            )
        cos, sin = self.cos_sin(positions, x.shape[2], x.dtype)
        return rotate(x, cos=cos, sin=sin)

    def cos_sin(self, positions: Any, length: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the cosines and sines of positions, once for each value of a pair.

        Parameters
        ----------
        positions : int or array of int, shape (L,) or (N, L)
        length : int
            Number L of positions.
        dtype : dtype
            dtype of the tables.

        Returns
        -------
        cos, sin : array, shape (1 or N, 1, L, rotary_dim)
            Tables times `factor`.
        """
        positions, end = checked_positions("RotaryPositions", positions, length)
        rows = np.atleast_2d(positions) if np.ndim(positions) else np.s_[None, positions:end]
        cos, sin = self._tables(end, dtype)
        return (cos[rows][:, None], sin[rows][:, None])

    def _tables(self, end: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        cos, sin = self._cos_sin
        if end > len(cos) or cos.dtype != dtype:
            angles = np.arange(max(64, 2 * end))[:, None] * np.tile(self.inv_freq, 2)
            cos = (np.cos(angles) * self.factor).astype(dtype)
            sin = (np.sin(angles) * self.factor).astype(dtype)
            self._cos_sin = cos, sin  # in one step: other threads may be reading
        return cos, sin


@mg.custom_op(x=lambda g, cos, sin: _rotate(g, cos=cos, sin=-sin))
def rotate(x, /, cos, sin):
    """Rotate pairs of x (N, h, L, d). Values after the last cosine stay."""
    y = np.array(x)
    rotate_in_place(y, cos, sin)
    return y


_rotate: Any = either(rotate)


def rotate_in_place(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> None:
    """Rotate pairs of x (N, h, L, d). Values after the last cosine stay."""
    x, half = x[..., : cos.shape[-1]], cos.shape[-1] // 2
    rotated = x * sin
    x *= cos
    x[..., :half] -= rotated[..., half:]
    x[..., half:] += rotated[..., :half]


def _llama3(
    inv_freq: np.ndarray, base: float, scaling: Mapping[str, Any]
) -> tuple[np.ndarray, float]:
    """Divide the angles of slow pairs by a factor, with a blend between two thresholds."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * inv_freq / (2 * math.pi)
    stays = np.clip((turns - low) / (high - low), 0, 1)
    return inv_freq * (stays + (1 - stays) / scaling["factor"]), 1.0


def _yarn(
    inv_freq: np.ndarray, base: float, scaling: Mapping[str, Any]
) -> tuple[np.ndarray, float]:
    """Blend over the pairs between `beta_slow` and `beta_fast` turns in the original length."""
    factor, d = scaling["factor"], 2 * len(inv_freq)
    length = scaling["original_max_position_embeddings"]

    def pair(turns: float) -> float:
        return d * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(scaling.get("beta_fast") or 32), pair(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    slow = np.clip((np.arange(d // 2) - low) / max(high - low, 1e-3), 0, 1)
    attention_factor = scaling.get("attention_factor")
    if attention_factor is None:
        weight, whole = scaling.get("mscale"), scaling.get("mscale_all_dim")
        attention_factor = _yarn_scale(factor)
        if weight and whole:
            attention_factor = _yarn_scale(factor, weight) / _yarn_scale(factor, whole)
    return inv_freq * (1 - slow + slow / factor), attention_factor


def _yarn_scale(factor: float, weight: float = 1.0) -> float:
    return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0


_SCALINGS: dict[str, Callable[..., tuple[np.ndarray, float]]] = {
    "default": lambda inv_freq, base, scaling: (inv_freq, 1.0),
    "linear": lambda inv_freq, base, scaling: (inv_freq / scaling["factor"], 1.0),
    "llama3": _llama3,
    "yarn": _yarn,
}

"""Keys and values that decoding step by step need not compute again."""

from __future__ import annotations

import numpy as np

from .folding import FoldedAttention

__all__ = ["AttentionCache", "LayerCache"]


class AttentionCache:
    """The keys and values of one attention, (N, L, d), with room to grow."""

    def __init__(self) -> None:
        self.length = 0
        self._keys = self._values = np.empty((0, 0, 0))
        self.folded: FoldedAttention | None = None  # keys and values of another kind, made of these

    def append(self, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add keys and values (N, L_new, d) at the end; all of them so far."""
        n, new, _ = keys.shape
        self.folded = None
        if self.length + new > self._keys.shape[1]:
            self._keys = self._grown(self._keys, keys, new)
            self._values = self._grown(self._values, values, new)
        end = self.length + new
        self._keys[:, self.length : end] = keys
        self._values[:, self.length : end] = values
        self.length = end
        return self._keys[:, :end], self._values[:, :end]

    def _grown(self, old: np.ndarray, like: np.ndarray, new: int) -> np.ndarray:
        room = max(16, 2 * self.length, self.length + new)
        larger = np.empty((like.shape[0], room, like.shape[2]), like.dtype)
        if self.length:
            larger[:, : self.length] = old[:, : self.length]
        return larger

    def get(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys and values so far."""
        return self._keys[:, : self.length], self._values[:, : self.length]

    def select(self, rows: np.ndarray) -> None:
        """Keep these rows of the batch, in this order; a row can be taken more than once."""
        self.folded = None
        if self.length:
            self._keys, self._values = self._keys[rows], self._values[rows]


class LayerCache:
    """What one layer remembers: its self-attention grows with each step, its cross-attention is fixed."""

    def __init__(self) -> None:
        self.self_attention = AttentionCache()
        self.cross_attention = AttentionCache()

    @property
    def length(self) -> int:
        """How many positions have been decoded."""
        return self.self_attention.length

    def select(self, rows: np.ndarray) -> None:
        """Keep these rows of the batch, in this order."""
        self.self_attention.select(rows)
        self.cross_attention.select(rows)

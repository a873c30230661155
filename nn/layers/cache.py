"""Keys and values that decoding step by step need not compute again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minigrad.core.tensor import Tensor

__all__ = ["AttentionCache", "KeysAndValues"]


class KeysAndValues:
    """What is attended to, as one attention has projected it: keys and values (N, h_kv, L_kv, d_k)."""

    def __init__(self, keys: Any, values: Any) -> None:
        self.keys, self.values = keys, values

    def __iter__(self) -> Iterator[Any]:
        return iter((self.keys, self.values))

    def select(self, rows: np.ndarray) -> None:
        """Keep these rows of the batch, in this order; a row can be taken more than once."""
        self.keys, self.values = self.keys[rows], self.values[rows]


class AttentionCache:
    """Keys and values of one self-attention so far, (N, h_kv, L, d_k), with memory for more."""

    def __init__(self) -> None:
        self.length = 0
        self._keys = self._values = np.empty((0, 0, 0, 0))

    def append(self, keys: Any, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """Add keys and values (N, h_kv, L_new, d_k), and return all so far.

        A cache holds arrays, through which no gradient flows: RuntimeError where one is asked for.
        """
        if any(isinstance(x, Tensor) and x.requires_grad for x in (keys, values)):
            raise RuntimeError(
                "a cache keeps no graph for gradients: decode inside `with mg.no_grad():`"
            )
        keys, values = (x.data if isinstance(x, Tensor) else x for x in (keys, values))
        end = self.length + keys.shape[2]
        if end > self._keys.shape[2]:
            self._keys, self._values = (
                self._grown(self._keys, keys, end),
                self._grown(self._values, values, end),
            )
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _grown(self, old: np.ndarray, new: np.ndarray, end: int) -> np.ndarray:
        n, heads, _, d = new.shape
        larger = np.empty((n, heads, max(16, 2 * self.length, end), d), new.dtype)
        if self.length:
            larger[:, :, : self.length] = old[:, :, : self.length]
        return larger

    def select(self, rows: np.ndarray) -> None:
        """Keep these rows of the batch, in this order; a row can be taken more than once."""
        if self.length:
            self._keys, self._values = self._keys[rows], self._values[rows]

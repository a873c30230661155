"""Keys and values of attention that are kept between calls.

Look at `append`: a step of decoding computes the keys and values of its new tokens only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.tensor import Tensor

__all__ = ["AttentionCache", "KeysAndValues"]


class KeysAndValues:
    """Projected keys and values of one attention.

    Parameters
    ----------
    keys, values : Tensor or array, shape (N, h_kv, L_kv, d_k)
    """

    def __init__(self, keys: Any, values: Any) -> None:
        self.keys, self.values = keys, values

    def select(self, rows: np.ndarray) -> None:
        """Keep the rows of the batch with these indices, which may repeat, in this order.

        Parameters
        ----------
        rows : array of int
            Indices of rows.
        """
        self.keys, self.values = self.keys[rows], self.values[rows]


class AttentionCache:
    """Keys and values of earlier positions of one self-attention, for decoding step by step."""

    def __init__(self) -> None:
        self.length = 0
        self._keys = self._values = np.empty((0, 0, 0, 0))

    def append(self, keys: Any, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """Append keys and values.

        Parameters
        ----------
        keys, values : Tensor or array, shape (N, h_kv, L_new, d_k)

        Returns
        -------
        keys, values : array, shape (N, h_kv, length, d_k)
            Keys and values of all positions.

        Raises
        ------
        RuntimeError
            If gradients are recorded, which cannot flow through a cache.
        """
        if any(isinstance(x, Tensor) and x.requires_grad for x in (keys, values)):
            raise RuntimeError(
                "a cache keeps no graph for gradients: decode inside `with mg.no_grad():`"
            )
        keys, values = (x.data if isinstance(x, Tensor) else x for x in (keys, values))
        end = self.length + keys.shape[2]
        if end > self._keys.shape[2]:
            self._keys = self._grow(self._keys, keys, end)
            self._values = self._grow(self._values, values, end)
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _grow(self, old: np.ndarray, new: np.ndarray, end: int) -> np.ndarray:
        n, heads, _, d = new.shape
        larger = np.empty((n, heads, max(16, 2 * self.length, end), d), new.dtype)
        if self.length:
            larger[:, :, : self.length] = old[:, :, : self.length]
        return larger

    def select(self, rows: np.ndarray) -> None:
        """Keep the rows of the batch with these indices, which may repeat, in this order.

        Parameters
        ----------
        rows : array of int
            Indices of rows.
        """
        if self.length:
            self._keys, self._values = self._keys[rows], self._values[rows]

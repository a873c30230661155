"""Positions as a bias of the scores of attention: an object called with (L_q, L_kv), the last query
at the last key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.core.tensor import Tensor

from . import init
from .module import Module, Parameter

__all__ = ["ALiBi", "RelativePositionBias"]


def _distances(query_length: int, key_length: int) -> np.ndarray:
    """(L_q, L_kv): the place of the key, less that of the query."""
    return np.arange(key_length) - np.arange(key_length - query_length, key_length)[:, None]


class RelativePositionBias(Module):
    """A trained number for each head and each bucket of distances: T5's (Raffel et al. 2020,
    arXiv:1910.10683).

    Half of the buckets hold one distance each, the others grow wider up to `max_distance`. Where
    `bidirectional`, half of all buckets are for keys after the query. `weight` is (num_buckets, h).
    One such module can serve all layers of a stack.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        dtype: Any = np.float32,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.num_buckets, self.max_distance, self.bidirectional = (
            num_buckets,
            max_distance,
            bidirectional,
        )
        self.weight = init.normal_(
            Parameter(np.zeros((num_buckets, num_heads), dtype)), 0.0, 0.02, generator
        )

    def forward(self, query_length: int, key_length: int) -> Tensor:
        """(h, L_q, L_kv)."""
        buckets = self.buckets(_distances(query_length, key_length))
        return mg.transpose(mg.embedding(self.weight, buckets), 2, 0, 1)

    def buckets(self, distance: np.ndarray) -> np.ndarray:
        """The bucket of each distance from query to key."""
        count = self.num_buckets
        offset: Any = 0
        if self.bidirectional:
            count //= 2
            offset = count * (distance > 0)
            distance = np.abs(distance)
        else:
            distance = np.maximum(-distance, 0)
        single = count // 2
        logs = (
            np.log(np.maximum(distance, 1) / single)
            / math.log(self.max_distance / single)
            * (count - single)
        )
        wide = np.minimum(single + logs.astype(int), count - 1)
        return offset + np.where(distance < single, distance, wide)


class ALiBi:
    """The distance of the key times a fixed slope for each head, 2^(-8 i / h): Press et al. (2022),
    arXiv:2108.12409.

    For numbers of heads that are no power of 2, the further slopes lie between those of the power
    below.
    """

    def __init__(self, num_heads: int, dtype: Any = np.float32) -> None:
        below = 2 ** int(math.log2(num_heads))
        powers = np.r_[
            np.arange(1, below + 1) / below, np.arange(1, 2 * (num_heads - below), 2) / (2 * below)
        ]
        self.slopes = (2.0 ** (-8 * powers)).astype(dtype)

    def __call__(self, query_length: int, key_length: int) -> np.ndarray:
        """(h, L_q, L_kv)."""
        distance = np.abs(_distances(query_length, key_length)).astype(self.slopes.dtype)
        return -self.slopes[:, None, None] * distance


def _relative(
    config: Any, bidirectional: bool, generator: np.random.Generator | None
) -> RelativePositionBias:
    return RelativePositionBias(
        config.num_heads,
        num_buckets=config.positions.relative_buckets,
        max_distance=config.positions.relative_max_distance,
        bidirectional=bidirectional,
        dtype=config.dtype,
        generator=generator,
    )


POSITION_BIASES: dict[str, Callable[[Any, bool, np.random.Generator | None], Any]] = {
    "relative": _relative,
    "learned_relative": _relative,
    "alibi": lambda config, bidirectional, generator: ALiBi(config.num_heads, config.dtype),
}
"""Constructors by `PositionConfig.kind`, from (model config, bidirectional, generator).

A constructor returns a function of (L_q, L_kv), whose result broadcasts to (N, h, L_q, L_kv).
"""

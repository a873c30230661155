"""Position biases, which are added to the scores of attention.

A bias is called with (L_q, L_kv). The last query has the position of the last key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.arguments import checked_count
from minigrad.tensor import Tensor

from .. import init
from ..module import Module, Parameter

__all__ = ["ALiBi", "RelativePositionBias"]


def _distances(query_length: int, key_length: int) -> np.ndarray:
    """Return the positions of keys minus the positions of queries, (L_q, L_kv)."""
    return np.arange(key_length) - np.arange(key_length - query_length, key_length)[:, None]


class RelativePositionBias(Module):
    """Relative position bias of T5: a trained value for each head and bucket of distances.

    Half of the buckets contain one distance each, the others grow wider up to `max_distance`. All
    layers of a stack can share one module.

    Parameters
    ----------
    num_heads : int
        Number of heads.
    num_buckets : int, default 32
        Number of learned biases for each head, at least 4, or 2 if not `bidirectional`.
    max_distance : int, default 128
        Distances from here on share the last bucket. It must be greater than the number of buckets
        of one distance.
    bidirectional : bool, default True
        Use half of all buckets for keys after the query.
    dtype : dtype, default float32
        dtype of `weight`.
    generator : numpy.random.Generator, optional
        Draws the initial values; the default generator if not given.

    Attributes
    ----------
    weight : Parameter, shape (num_buckets, num_heads)

    References
    ----------
    Raffel et al. (2020), arXiv:1910.10683.
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
        parts, name = 4 if bidirectional else 2, type(self).__name__
        checked_count(name, "num_buckets", num_buckets, parts)
        checked_count(name, "max_distance", max_distance, num_buckets // parts + 1)
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.bidirectional = bidirectional
        self.weight = init.normal_(
            Parameter(np.zeros((num_buckets, num_heads), dtype)), 0.0, 0.02, generator
        )

    def forward(self, query_length: int, key_length: int) -> Tensor:
        """Return the bias (h, L_q, L_kv)."""
        buckets = self.buckets(_distances(query_length, key_length))
        return mg.transpose(mg.embedding(self.weight, buckets), 2, 0, 1)

    def buckets(self, distance: np.ndarray) -> np.ndarray:
        """Return the bucket of each distance from query to key.

        Parameters
        ----------
        distance : array of int
            Position of the key minus position of the query.
        """
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
    """ALiBi: the distance of the key times a fixed slope for each head, 2^(-8 i / h).

    If `num_heads` is not a power of 2, further slopes lie between the slopes of the power below.

    Parameters
    ----------
    num_heads : int
        Number of heads.
    dtype : dtype, default float32
        dtype of the bias.

    References
    ----------
    Press et al. (2022), arXiv:2108.12409.
    """

    def __init__(self, num_heads: int, dtype: Any = np.float32) -> None:
        below = 2 ** int(math.log2(num_heads))
        powers = np.r_[
            np.arange(1, below + 1) / below, np.arange(1, 2 * (num_heads - below), 2) / (2 * below)
        ]
        self.slopes = (2.0 ** (-8 * powers)).astype(dtype)

    def __call__(self, query_length: int, key_length: int) -> np.ndarray:
        """Return the bias (h, L_q, L_kv)."""
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

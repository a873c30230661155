"""Random choice of indices by weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import checked_count
from ..random import default_generator
from ..tensor import Tensor, to_array

__all__ = ["multinomial"]


def multinomial(
    input: Any,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: np.random.Generator | None = None,
) -> Tensor:
    """Draw indices with probabilities proportional to weights.

    Parameters
    ----------
    input : array_like, shape (n,) or (rows, n)
        Weights, which need not sum to 1. They get no gradient.
    num_samples : int
        Number of indices for each row.
    replacement : bool
        Allow an index to be drawn more than once; False by default.
    generator : numpy.random.Generator, optional
        Source of random numbers; the default generator by default.

    Returns
    -------
    Tensor of int64, shape (num_samples,) or (rows, num_samples)
        Indices in the order in which they were drawn.
    """
    weights = to_array(input).astype(float)
    if weights.ndim not in (1, 2):
        raise ValueError(f"multinomial: input must have 1 or 2 axes, got shape {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("multinomial: input must be finite and not negative")
    checked_count("multinomial", "num_samples", num_samples)
    counts = np.count_nonzero(weights, axis=-1)
    if not counts.all():
        raise ValueError("multinomial: input must have a weight that is not 0 in each row")
    if not replacement and (counts < num_samples).any():
        raise ValueError(
            "multinomial: without replacement num_samples must be at most the number of weights "
            f"that are not 0, {counts.min()}, got {num_samples}"
        )
    random = default_generator(generator)
    if not replacement:  # the shortest of the waiting times with these rates is drawn first
        with np.errstate(divide="ignore"):
            waiting = random.standard_exponential(weights.shape) / weights
        return Tensor(np.argsort(waiting, axis=-1)[..., :num_samples].astype(np.int64))
    sums = np.cumsum(weights / weights.max(axis=-1, keepdims=True), axis=-1)
    limits = (sums / sums[..., -1:]).reshape(-1, weights.shape[-1])
    draws = random.random((len(limits), num_samples))
    rows = [np.searchsorted(row, at, side="right") for row, at in zip(limits, draws)]
    return Tensor(np.reshape(rows, (*weights.shape[:-1], num_samples)).astype(np.int64))

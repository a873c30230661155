"""Functions that reduce axes, running sums and products, and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg

from .base import Draw, Sample, Shape, add


def reduction(
    name: str,
    values: Callable[[Draw, Shape], np.ndarray] = Draw.array,
    reference: Any = None,
    *,
    min_side: int = 1,
) -> None:
    """Add a function with the options `axis` and `keepdims`."""
    add(
        name,
        lambda d: Sample(
            x := values(d, d.shape(min_side=min_side)), axis=d.axis(x.ndim), keepdims=d.bool()
        ),
        reference,
    )


def factors(d: Draw, shape: Shape) -> np.ndarray:
    """Draw values of size 0.5 to 1.5, or 0."""
    x = d.array(shape, 0.5, 1.5)
    for position in d.positions(x.size):
        x.flat[position] *= d.one_of(-1, 0)
    return x


reduction("sum", min_side=0)
reduction("mean")
reduction("max", Draw.distinct)
reduction("min", Draw.distinct)
reduction("prod", factors, min_side=0)
reduction("logsumexp", reference=lambda x, **options: np.log(np.sum(np.exp(x), **options)))
reduction(
    "euclidean_norm",
    lambda d, shape: d.array(shape, 0.5, 2),
    lambda x, **options: np.sqrt(np.sum(x * x, **options)),
)


def _along_axis(d: Draw, values: Callable[[Draw, Shape], np.ndarray] = Draw.array) -> Sample:
    return Sample(x := values(d, d.shape(1)), axis=d.axis(x.ndim, several=False))


add("cumsum", _along_axis)
add("cumprod", lambda d: _along_axis(d, factors))


def _softmax_sample(d: Draw) -> Sample:
    """Draw values that can be far from 0, and an axis or the default."""
    x = d.array(d.shape(1)) + d.one_of(0.0, 1000.0, -1000.0)
    axis = d.axis(x.ndim, none=False, several=False)
    return Sample(x, **({} if d.often(0.2) else {"axis": axis}))


def _masked_softmax_sample(d: Draw) -> Sample:
    """Draw a mask, and infinities and NaN at positions that it excludes."""
    sample = _softmax_sample(d)
    x = sample.operands[0]
    if d.bool():
        where = sample.options["where"] = d.mask(d.broadcastable(x.shape))
        excluded = np.flatnonzero(~np.broadcast_to(where, x.shape))
        if len(excluded):
            x.flat[d.one_of(*excluded)] = d.one_of(0.0, np.inf, -np.inf, np.nan)
    return sample


def _log_softmax(x: np.ndarray, axis: int = -1, where: Any = True) -> np.ndarray:
    x = np.where(where, x, -np.inf)
    x = x - np.maximum(x.max(axis, keepdims=True, initial=-np.inf), -1e6)
    with np.errstate(divide="ignore"):
        return x - np.maximum(np.log(np.exp(x).sum(axis, keepdims=True)), -1e6)


add("softmax", _masked_softmax_sample, lambda *x, **options: np.exp(_log_softmax(*x, **options)))
add("log_softmax", _softmax_sample, _log_softmax)
add(
    "top_k",
    lambda d: Sample(
        x := d.distinct(d.shape(1, min_side=1)),
        axis=(axis := d.axis(x.ndim, none=False, several=False)),
        k=d.one_of(*range(1, x.shape[axis] + 1)),
    ),
    lambda x, k, axis: np.flip(np.sort(x, axis), axis).take(range(k), axis),
    lambda x, k, axis: mg.top_k(x, k, axis)[0],
)

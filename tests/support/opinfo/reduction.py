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


def _factors(d: Draw, shape: Shape) -> np.ndarray:
    """Draw values of size 0.5 to 1.5, or 0."""
    return d.array(shape, 0.5, 1.5) * d.rng.choice([0, 1, 1, 1, -1], shape)


reduction("sum", min_side=0)
reduction("mean")
reduction("max", Draw.distinct)
reduction("min", Draw.distinct)
reduction("prod", _factors, min_side=0)
reduction("logsumexp", reference=lambda x, **options: np.log(np.sum(np.exp(x), **options)))
reduction(
    "euclidean_norm",
    lambda d, shape: d.array(shape, 0.5, 2),
    lambda x, **options: np.sqrt(np.sum(x * x, **options)),
)


def _along_axis(d: Draw, values: Callable[[Draw, Shape], np.ndarray] = Draw.array) -> Sample:
    return Sample(x := values(d, d.shape(1)), axis=d.axis(x.ndim, several=False))


add("cumsum", _along_axis)
add("cumprod", lambda d: _along_axis(d, _factors))


def _softmax_sample(d: Draw) -> Sample:
    x = d.array(d.shape(1, min_side=1))
    return Sample(x, axis=d.axis(x.ndim, none=False, several=False))


def _masked_softmax_sample(d: Draw) -> Sample:
    sample = _softmax_sample(d)
    if d.bool():
        sample.options["where"] = d.rng.random(sample.operands[0].shape) < 0.4
    return sample


def _softmax(x: np.ndarray, axis: int, where: Any = True) -> np.ndarray:
    e = np.exp(x) * where
    total = np.sum(e, axis, keepdims=True)
    return e / np.where(total == 0, 1, total)


add("softmax", _masked_softmax_sample, _softmax)
add("log_softmax", _softmax_sample, lambda x, axis: np.log(_softmax(x, axis)))
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

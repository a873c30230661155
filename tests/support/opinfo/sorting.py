"""Sorting, ranks, medians and quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add

add(
    "sort",
    lambda x, axis, descending: (
        np.array(sorted(x.ravel(), reverse=descending))
        if axis is None
        else np.apply_along_axis(sorted, axis, x, reverse=descending)
        if x.size
        else x
    ),
    lambda d: Sample(
        [x := d.distinct(d.shape(1))],
        {"axis": d.axis(x.ndim, True, False), "descending": d.one_of(False, True)},
    ),
)
add(
    "top_k",
    lambda x, k, axis: np.flip(np.sort(x, axis), axis).take(range(k), axis),
    lambda d: Sample(
        [x := d.distinct(d.shape(1, 3, 1))],
        {"axis": (a := d.axis(x.ndim, False, False)), "k": d.one_of(*range(1, x.shape[a] + 1))},
    ),
    call=lambda x, k, axis: mg.top_k(x, k, axis)[0],
    errors=[
        (lambda: mg.top_k(np.ones(3), 4), ValueError, "top_k: expected 1 <= k <= 3, got 4"),
        (
            lambda: mg.top_k(np.ones(()), 1),
            ValueError,
            "top_k: axis -1 is out of bounds for array of dimension 0",
        ),
        (
            lambda: mg.sort(np.ones(2), 1),
            ValueError,
            "sort: axis 1 is out of bounds for array of dimension 1",
        ),
    ],
)


def _partitioned(d: Draw) -> Sample:
    x = d.distinct(d.shape(1, 3, 1))
    axis = d.axis(x.ndim, True, False)
    n = x.size if axis is None else x.shape[axis]
    return Sample([x], {"kth": d.one_of(0, n - 1, n // 2), "axis": axis})


add("partition", np.partition, _partitioned, analytic=False)


def _ranked(d: Draw) -> Sample:
    x = d.distinct(d.shape(1, 3, 1))
    return Sample([x], {"axis": d.axis(x.ndim), "keepdims": d.bool()})


def _quantiles(scale: float = 1.0) -> Any:
    def samples(d: Draw) -> Sample:
        sample = _ranked(d)
        sample.options["q"] = (
            d.one_of(
                0.0,
                0.31 * scale,
                1.0 * scale,
                np.float32([0.25, 0.75]),
                np.float32([[0.125], [0.5]]),
            )
            if scale == 1
            else d.one_of(31.0, 80.0)
        )
        sample.options["method"] = d.one_of(
            "linear", "linear", "lower", "higher", "midpoint", "nearest"
        )
        return sample

    return samples


add("median", np.median, _ranked)
add(
    "quantile",
    np.quantile,
    _quantiles(),
    errors=[
        (
            lambda: mg.quantile(np.ones(2), 1.5),
            ValueError,
            "quantile: expected q from 0 to 1, got 1.5",
        ),
        (
            lambda: mg.quantile(np.ones(2), 0.5, method="weibull"),
            ValueError,
            "method 'weibull' is not supported",
        ),
        (
            lambda: mg.quantile(np.ones((0, 2)), 0.5, 0),
            ValueError,
            "quantile: no elements over axis 0",
        ),
    ],
)
add("percentile", np.percentile, _quantiles(100.0))

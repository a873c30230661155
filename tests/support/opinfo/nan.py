"""Reductions that leave NaN out. The samples have none where a gradient is checked by differences: see test_nan.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add


def _holes(d: Draw, x: np.ndarray) -> np.ndarray:
    """Where x is replaced by NaN: never the whole of a slice."""
    return (d.rng.random(x.shape) < 0.4) & (np.arange(x.size).reshape(x.shape) % 2 == 1)


def _with_nan(name: str, make: Callable[[Draw], Sample], **kwargs: Any) -> None:
    """An entry whose operands are the numbers and where NaN is to stand."""

    def samples(d: Draw) -> Sample:
        sample = make(d)
        sample.operands.append(_holes(d, sample.operands[0]))
        return sample

    def of(f: Any, where: Any) -> Any:
        return lambda x, holes, **options: f(where(holes, np.nan, x), **options)

    add(
        name,
        of(getattr(np, name), np.where),
        samples,
        call=of(getattr(mg, name), mg.where),
        **kwargs,
    )


def _reduced(d: Draw) -> Sample:
    x = d.distinct(d.shape(1, 3, 2)) + 0.02
    return Sample([x], {"axis": d.one_of(None, -1), "keepdims": d.bool()})


for _name in ("nansum", "nanmean", "nanvar"):
    _with_nan(_name, _reduced)
_with_nan(
    "nanprod", lambda d: Sample([d.array(d.shape(1, 3, 2), 0.5, 1.5)], {"axis": d.one_of(None, -1)})
)
_with_nan(
    "nanstd",
    lambda d: Sample([np.arange(6.0).reshape(2, 3) + d.array((2, 3), 0, 0.3)], {"axis": None}),
    analytic=False,
)
for _name in ("nanmax", "nanmin"):
    _with_nan(_name, _reduced, analytic=False)
_with_nan(
    "nan_to_num",
    lambda d: Sample([d.array(d.shape())], {"nan": d.one_of(0.0, 3.5)}),
    analytic=False,
    errors=[
        (
            lambda: mg.nan_to_num(np.ones(2), copy=False),
            ValueError,
            "nan_to_num: a tensor is never changed in place",
        )
    ],
)

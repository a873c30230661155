"""Functions that are other ways to call those that have entries of their own."""

from __future__ import annotations

import math

import numpy as np

from .base import Draw, Sample, add
from .elementwise import binary

binary("fmod", lambda a, b: a - np.trunc(a / b) * b, a=(2.2, 2.8), b=(0.85, 1.05), analytic=False)
add(
    "unwrap",
    lambda p: np.unwrap(p),
    lambda d: Sample([d.array(d.shape(1, 2), -9, 9)]),
    analytic=False,
)
for _name, _reference in {"amax": np.max, "amin": np.min}.items():
    add(
        _name,
        _reference,
        lambda d: Sample(
            [x := d.distinct(d.shape(1, 3, 1))], {"axis": d.axis(x.ndim), "keepdims": d.bool()}
        ),
        analytic=False,
    )


add(
    "diagflat",
    lambda v, k: np.array(
        [
            [v.ravel()[min(i, i + k)] if j - i == k else 0.0 for j in range(v.size + abs(k))]
            for i in range(v.size + abs(k))
        ]
        if v.size + abs(k)
        else np.zeros((0, 0))
    ),
    lambda d: Sample([d.array(d.shape(1, 2, max_side=3))], {"k": d.one_of(0)}),
)
add(
    "correlate",
    lambda a, v: np.array([math.fsum(a[k : k + len(v)] * v) for k in range(len(a) - len(v) + 1)]),
    lambda d: Sample([d.array((d.one_of(3, 5),)), d.array((d.one_of(1, 3),))]),
)


def _conditioned(d: Draw) -> Sample:
    return Sample(
        [d.array((*d.one_of((), (2,)), 3, 3), -0.4, 0.4) + np.diag([1.0, 2.0, 4.0])],
        {"p": d.one_of(None, -2, "fro")},
    )


def _cond(x: np.ndarray, p: object) -> np.ndarray:
    s = np.linalg.svd(x)[1]
    if p == "fro":
        return np.sqrt((s**2).sum(-1) * (s**-2.0).sum(-1))
    return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]


add("cond", _cond, _conditioned, analytic=False)

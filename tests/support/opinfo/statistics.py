"""How quantities vary together: the references are sums over observations."""

from __future__ import annotations

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add


def _observed(d: Draw, at_least: int) -> np.ndarray:
    return d.array((*d.one_of((), (1,), (2,), (3,)), d.one_of(at_least, 5)))


def _products(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted mean of products of deviations, pair by pair."""
    rows = [row - sum(row * weights) / sum(weights) for row in x.reshape(-1, x.shape[-1])]
    c = np.array([[sum(weights * a * b) / sum(weights) for b in rows] for a in rows])
    return c if len(rows) > 1 else c[0, 0]


def _covaried(d: Draw) -> Sample:
    return Sample([_observed(d, 3)], {"ddof": d.one_of(0, 1)})


def _cov(x: np.ndarray, ddof: int) -> np.ndarray:
    weights = np.ones(x.shape[-1])
    return _products(x, weights) * sum(weights) / (sum(weights) - ddof)


add(
    "cov",
    _cov,
    _covaried,
    dtypes=(np.float64,),
    errors=[
        (
            lambda: mg.cov(np.ones((2, 2, 2))),
            ValueError,
            r"cov: expected a vector or a matrix, got shape \(2, 2, 2\)",
        ),
        (
            lambda: mg.cov(np.ones(2), ddof=0.5),
            ValueError,
            "cov: expected an integer as ddof, got 0.5",
        ),
    ],
)


def _corrcoef(x: np.ndarray) -> np.ndarray:
    c = np.atleast_2d(_products(x, np.ones(x.shape[-1])))
    y = np.array(
        [[c[i, j] / (c[i, i] * c[j, j]) ** 0.5 for j in range(len(c))] for i in range(len(c))]
    )
    return y if len(c) > 1 else y[0, 0]


add(
    "corrcoef", _corrcoef, lambda d: Sample([_observed(d, 4)]), dtypes=(np.float64,), analytic=False
)

"""Decompositions: what they give up to signs, which are free, against their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add


def _spread(d: Draw, m: int, n: int, batch: tuple[int, ...] = ()) -> np.ndarray:
    """Matrices whose singular values are far apart."""
    k = min(m, n)
    u, v = (np.linalg.qr(d.rng.standard_normal((*batch, side, side)))[0] for side in (m, n))
    return (
        u[..., :k]
        * (np.arange(k, 0, -1) + d.rng.uniform(0, 0.3, k))
        @ np.swapaxes(v, -1, -2)[..., :k, :]
    )


def _matrices(wide: bool = True) -> Callable[[Draw], Sample]:
    shapes = [(2, 2), (3, 3), (3, 2), *([(2, 3)] if wide else [])]
    return lambda d: Sample([_spread(d, *d.one_of(*shapes), batch=d.one_of((), (2,)))])


def _symmetric(d: Draw) -> Sample:
    x = _spread(d, 3, 3)
    return Sample([x + x.T], {"UPLO": d.one_of("L", "U")})


def _squares_of_vectors(x: np.ndarray, UPLO: str) -> list[np.ndarray]:
    """The eigenvalues as roots, and the squares of the vectors from those of the minors of x."""
    x = (x + x.T) / 2
    values = np.sort(np.roots(np.poly(x)).real)
    squares = np.empty(x.shape)
    for i, value in enumerate(values):
        for j in range(len(values)):
            minor = np.delete(np.delete(x, j, 0), j, 1)
            others = np.prod([value - v for v in np.roots(np.poly(minor)).real])
            squares[j, i] = others / np.prod([value - v for k, v in enumerate(values) if k != i])
    return [values, squares]


def _even(x: Any) -> Any:
    """x, symmetrized: what eigh presumes."""
    return (x + mg.swapaxes(x, -1, -2)) / 2


add(
    "eigh",
    _squares_of_vectors,
    _symmetric,
    call=lambda x, UPLO: [(r := mg.eigh(_even(x), UPLO)).eigenvalues, r.eigenvectors**2],
    analytic=False,
    errors=[
        (lambda: mg.eigh(np.ones((2, 3))), np.linalg.LinAlgError, r"eigh: .*\(2, 3\)"),
        (lambda: mg.eigh(np.eye(2), "X"), ValueError, "eigh: expected UPLO 'L' or 'U', got 'X'"),
    ],
)
add(
    "eigvalsh",
    lambda x, UPLO: _squares_of_vectors(x, UPLO)[0],
    _symmetric,
    call=lambda x, UPLO: mg.eigvalsh(_even(x), UPLO),
    analytic=False,
)


def _svd(x: np.ndarray) -> list[np.ndarray]:
    """From the eigenvectors of x xᵀ and xᵀ x."""
    k = min(x.shape[-2:])
    values, left = np.linalg.eigh(x @ np.swapaxes(x, -1, -2))
    right = np.linalg.eigh(np.swapaxes(x, -1, -2) @ x)[1]
    falling = lambda v: v[..., ::-1][..., :k]
    return [falling(left) ** 2, np.sqrt(falling(values)), np.swapaxes(falling(right), -1, -2) ** 2]


add(
    "svd",
    _svd,
    _matrices(),
    call=lambda x: [(r := mg.svd(x, full_matrices=False)).U ** 2, r.S, r.Vh**2],
    analytic=False,
    errors=[
        (
            lambda: mg.svd(np.eye(2), hermitian=True),
            ValueError,
            "svd: hermitian=True is not supported; use eigh",
        )
    ],
)
add("svdvals", lambda x: _svd(x)[1], _matrices(), analytic=False)
add(
    "qr",
    lambda x: [np.linalg.qr(x)[0], np.linalg.qr(x)[1]],
    _matrices(),
    analytic=False,
    errors=[
        (
            lambda: mg.qr(np.ones((3, 2)), "complete"),
            ValueError,
            r"qr: mode 'complete' of shape \(3, 2\)",
        )
    ],
)


def _pinv(x: np.ndarray) -> np.ndarray:
    t = np.swapaxes(x, -1, -2)
    return np.linalg.solve(t @ x, t) if x.shape[-2] >= x.shape[-1] else t @ np.linalg.inv(x @ t)


add(
    "pinv",
    _pinv,
    _matrices(),
    analytic=False,
    errors=[
        (
            lambda: mg.pinv(np.eye(2), hermitian=True),
            ValueError,
            "pinv: hermitian=True is not supported",
        )
    ],
)


def _least_squares(d: Draw) -> Sample:
    m, n = d.one_of((3, 2), (2, 2), (2, 3))
    return Sample([_spread(d, m, n), d.array((m,) if d.bool() else (m, 2))])


add(
    "lstsq",
    lambda a, b: [_pinv(a) @ b],
    _least_squares,
    call=lambda a, b: [mg.lstsq(a, b)[0]],
    analytic=False,
)
add(
    "matrix_power",
    lambda x, n: np.linalg.matrix_power(x, n),
    lambda d: Sample([_spread(d, 2, 2)], {"n": d.one_of(-2, -1, 1, 2, 3, 5)}),
    errors=[
        (
            lambda: mg.matrix_power(np.ones((2, 3)), 2),
            np.linalg.LinAlgError,
            r"matrix_power: expected square .*\(2, 3\)",
        )
    ],
)
add(
    "vector_norm",
    lambda x, axis, keepdims, ord: np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord),
    lambda d: Sample(
        [x := d.array(d.shape(1, 3, 1), 0.3, 2) + 0.1 * d.rng.random()],
        {"axis": d.axis(x.ndim), "keepdims": d.bool(), "ord": d.one_of(1, 2, 3)},
    ),
    analytic=False,
)
add(
    "matrix_norm",
    lambda x, keepdims, ord: np.linalg.matrix_norm(x, keepdims=keepdims, ord=ord),
    lambda d: Sample(
        _matrices()(d).operands, {"keepdims": d.bool(), "ord": d.one_of("fro", "nuc", 2, -2)}
    ),
    analytic=False,
)

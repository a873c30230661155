"""Products, inverses, determinants and decompositions."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg

from .base import Draw, Sample, Shape, add


def _matmul(d: Draw) -> Sample:
    n, k, m = d.one_of(0, 1, 2, 3), d.one_of(1, 2, 3), d.one_of(1, 2, 4)
    left = d.one_of((k,), (n, k), (2, n, k), (3, 1, n, k))
    right = d.one_of((k,), (k, m), (2, k, m), (3, 1, k, m))
    return Sample(d.array(left), d.array(right))


add("matmul", _matmul)

_EINSUMS: tuple[tuple[str, tuple[Shape, ...]], ...] = (
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("ii->i", ((3, 3),)),
    ("ij,k->i", ((2, 3), (4,))),
    ("ij,ij,ij->i", ((2, 3), (2, 3), (2, 3))),
    ("nihd,njhd->nijh", ((2, 3, 2, 4), (2, 5, 2, 4))),
    ("...ij,...jk->...ik", ((3, 4), (2, 4, 5))),
    ("i...,i...->...", ((2, 3), (2, 1))),
    (",i->i", ((), (3,))),
    ("ii,ij->j", ((2, 2), (2, 3))),
    ("ji,jk->ik", ((3, 0), (3, 2))),
    ("ia,i->", ((4, 1), (1,))),
)


def _einsum(d: Draw) -> Sample:
    subscripts, shapes = d.one_of(*_EINSUMS)
    return Sample(*map(d.array, shapes), subscripts=subscripts)


add(
    "einsum",
    _einsum,
    lambda *xs, subscripts: np.einsum(subscripts, *xs),
    lambda *xs, subscripts: mg.einsum(subscripts, *xs),
)


def _regular(d: Draw) -> np.ndarray:
    """Draw matrices that are far from singular."""
    n = d.one_of(1, 2, 3)
    return d.array((*d.shape(0, 1, 1, 2), n, n), -1, 1) + np.eye(n) * (n + 1)


def _solve(d: Draw) -> Sample:
    a = _regular(d)
    return Sample(a, d.array(a.shape[-1:] if d.bool() else (*a.shape[:-1], 2)))


def _symmetrized(x: Any) -> Any:
    """Return the symmetric part of x, which is all that an op for symmetric matrices reads."""
    return (x + mg.swapaxes(x, -1, -2)) / 2


def _positive(d: Draw) -> Sample:
    a = _regular(d)
    return Sample(a @ a.swapaxes(-1, -2))


add("inv", lambda d: Sample(_regular(d)))
add("det", lambda d: Sample(_regular(d)))
add("logabsdet", lambda d: Sample(_regular(d)), lambda x: np.log(np.abs(np.linalg.det(x))))
add("solve", _solve, lambda a, b: np.linalg.inv(a) @ b)
add("cholesky", _positive, call=lambda x: mg.cholesky(_symmetrized(x)))

# -- decompositions: eigenvectors and singular vectors are determined up to their signs ----------------


def _matrices(d: Draw, *shapes: Shape) -> np.ndarray:
    """Draw matrices whose singular values are far apart."""
    batch, (m, n) = d.one_of((), (2,)), d.one_of(*shapes)
    k = min(m, n)
    u, v = (np.linalg.qr(d.rng.standard_normal((*batch, side, side)))[0] for side in (m, n))
    return u[..., :k] * (np.arange(k, 0, -1) + d.rng.uniform(0, 0.3, k)) @ v[..., :k, :]


def _any_matrices(d: Draw) -> Sample:
    return Sample(_matrices(d, (2, 2), (3, 3), (3, 2), (2, 3)))


def _eigh(d: Draw) -> Sample:
    x = _matrices(d, (3, 3))
    return Sample(x + x.swapaxes(-1, -2), UPLO=d.one_of("L", "U"))


def _without_signs(parts: Any) -> list[Any]:
    """Square the matrices among the results of a decomposition, but not its eigenvalues."""
    values = min(part.ndim for part in parts)
    return [part if part.ndim == values else part**2 for part in parts]


add(
    "eigh",
    _eigh,
    lambda x, UPLO: _without_signs(np.linalg.eigh(x, UPLO)),
    lambda x, UPLO: _without_signs(mg.eigh(_symmetrized(x), UPLO)),
)
add(
    "svd",
    _any_matrices,
    lambda x: _without_signs(np.linalg.svd(x, full_matrices=False)),
    lambda x: _without_signs(mg.svd(x, full_matrices=False)),
)
add("qr", _any_matrices)
add("pinv", _any_matrices)

"""Products, inverses, determinants and decompositions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume

import minigrad as mg

from .base import Draw, Sample, Shape, add


def _matmul(d: Draw) -> Sample:
    n, k, m = d.one_of(0, 1, 2, 3), d.one_of(1, 2, 3), d.one_of(1, 2, 4)
    left = d.one_of((k,), (n, k), (2, n, k), (3, 1, n, k))
    right = d.one_of((k,), (k, m), (2, k, m), (3, 1, k, m))
    return Sample(d.array(left), d.array(right))


add("matmul", _matmul)

EINSUMS: tuple[tuple[str, tuple[Shape, ...]], ...] = (
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
    """Draw subscripts that are known to be hard, or random ones, half of them without "->"."""
    if d.often(0.3):
        subscripts, shapes = d.one_of(*EINSUMS)
        return Sample(subscripts, *map(d.array, shapes))
    sizes = dict(zip("ibZa", (2, 3, 1, 2)))
    terms = ["".join(d.permutation_of("ibZa")[: d.integer(0, 3)]) for _ in range(d.integer(1, 3))]
    used = sorted({*"".join(terms)})
    result = "->" + "".join(d.permutation_of(used)[: d.integer(0, len(used))])
    shapes = [tuple(sizes[letter] for letter in term) for term in terms]
    return Sample(",".join(terms) + result * d.bool(), *map(d.array, shapes))


add("einsum", _einsum)


def regular(d: Draw) -> np.ndarray:
    """Draw matrices that are far from singular."""
    n = d.one_of(1, 2, 3)
    return d.array((*d.shape(0, 2, 1, 2), n, n), -1, 1) + np.eye(n) * (n + 1)


def _solve(d: Draw) -> Sample:
    a = regular(d)
    return Sample(a, d.array(a.shape[-1:] if d.bool() else (*a.shape[:-1], 2)))


def symmetrized(x: Any) -> Any:
    """Return the symmetric part of x, which is all that an op for symmetric matrices reads."""
    return (x + np.swapaxes(x, -1, -2)) / 2


def _positive(d: Draw) -> Sample:
    a = regular(d)
    return Sample(a @ a.swapaxes(-1, -2))


add("inv", lambda d: Sample(regular(d)))
add("det", lambda d: Sample(regular(d)))
add("logabsdet", lambda d: Sample(regular(d)), lambda x: np.log(np.abs(np.linalg.det(x))))
add("solve", _solve, lambda a, b: np.linalg.inv(a) @ b)
add("cholesky", _positive, call=lambda x: mg.cholesky(symmetrized(x)))

# -- decompositions: eigenvectors and singular vectors are determined up to their signs ----------------


def any_matrices(d: Draw, *shapes: Shape, batch: Shape = ()) -> np.ndarray:
    """Draw matrices whose singular values are far apart."""
    m, n = d.one_of(*shapes)
    k = min(m, n)
    u, v = (np.linalg.qr(d.array((*batch, side, side)))[0] for side in (m, n))
    return u[..., :k] * (np.arange(k, 0, -1) + d.array((k,), 0, 0.3)) @ v[..., :k, :]


def batched_matrices(d: Draw, *shapes: Shape) -> np.ndarray:
    """Draw one or two such matrices."""
    return any_matrices(d, *shapes, batch=d.one_of((), (2,)))


def _decomposed(d: Draw) -> Sample:
    return Sample(batched_matrices(d, (2, 2), (3, 3), (3, 2), (2, 3)))


def _eigh(d: Draw) -> Sample:
    x = batched_matrices(d, (3, 3))
    return Sample(x + x.swapaxes(-1, -2), UPLO=d.one_of("L", "U"))


def _without_signs(parts: Any) -> list[Any]:
    """Square the matrices among the results of a decomposition, but not its eigenvalues."""
    values = min(part.ndim for part in parts)
    return [part if part.ndim == values else part**2 for part in parts]


add(
    "eigh",
    _eigh,
    lambda x, UPLO: _without_signs(np.linalg.eigh(x, UPLO)),
    lambda x, UPLO: _without_signs(mg.eigh(symmetrized(x), UPLO)),
)
add(
    "svd",
    _decomposed,
    lambda x: _without_signs(np.linalg.svd(x, full_matrices=False)),
    lambda x: _without_signs(mg.svd(x, full_matrices=False)),
)


def _with_pivots(d: Draw) -> Sample:
    """Draw matrices whose leading blocks are regular.

    Where a pivot of `qr` is 0, the signs of a column of q and of a row of r jump.
    """
    sample = _decomposed(d)
    x = sample.operands[0]
    for n in range(1, min(x.shape[-2:]) + 1):
        assume(bool((np.linalg.svd(x[..., :n], compute_uv=False) > 0.1).all()))
    return sample


add(
    "qr",
    _with_pivots,
    lambda x: [part**2 for part in np.linalg.qr(x)],
    lambda x: [part**2 for part in mg.qr(x)],
)
add("pinv", _decomposed)

# -- functions of SciPy, whose references are definitions -------------------------------------------


def _solve_triangular(d: Draw) -> Sample:
    sample = _solve(d)
    options = {
        "lower": d.bool(),
        "trans": d.one_of(0, 1, "N", "T", "0", "1"),
        "unit_diagonal": d.bool(),
    }
    return Sample(*sample.operands, **options)


def _solved_triangle(a: Any, b: Any, lower: bool, trans: Any, unit_diagonal: bool) -> Any:
    """Solve by the inverse of the triangle, whose other elements are cleared."""
    a = np.array(a)
    n = a.shape[-1]
    rows, columns = np.triu_indices(n, 1) if lower else np.tril_indices(n, -1)
    a[..., rows, columns] = 0
    if unit_diagonal:
        a[..., range(n), range(n)] = 1
    return np.linalg.inv(a.swapaxes(-1, -2) if trans in (1, "1", "T") else a) @ b


def _cho_solve(d: Draw) -> Sample:
    a = _positive(d).operands[0]
    b = d.array(a.shape[-1:] if d.bool() else (*a.shape[:-1], 2))
    return Sample(a, b, lower=d.bool())


def _solve_banded(d: Draw) -> Sample:
    n = d.integer(1, 4)
    below, above = d.integer(0, n - 1), d.integer(0, n - 1)
    ab = d.array((below + above + 1, n), -1, 1)
    ab[above] = n + d.array((n,), 1, 2)
    return Sample((below, above), ab, d.array(d.one_of((n,), (n, 2))))


def _solved_band(l_and_u: Any, ab: Any, b: Any) -> Any:
    """Solve with the dense matrix, a sum of diagonals."""
    (below, above), n = l_and_u, ab.shape[1]
    diagonals = [
        np.diag(ab[above - k, max(k, 0) : n + min(k, 0)], k) for k in range(-below, above + 1)
    ]
    return np.linalg.inv(sum(diagonals)) @ b


def _exponential(x: Any) -> Any:
    """Compute the exponential by its series for x / 16, and four squares: each doubles the error."""
    y = term = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    for k in range(1, 30):
        term = term @ x / (16 * k)
        y = y + term
    for _ in range(4):
        y = y @ y
    return y


add("solve_triangular", _solve_triangular, _solved_triangle)
add(
    "cho_factor",
    lambda d: Sample(_positive(d).operands[0], lower=d.bool()),
    lambda a, lower: np.linalg.cholesky(a) if lower else np.linalg.cholesky(a).mT,
    lambda a, lower: mg.cho_factor(symmetrized(a), lower)[0],
)
add(
    "cho_solve",
    _cho_solve,
    lambda a, b, lower: np.linalg.inv(a) @ b,
    lambda a, b, lower: mg.cho_solve(mg.cho_factor(symmetrized(a), lower), b),
)
add("solve_banded", _solve_banded, _solved_band)
add("expm", lambda d: Sample(regular(d) * d.one_of(0.1, 1, 3)), _exponential)

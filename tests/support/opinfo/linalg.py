"""Products, einsum, triangles, inverses, determinants."""

from __future__ import annotations

import itertools
import math

import numpy as np

import minigrad as mg
from minigrad.core.registry import OPS

from .base import Draw, Sample, add


def _matmul(d: Draw) -> Sample:
    n, k, m = d.one_of(0, 1, 2, 3), d.one_of(1, 2, 3), d.one_of(1, 2, 4)
    a, b = d.one_of(
        ((n, k), (k, m)),
        ((k,), (k, m)),
        ((n, k), (k,)),
        ((k,), (k,)),
        ((2, n, k), (k, m)),
        ((n, k), (2, k, m)),
        ((2, n, k), (2, k, m)),
        ((2, 1, n, k), (3, k, m)),
        ((1, n, k), (2, k, m)),
        ((2, n, k), (k,)),
        ((k,), (2, k, m)),
    )
    return Sample([d.array(a), d.array(b)])


def _matmul_reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    y = (left[..., :, :, None] * right[..., None, :, :]).sum(-2)
    y = y[..., 0, :] if a.ndim == 1 else y
    return y[..., 0] if b.ndim == 1 else y


add(
    "matmul",
    _matmul_reference,
    _matmul,
    errors=[
        (
            lambda: mg.Tensor(np.ones((2, 3))) @ np.ones((4, 5)),
            ValueError,
            r"matmul: .*a \(2, 3\) float64, b \(4, 5\) float64",
        )
    ],
)
add(
    "dot",
    np.dot,
    lambda d: Sample(
        [
            d.array(s)
            for s in d.one_of(
                ((2, 3), (3, 4)), ((3,), (3,)), ((), (2,)), ((2, 3), (2, 3, 4)), ((2, 3), (3,))
            )
        ]
    ),
)
add(
    "vdot",
    np.vdot,
    lambda d: Sample([d.array(s) for s in d.one_of(((2, 3), (3, 2)), ((3,), (3,)), ((), ()))]),
)
add(
    "inner",
    np.inner,
    lambda d: Sample(
        [d.array(s) for s in d.one_of(((2, 3), (3,)), ((3,), (3,)), ((2, 3), (4, 3)), ((), (2,)))]
    ),
)
add(
    "outer",
    lambda a, b: np.array([[x * y for y in b.ravel()] for x in a.ravel()]).reshape(a.size, b.size),
    lambda d: Sample([d.array(d.shape(max_ndim=2)), d.array(d.shape(max_ndim=1))]),
)


def _tensordot(d: Draw) -> Sample:
    a, b, axes = d.one_of(
        ((2, 3), (3, 4), 1),
        ((2, 3, 4), (3, 4, 2), 2),
        ((2, 3, 4), (4, 5, 3), ((1, 2), (2, 0))),
        ((2,), (3,), 0),
        ((2, 3, 4), (2, 4), ((0, -1), (0, 1))),
        ((), (2,), 0),
        ((2, 3), (2, 5), (0, 0)),
    )
    return Sample([d.array(a), d.array(b)], {"axes": axes})


add(
    "tensordot",
    lambda a, b, axes: np.tensordot(a, b, axes),
    _tensordot,
    errors=[
        (
            lambda: mg.tensordot(np.ones(2), np.ones((2, 2)), ([0], [0, 1])),
            ValueError,
            "tensordot: axes .0. of a, of lengths .2., do not fit axes .0, 1. of b",
        )
    ],
)

_EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("ij->ji", [(2, 3)]),
    ("ij->", [(2, 3)]), ("ij->j", [(2, 3)]), ("iij->ij", [(2, 2, 3)]), ("iii->i", [(2, 2, 2)]), ("i,i->", [(3,), (3,)]),
    ("i,j->ij", [(3,), (2,)]), ("ij,ij->ij", [(2, 3), (2, 3)]), ("ij,k->i", [(2, 3), (4,)]), ("ij,ij,ij->i", [(2, 3)] * 3),
    ("nihd,njhd->nijh", [(2, 3, 2, 4), (2, 5, 2, 4)]), ("nijh,njhd->nihd", [(2, 3, 5, 2), (2, 5, 2, 4)]), ("id,jd->ij", [(3, 2), (4, 2)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]), ("...ij,...jk->...ik", [(3, 4), (2, 4, 5)]), ("...i->...", [(2, 3)]),
    ("i...,i...->...", [(2, 3), (2, 1)]), ("...,...", [(2, 3), (3,)]), ("bij,bjk,bkl->bil", [(2, 2, 3), (2, 3, 2), (2, 2, 2)]),
    ("ij,i,j->", [(2, 3), (2,), (3,)]), (",i->i", [(), (3,)]), ("ii,ij->j", [(2, 2), (2, 3)]), ("ji,jk->ik", [(3, 0), (3, 2)]),
]  # fmt: skip


def _einsum(d: Draw) -> Sample:
    subscripts, shapes = d.one_of(*_EINSUMS)
    return Sample([d.array(s) for s in shapes], {"subscripts": subscripts})


def _einsum_reference(*operands: np.ndarray, subscripts: str) -> np.ndarray:
    """The definition: a loop over every index, all products added up."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    rank = max(x.ndim - len(t.replace("...", "")) for t, x in zip(terms, operands))
    dots = "UVWXYZ"[:rank]
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        right = ("..." if "..." in left else "") + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1)
        )
    full = lambda t, n: t.replace(
        "...", dots[rank - (n - len(t.replace("...", ""))) :] if n is not None else dots
    )
    terms = [full(t, x.ndim) for t, x in zip(terms, operands)]
    right = full(right, None)
    sizes: dict[str, int] = {}
    for t, x in zip(terms, operands):
        for c, n in zip(t, x.shape):
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    y = np.zeros([sizes[c] for c in right])
    for place in np.ndindex(*sizes.values()):
        at = dict(zip(sizes, place))
        y[tuple(at[c] for c in right)] += math.prod(
            x[tuple(min(at[c], n - 1) for c, n in zip(t, x.shape))] for t, x in zip(terms, operands)
        )
    return y


add(
    "einsum",
    _einsum_reference,
    _einsum,
    call=lambda *xs, subscripts: mg.einsum(subscripts, *xs),
    errors=[
        (
            lambda: mg.einsum("ij,jk->ik", np.ones((2, 3)), np.ones((4, 5))),
            ValueError,
            r"einsum: .*\(2, 3\).*\(4, 5\).*'ij,jk->ik'",
        ),
        (
            lambda: mg.einsum([0, 1], np.ones(2)),
            TypeError,
            "einsum: expected subscripts as a string, got a list",
        ),
    ],
)


def _matrix(d: Draw) -> Sample:
    return Sample([d.array(d.shape(2, 3, 1))], {})


def _with_offset(d: Draw) -> Sample:
    return Sample([d.array(d.shape(2, 3, 1))], {"k": d.one_of(-1, 0, 1, 2)})


add(
    "tril",
    lambda x, k: x * (np.arange(x.shape[-1]) <= np.arange(x.shape[-2])[:, None] + k),
    _with_offset,
)
add(
    "triu",
    lambda x, k: x * (np.arange(x.shape[-1]) >= np.arange(x.shape[-2])[:, None] + k),
    _with_offset,
)


def _diagonal(d: Draw) -> Sample:
    x = d.array(d.shape(2, 3, 1))
    first, second = (int(a) for a in d.rng.permutation(x.ndim)[:2])
    return Sample(
        [x], {"offset": d.one_of(-1, 0, 1), "axis1": first, "axis2": second - d.one_of(0, x.ndim)}
    )


add("diagonal", np.diagonal, _diagonal)
add("trace", np.trace, _diagonal)
add(
    "diag",
    np.diag,
    lambda d: Sample([d.array(d.shape(1, 2, 1))], {"k": d.one_of(-1, 0, 1)}),
    errors=[
        (
            lambda: mg.diag(np.ones((2, 2, 2))),
            ValueError,
            r"diag: expected a vector or a matrix, got shape \(2, 2, 2\)",
        )
    ],
)


def _regular(d: Draw, n: int, batch: tuple[int, ...]) -> np.ndarray:
    return d.array((*batch, n, n), -1, 1) + np.eye(n) * (n + 1)


def _square(d: Draw) -> Sample:
    return Sample([_regular(d, d.one_of(1, 2, 3), d.shape(0, 1, 1, 2))])


_not_square = lambda name: (
    lambda: getattr(mg, name)(np.ones((2, 3))),
    ValueError,
    rf"{name}: .*\(2, 3\)",
)
_singular = lambda name: (
    lambda: getattr(mg, name)(np.zeros((2, 2))),
    np.linalg.LinAlgError,
    rf"{name}: .*\(2, 2\)",
)


def _adjugate_inverse(x: np.ndarray) -> np.ndarray:
    return np.stack(
        [
            np.stack([np.linalg.lstsq(m, e, rcond=None)[0] for e in np.eye(m.shape[-1])], -1)
            for m in x.reshape(-1, *x.shape[-2:])
        ]
    ).reshape(x.shape)


def _leibniz(x: np.ndarray) -> np.ndarray:
    n = x.shape[-1]
    total = np.zeros(x.shape[:-2])
    for p in itertools.permutations(range(n)):
        inversions = sum(p[i] > p[j] for i in range(n) for j in range(i + 1, n))
        total += (-1) ** inversions * np.prod([x[..., i, p[i]] for i in range(n)], axis=0)
    return total


add("inv", _adjugate_inverse, _square, errors=[_not_square("inv"), _singular("inv")])
add("det", _leibniz, _square, errors=[_not_square("det")])
add(
    "logabsdet",
    lambda x: np.log(np.abs(_leibniz(x))),
    _square,
    call=OPS["logabsdet"].function,
    analytic=False,
)
add(
    "slogdet",
    lambda x: [np.sign(_leibniz(x)), np.log(np.abs(_leibniz(x)))],
    _square,
    analytic=False,
)


def _solve(d: Draw) -> Sample:
    n = d.one_of(1, 2, 3)
    a = _regular(d, n, d.shape(0, 1, 1, 2))
    return Sample([a, d.array((n,) if d.bool() else (*a.shape[:-2], n, 2))])


add(
    "solve",
    lambda a, b: _adjugate_inverse(a) @ b,
    _solve,
    errors=[
        (
            lambda: mg.solve(np.ones((2, 2)), np.ones(3)),
            ValueError,
            r"solve: .*a \(2, 2\) float64, b \(3,\) float64",
        )
    ],
)


def _positive(d: Draw) -> Sample:
    a = _square(d).operands[0]
    return Sample([a @ a.swapaxes(-1, -2)])


def _crout(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    for j in range(x.shape[-1]):
        y[..., j, j] = np.sqrt(x[..., j, j] - (y[..., j, :j] ** 2).sum(-1))
        for i in range(j + 1, x.shape[-1]):
            y[..., i, j] = (x[..., i, j] - (y[..., i, :j] * y[..., j, :j]).sum(-1)) / y[..., j, j]
    return y


add(
    "cholesky",
    _crout,
    _positive,
    call=lambda x: mg.cholesky(
        (x + mg.swapaxes(x, -1, -2)) / 2
    ),  # of the symmetric part, which it presumes
    analytic=False,
    errors=[
        (
            lambda: mg.cholesky(-np.eye(2)),
            np.linalg.LinAlgError,
            r"cholesky: .*positive definite.*\(2, 2\)",
        )
    ],
)

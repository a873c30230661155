"""Derivatives of decompositions of matrices with equal eigenvalues, or equal or zero singular values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg

RNG = np.random.default_rng(0)
Q = np.linalg.qr(RNG.standard_normal((4, 4)))[0]
EQUAL = Q @ np.diag([2.0, 2.0, 2.0, -1.0]) @ Q.T  # symmetric, with a threefold eigenvalue
EXACT = np.diag([2.0, 2.0, 5.0])  # equal to the last bit
LOW_RANK = RNG.standard_normal((4, 2)) @ RNG.standard_normal((2, 3))
INVERSE = np.linalg.pinv(LOW_RANK)
Function = Callable[[Any], Any]

UNIQUE: dict[str, tuple[Function, np.ndarray, np.ndarray]] = {
    "eigvalsh": (lambda x: (mg.linalg.eigvalsh(x) ** 3).sum(), EQUAL, 3 * EQUAL @ EQUAL),
    "eigh": (lambda x: mg.linalg.eigh(x)[0].sum(), EXACT, np.eye(3)),
    "svdvals": (lambda x: (mg.linalg.svdvals(x) ** 2).sum(), EQUAL, 2 * EQUAL),
    "svdvals of low rank": (lambda x: (mg.linalg.svdvals(x) ** 2).sum(), LOW_RANK, 2 * LOW_RANK),
    "pinv of low rank": (
        lambda x: (mg.linalg.pinv(x, rcond=1e-10) ** 2).sum(), LOW_RANK,
        -2 * INVERSE.T @ INVERSE @ INVERSE.T,
    ),
    "nuclear norm": (lambda x: mg.linalg.norm(x, "nuc"), EQUAL, Q @ np.diag([1, 1, 1, -1]) @ Q.T),
}  # fmt: skip
"""A function with a unique derivative, a matrix, and the derivative."""


@pytest.mark.parametrize("name", UNIQUE)
def test_gradient_of_unique_result_equals_its_formula(name: str) -> None:
    function, x, expected = UNIQUE[name]
    np.testing.assert_allclose(mg.grad(function)(x).data, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "decompose", [lambda x: mg.linalg.eigh(x)[1], lambda x: mg.linalg.svd(x)[0]]
)
def test_gradient_of_vectors_that_are_not_unique_is_not_finite(decompose: Function) -> None:
    weights = RNG.standard_normal((3, 3))
    assert not np.isfinite(mg.grad(lambda x: (decompose(x) * weights).sum())(EXACT).data).all()

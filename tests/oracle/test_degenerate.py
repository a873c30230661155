"""Decompositions of matrices with equal eigenvalues, or with equal or zero singular values, as in PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")

RNG = np.random.default_rng(0)
Q = np.linalg.qr(RNG.standard_normal((4, 4)))[0]
EQUAL = Q @ np.diag([2.0, 2.0, 2.0, -1.0]) @ Q.T  # symmetric, with a threefold eigenvalue
EXACT = np.diag([2.0, 2.0, 5.0])  # equal to the last bit
LOW_RANK = RNG.standard_normal((4, 2)) @ RNG.standard_normal((2, 3))
WEIGHTS = RNG.standard_normal((3, 3))
Function = Callable[[Any, Any], Any]


def gradients(f: Function, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients of f(library, x) in both libraries."""
    leaf = torch.tensor(x, requires_grad=True)
    f(torch, leaf).backward()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return mg.grad(lambda x: f(mg, x))(x).data, leaf.grad.numpy()


UNIQUE: dict[str, tuple[Function, np.ndarray]] = {
    "eigvalsh": (lambda m, x: (m.linalg.eigvalsh(x) ** 3).sum(), EQUAL),
    "eigh": (lambda m, x: m.linalg.eigh(x)[0].sum(), EXACT),
    "svdvals": (lambda m, x: (m.linalg.svdvals(x) ** 2).sum(), EQUAL),
    "svdvals of low rank": (lambda m, x: (m.linalg.svdvals(x) ** 2).sum(), LOW_RANK),
    "pinv of low rank": (
        lambda m, x: (m.linalg.pinv(x, **{"rcond" if m is mg else "rtol": 1e-10}) ** 2).sum(), LOW_RANK,
    ),
    "nuclear norm": (lambda m, x: m.linalg.norm(x, "nuc"), EQUAL),
}  # fmt: skip


@pytest.mark.parametrize("name", UNIQUE)
def test_gradient_of_unique_result_equals_pytorch(name: str) -> None:
    found, expected = gradients(*UNIQUE[name])
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


VECTORS: dict[str, Function] = {
    "eigh": lambda m, x: (m.linalg.eigh(x)[1] * m.tensor(WEIGHTS)).sum(),
    "svd": lambda m, x: (m.linalg.svd(x)[0] * m.tensor(WEIGHTS)).sum(),
}


@pytest.mark.parametrize("name", VECTORS)
def test_gradient_of_vectors_that_are_not_unique_is_not_finite(name: str) -> None:
    found, expected = gradients(VECTORS[name], EXACT)
    assert not np.isfinite(expected).all() and not np.isfinite(found).all()

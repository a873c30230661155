"""Decompositions where their derivatives stop to exist: equal eigenvalues, equal and zero singular values; as PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg

torch = pytest.importorskip("torch", reason="PyTorch is the truth here")

RNG = np.random.default_rng(0)
Q = np.linalg.qr(RNG.standard_normal((4, 4)))[0]
EQUAL = Q @ np.diag([2.0, 2.0, 2.0, -1.0]) @ Q.T  # symmetric, an eigenvalue three times
EXACT = np.diag([2.0, 2.0, 5.0])  # equal to the last bit
LOW_RANK = RNG.standard_normal((4, 2)) @ RNG.standard_normal((2, 3))
ZERO = np.diag([3.0, 1.0, 0.0])
WEIGHTS = RNG.standard_normal((3, 3))


def gradients(
    ours: Callable[[Any], Any], theirs: Callable[[Any], Any], x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    leaf = torch.tensor(x, requires_grad=True)
    theirs(leaf).backward()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return mg.grad(ours)(x), leaf.grad.numpy()


UNIQUE: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any], np.ndarray]] = [
    ("eigvalsh", lambda x: (mg.linalg.eigvalsh(x) ** 3).sum(), lambda x: (torch.linalg.eigvalsh(x) ** 3).sum(), EQUAL),
    ("eigh values", lambda x: mg.linalg.eigh(x)[0].sum(), lambda x: torch.linalg.eigh(x)[0].sum(), EXACT),
    ("svdvals", lambda x: (mg.linalg.svdvals(x) ** 2).sum(), lambda x: (torch.linalg.svdvals(x) ** 2).sum(), EQUAL),
    ("svdvals, low rank", lambda x: (mg.linalg.svdvals(x) ** 2).sum(), lambda x: (torch.linalg.svdvals(x) ** 2).sum(), LOW_RANK),
    ("pinv, low rank", lambda x: (mg.linalg.pinv(x, rcond=1e-10) ** 2).sum(), lambda x: (torch.linalg.pinv(x, rtol=1e-10) ** 2).sum(), LOW_RANK),
    ("nuclear norm", lambda x: mg.linalg.norm(x, "nuc"), lambda x: torch.linalg.norm(x, "nuc"), EQUAL),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "x"), [case[1:] for case in UNIQUE], ids=[case[0] for case in UNIQUE]
)
def test_what_is_unique_has_its_derivative(ours: Any, theirs: Any, x: np.ndarray) -> None:
    found, expected = gradients(ours, theirs, x)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


VECTORS: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any], np.ndarray]] = [
    ("eigh, equal", lambda x: (mg.linalg.eigh(x)[1] * WEIGHTS).sum(), lambda x: (torch.linalg.eigh(x)[1] * torch.tensor(WEIGHTS)).sum(), EXACT),
    ("svd, equal", lambda x: (mg.linalg.svd(x)[0] * WEIGHTS).sum(), lambda x: (torch.linalg.svd(x)[0] * torch.tensor(WEIGHTS)).sum(), EXACT),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "x"), [case[1:] for case in VECTORS], ids=[case[0] for case in VECTORS]
)
def test_vectors_that_are_not_unique_have_no_number_for_a_derivative(
    ours: Any, theirs: Any, x: np.ndarray
) -> None:
    found, expected = gradients(ours, theirs, x)
    assert not np.isfinite(expected).all() and not np.isfinite(found).all()

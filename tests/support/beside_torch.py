"""Results of minigrad beside PyTorch's: values, and gradients for a random cotangent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
rng = np.random.default_rng(0)


def agree(
    leaves: list[tuple[Tensor, Any]],
    y: Tensor,
    their_y: Any,
    tolerance: float = 1e-10,
    of_gradients: float | None = None,
) -> None:
    """Outputs agree, and so do the gradients of each (our leaf, their leaf) for one random cotangent.

    `tolerance` is relative and absolute; `of_gradients` replaces the relative one for gradients.
    """
    np.testing.assert_allclose(y.data, their_y.detach().numpy(), rtol=tolerance, atol=tolerance)
    g = rng.standard_normal(y.shape)
    found = mg.gradients(y, [mine for mine, _ in leaves], g)
    expected = torch.autograd.grad(their_y, [theirs for _, theirs in leaves], torch.tensor(g))
    for a, b in zip(found, expected):
        np.testing.assert_allclose(
            a.data, b.numpy(), rtol=of_gradients or tolerance, atol=tolerance
        )

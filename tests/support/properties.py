"""Random values and numerical derivatives for properties of layers and models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import minigrad as mg
import nn

seeds = st.integers(0, 2**32 - 1)
"""Seeds of bulk values. What selects a branch of the code is drawn instead."""


def normal(seed: Any, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def perturb(model: nn.Module, seed: int) -> nn.Module:
    """Add noise to all parameters, so that no bias is 0 and no two norms are equal."""
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data += (0.3 * rng.standard_normal(p.shape)).astype(p.dtype)
    return model


def assert_gradients(f: Callable[[], Any], leaves: Sequence[mg.Tensor], seed: int) -> None:
    """Compare the derivative of f() along a random direction of all leaves with differences.

    The results of `f` are weighted by a random cotangent. A step that crosses the kink of a ReLU
    gives another difference, so one of three steps has to agree.
    """
    rng = np.random.default_rng([seed, 1])
    y = f()
    g = rng.standard_normal(y.shape)
    grads = [None if c is None else c.data for c in mg.gradients(y, leaves, g, allow_unused=True)]
    starts = [leaf.data.copy() for leaf in leaves]
    directions = [rng.standard_normal(x.shape) for x in starts]
    derivative = sum(float((c * d).sum()) for c, d in zip(grads, directions) if c is not None)
    size = 1 + sum(float(np.abs(c * d).sum()) for c, d in zip(grads, directions) if c is not None)
    numerical = []
    for step in (1e-5, 1e-6, 1e-7):
        sums = []
        for t in (step, -step):
            for leaf, x, d in zip(leaves, starts, directions):
                leaf.data[...] = x + t * d
            with mg.no_grad():
                sums.append(float((f().data * g).sum()))
        numerical.append((sums[0] - sums[1]) / (2 * step))
        if abs(derivative - numerical[-1]) < 1e-6 * size:
            break
    for leaf, x in zip(leaves, starts):
        leaf.data[...] = x
    assert abs(derivative - numerical[-1]) < 1e-6 * size, (derivative, numerical)

"""Kernels, their definitions and reductions of numbers beside the limits of exponentials and formats."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.environment import max_examples
from support.limits import value_limits

import minigrad as mg
from minigrad import Tensor

KEYS, VALUES = np.eye(4)[None, None], np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 1.0], [2.0, 0.0]])
WEIGHT = np.array([0.5, 1.0, 2.0, 0.25])


def attend(x: Tensor) -> Tensor:
    """Attend with scores x: the keys are unit vectors."""
    keys, values = (a.astype(x.dtype) for a in (KEYS, VALUES[None, None]))
    return mg.scaled_dot_product_attention(x[None, None], keys, values, scale=1.0)


def linear_loss(x: Tensor) -> Tensor:
    return mg.linear_cross_entropy(x, np.eye(4, dtype=x.dtype), np.arange(len(x)) % 4)


FUNCTIONS: dict[str, tuple[Any, float]] = {
    "softmax": (mg.softmax, np.inf),
    "masked softmax": (lambda x: mg.softmax(x, where=[True, False, True, True]), np.inf),
    "log_softmax": (mg.log_softmax, np.inf),
    "logsumexp": (lambda x: mg.logsumexp(x, axis=-1), np.inf),
    "logaddexp": (lambda x: np.logaddexp(x[:, :2], x[:, 2:]), np.inf),
    "cross_entropy": (lambda x: mg.cross_entropy(x, np.arange(len(x)) % 4), np.inf),
    "smooth cross_entropy": (
        lambda x: mg.cross_entropy(x, np.arange(len(x)) % 4, weight=WEIGHT, label_smoothing=0.1),
        1e9,
    ),
    "linear_cross_entropy": (linear_loss, np.inf),
    "binary_cross_entropy_with_logits": (
        lambda x: mg.binary_cross_entropy_with_logits(x, 0.25 * np.ones(x.shape, x.dtype)),
        1e9,
    ),
    "attention": (attend, np.inf),
    "gelu": (mg.gelu, np.inf),
    "approximate gelu": (lambda x: mg.gelu(x, approximate="tanh"), 1e12),
    "silu": (mg.silu, np.inf),
    "softplus": (lambda x: mg.softplus(x, 2.0), 1e9),
    "layer_norm": (mg.layer_norm, 1e6),
    "rms_norm": (lambda x: mg.rms_norm(x, eps=1e-6), 1e6),
}
"""Functions of rows of four numbers, and the largest number for which float32 has all digits."""


KERNELS = ("cross_entropy", "linear_cross", "attention", "gelu", "silu", "layer_norm", "rms_norm")
CASES = [(name, True) for name in FUNCTIONS]
CASES += [(name, False) for name in FUNCTIONS if any(kernel in name for kernel in KERNELS)]
ROWS = st.tuples(st.integers(1, 2), st.just(4))
SMALL = arrays(np.float32, ROWS, elements=st.floats(-3, 3, width=32, allow_subnormal=False))
IS_LIMIT = {n: st.just(True) | arrays(bool, (n, 4)) for n in (1, 2)}


@cache
def limits(largest: float) -> st.SearchStrategy[list[float]]:
    values = st.sampled_from(value_limits(np.float32, largest).tolist())
    return st.lists(values, min_size=12, max_size=12)


@pytest.mark.parametrize(("name", "is_kernel"), CASES)
@max_examples(8)
@given(st.data())
def test_function_beside_limits_of_values_agrees_with_float64(
    name: str, is_kernel: bool, data: st.DataObject
) -> None:
    """Equal elements reach limits of sums, which no element reaches."""
    function, largest = FUNCTIONS[name]
    small = data.draw(SMALL, "small")
    is_limit = data.draw(IS_LIMIT[len(small)], "is_limit")
    for limit in data.draw(limits(largest), "limits"):
        x = np.where(is_limit, np.float32(limit), small)
        results = []
        for dtype in (np.float32, np.float64):
            leaf = Tensor(x.astype(dtype), requires_grad=True)
            with nullcontext() if is_kernel else mg.use_definitions(), np.errstate(all="ignore"):
                y = function(leaf)
                (g,) = mg.gradients(
                    y, leaf, np.cos(np.arange(y.size, dtype=dtype)).reshape(y.shape)
                )
            assert y.dtype == dtype and g.dtype == dtype
            results.append((y.data, g.data))
        for narrow, exact in zip(*results):
            far = (np.abs(exact) > np.finfo(np.float32).max / 16) & np.isinf(narrow)
            exact = np.where(far, np.copysign(np.inf, exact), exact)
            atol = 1e-6 + 1e-5 * np.abs(exact[np.isfinite(exact)]).max(initial=0)
            np.testing.assert_allclose(narrow, exact, rtol=3e-5, atol=atol, err_msg=str(x))

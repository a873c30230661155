"""Integers, booleans and lists as operands of ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, bool, np.float32])
def test_sort_descending_keeps_equal_elements_in_order(dtype: Any) -> None:
    """NaN comes last, as in NumPy from 2.5 on."""
    x = np.array([3, 0, 127, -128, 127, 0]).astype(dtype)  # -128 has no negative in 8 bits
    order = sorted(range(6), key=x.tolist().__getitem__, reverse=True)
    assert mg.argsort(x, stable=True, descending=True).tolist() == order
    for y in (mg.sort(x, descending=True), mg.top_k(x, 6).values):
        np.testing.assert_array_equal(y.data, x[order])
    np.testing.assert_array_equal(mg.sort([1.0, np.nan, 2.0], descending=True), [2, 1, np.nan])


@pytest.mark.parametrize(
    "f", [mg.power, mg.xlogy, mg.hypot, mg.arctan2, mg.divide, mg.logaddexp, mg.logaddexp2]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_binary_op_of_tensor_and_small_integers_computes_in_floats(f: Any, dtype: Any) -> None:
    """NumPy's logarithm of 8 bits has 11 bits, and 0 - 1 is 255 in 8 bits."""
    integers = np.array([100, 7, 3, 0, 1], dtype)
    for turn in (1, -1):
        results = []
        for other in (integers, integers.astype(float)):
            x = Tensor([0.7, 20.0, 0.9, 1.5, 2.6], requires_grad=True)
            with np.errstate(divide="ignore"):
                y = f(*(x, other)[::turn])
                results.append((y.data, mg.gradients(y.sum(), x)[0].data))
        for value, expected in zip(*results):
            np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_mean_and_var_of_small_integers_do_not_wrap_around() -> None:
    where = np.ones(300, bool)
    assert mg.mean(where, where=where).item() == 1
    assert mg.var(np.arange(300, dtype=np.uint8) % 2, where=where).item() == 0.25


def test_interp_of_falling_small_integers_does_not_wrap_around() -> None:
    heights = np.array([9, 4, 6], np.uint8)
    y = np.interp([0.5, 1.5], Tensor([0.0, 1.0, 2.0], requires_grad=True), heights)
    np.testing.assert_allclose(y.data, [6.5, 5.0])

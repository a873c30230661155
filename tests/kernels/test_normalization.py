"""Normalization and variances of values that are far from 0, or all equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor

WIDTHS = [1, 2, 3, 64, 511, 512, 1000, 4097]
CONSTANTS = [1.0, 0.1, -12345.678, 1e8, 3e-5]


def batch_norm(rows: np.ndarray) -> Tensor:
    return nn.BatchNorm1d(len(rows))(np.ascontiguousarray(rows.T))


def inference_norm(rows: np.ndarray) -> Tensor:
    width = rows.shape[1]
    layer = nn.for_inference(nn.Sequential(nn.LayerNorm(width)))
    return mg.concatenate([layer(row[None]) for row in rows])


def layer_norm_by_definition(rows: np.ndarray) -> Tensor:
    with mg.use_definitions("row_norm"):
        return mg.layer_norm(rows)


CENTRING: list[Callable[[np.ndarray], Tensor]] = [
    mg.layer_norm,
    layer_norm_by_definition,
    inference_norm,
    batch_norm,
    lambda rows: mg.var(rows, -1),
    lambda rows: mg.std(rows, -1),
    lambda rows: mg.var(rows, -1, where=np.ones(rows.shape, bool)),
    lambda rows: mg.nanvar(rows, -1),
    lambda rows: mg.nanstd(rows, -1),
    lambda rows: mg.var(rows.astype(np.float16), -1),
    lambda rows: mg.cov(rows, dtype=np.float64),
]


@pytest.mark.parametrize("centre", CENTRING)
@pytest.mark.parametrize("width", WIDTHS[1:])
def test_rows_of_equal_values_have_no_variance(centre: Any, width: int) -> None:
    constants = [c for c in CONSTANTS if abs(c) < 1e8] if "float16" in repr(centre) else CONSTANTS
    rows = np.repeat(np.array(constants, np.float32)[:, None], width, axis=1)
    y = centre(rows if centre is not CENTRING[-2] else np.clip(rows, -6e4, 6e4))
    np.testing.assert_allclose(y.data, 0, atol=1e-18)


@pytest.mark.parametrize("width", WIDTHS[1:])
@pytest.mark.parametrize("mean", [1e3, -300.0])
def test_layer_norm_far_from_zero_matches_double_precision(width: int, mean: float) -> None:
    rng = np.random.default_rng(width)
    rows = (mean + rng.standard_normal((5, width))).astype(np.float32)
    g = rng.standard_normal(rows.shape)
    results = []
    for dtype in (np.float64, np.float32):
        for layer_norm in (mg.layer_norm, layer_norm_by_definition):
            x = Tensor(rows.astype(dtype), requires_grad=True)
            y = layer_norm(x)
            y.backward(g.astype(dtype))
            results.append((y.data, x.grad.data))
    for y, gradient in results[1:]:
        np.testing.assert_allclose(y, results[0][0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(gradient, results[0][1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("values", [[1.4e19, -1.4e19] * 4, [1e20] + [0.0] * 199, [3e38] * 9])
def test_variance_whose_squares_overflow_is_finite(values: list[float]) -> None:
    x = Tensor(np.array(values, np.float32), requires_grad=True)
    wide = x.data.astype(float)
    y = mg.var(x)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.data, np.var(wide), rtol=1e-6)
    y.backward()
    np.testing.assert_allclose(x.grad.data, 2 * (wide - wide.mean()) / len(wide), rtol=1e-6)


def test_std_whose_variance_overflows_is_finite() -> None:
    x = np.array([1e20, -1e20], np.float32)
    np.testing.assert_allclose(mg.std(x).data, 1e20, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_attention_to_masked_keys_that_are_not_finite_matches_its_definition(
    value: float, scale: float
) -> None:
    """A masked score does not count, whatever it is; a score that is NaN and not masked does."""
    rng = np.random.default_rng(0)
    q, k, v, g = scale * rng.standard_normal((4, 2, 2, 5, 2))
    k[0, :, 3] = value
    k[1, :, 2] = np.nan
    mask = np.ones((2, 1, 5, 5), bool)
    mask[0, 0, :, 3] = False
    mask[1, 0, :3, 2] = False
    results = []
    for names in ((), ("attention",)):
        with mg.use_definitions(*names) if names else mg.enable_grad(), np.errstate(all="ignore"):
            leaves = [Tensor(x, requires_grad=True) for x in (q, k, v)]
            y = mg.scaled_dot_product_attention(*leaves, mask=mask)
            y.backward(g)
        results.append([y.data, *[x.grad.data for x in leaves]])
    for kernel, definition in zip(*results):
        np.testing.assert_allclose(kernel, definition, rtol=1e-8, atol=1e-12 * scale**4)
    assert np.isfinite(results[0][0][0]).all() and np.isnan(results[0][0][1, :, 3:]).all()

"""Normalization and variances of values that are far from 0, or all equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor

WIDTHS = [2, 3, 511, 512, 4097]
CONSTANTS = [1.0, 0.1, -12345.678, 3e-5, 1e8]


def layer_norm_by_definition(rows: Any) -> Tensor:
    with mg.use_definitions("row_norm"):
        return mg.layer_norm(rows)


def inference_norm(rows: np.ndarray) -> Tensor:
    layer = nn.for_inference(nn.Sequential(nn.LayerNorm(rows.shape[1])))
    return mg.concatenate([layer(row[None]) for row in rows])


CENTRED: dict[str, Any] = {
    "layer_norm": mg.layer_norm,
    "definition": layer_norm_by_definition,
    "inference": inference_norm,
    "batch_norm": lambda rows: nn.BatchNorm1d(len(rows))(np.array(rows.T)),
    "var, where": lambda rows: mg.var(rows, -1, where=np.ones(rows.shape, bool)),
    "nanvar": lambda rows: mg.nanvar(rows, -1),
    "var of float16": lambda rows: mg.var(rows[:-1].astype(np.float16), -1),
    "cov": lambda rows: mg.cov(rows.astype(np.float64)),
}


@pytest.mark.parametrize("name", CENTRED)
@pytest.mark.parametrize("width", WIDTHS)
def test_normalization_of_equal_values_finds_no_variance(name: str, width: int) -> None:
    rows = np.repeat(np.array(CONSTANTS, np.float32)[:, None], width, axis=1)
    np.testing.assert_allclose(CENTRED[name](rows).data, 0, atol=1e-18)


@pytest.mark.parametrize("width", WIDTHS)
def test_layer_norm_of_one_row_of_equal_values_is_zero(width: int) -> None:
    """A row is corrected for rounding whether it is far above zero or far below."""
    for constant in (*CONSTANTS, *(-c for c in CONSTANTS)):
        rows = np.full((1, width), constant, np.float32)
        np.testing.assert_allclose(mg.layer_norm(rows).data, 0, atol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("layer_norm", [mg.layer_norm, layer_norm_by_definition])
@pytest.mark.parametrize("mean", [1e3, -1e3])
def test_layer_norm_far_from_zero_equals_double_precision(
    mean: float, width: int, layer_norm: Any
) -> None:
    rng = np.random.default_rng(width)
    rows = (mean + rng.standard_normal((5, width))).astype(np.float32)
    g = rng.standard_normal(rows.shape)
    results = []
    for f, dtype in ((mg.layer_norm, np.float64), (layer_norm, np.float32)):
        x = Tensor(rows.astype(dtype), requires_grad=True)
        y = f(x)
        results.append((y.data, mg.gradients(y, x, g.astype(dtype))[0].data))
    for expected, found in zip(*results):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("values", [[1.4e19, -1.4e19] * 4, [1e20] + [0.0] * 199, [3e38] * 9])
def test_variance_whose_squares_overflow_is_finite(values: list[float]) -> None:
    wide = np.array(values)
    value, gradient = mg.value_and_grad(mg.var)(wide.astype(np.float32))
    assert value.dtype == np.float32
    np.testing.assert_allclose(value.data, np.var(wide), rtol=1e-6)
    np.testing.assert_allclose(gradient.data, 2 * (wide - wide.mean()) / len(wide), rtol=1e-6)


def test_std_whose_variance_overflows_is_finite() -> None:
    np.testing.assert_allclose(mg.std(np.array([1e20, -1e20], np.float32)).data, 1e20, rtol=1e-6)


def test_layer_norm_far_from_zero_does_not_depend_on_another_row_of_nan() -> None:
    rows = (1e5 + np.random.default_rng(0).standard_normal((3, 513))).astype(np.float32)
    expected = mg.layer_norm(rows).data[1:]
    rows[0] = np.nan
    np.testing.assert_array_equal(mg.layer_norm(rows).data[1:], expected)

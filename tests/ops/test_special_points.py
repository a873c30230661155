"""Values and derivatives where formulas fail: at zeros, ties, infinities, NaN, and far from 0.

Points at which PyTorch has the same derivatives are in `tests/oracle/test_special_values.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor

NAN, INF = math.nan, math.inf
ROWS = np.arange(1.0, 10.0).reshape(3, 3)  # singular
ZEROS = np.zeros((2, 2))
MASK = np.array([[True, False], [False, False]])

GRADIENTS: list[tuple[str, Any, Any, Any]] = [
    ("maximum of one tensor", lambda x: mg.maximum(x, x), 2.0, 1),
    ("max of NaN", np.max, [1, NAN, NAN, 3], [0, 0.5, 0.5, 0]),
    ("median between an infinity", np.median, [-INF, -1], [0.5, 0.5]),
    ("median beside an infinity", np.median, [INF, 1, 2], [0, 0, 1]),
    ("median of huge values", np.median, [1e308, 1.5e308, 1.2e308], [0, 0, 1]),
    ("power of base and exponent 0", lambda x: x[0] ** x[1], [0.0, 0.0], [0, 0]),
    ("prod of tiny values", np.prod, [1e-200, 2e-200], [2e-200, 1e-200]),
    ("det of a singular matrix", np.linalg.det, ROWS, [[-3, 6, -3], [6, -12, 6], [-3, 6, -3]]),
    ("arctan2 of tiny values", lambda x: np.arctan2(x, 1e-200), 1e-200, 5e199),
    ("norm of zeros, times x", lambda x: np.linalg.norm(x * np.zeros(3)), 1.0, 0),
    ("logsumexp of -inf", mg.logsumexp, [-INF, -INF], [0, 0]),
    ("masked softmax", lambda x: mg.softmax(x, where=MASK)[:, 0], [[1, 2], [3, INF]], ZEROS),
    ("where with an infinity", lambda x: mg.where(x > 5, INF, x), [1.0, 1.0], [1, 1]),
    ("log behind where", lambda x: np.where(x > 0, np.log(x), 0), [0, 1, 0.5], [0, 1, 2]),
    ("std of equal values", np.std, [2.5, 2.5], [0, 0]),
    ("quantile by its rank", lambda q: mg.quantile([5, 1, 2.0], q), [0, 0.5, 1], [2, 6, 6]),
]


@pytest.mark.parametrize(
    "f, x, expected", [c[1:] for c in GRADIENTS], ids=[c[0] for c in GRADIENTS]
)
def test_gradient_at_special_point(f: Any, x: Any, expected: Any) -> None:
    with np.errstate(divide="ignore"):  # of the branch of a `where` that is not taken
        g = mg.grad(lambda x: f(x).sum())(np.array(x, float))
    np.testing.assert_allclose(g.data, expected, rtol=1e-12, atol=1e-12 if x is ROWS else 0)


HESSIANS: list[tuple[str, Any, Any, Any]] = [
    ("prod of zeros", np.prod, [0.0, 0.0], [[0, 1], [1, 0]]),
    ("hypot", lambda x: np.hypot(x[0], x[1]), [0, 0], ZEROS),
    ("arctan2", lambda x: np.arctan2(x[0], x[1]), [0, 0], ZEROS),
    ("norm", np.linalg.norm, [0, 0], ZEROS),
    ("std", np.std, [2, 2], ZEROS),
    ("nanstd", np.nanstd, [2, 2], ZEROS),
    ("huber_loss", lambda x: mg.huber_loss(x, [1, 1], reduction="sum"), [1, 1], np.eye(2)),
    ("smooth_l1_loss", lambda x: mg.smooth_l1_loss(x, [1, 1], reduction="sum"), [1, 1], np.eye(2)),
]


@pytest.mark.parametrize("f, x, expected", [c[1:] for c in HESSIANS], ids=[c[0] for c in HESSIANS])
def test_hessian_at_special_point(f: Any, x: Any, expected: Any) -> None:
    np.testing.assert_array_equal(mg.hessian(f)(np.array(x, float)).data, expected)


VALUES: list[tuple[str, Any, Any, Any]] = [
    ("sigmoid", mg.sigmoid, -40.0, math.exp(-40)),
    ("softplus", mg.softplus, -40.0, math.exp(-40)),
    ("log_sigmoid", mg.log_sigmoid, -1000.0, -1000),
    ("softmax", mg.softmax, [1e4, 0.0, -1e4], [1, 0, 0]),
    ("log_softmax", mg.log_softmax, [1e4, 0.0, -1e4], [0, -1e4, -2e4]),
    ("logsumexp", mg.logsumexp, [1e4, 0.0, -1e4], 1e4),
    ("masked softmax", lambda x: mg.softmax(x, where=MASK), [[1, 2], [3, INF]], [[1, 0], [0, 0]]),
    ("quantile below an infinity", lambda x: mg.quantile(x, 0.5), [1.0, 2.0, INF], 2),
    ("quantile of integer ranks", lambda x: mg.quantile(x, [0, 1]), [4.0, 1.0, 2.0], [1, 4]),
    ("remainder", lambda x: mg.remainder(x, 7.0), [1e17, -1e17], np.remainder([1e17, -1e17], 7)),
    ("softmax of integers", mg.softmax, np.array([1, 1]), [0.5, 0.5]),
    ("logsumexp of integers", mg.logsumexp, np.array([1, 1]), 1 + math.log(2)),
]


@pytest.mark.parametrize("f, x, expected", [c[1:] for c in VALUES], ids=[c[0] for c in VALUES])
def test_value_at_special_point(f: Any, x: Any, expected: Any) -> None:
    x = np.array(x)
    np.testing.assert_allclose(f(Tensor(x, x.dtype.kind == "f")).data, expected, rtol=1e-14)


@pytest.mark.parametrize("x", [-1000.0, 1000.0])
@pytest.mark.parametrize(
    "f",
    [mg.sigmoid, mg.softplus, mg.silu, mg.gelu, mg.elu, np.tanh, mg.log_sigmoid, np.arctan, mg.erf],
)
def test_value_and_gradient_far_from_zero_are_finite(f: Any, x: float) -> None:
    value, slope = mg.value_and_grad(f)(x)
    assert math.isfinite(value.item()) and math.isfinite(slope.item())


def test_erf_equals_the_c_library_up_to_rounding() -> None:
    x = np.concatenate(
        [np.linspace(-7, 7, 5001), np.logspace(-300, 0, 301), [0.46875, 4.0, INF, -INF]]
    )
    np.testing.assert_allclose(mg.erf(x).data, [math.erf(v) for v in x], rtol=5e-16, atol=0)
    assert math.isnan(mg.erf(Tensor(NAN)).item())


@pytest.mark.parametrize("ord", [0.5, 1, 1.5, 2, 3, -0.5, -1, -2, INF, -INF])
@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [2.0, 0.0, -3.0]])
def test_norm_with_zeros_has_finite_gradients(ord: float, values: list[float]) -> None:
    value, gradient = mg.value_and_grad(lambda x: mg.norm(x, ord))(np.array(values))
    np.testing.assert_allclose(
        value.data, np.linalg.norm(values, ord) if ord > 0 else 0, rtol=1e-14
    )
    assert np.isfinite(gradient.data).all() and gradient.data[1] == 0


def test_corrcoef_that_rounding_puts_above_1_has_its_curvature() -> None:
    x = np.array([1.1, 1.9, 1.6])
    centred = x - x.mean()
    correlation = lambda v: np.corrcoef(v, x)[0, 1]
    exact = lambda v: (v * centred).sum() / mg.norm(v - v.mean()) / np.linalg.norm(centred)
    assert correlation(x).item() <= 1
    found, expected = mg.hessian(correlation)(x).data, mg.hessian(exact)(x).data
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# -- third derivatives, where a rule compares a value that is itself differentiated ---------------------


def third_derivatives(f: Any, x: np.ndarray) -> np.ndarray:
    return mg.jacobian(mg.hessian(f))(x).data


@pytest.mark.parametrize("order, expected", [(1, 1.0), (2, 2.0), (3, 6.0), (4, 0.0)])
def test_power_of_zero_has_derivatives_of_any_order(order: int, expected: float) -> None:
    f = lambda x: np.power(x, np.array([0.0, 1.0, 2.0, 3.0])).sum()
    for _ in range(order):
        f = mg.grad(f)
    assert f(0.0).item() == expected


@pytest.mark.parametrize(
    "f",
    [np.sqrt, lambda x: np.arcsin(1 - x), lambda x: np.arccos(1 - x), lambda x: np.arccosh(1 + x)],
)
def test_infinite_slope_of_an_unused_element_gives_third_derivatives_of_zero(f: Any) -> None:
    """An infinite slope times a gradient of zero is zero, to any order."""
    x = np.array([0.0, 1.0, 0.5])
    with np.errstate(divide="ignore"):  # the slope itself
        found = third_derivatives(lambda x: (f(x)[1:] ** 2).sum(), x)
    expected = third_derivatives(lambda x: (f(x) ** 2).sum(), x[1:])
    np.testing.assert_array_equal(found[0], 0)
    np.testing.assert_allclose(found[1:, 1:, 1:], expected, rtol=1e-12)


@pytest.mark.parametrize("smallest", [0.0, 1e-9, 1e-3])
def test_det_of_nearly_singular_matrix_has_third_derivatives_of_its_triple_product(
    smallest: float,
) -> None:
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    x = q @ np.diag([1.0, 2.0, smallest]) @ q.T
    expected = third_derivatives(lambda x: (x[0] * np.cross(x[1], x[2])).sum(), x)
    np.testing.assert_allclose(third_derivatives(np.linalg.det, x), expected, atol=1e-6)

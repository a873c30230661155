"""Values and derivatives where formulas fail: at zeros, ties, infinities, NaN, and far from 0.

Points at which PyTorch has the same derivatives are in `tests/oracle/test_special_values.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.environment import max_examples

import minigrad as mg
from minigrad import Tensor
from minigrad.numpy import elementwise, linalg, special
from minigrad.tensor import DISPATCH

NAN, INF = math.nan, math.inf
ZEROS = np.zeros((2, 2))
MASK = np.array([[True, False], [False, False]])
INFINITE = np.array([[[INF, 1], [0, 1]], [[NAN, 1], [0, 1]], [[0, 0], [0, 0]]])

GRADIENTS: list[tuple[str, Any, Any, Any]] = [
    ("relu and absolute", lambda x: mg.relu(x) + abs(x), [-1, 0, 1], [-1, 0, 2]),
    ("relu of NaN", mg.relu, [-1, NAN], [0, 1]),
    ("clip at its bounds", lambda x: np.clip(x, 0, 1), [-1, 0, 1, 2], [0, 1, 1, 0]),
    ("clip by one limit", lambda a: mg.clip([0, 2, -3], None, a), [1.0, 1.0, -1.0], [0, 1, 0]),
    (
        "high limit below the low one",
        lambda b: np.clip([0, 3, 5], 2, b),
        [1.0, 4.0, 0.5],
        [1, 0, 1],
    ),
    (
        "hypot at infinity",
        lambda x: np.hypot(x, [3.0, INF, 3, INF]),
        [INF, INF, 1, 2],
        [1, 0.5**0.5, 0.1**0.5, 0],
    ),
    (
        "hypot of a subnormal number beside an infinity",
        lambda x: np.hypot(x, [0.0, INF]),
        [5e-324, 1.0],
        [1, 0],
    ),
    ("abs of a complex value at infinity", lambda x: np.abs(x + 0j), [INF, -INF], [1, -1]),
    ("arctan2 at infinity", lambda x: np.arctan2(x, [INF, -2.0]), [3.0, INF], [0, 0]),
    ("logsumexp of large values", mg.logsumexp, [1e17, 1e17], [0.5, 0.5]),
    ("logaddexp of inf", lambda x: np.logaddexp(x[0], x[1]), [INF, INF], [0.5, 0.5]),
    ("logaddexp of -inf", lambda x: np.logaddexp(x[0], x[1]), [-INF, -INF], [0, 0]),
    ("maximum of one tensor", lambda x: mg.maximum(x, x), 2.0, 1),
    ("max of NaN", np.max, [1, NAN, NAN, 3], [0, 0.5, 0.5, 0]),
    ("median between an infinity", np.median, [-INF, -1], [0.5, 0.5]),
    ("power of base and exponent 0", lambda x: x[0] ** x[1], [0.0, 0.0], [0, 0]),
    ("arctan2 of tiny values", lambda x: np.arctan2(x, 1e-200), 1e-200, 5e199),
    ("prod of tiny values", np.prod, [1e-200, 2e-200], [2e-200, 1e-200]),
    ("prod that is subnormal", np.prod, [1e-160, 3e-160], [3e-160, 1e-160]),
    ("cumprod that is subnormal", np.cumprod, [1e-160, 3e-160], [1 + 3e-160, 1e-160]),
    ("logsumexp of -inf", mg.logsumexp, [-INF, -INF], [0, 0]),
    ("logsumexp of infinities", mg.logsumexp, [INF, 1.0, INF, -INF], [0.5, 0, 0.5, 0]),
    ("logsumexp of NaN", mg.logsumexp, [NAN, 1.0], [NAN, NAN]),
    (
        "fmax with NaN",
        lambda x: np.fmax(x, [NAN, 2.0]) + np.fmax([3.0, 1.0], x),
        [1.0, NAN],
        [1, 0],
    ),
    (
        "fmin with NaN",
        lambda x: np.fmin(x, [NAN, 2.0]) + np.fmin([3.0, 1.0], x),
        [1.0, NAN],
        [2, 0],
    ),
    (
        "sinc at the end of its series",
        np.sinc,
        [0.31, 0.318],
        [np.cos(np.pi * x) / x - np.sin(np.pi * x) / (np.pi * x * x) for x in (0.31, 0.318)],
    ),
    ("masked softmax", lambda x: mg.softmax(x, where=MASK)[:, 0], [[1, 2], [3, INF]], ZEROS),
    ("elu far below 0", lambda x: mg.elu(x) + np.expm1(x), -40.0, 2 * math.exp(-40)),
    ("where with an infinity", lambda x: mg.where(x > 5, INF, x), [1.0, 1.0], [1, 1]),
    ("log behind where", lambda x: np.where(x > 0, np.log(x), 0), [0, 1, 0.5], [0, 1, 2]),
    ("quantile by its rank", lambda q: mg.quantile([5, 1, 2.0], q), [0, 0.5, 1], [2, 6, 6]),
    (
        "quantile by the rank of an infinity",
        lambda q: mg.quantile([1.0, INF], q),
        [0.0, 1.0],
        [0, 0],
    ),
    ("xlogy by a factor of 0", lambda a: mg.xlogy(a, 0.0), [0.0, 0.5], [0, -INF]),
    (
        "xlogy of a negative number",
        lambda a: mg.xlogy(a, [-2.0, 2.0]),
        [0.0, 1.0],
        [0, math.log(2)],
    ),
    (
        "copysign of a zero",
        lambda a: np.copysign(a, [1.0, -1.0] * 2),
        [0.0, 0.0, -0.0, -0.0],
        [0] * 4,
    ),
    ("copysign by a negative zero", lambda a: np.copysign(a, -0.0), [2.0, -3.0], [-1, 1]),
    *[
        (f"{f.__name__} with NaN", lambda x, f=f: f(x, [1.0, NAN]) + f(2.0, x), [NAN, 1.0], [2, k])
        for f, k in ((np.minimum, 2), (np.maximum, 1))
    ],
    ("xlogy by 0 times a factor of 0", lambda b: mg.xlogy(0.0, b), [0.0, 2.0], [0, 0]),
    ("log1p behind where", lambda x: np.where(x > 0, np.log1p(x), 0), [-1.0, 1.0], [0, 0.5]),
    ("leaky_relu and elu at 0", lambda x: mg.leaky_relu(x, 0.25) + mg.elu(x, 3), [-0.0, 0.0], 3.25),
    ("xlogy by a factor of 1", lambda a: mg.xlogy(a, [0.0, 2.0]), [1.0, 1.0], [-INF, math.log(2)]),
    ("interp at knots", lambda x: mg.interp(x, [0.0, 2.0], [1.0, 5.0]), [0.0, 1.0, 2.0], [2, 2, 2]),
    ("interp outside", lambda y: mg.interp([-INF, INF, 9.0], [0.0, 2.0], y), [1.0, 5.0], [1, 2]),
    ("fmod, whose quotient is rounded up to 10", lambda b: np.fmod(1.0, b), 0.1, -9),
    ("polyval far from 0", lambda x: np.polyval([1.0, 2.0], x), 1e200, 1),
    ("cond of a singular matrix", lambda x: np.linalg.cond(x, 1), [[1, 2], [2, 4]], ZEROS),
    ("slope of logaddexp", lambda x: mg.grad(lambda v: np.logaddexp(*v))(x), [0.0, 800.0], [0, 0]),
    ("cond by nuc of ones", lambda x: np.linalg.cond(x, "nuc"), [[1, 1], [1, 1]], ZEROS),
    ("slope of norm", lambda x: mg.grad(np.linalg.norm)(x), [0.0, 0.0], [0, 0]),
    ("slope of prod", lambda x: mg.grad(np.prod)(x), [0.0, 0.0], [1, 1]),
    ("slope of std", lambda x: mg.grad(np.std)(x), [2.0, 2.0], [0, 0]),
]


@pytest.mark.parametrize(
    "f, x, expected", [c[1:] for c in GRADIENTS], ids=[c[0] for c in GRADIENTS]
)
def test_gradient_at_special_point(f: Any, x: Any, expected: Any) -> None:
    with np.errstate(divide="ignore"):  # of the branch of a `where` that is not taken
        g = mg.grad(lambda x: f(x).sum())(np.array(x, float))
    np.testing.assert_allclose(g.data, expected, rtol=1e-12)


SPECIAL = [0.0, -1.0, 2.0, 800.0, -800.0, INF, -INF, NAN]
ELEMENTWISE: list[tuple[Any, int]] = [
    *((f, f.nin) for f in DISPATCH if isinstance(f, np.ufunc) and not f.signature and f.nout == 1),
    *((f, 1) for f in (mg.relu, mg.sigmoid, mg.softplus, mg.silu, mg.elu, mg.gelu, mg.leaky_relu)),
    *((mg.log_sigmoid, 1), (mg.erf, 1), (mg.rsqrt, 1), (mg.xlogy, 2)),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_element_beside_special_values_has_the_value_and_gradients_that_it_has_alone() -> None:
    def value_and_gradients(f: Any, xs: Any) -> list[Any]:
        leaves = [Tensor(np.array(x), requires_grad=True) for x in xs]
        y = f(*leaves)
        gs = mg.gradients(y.sum(), leaves, allow_unused=True) if y.requires_grad else []
        return [y.data, *[0.0 if g is None else g.data for g in gs]]

    for f, count in ELEMENTWISE:
        if f.__name__.startswith("bitwise") or f in (np.invert, np.left_shift, np.right_shift):
            continue  # of integers
        rows = [*itertools.product(SPECIAL, repeat=count)]
        together = value_and_gradients(f, zip(*rows))
        alone = zip(*[value_and_gradients(f, row) for row in rows])
        for found, expected in zip(together, alone, strict=True):
            np.testing.assert_allclose(expected, found, rtol=1e-14, err_msg=f.__name__)


def test_gradients_of_clip_are_those_of_a_sum() -> None:
    """A step of x and of both limits moves the result by the same step, also at ties."""
    for values in itertools.product([0.0, 1.0, 2.0], repeat=3):
        slopes = mg.grad(lambda *values: np.clip(*values), (0, 1, 2))(*values)
        assert sorted(g.item() for g in slopes) == [0, 0, 1]


VALUES: list[tuple[str, Any, Any, Any]] = [
    ("sigmoid", mg.sigmoid, -40.0, math.exp(-40)),
    ("softplus", mg.softplus, -40.0, math.exp(-40)),
    ("log_sigmoid", mg.log_sigmoid, -1000.0, -1000),
    ("softmax", mg.softmax, [1e4, 0.0, -1e4], [1, 0, 0]),
    ("log_softmax", mg.log_softmax, [1e4, 0.0, -1e4], [0, -1e4, -2e4]),
    ("logsumexp", mg.logsumexp, [1e4, 0.0, -1e4], 1e4),
    ("masked softmax", lambda x: mg.softmax(x, where=MASK), [[1, 2], [3, INF]], [[1, 0], [0, 0]]),
    ("xlogy of infinity", lambda b: mg.xlogy(0.0, b), [0.0, 2.0, INF, NAN], [0, 0, 0, NAN]),
    ("quantile of NaN", lambda x: mg.quantile(x, [0.0, 0.5]), [NAN, 1.0, 2.0], [NAN, NAN]),
    ("expm of values that are not finite", lambda x: mg.expm(x)[:, 0, 0], INFINITE, [NAN, NAN, 1]),
    (
        "quantile between equal infinities",
        lambda x: mg.quantile(x, [0.0, 0.5]),
        [INF, INF],
        [NAN, NAN],
    ),
    ("quantile below an infinity", lambda x: mg.quantile(x, 0.5), [1.0, 2.0, INF], 2),
    ("softmax of integers", mg.softmax, [1, 1], [0.5, 0.5]),
    (
        "softplus by beta",
        lambda x: mg.softplus(x, -2.0),
        [0.5, -1],
        -np.log1p([math.exp(-1), math.exp(2)]) / 2,
    ),
    ("softplus far above 0", mg.softplus, 1000.0, 1000),
]


@pytest.mark.parametrize("f, x, expected", [c[1:] for c in VALUES], ids=[c[0] for c in VALUES])
def test_value_at_special_point(f: Any, x: Any, expected: Any) -> None:
    x = np.array(x)
    np.testing.assert_allclose(f(Tensor(x, x.dtype.kind == "f")).data, expected, rtol=1e-14)


@given(
    elements=st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 709.5, -709.5, INF, -INF, NAN]), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
@example(elements=[(INF, True), (1.0, True)])
def test_softmax_with_where_equals_softmax_of_the_elements_that_count(
    elements: list[tuple[float, bool]],
) -> None:
    """Elements of -inf alone get zeros, like no elements."""
    x, where = map(np.array, zip(*elements))
    counted = x[where]
    with np.errstate(all="ignore"):
        found = mg.softmax(x, where=where).data
        if np.isneginf(counted).all():
            assert not found.any()
        else:
            np.testing.assert_allclose(found[where], mg.softmax(counted).data, rtol=1e-14)
            assert np.isnan(found).any() or not found[~where].any()


@pytest.mark.parametrize("is_kernel", [False, True])
def test_row_of_negative_infinity_in_bias_gives_zeros_and_zero_gradients(is_kernel: bool) -> None:
    query, bias = np.ones((1, 1, 2, 3)), np.array([[-INF, -INF], [0.0, 1.0]])
    attend = lambda q, b: mg.scaled_dot_product_attention(q, query, query, bias=b)
    with contextlib.nullcontext() if is_kernel else mg.use_definitions():
        y = attend(query, bias)
        gradients = mg.grad(lambda q, b: attend(q, b).sum(), (0, 1))(query, bias)
    np.testing.assert_allclose(y.data[0, 0], [[0, 0, 0], [1, 1, 1]])
    assert not any(g.data[..., 0, :].any() for g in gradients)


@pytest.mark.parametrize("f", [mg.sigmoid, mg.softplus, mg.silu, mg.elu, np.tanh, mg.log_sigmoid])
def test_gradient_far_from_zero_is_finite(f: Any) -> None:
    assert np.isfinite(mg.grad(lambda x: f(x).sum())(np.array([-1000.0, 1000.0])).data).all()


def test_erf_equals_the_c_library_up_to_rounding() -> None:
    x = np.concatenate(
        [np.linspace(-7, 7, 5001), np.logspace(-300, 0, 301), [0.46875, 4.0, INF, -INF]]
    )
    np.testing.assert_allclose(mg.erf(x).data, [math.erf(v) for v in x], rtol=5e-16, atol=0)
    assert math.isnan(mg.erf(Tensor(NAN)).item())


@pytest.mark.parametrize("dtype, rtol", [(np.float32, 4e-7), (np.float16, 5e-4)])
def test_erf_in_less_than_double_precision_has_the_digits_of_its_dtype(
    dtype: Any, rtol: float
) -> None:
    x = np.linspace(-5, 5, 20_001).astype(dtype)
    y = mg.erf(x).data
    assert y.dtype == dtype and (np.abs(y) <= 1).all()
    np.testing.assert_allclose(y, [math.erf(v) for v in x.tolist()], rtol=rtol, atol=1e-7)


def test_fourth_derivative_of_norm_at_zero_is_that_of_its_powers() -> None:
    """(1 + x⁴) ** 0.25 is 1 + x⁴ / 4 near 0."""
    f = lambda x: mg.norm(mg.stack([x, Tensor(1.0)]), 4)
    for _ in range(4):
        f = mg.grad(f)
    assert f(0.0).item() == pytest.approx(6)


@pytest.mark.parametrize("factor", [1, 4, 16, 64, 256, 4096])
def test_variance_of_float32_that_is_small_beside_the_mean_is_exact(factor: int) -> None:
    """Set an option if the format has no number for the mean."""
    distance = 1024 * float(np.finfo(np.float32).eps) * factor
    x, steps = np.full(6, 1024.0), np.arange(6) % 3
    y = mg.var((x + steps * distance).astype(np.float32)).item()
    assert y == pytest.approx(np.var(steps) * distance**2, rel=1e-6, abs=0)
    steps = np.arange(6) // 4
    x = (x + steps * distance).astype(np.float32)
    for y in (mg.var(x, ddof=0).item(), mg.std(x).item() ** 2):
        assert y == pytest.approx(np.var(steps) * distance**2, rel=4e-6, abs=0)


@pytest.mark.parametrize("size", [4096, 4097])
def test_gradient_of_a_sum_of_many_elements_has_its_dtype_and_byte_order(size: int) -> None:
    for dtype in (np.float32, float, ">f8"):
        x = Tensor(np.ones((size, 1), dtype), requires_grad=True)
        (x.sum() * 3).backward()
        assert x.grad.dtype == dtype and np.array_equal(x.grad.data, np.full((size, 1), 3.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_std_whose_variance_overflows_is_exact_in_float32_and_infinite_in_float64(
    dtype: Any,
) -> None:
    largest = np.finfo(dtype).max
    y = mg.std(np.array([1, -1], dtype) * largest)
    assert y.dtype == dtype and y.item() == (largest if dtype == np.float32 else INF)


@pytest.mark.parametrize("ord", [0.5, 1, 1.5, 2, 3, -0.5, -1, -2, INF, -INF])
@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [2.0, 0.0, -3.0]])
def test_norm_with_zeros_has_finite_gradients(ord: float, values: list[float]) -> None:
    value, gradient = mg.value_and_grad(lambda x: mg.norm(x, ord))(np.array(values))
    assert value.item() == pytest.approx(np.linalg.norm(values, ord) if ord > 0 else 0)
    assert np.isfinite(gradient.data).all() and gradient.data[1] == 0


SPECTRAL = [
    (np.sqrt, lambda s: 0.5 / np.sqrt(s)),
    (np.log, lambda s: 1 / s),
    (np.exp, np.exp),
    (lambda s: 1 / s, lambda s: -1 / s**2),
]


@given(
    which=st.integers(0, 3),
    distance=st.sampled_from([0.0, 1e-15, 1e-12, 1e-8, 1e-4, 0.1]),
    is_rotated=st.booleans(),
    seed=st.integers(0, 99),
)
@example(which=0, distance=0.0, is_rotated=False, seed=0)
def test_function_of_a_matrix_by_eigh_has_its_derivative_at_equal_eigenvalues(
    which: int, distance: float, is_rotated: bool, seed: int
) -> None:
    """The derivative in the basis of the vectors is a table of divided differences."""
    f, slope = SPECTRAL[which]
    rng = np.random.default_rng(seed)
    s = np.array([0.5, 0.5, 0.5, 2.0, 2.0]) + distance * np.arange(5)
    q = np.linalg.qr(rng.standard_normal((5, 5)))[0] if is_rotated else np.eye(5)
    x, weights = (q * s) @ q.T, rng.standard_normal((5, 5))
    x, weights = x + x.T, weights + weights.T
    s = 2 * s

    def total(x: Any) -> Any:
        values, vectors = np.linalg.eigh(x)
        return ((vectors * f(values)) @ vectors.T * weights).sum()

    gaps = s[:, None] - s
    near = np.abs(gaps) < 1e-5
    table = np.where(
        near, slope((s[:, None] + s) / 2), (f(s)[:, None] - f(s)) / np.where(near, 1, gaps)
    )
    value, gradient = mg.value_and_grad(total)(x)
    expected = q @ (q.T @ weights @ q * table) @ q.T
    np.testing.assert_allclose(gradient.data, expected, atol=2e-5 * np.abs(expected).max())
    size = np.abs(weights).sum() * np.abs(f(s)).max()
    assert value.item() == pytest.approx(total(x), rel=0, abs=1e-8 * size)


def test_gradient_by_eigh_of_one_matrix_does_not_depend_on_the_size_of_the_others() -> None:
    """Decide for each matrix alone whether it has a derivative."""
    x = np.stack([np.diag([1.0, 1.0, 4.0]), np.diag([2.0, 3.0, 3.0]), np.diag([1.0, 2.0, 3.0])])
    rng = np.random.default_rng(0)
    x, weights = x + 1e-13 * rng.standard_normal((3, 3, 3)), rng.standard_normal((3, 3, 3))
    x, weights = (x + x.mT) / 2, (weights + weights.mT) * np.array([1e9, 1.0, 1e-9])[:, None, None]

    def total(x: Any, weights: Any) -> Any:
        values, vectors = np.linalg.eigh(x)
        return ((vectors * np.sqrt(values)[..., None, :]) @ vectors.mT * weights).sum()

    found = mg.grad(total)(x, weights).data
    for gradient, matrix, weight in zip(found, x, weights):
        expected = mg.grad(total)(matrix, weight).data
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(gradient, expected, 1e-9, 1e-9 * np.abs(expected).max())


def test_second_derivative_by_another_matrix_is_zero_at_equal_eigenvalues() -> None:
    x, weights = np.stack([np.eye(2), np.diag([1.0, 3.0])]), np.array([[1.0, 2.0], [2.0, -1.0]])

    def total(x: Any) -> Any:
        values, vectors = np.linalg.eigh(x)
        return ((vectors * np.sqrt(values)[..., None, :]) @ vectors.mT * weights).sum()

    curvature = mg.grad(lambda x: (mg.grad(total)(x)[1] * weights).sum())(x).data
    assert not curvature[0].any() and np.isfinite(curvature[1]).all() and curvature[1].any()


def test_function_that_depends_on_the_choice_of_vectors_has_no_derivative_at_equal_eigenvalues() -> (
    None
):
    x = np.diag([1.0, 1.0, 4.0])
    assert np.isnan(mg.grad(lambda x: np.linalg.eigh(x).eigenvectors[0, 1])(x).data).any()
    projection = lambda x: (np.linalg.eigh(x)[1][:, :2] @ np.linalg.eigh(x)[1][:, :2].T)[0, 2]
    np.testing.assert_allclose(mg.grad(projection)(x).data[0, 2], -1 / 6)


def test_hessian_by_equal_eigenvalues_is_right_or_nan() -> None:
    hessian = mg.hessian(lambda x: (np.linalg.eigvalsh(x) ** 3).sum())(np.eye(2)).data
    np.testing.assert_allclose(hessian.reshape(4, 4)[1], [0, 3, 3, 0], atol=1e-6)
    root = lambda x: (lambda w, v: ((v * np.sqrt(w)) @ v.T)[0, 1])(*np.linalg.eigh(x))
    assert np.isnan(mg.hessian(root)(np.eye(2)).data).any()


def test_corrcoef_that_rounding_puts_above_1_is_1_and_has_its_curvature() -> None:
    x = np.array([1.1, 1.9, 1.6])
    assert mg.corrcoef(x, x).data.max() == 1
    c = x - x.mean()
    found = mg.hessian(lambda v: np.corrcoef(v, x)[0, 1])(x).data
    expected = (np.outer(c, c) / (c @ c) + 1 / 3 - np.eye(3)) / (c @ c)
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
    [
        np.sqrt, lambda x: np.arccos(1 - x), lambda x: np.arccosh(1 + x), lambda x: x**0.5,
        lambda x: x**1.5, lambda x: x**-0.5, lambda x: np.power(x, np.array([0.5, 0.5])),
    ],
    ids=range(7),
)  # fmt: skip
def test_infinite_slope_of_an_unused_element_gives_third_derivatives_of_zero(f: Any) -> None:
    """An infinite slope times a gradient of zero is zero, to any order."""
    x = np.array([0.0, 0.5])
    with np.errstate(divide="ignore"):  # the slope itself
        found = third_derivatives(lambda x: f(x)[1] ** 3, x)
    assert not found[0].any() and found[1, 1, 1] != 0


@pytest.mark.parametrize("root", [np.sqrt, lambda x: x**0.5, lambda x: np.power(x, np.array(0.5))])
def test_root_of_a_constant_zero_gives_a_finite_hessian(root: Any) -> None:
    """Check that the infinite slope of one element makes no other gradient NaN."""
    a, x = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 4.0])
    with np.errstate(divide="ignore"):
        found = mg.hessian(lambda x: (root(np.diag(x)) @ a @ root(np.diag(x))).sum())(x).data
    expected = mg.hessian(lambda x: np.sqrt(x) @ a @ np.sqrt(x))(x).data
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("smallest", [0.0, 1e-9, 1e-6, 1e-3])
def test_det_of_nearly_singular_matrix_has_third_derivatives_of_its_triple_product(
    smallest: float,
) -> None:
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    x = q @ np.diag([1.0, 2.0, smallest]) @ q.T
    expected = third_derivatives(lambda x: (x[0] * np.cross(x[1], x[2])).sum(), x)
    np.testing.assert_allclose(third_derivatives(np.linalg.det, x), expected, atol=1e-6)


@pytest.mark.parametrize("smallest", [0.0, 1e-13, 1e-10, 1e-6])
def test_det_of_nearly_singular_matrix_has_the_gradient_of_its_triple_product(
    smallest: float,
) -> None:
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    x = np.stack([q @ np.diag([1.0, 2.0, smallest]) @ q.T, np.eye(3)])
    expected = np.stack([np.cross(x[:, i - 2], x[:, i - 1]) for i in range(3)], 1)
    found = mg.grad(lambda x: np.linalg.det(x).sum())(x).data
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


NOT_FINITE = [
    [1.0, 2.0, 4.0, np.nan, 16.0, 25.0],
    [1.0, 2.0, 4.0, 7.0, np.inf],
    [-np.inf, 3.0, 2.0],
]


@pytest.mark.parametrize("f", NOT_FINITE, ids=str)
@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradient_reads_neighbours_only(f: list[float], edge_order: int) -> None:
    with np.errstate(invalid="ignore"):
        expected = np.gradient(f, edge_order=edge_order)
        np.testing.assert_array_equal(mg.gradient(f, edge_order=edge_order).data, expected)


@pytest.mark.parametrize("v", [[1.0, np.inf], [np.nan, 1.0, 0.0], [-np.inf]], ids=str)
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolution_does_not_spread_values_that_are_not_finite(v: list[float], mode: Any) -> None:
    a = [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(mg.convolve(a, v, mode).data, np.convolve(a, v, mode))
    np.testing.assert_array_equal(mg.correlate(a, v, mode).data, np.correlate(a, v, mode))


def test_quantile_between_an_infinite_and_a_finite_element() -> None:
    x, q = [-np.inf, 1.0, 2.0, np.inf], [0, 0.1, 0.3, 0.5, 0.9, 1]
    expected = [-np.inf, -np.inf, -np.inf, 1.5, np.inf, np.inf]  # NumPy's 0.1 is NaN
    np.testing.assert_array_equal(mg.quantile(x, q).data, expected)
    assert mg.quantile([-1e308, 1e308], 0.25).item() == -0.5e308


@pytest.mark.parametrize("values", [[1.0, 2, INF], [-INF, 0, INF], [INF, INF, INF], [INF, -INF, 1]])
def test_interp_between_infinite_values_equals_numpy(values: list[float]) -> None:
    x, knots = [-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0], [0.0, 1.0, 2.0]
    with np.errstate(invalid="ignore"):
        expected = np.interp(x, knots, values)
        np.testing.assert_array_equal(mg.interp(x, knots, values).data, expected)


def test_interp_between_complex_values_equals_numpy() -> None:
    x, knots, values = np.array([-1.0, 0.25, 1.5, 3]), [0.0, 1.0, 2.0], [1 + 1j, 2, 3 - 1j]
    y, pullback = mg.vjp(lambda x: np.abs(np.interp(x, knots, values)), x)
    np.testing.assert_allclose(y.data, np.abs(np.interp(x, knots, values)), rtol=1e-15)
    h = 1e-6
    ends = [np.abs(np.interp(x + s, knots, values)) for s in (h, -h)]
    (g,) = pullback(np.ones(4))
    np.testing.assert_allclose(g.data, (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("p", [None, 1, -1, 2, -2, "fro", np.inf])
def test_cond_of_singular_matrices_equals_numpy(p: Any) -> None:
    x = np.array([[[2.0, 1], [1, 3]], np.ones((2, 2)), np.zeros((2, 2))])
    y = np.linalg.cond(Tensor(x, requires_grad=True), p)
    np.testing.assert_allclose(y.data, np.linalg.cond(x, p), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("low, high", [(2.0, 1.0), (1.0, 2.0)])
def test_clip_at_limits_that_cross_has_the_derivatives_of_minimum_of_maximum(
    low: float, high: float
) -> None:
    x = [0.0, 0.9, 1.5, 2.1, 3.0]
    values = [Tensor(v, requires_grad=True) for v in (x, [low] * 5, [high] * 5)]
    y = mg.clip(*values)
    np.testing.assert_array_equal(y.data, np.minimum(np.maximum(x, low), high))
    y.sum().backward()
    for i, value in enumerate(values):
        sides = []
        for step in (-1e-6, 1e-6):
            moved = [v.data + step * (i == j) for j, v in enumerate(values)]
            sides.append(np.minimum(np.maximum(*moved[:2]), moved[2]))
        np.testing.assert_allclose(value.grad, (sides[1] - sides[0]) / 2e-6, atol=1e-6)


@given(st.data(), st.sampled_from(["logaddexp", "hypot"]), st.sampled_from([np.float32, float]))
@max_examples(100)
def test_large_arrays_have_the_values_of_numpy(data: Any, name: str, dtype: Any) -> None:
    values = st.sampled_from([1.0, INF, -INF]) | st.floats(-9, 9, width=32)
    scale = data.draw(
        st.sampled_from([1, 1e-25, 1e25] if dtype is np.float32 else [1, 1e-200, 1e200])
    )
    pairs = data.draw(st.lists(st.tuples(values, values), min_size=1, max_size=2))
    a, b = np.array(pairs, dtype).T * dtype(scale)
    with pytest.MonkeyPatch.context() as patch, np.errstate(invalid="ignore", over="ignore"):
        patch.setattr(elementwise, "MAX_AT_ONCE", 0)
        patch.setattr(special, "MAX_HYPOT", 0)
        y, expected = getattr(mg, name)(a, b).data, getattr(np, name)(a, b)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected, 4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("size", [0.1, 1, 5.3, 5.4, 8, 10, 10.7, 10.8, 30])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_exponential_of_equal_elements_is_that_of_their_sum(size: float, n: int) -> None:
    """Take matrices with one eigenvalue that is not 0, and norms beside powers of 2."""
    y = mg.expm(np.full((n, n), size / n)).data
    np.testing.assert_allclose(y, np.eye(n) + np.expm1(size) / n, 3e-13)


@pytest.mark.parametrize("dtypes", ["fd", "df", "dl", "ff"])
def test_large_arrays_of_two_dtypes_have_the_digits_of_the_wider_one(dtypes: str) -> None:
    a, b = ((np.arange(1.0, 1002) / 7).astype(d) for d in dtypes)
    y, expected = mg.hypot(a, b[::-1]).data, np.hypot(a, b[::-1])
    np.testing.assert_allclose(y, expected, 4 * np.finfo(expected.dtype).eps, strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ">f8", np.float16])
@pytest.mark.parametrize("width", [1, 2, 7, 8, 9])
def test_reductions_of_short_rows_have_the_bits_of_numpy(width: int, dtype: Any) -> None:
    """NumPy adds 8 and more numbers in another order, and begins with 0, which is not -0.0."""
    x = np.random.default_rng(0).standard_normal((3, 40, width)).astype(dtype)
    x[0, :5] = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf])[:, None]
    for a in (x, x[:, ::2], np.asfortranarray(x), x[0, :2], x[..., ::-1]):
        for name in ("sum", "max", "min"):
            for axis in (-1, 1, a.ndim - 1, None, (0, 1)):
                with np.errstate(invalid="ignore"):
                    y = getattr(mg, name)(a, axis, keepdims=True).data
                    expected = getattr(np, name)(a, axis, keepdims=True)
                np.testing.assert_array_equal(y, expected, strict=True)
                assert (np.signbit(y) == np.signbit(expected))[~np.isnan(y)].all()


@given(st.integers(1, 12), st.sampled_from([(), (2,)]), st.integers(0, 99))
def test_cholesky_and_its_solutions_by_halves_are_those_of_whole_triangles(
    n: int, batch: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, v, weights = rng.normal(size=(3, *batch, n, n))
    x, unread = a @ a.mT + np.eye(n), np.triu(np.full((n, n), np.nan), 1)

    def f(x: Any) -> Any:
        c = np.linalg.cholesky(x)
        return (c * weights).sum() + (mg.cho_solve((c + unread, True), v) * weights).sum()

    def derivatives() -> list[Any]:
        return [f(x).data, mg.grad(f)(x).data, mg.hvp(f, x, v + v.mT).data]

    expected = derivatives()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linalg, "MAX_WHOLE", 1)
        for y, z in zip(derivatives(), expected):
            np.testing.assert_allclose(y, z, 1e-7, 1e-7 * np.abs(z).max())


@given(st.integers(1, 6), st.sampled_from([(), (2,)]), st.integers(0, 99))
def test_likelihood_by_a_factor_has_the_derivatives_of_that_by_the_inverse(
    n: int, batch: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, v, weights = rng.normal(size=(3, *batch, n, n))
    x = a @ a.mT + np.eye(n)

    def by_factor(x: Any) -> Any:
        c = np.linalg.cholesky((x + x.mT) / 2)
        logs = np.log(np.diagonal(c, axis1=-2, axis2=-1)).sum()
        return 2 * logs + (mg.cho_solve((c, True), v) * weights).sum()

    def by_inverse(x: Any) -> Any:
        y = (x + x.mT) / 2
        return np.log(np.linalg.det(y)).sum() + (np.linalg.inv(y) @ v * weights).sum()

    for derivative in (mg.grad, lambda f: lambda x: mg.hvp(f, x, v)):
        y, expected = (derivative(f)(x).data for f in (by_factor, by_inverse))
        np.testing.assert_allclose(y, expected, 1e-7, 1e-7 * np.abs(expected).max())


def test_cho_solve_keeps_no_inverse_of_a_factor_that_is_written() -> None:
    root, b = np.random.default_rng(0).normal(size=(2, 4, 4))
    a = root @ root.T + np.eye(4)
    c = np.linalg.cholesky(x := Tensor(a, requires_grad=True))
    c *= 2.0
    y = (mg.cho_solve((c, True), b) ** 2).sum()
    expected = mg.grad(lambda x: ((np.linalg.inv(4 * x) @ b) ** 2).sum())(a).data
    for passes in range(1, 3):
        y.backward(retain_graph=True)
        np.testing.assert_allclose(x.grad.data, passes * (expected + expected.T) / 2, 1e-11)


@pytest.mark.parametrize("create_graph", [False, True])
def test_operand_that_is_not_chosen_gets_exactly_0(create_graph: bool) -> None:
    condition, g = np.array([True, False] * 3), np.repeat([np.inf, np.nan, -np.inf], 2)
    a, b = (mg.Tensor(np.ones(6), requires_grad=True) for _ in range(2))
    y = np.where(condition, a, b)
    ga, gb = mg.gradients(y, [a, b], g, create_graph=create_graph)
    np.testing.assert_array_equal(ga.data, np.where(condition, g, 0))
    np.testing.assert_array_equal(gb.data, np.where(condition, 0, g))


@pytest.mark.parametrize("dtype", [*"?bBhHiIlLqQefd"])
def test_power_with_exponents_of_any_dtype_has_its_derivative(dtype: str) -> None:
    a, b = np.array([2.0, -3.0, 0.0, 0.5]), np.array([0, 1, 1, 0], dtype)
    for exponents in (b, b + b):
        (g,) = mg.gradients(mg.power(x := mg.Tensor(a, requires_grad=True), exponents).sum(), x)
        n = exponents.astype(float)
        expected = np.where(n == 0, 0, n * a ** np.where(n == 0, 0, n - 1))
        np.testing.assert_allclose(g.data, expected, rtol=1e-14)

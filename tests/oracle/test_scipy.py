"""SciPy takes derivatives as arguments, and its functions and sparse matrices have derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import needs

import minigrad as mg
from minigrad import Tensor
from minigrad.numpy.scipy_special import COMPOSED, RULES

needs("scipy")
from scipy import integrate, linalg, optimize, sparse, special, stats


def rosenbrock(x: Any) -> Any:
    """Compute a function whose minimum is at ones."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def square_norm(x: Any) -> Any:
    """Compute a function that is 3 on the sphere through ones."""
    return (x**2).sum()


gradient, hessian = mg.grad(rosenbrock), mg.hessian(rosenbrock)
SPHERE = optimize.NonlinearConstraint(
    square_norm, 3, 3, jac=mg.grad(square_norm), hess=lambda x, v: v[0] * mg.hessian(square_norm)(x)
)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (mg.value_and_grad(rosenbrock), {"jac": True, "tol": 1e-14}),
        (rosenbrock, {"method": "trust-ncg", "jac": gradient, "hessp": lambda x, v: mg.hvp(rosenbrock, x, v)}),
        (rosenbrock, {"method": "trust-constr", "jac": gradient, "hess": hessian, "constraints": SPHERE}),
    ],
)  # fmt: skip
def test_minimize_with_derivatives_finds_minimum(function: Any, options: dict[str, Any]) -> None:
    found = optimize.minimize(function, [1.3, 0.7, 0.8], **options)
    np.testing.assert_allclose(found.x, np.ones(3), atol=2e-4)


def test_solvers_with_derivatives_find_cube_root() -> None:
    f = lambda x: x**3 - 2
    jacobian, slope = mg.jacobian(f), mg.grad(f)
    for found in (
        optimize.least_squares(f, [1.0], jac=jacobian, method="lm").x[0],
        optimize.root(f, [1.0], jac=jacobian).x[0],
        optimize.root_scalar(f, x0=1.0, fprime=slope, fprime2=mg.grad(slope), method="halley").root,
    ):
        assert float(found) == pytest.approx(2 ** (1 / 3))


@pytest.mark.parametrize("method", ["bisect", "brentq", "brenth", "ridder"])
def test_root_scalar_of_a_traced_function_raises_the_error_of_the_conversion(method: str) -> None:
    root = lambda a: optimize.root_scalar(lambda x: x * x - a, bracket=(0, 3), method=method).root
    with pytest.raises(mg.GradientError, match="would lose its gradient"):
        mg.grad(lambda a: root(a) * a)(2.0)


def test_solve_ivp_takes_jacobian() -> None:
    decay = lambda y: -(y**3)
    options = {
        "method": "BDF",
        "rtol": 1e-8,
        "atol": 1e-10,
        "jac": lambda t, y: mg.jacobian(decay)(y),
    }
    solution = integrate.solve_ivp(lambda t, y: decay(y), (0, 2), [1.0], **options)
    assert solution.y[0, -1] == pytest.approx(5**-0.5, abs=1e-6)


def test_functions_of_arrays_take_derivatives() -> None:
    g, h = gradient([1.3, 0.7, 0.8]), hessian(np.ones(3))
    np.testing.assert_array_equal(stats.zscore(g), stats.zscore(g.data))
    np.testing.assert_array_equal(sparse.csr_matrix(h).toarray(), h.data)
    pyplot = needs("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    (line,) = pyplot.plot(g)
    np.testing.assert_array_equal(line.get_ydata(), g.data)
    pyplot.close()


BELOW_1 = {
    "erfinv", "erfcinv", "logit", "ndtri", "betainc", "betaincc", "gammaincinv", "gammainccinv", "betaincinv",
    "betainccinv", "chdtri", "stdtrit", "fdtri", "hyp2f1", "ellipk", "ellipe", "lpmv", "bdtr", "bdtrc", "bdtri",
    "nbdtr", "nbdtrc", "nbdtri", "pdtri",
}  # fmt: skip
"""Functions whose last operand is a probability, or must be less than 1."""


INTEGERS = {
    "lpmv": [1], "expn": [2], "yn": [2], "pdtr": [3], "pdtrc": [3], "pdtri": [3], "bdtr": [2, 5], "bdtrc": [2, 5],
    "bdtri": [2, 5], "nbdtr": [2, 5], "nbdtrc": [2, 5], "nbdtri": [2, 5],
}  # fmt: skip
"""The first operands of functions that take integers there."""


@pytest.mark.parametrize("name", RULES)
def test_special_function_has_first_and_second_derivatives(name: str) -> None:
    f, rng = getattr(special, name.strip("_")), np.random.default_rng(0)
    low = 1.2 if name == "_zeta" else 0.2
    operands = [rng.uniform(low, 2.5, (2, 3)) for _ in RULES[name]]
    if name in BELOW_1:
        operands[-1] = rng.uniform(0.2, 0.8, (2, 3))
    operands[: len(INTEGERS.get(name, []))] = INTEGERS.get(name, [])
    known = [i for i, rule in enumerate(RULES[name]) if rule]

    def closed(*xs: Any) -> Any:
        return f(*[dict(zip(known, xs)).get(i, x) for i, x in enumerate(operands)])

    inputs = [operands[i] for i in known]
    np.testing.assert_array_equal(closed(*[mg.Tensor(x, True) for x in inputs]).data, f(*operands))
    assert mg.gradcheck(closed, inputs) and mg.gradgradcheck(closed, inputs)
    for slope in mg.vjp(closed, *inputs)[1](np.zeros((2, 3))):
        assert not slope.data.any()
    for i in {*range(len(INTEGERS.get(name, [])), len(operands))} - {*known}:
        with pytest.raises(TypeError, match="must not require gradients, because the derivative"):
            f(*[mg.Tensor(x, i == k) for k, x in enumerate(operands)])


@pytest.mark.parametrize(("f", "edge"), [(special.xlogy, 0.0), (special.xlog1py, -1.0)])
def test_derivative_of_zero_times_logarithm_is_finite(f: Any, edge: float) -> None:
    """The derivative by the factor is the logarithm, or 0 for the logarithm of 0 or less."""
    a, b = np.array([0.0, 0.0, 0.0, 2.0]), edge + np.array([0.0, -0.5, 0.5, 3.0])
    by_a, by_b = mg.grad(lambda a, b: f(a, b).sum(), (0, 1))(a, b)
    np.testing.assert_allclose(by_a.data, [0, 0, np.log(0.5), np.log(3)])
    np.testing.assert_allclose(by_b.data, [0, 0, 0, 2 / 3])


def test_derivatives_of_log_ndtr_far_from_zero_equal_its_expansion() -> None:
    x = np.array([-1e9, -1e7, -1e4, 40, 1e200])
    slope = mg.grad(lambda x: special.log_ndtr(x).sum())
    with np.errstate(over="raise"):
        first, second = slope(x).data, mg.grad(lambda x: slope(x).sum())(x).data
    np.testing.assert_allclose(first, np.where(x < 0, -x - 1 / x, 0), rtol=1e-14, atol=1e-300)
    np.testing.assert_allclose(second, np.where(x < 0, x**-2 - 1, 0), rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize(("f", "sign"), [(special.gammainc, 1), (special.gammaincc, -1)])
def test_derivatives_of_gammainc_of_one_at_zero_are_those_of_the_exponential(
    f: Any, sign: int
) -> None:
    slope = mg.grad(lambda x: f(1.0, x))
    assert slope(0.0).item() == sign and mg.grad(slope)(0.0).item() == -sign


@pytest.mark.parametrize("f", [special.ber, special.logsumexp])
def test_special_function_without_rule_refuses_tensor_with_gradient(f: Any) -> None:
    x = np.array([0.3, 0.6])
    np.testing.assert_array_equal(f(mg.Tensor(x)), f(x))
    with pytest.raises(TypeError, match=r"has no rule|to keep them, write mg.logsumexp\(x\)"):
        f(mg.Tensor(x, requires_grad=True))


def test_spence_near_1_has_the_derivatives_of_its_series() -> None:
    slope = mg.grad(lambda x: special.spence(x).sum())
    bend = mg.grad(lambda x: slope(x).sum())
    u = np.array([-1e-3, 0, 1e-9, 5e-3])
    np.testing.assert_allclose(slope(1 + u).data, -1 + u / 2 - u**2 / 3 + u**3 / 4, rtol=1e-9)
    np.testing.assert_allclose(bend(1 + u).data, 1 / 2 - u * 2 / 3 + u**2 * 3 / 4, rtol=1e-6)


DENSE = np.random.default_rng(0).standard_normal((4, 3)) * [[1, 0, 1]]


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3)])
def test_product_with_sparse_matrix_equals_product_with_dense_matrix(kind: Any, shape: Any) -> None:
    matrix, x = kind(DENSE), np.random.default_rng(1).standard_normal(shape)
    products = [(lambda x: x @ matrix.T, x @ DENSE.T)]
    if x.ndim < 3:
        products += [(lambda x: mg.matmul(matrix, x.T), DENSE @ x.T)]
    for product, expected in products:
        np.testing.assert_allclose(product(mg.Tensor(x)).data, expected, rtol=1e-12)
        assert mg.gradcheck(product, (x,))
        assert mg.gradgradcheck(lambda x, product=product: product(x) ** 2, (x,))


def test_product_with_sparse_matrix_keeps_float32() -> None:
    x = mg.tensor(np.ones((2, 3), np.float32), requires_grad=True)
    y = x @ sparse.csr_matrix(DENSE.astype(np.float32)).T
    y.sum().backward()
    assert y.dtype == x.grad.dtype == np.float32


def test_product_with_sparse_matrix_of_wrong_shape_or_order_raises() -> None:
    matrix, x = sparse.csc_array(DENSE), mg.tensor(np.ones((2, 3, 5)), requires_grad=True)
    with pytest.raises(ValueError, match="matmul: b must have 1 or 2 axes if a is sparse"):
        mg.matmul(matrix, x)
    with pytest.raises(ValueError, match="matmul: .*dimension mismatch"):
        x @ matrix
    for product in (matrix.__matmul__, matrix.dot):
        with pytest.raises(
            TypeError, match=r"scipy.sparse(.dot)? converts it; .* write minigrad.matmul\(A, x\)"
        ):
            product(x[0])


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_functions_of_scipy_linalg_equal_scipy(lower: bool, scale: float) -> None:
    rng = np.random.default_rng(0)
    x, b = rng.standard_normal((3, 5, 5)) * scale, rng.standard_normal((5, 2))
    a = x @ x.mT + np.eye(5)
    c, _ = linalg.cho_factor(a, lower)
    triangle = np.tril(c) if lower else np.triu(c)
    solutions = linalg.solve_triangular(c, b, "T", lower)
    for found, expected in [
        (mg.expm(x), linalg.expm(x)),
        (mg.cho_factor(a, lower)[0], triangle),
        (mg.cho_solve((c, lower), b), linalg.cho_solve((c, lower), b)),
        (mg.solve_triangular(c, b, "T", lower), solutions),
        (mg.solve_banded((1, 3), a[0], b), linalg.solve_banded((1, 3), a[0], b)),
    ]:
        largest = np.abs(expected).max()
        np.testing.assert_allclose(found.data, expected, rtol=1e-8, atol=1e-9 * largest)


@given(x=st.floats(2.5, 50.0), n=st.integers(0, 4))
def test_composed_function_of_a_tensor_has_the_value_of_scipy(x: float, n: int) -> None:
    tracked = Tensor(x, requires_grad=True)
    for name, args in {
        "polygamma": lambda x: (n, x),
        "multigammaln": lambda x: (x, n + 1),
        "zeta": lambda x: (n + 2.0, x),
        "sinc": lambda x: (x,),
    }.items():
        expected = getattr(special, name)(*args(x))
        assert COMPOSED[name](*args(tracked)).item() == pytest.approx(
            expected, rel=1e-11, abs=1e-13
        )


@given(x=st.floats(0.1, 5.0))
def test_slope_of_expn_of_order_zero_is_that_of_its_definition(x: float) -> None:
    slope = mg.grad(lambda x: special.expn(0, x))(x).item()  # expn(0, x) = exp(-x) / x
    assert slope == pytest.approx(-np.exp(-x) * (1 / x + 1 / x**2), rel=1e-13)


@given(x=st.floats(101.0, 1e4))
def test_slope_of_erfcx_far_from_zero_equals_its_expansion(x: float) -> None:
    terms = [
        (-1) ** k * np.prod(np.arange(1.0, 2 * k, 2)) * (2 * k + 1) / (2 * x * x) ** k
        for k in range(6)
    ]
    slope = mg.grad(special.erfcx)(x).item()
    assert slope == pytest.approx(-sum(terms) / (np.sqrt(np.pi) * x * x), rel=1e-14)

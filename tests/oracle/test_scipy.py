"""SciPy takes derivatives as arguments, and its functions and sparse matrices have derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.numpy_ops.scipy_special import RULES, op_of

pytest.importorskip("scipy", reason="scipy is not installed")
from scipy import integrate, interpolate, linalg, optimize, sparse, special, stats

START = np.array([1.3, 0.7, 0.8])
TIMES = np.linspace(0, 2, 30)
TRUE = np.array([2.5, 1.3, 0.5])
DATA = TRUE[0] * np.exp(-TRUE[1] * TIMES) + TRUE[2]


def rosenbrock(x: Any) -> Any:
    """Compute a function whose minimum is at ones."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def residuals(p: Any) -> Any:
    """Compute the residuals of an exponential, which are zero at TRUE."""
    return p[0] * np.exp(-p[1] * TIMES) + p[2] - DATA


def square_norm(x: Any) -> Any:
    """Compute a function that is zero on the sphere through ones."""
    return (x**2).sum() - 3.0


gradient, hessian = mg.grad(rosenbrock), mg.hessian(rosenbrock)
jacobian = mg.jacobian(residuals)
SPHERE = optimize.NonlinearConstraint(
    square_norm, 0, 0, jac=mg.grad(square_norm), hess=lambda x, v: v[0] * mg.hessian(square_norm)(x)
)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("BFGS", {"jac": gradient, "tol": 1e-10}),
        ("trust-ncg", {"jac": gradient, "hessp": lambda x, v: mg.hvp(rosenbrock, x, v)}),
        ("trust-constr", {"jac": gradient, "hess": hessian, "constraints": SPHERE}),
    ],
)
def test_minimize_with_derivatives_finds_minimum(method: str, options: dict[str, Any]) -> None:
    found = optimize.minimize(rosenbrock, START, method=method, **options)
    np.testing.assert_allclose(found.x, np.ones(3), atol=2e-4)


def test_minimize_with_value_and_gradient_in_one_call_finds_minimum() -> None:
    found = optimize.minimize(mg.value_and_grad(rosenbrock), START, jac=True, tol=1e-14)
    np.testing.assert_allclose(found.x, np.ones(3), atol=2e-4)


@pytest.mark.parametrize("method", ["trf", "lm"])
def test_least_squares_with_jacobian_finds_parameters(method: str) -> None:
    found = optimize.least_squares(residuals, np.ones(3), jac=jacobian, method=method)
    np.testing.assert_allclose(found.x, TRUE, atol=1e-6)


def test_root_with_jacobian_finds_cube_root() -> None:
    cube_minus_2 = lambda x: x**3 - 2
    slope = mg.grad(cube_minus_2)
    found = optimize.root(cube_minus_2, [1.0], jac=mg.jacobian(cube_minus_2))
    assert found.x.item() == pytest.approx(2 ** (1 / 3))
    found = optimize.root_scalar(
        cube_minus_2, x0=1.0, fprime=slope, fprime2=mg.grad(slope), method="halley"
    )
    assert float(found.root) == pytest.approx(2 ** (1 / 3))


def test_integrators_take_derivatives() -> None:
    decay = lambda y: -(y**3)
    solution = integrate.solve_ivp(
        lambda t, y: decay(y), (0, 2), [1.0], method="BDF", rtol=1e-8, atol=1e-10,
        jac=lambda t, y: mg.jacobian(decay)(y),
    )  # fmt: skip
    assert solution.y[0, -1] == pytest.approx(5**-0.5, abs=1e-6)
    assert integrate.quad(mg.grad(np.sin), 0, 1)[0] == pytest.approx(np.sin(1.0))


def test_functions_of_arrays_take_derivatives(tmp_path: Any) -> None:
    g, slopes = gradient(START), mg.elementwise_grad(np.sin)(TIMES)
    spline = interpolate.CubicHermiteSpline(TIMES, np.sin(TIMES), slopes)
    assert spline(1.01) == pytest.approx(np.sin(1.01), abs=1e-6)
    np.testing.assert_array_equal(sparse.csr_matrix(jacobian(TRUE)).toarray(), jacobian(TRUE).data)
    np.testing.assert_array_equal(stats.zscore(g), stats.zscore(g.data))
    assert linalg.cho_factor(hessian(np.ones(3)))[0].shape == (3, 3)
    np.save(tmp_path / "g.npy", g)
    np.testing.assert_array_equal(np.load(tmp_path / "g.npy"), g.data)
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    (line,) = pyplot.plot(START, g)
    np.testing.assert_array_equal(line.get_ydata(), g.data)
    pyplot.close()


@pytest.mark.parametrize("name", RULES)
def test_special_function_has_first_and_second_derivatives(name: str) -> None:
    f, rng = getattr(special, name.strip("_")), np.random.default_rng(0)
    low = 1.2 if name == "_zeta" else 0.2
    high = 0.8 if name in ("erfinv", "logit", "ndtri") else 2.5
    operands = [rng.uniform(low, high, (2, 3)) for _ in RULES[name]]
    known = [i for i, rule in enumerate(RULES[name]) if rule]

    def closed(*xs: Any) -> Any:
        return f(*[dict(zip(known, xs)).get(i, x) for i, x in enumerate(operands)])

    inputs = [operands[i] for i in known]
    np.testing.assert_array_equal(closed(*[mg.Tensor(x, True) for x in inputs]).data, f(*operands))
    assert mg.gradcheck(closed, inputs) and mg.gradgradcheck(closed, inputs)
    for i in set(range(len(operands))) - set(known):
        with pytest.raises(
            TypeError, match=". must not require gradients, because the derivative is not impl"
        ):
            f(*[mg.Tensor(x, i == k) for k, x in enumerate(operands)])


@pytest.mark.parametrize(
    ("f", "edge"), [(special.xlogy, 0.0), (special.xlog1py, -1.0)], ids=["xlogy", "xlog1py"]
)
def test_derivative_of_zero_times_logarithm_is_finite(f: Any, edge: float) -> None:
    """The derivative by the factor is the logarithm, or 0 for the logarithm of 0 or less."""
    a, b = np.array([0.0, 0.0, 0.0, 0.0, 2.0]), edge + np.array([0.0, -0.5, 0.5, 3.0, 3.0])
    by_a, by_b = mg.grad(lambda a, b: f(a, b).sum(), (0, 1))(a, b)
    np.testing.assert_allclose(by_a.data, [0, 0, np.log(0.5), np.log(3), np.log(3)])
    np.testing.assert_allclose(by_b.data, [0, 0, 0, 0, 2 / 3])


@pytest.mark.parametrize("f", [special.spence, special.logsumexp, special.softmax])
def test_special_function_without_rule_refuses_tensor_with_gradient(f: Any) -> None:
    x = np.array([0.3, 0.6])
    np.testing.assert_array_equal(f(mg.Tensor(x)), f(x))
    with pytest.raises(TypeError, match="has no rule|or minigrad's function of the same name"):
        f(mg.Tensor(x, requires_grad=True))


def test_op_of_function_of_another_library_is_none() -> None:
    class Beta:
        """A ufunc of another library with the name of a ufunc of SciPy."""

        __name__ = "beta"

    assert op_of(Beta) is None and op_of(special.beta) is not None


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
        with pytest.raises(TypeError, match=r"minigrad.matmul\(A, x\) if A is a scipy.sparse"):
            product(x[0])

"""SciPy takes what `grad`, `value_and_grad`, `jacobian` and `hessian` return, and derivatives of its functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.numpy_ops.scipy_special import RULES, op_of

scipy = pytest.importorskip("scipy", reason="scipy is not installed")
from scipy import integrate, interpolate, optimize, sparse, special, stats  # noqa: E402

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


def system(x: Any) -> Any:
    """Compute two equations."""
    return np.stack([x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1, 0.5 * (x[1] - x[0]) ** 3 + x[1]])


SOLUTION = np.array([0.8411639, 0.1588361])
gradient, hessian = mg.grad(rosenbrock), mg.hessian(rosenbrock)
value_and_gradient = mg.value_and_grad(rosenbrock)
square_norm = lambda x: (x**2).sum() - 3.0
SPHERE = optimize.NonlinearConstraint(
    square_norm, 0, 0, jac=mg.grad(square_norm), hess=lambda x, v: v[0] * mg.hessian(square_norm)(x)
)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (rosenbrock, {"method": "BFGS", "jac": gradient, "tol": 1e-10}),
        (value_and_gradient, {"method": "L-BFGS-B", "jac": True, "bounds": [(-2, 2)] * 3, "tol": 1e-14}),
        (rosenbrock, {"method": "Newton-CG", "jac": gradient, "hess": hessian, "tol": 1e-10}),
        (rosenbrock, {
            "method": "trust-ncg", "jac": gradient, "hessp": lambda x, v: mg.hvp(rosenbrock, x, v),
        }),
        (rosenbrock, {
            "method": "SLSQP", "jac": gradient, "tol": 1e-12,
            "constraints": {"type": "eq", "fun": square_norm, "jac": mg.grad(square_norm)},
        }),
        (rosenbrock, {
            "method": "trust-constr", "jac": gradient, "hess": hessian, "constraints": SPHERE,
        }),
    ],
    ids=lambda v: v["method"] if isinstance(v, dict) else "",
)  # fmt: skip
def test_minimize_with_derivatives_finds_the_minimum(function: Any, options: Any) -> None:
    found = optimize.minimize(function, START, **options).x
    np.testing.assert_allclose(found, np.ones(3), atol=2e-4)


def cube_minus_2(x: Any) -> Any:
    """Compute a function whose root is the cube root of 2."""
    return x**3 - 2


slope = mg.grad(cube_minus_2)
CALLS: dict[str, tuple[Callable[[], Any], Any]] = {
    "least_squares": (
        lambda: optimize.least_squares(residuals, np.ones(3), jac=mg.jacobian(residuals)).x, TRUE,
    ),
    "least_squares, lm": (
        lambda: optimize.least_squares(residuals, np.ones(3), jac=mg.jacobian(residuals), method="lm").x, TRUE,
    ),
    "curve_fit": (
        lambda: optimize.curve_fit(
            lambda t, a, b, c: a * np.exp(-b * t) + c, TIMES, DATA, np.ones(3),
            jac=lambda t, *p: mg.jacobian(residuals)(np.array(p)),
        )[0], TRUE,
    ),
    "root": (lambda: optimize.root(system, [0, 0], jac=mg.jacobian(system)).x, SOLUTION),
    "root, jac=True": (
        lambda: optimize.root(lambda x: (system(x), mg.jacobian(system)(x)), np.zeros(2), jac=True).x, SOLUTION,
    ),
    "root_scalar, halley": (
        lambda: optimize.root_scalar(
            cube_minus_2, x0=1.0, fprime=slope, fprime2=mg.grad(slope), method="halley"
        ).root, 2 ** (1 / 3),
    ),
    "check_grad": (lambda: optimize.check_grad(rosenbrock, gradient, START), 0.0),
    "solve_ivp": (
        lambda: integrate.solve_ivp(
            lambda t, y: -(y**3), (0, 2), [1.0], method="BDF", rtol=1e-8, atol=1e-10,
            jac=lambda t, y: mg.jacobian(lambda y: -(y**3))(y),
        ).y[0, -1], 5**-0.5,
    ),
    "quad": (lambda: integrate.quad(mg.grad(np.sin), 0, 1)[0], np.sin(1.0)),
    "CubicHermiteSpline": (
        lambda: interpolate.CubicHermiteSpline(TIMES, np.sin(TIMES), mg.elementwise_grad(np.sin)(TIMES))(1.01),
        np.sin(1.01),
    ),
    "csr_matrix": (
        lambda: sparse.csr_matrix(mg.jacobian(residuals)(np.ones(3))).toarray(),
        mg.jacobian(residuals)(np.ones(3)).data,
    ),
    "zscore": (lambda: stats.zscore(gradient(START)), stats.zscore(gradient(START).data)),
    "cho_factor": (lambda: scipy.linalg.cho_factor(hessian(np.ones(3)))[0].shape, (3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_scipy_function_takes_derivatives_without_conversion(name: str) -> None:
    call, expected = CALLS[name]
    np.testing.assert_allclose(np.asarray(call()), expected, atol=2e-4)


def test_gaussian_process_fitted_by_minimize_has_same_optimum_by_cholesky_and_slogdet() -> None:
    """Compute the marginal likelihood of noisy samples of a sine."""
    x = np.linspace(0, 6, 25)
    y = np.sin(x) + 0.1 * np.random.default_rng(0).standard_normal(25)
    distances = (x[:, None] - x) ** 2

    def kernel(p: Any) -> Any:
        noise = np.exp(2 * p[2]) * np.eye(25)
        return np.exp(2 * p[0] - distances / 2 * np.exp(-2 * p[1])) + noise

    def by_cholesky(p: Any) -> Any:
        factor = np.linalg.cholesky(kernel(p))
        return (np.linalg.solve(factor, y) ** 2).sum() / 2 + np.log(np.diagonal(factor)).sum()

    def by_slogdet(p: Any) -> Any:
        k = kernel(p)
        return y @ np.linalg.solve(k, y) / 2 + np.linalg.slogdet(k)[1] / 2

    first, second = (
        optimize.minimize(
            mg.value_and_grad(f), np.zeros(3), jac=True, method="L-BFGS-B", tol=1e-12
        ).x
        for f in (by_cholesky, by_slogdet)
    )
    np.testing.assert_allclose(first, second, atol=1e-4)
    assert 0.05 < np.exp(first[2]) < 0.2 and 0.5 < np.exp(first[1]) < 4


def test_numpy_and_matplotlib_take_derivatives_without_conversion(tmp_path: Any) -> None:
    g = gradient(START)
    assert np.percentile(g, 50) == np.percentile(g.data, 50)
    np.save(tmp_path / "g.npy", g)
    np.testing.assert_array_equal(np.load(tmp_path / "g.npy"), g.data)
    np.savetxt(tmp_path / "g.txt", g)
    np.testing.assert_allclose(np.loadtxt(tmp_path / "g.txt"), g.data)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    (line,) = pyplot.plot(START, g)
    np.testing.assert_array_equal(line.get_ydata(), g.data)
    pyplot.close()


BELOW_ONE = ("erfinv", "logit", "ndtri")


@pytest.mark.parametrize("name", RULES)
def test_special_function_has_first_and_second_derivatives(name: str) -> None:
    f, rng = getattr(special, name.strip("_")), np.random.default_rng(0)
    low, high = 1.2 if name == "_zeta" else 0.2, 0.8 if name in BELOW_ONE else 2.5
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


@pytest.mark.parametrize(
    "f", [special.spence, lambda x: special.struve(1.0, x), special.logsumexp, special.softmax]
)
def test_special_function_without_rule_takes_only_tensors_without_gradients(f: Any) -> None:
    x = np.array([0.3, 0.6])
    np.testing.assert_array_equal(f(mg.Tensor(x)), f(x))
    with pytest.raises(TypeError, match="has no rule|or minigrad's function of the same name"):
        f(mg.Tensor(x, requires_grad=True))


class Beta:
    """A ufunc of another library that has the name of a ufunc of SciPy."""

    __name__ = "beta"


def test_op_of_function_of_another_library_is_none() -> None:
    assert op_of(Beta) is None and op_of(special.beta) is not None


def sparse_matrices() -> list[Any]:
    """Return a sparse matrix (4, 3) of each kind, with a column of zeros."""
    dense = np.random.default_rng(0).standard_normal((4, 3)) * [[1, 0, 1]]
    return [sparse.csr_matrix(dense), sparse.csc_array(dense), sparse.coo_array(dense)]


@pytest.mark.parametrize("matrix", sparse_matrices(), ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3)])
def test_product_with_sparse_matrix_equals_product_with_dense_matrix(
    matrix: Any, shape: Any
) -> None:
    rng = np.random.default_rng(1)
    x = mg.tensor(rng.standard_normal(shape), requires_grad=True)
    g = rng.standard_normal((*shape[:-1], 4))
    dense = matrix.toarray()
    products = [(lambda x: x @ matrix.T, lambda x: x @ dense.T)]
    if len(shape) < 3:
        products += [(lambda x: mg.matmul(matrix, x.T), lambda x: mg.matmul(dense, x.T))]
    for sparse_product, product in products:
        y, expected = sparse_product(x), product(x)
        np.testing.assert_allclose(y.data, expected.data, rtol=1e-12)
        cotangent = g.T if y.shape != g.shape else g
        gradients = [mg.gradients((z * cotangent).sum(), [x])[0].data for z in (y, expected)]
        np.testing.assert_allclose(*gradients, rtol=1e-12)
        assert mg.gradgradcheck(lambda x, f=sparse_product: f(x) ** 2, (x.detach(),))
    np.testing.assert_allclose((x.detach() @ matrix.T).data, x.data @ dense.T)


def test_product_with_sparse_matrix_keeps_float32() -> None:
    matrix = sparse_matrices()[0].astype(np.float32)
    x = mg.tensor(np.ones((2, 3), np.float32), requires_grad=True)
    y = x @ matrix.T
    y.sum().backward()
    assert y.dtype == x.grad.dtype == np.float32


def test_product_with_sparse_matrix_that_does_not_fit_raises() -> None:
    matrix = sparse_matrices()[1]
    x = mg.tensor(np.ones((2, 3, 5)), requires_grad=True)
    with pytest.raises(ValueError, match="matmul: b must have 1 or 2 axes if a is sparse"):
        mg.matmul(matrix, x)
    with pytest.raises(ValueError, match="matmul: .*dimension mismatch"):
        x @ matrix
    with pytest.raises(TypeError, match=r"minigrad.matmul\(A, x\) if A is a scipy.sparse matrix"):
        matrix @ x[0]
    with pytest.raises(TypeError, match=r"minigrad.matmul\(A, x\) if A is a scipy.sparse matrix"):
        matrix.dot(x[0])

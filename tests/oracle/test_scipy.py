"""SciPy takes what `grad`, `value_and_grad`, `jacobian` and `hessian` return, unwrapped by nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.numpy_ops.scipy_special import RULES

scipy = pytest.importorskip("scipy", reason="scipy is not installed")
from scipy import integrate, interpolate, optimize, sparse, special, stats  # noqa: E402

START = np.array([1.3, 0.7, 0.8])


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


T = np.linspace(0, 2, 30)
TRUE = np.array([2.5, 1.3, 0.5])
DATA = TRUE[0] * np.exp(-TRUE[1] * T) + TRUE[2]


def residuals(p: Any) -> Any:
    return p[0] * np.exp(-p[1] * T) + p[2] - DATA


def system(x: Any) -> Any:
    return np.stack([x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1, 0.5 * (x[1] - x[0]) ** 3 + x[1]])


gradient, hess = mg.grad(rosenbrock), mg.hessian(rosenbrock)
both = mg.value_and_grad(rosenbrock)


def hessp(x: Any, v: Any) -> Any:
    return mg.hvp(rosenbrock, x, v)


def minimum(**options: Any) -> Callable[[], Any]:
    fun = options.pop("fun", rosenbrock)
    return lambda: (optimize.minimize(fun, START, **options).x, np.ones(3))


BOUNDS = [(-2, 2)] * 3
CIRCLE = lambda x: (x**2).sum() - 3.0

CALLS: dict[str, Callable[[], Any]] = {
    "minimize, BFGS, jac=": minimum(method="BFGS", jac=gradient, tol=1e-10),
    "minimize, CG, jac=": minimum(method="CG", jac=gradient, tol=1e-9),
    "minimize, L-BFGS-B, jac=True": minimum(
        fun=both, method="L-BFGS-B", jac=True, bounds=BOUNDS, tol=1e-14
    ),
    "minimize, TNC, jac=True": minimum(
        fun=both, method="TNC", jac=True, bounds=BOUNDS, tol=1e-14, options={"maxfun": 4000}
    ),
    "minimize, Newton-CG, hess=": minimum(method="Newton-CG", jac=gradient, hess=hess, tol=1e-10),
    "minimize, trust-exact, hess=": minimum(method="trust-exact", jac=gradient, hess=hess),
    "minimize, trust-ncg, hessp=": minimum(method="trust-ncg", jac=gradient, hessp=hessp),
    "minimize, trust-krylov, hessp=": minimum(method="trust-krylov", jac=gradient, hessp=hessp),
    "minimize, SLSQP, constraint": minimum(
        method="SLSQP",
        jac=gradient,
        tol=1e-12,
        constraints={"type": "eq", "fun": CIRCLE, "jac": mg.grad(CIRCLE)},
    ),
    "minimize, trust-constr": minimum(
        method="trust-constr",
        jac=gradient,
        hess=hess,
        constraints=optimize.NonlinearConstraint(
            CIRCLE, 0, 0, jac=mg.grad(CIRCLE), hess=lambda x, v: v[0] * mg.hessian(CIRCLE)(x)
        ),
    ),
    "least_squares": lambda: (
        optimize.least_squares(residuals, np.ones(3), jac=mg.jacobian(residuals)).x,
        TRUE,
    ),
    "least_squares, lm": lambda: (
        optimize.least_squares(residuals, np.ones(3), jac=mg.jacobian(residuals), method="lm").x,
        TRUE,
    ),
    "leastsq": lambda: (
        optimize.leastsq(residuals, np.ones(3), Dfun=mg.jacobian(residuals))[0],
        TRUE,
    ),
    "curve_fit": lambda: (
        optimize.curve_fit(
            lambda t, a, b, c: a * np.exp(-b * t) + c,
            T,
            DATA,
            np.ones(3),
            jac=lambda t, *p: mg.jacobian(lambda q: q[0] * np.exp(-q[1] * t) + q[2])(np.array(p)),
        )[0],
        TRUE,
    ),
    "root, hybr": lambda: (
        optimize.root(system, np.zeros(2), jac=mg.jacobian(system)).x,
        [0.8411639, 0.1588361],
    ),
    "root, lm, from integers": lambda: (
        optimize.root(system, [0, 0], jac=mg.jacobian(system), method="lm").x,
        [0.8411639, 0.1588361],
    ),
    "root, jac=True": lambda: (
        optimize.root(lambda x: (system(x), mg.jacobian(system)(x)), np.zeros(2), jac=True).x,
        [0.8411639, 0.1588361],
    ),
    "fsolve": lambda: (
        optimize.fsolve(system, np.zeros(2), fprime=mg.jacobian(system)),
        [0.8411639, 0.1588361],
    ),
    "newton": lambda: (
        optimize.newton(
            lambda x: x**3 - 2,
            1.0,
            fprime=mg.grad(lambda x: x**3 - 2),
            fprime2=mg.grad(mg.grad(lambda x: x**3 - 2)),
        ),
        2 ** (1 / 3),
    ),
    "root_scalar, halley": lambda: (
        optimize.root_scalar(
            lambda x: np.exp(x) - 3,
            x0=1.0,
            fprime=mg.grad(lambda x: np.exp(x) - 3),
            fprime2=mg.grad(mg.grad(lambda x: np.exp(x) - 3)),
            method="halley",
        ).root,
        np.log(3),
    ),
    "fmin_l_bfgs_b": lambda: (
        optimize.fmin_l_bfgs_b(both, START, pgtol=1e-10, factr=10)[0],
        np.ones(3),
    ),
    "basinhopping": lambda: (
        optimize.basinhopping(
            both,
            START,
            niter=2,
            rng=0,
            minimizer_kwargs={"method": "L-BFGS-B", "jac": True, "tol": 1e-14},
        ).x,
        np.ones(3),
    ),
    "check_grad": lambda: (optimize.check_grad(rosenbrock, gradient, START), 0.0),
    "solve_ivp, jac=": lambda: (
        integrate.solve_ivp(
            lambda t, y: -(y**3),
            (0, 2),
            [1.0],
            method="BDF",
            rtol=1e-8,
            atol=1e-10,
            jac=lambda t, y: mg.jacobian(lambda y: -(y**3))(y),
        ).y[0, -1],
        5**-0.5,
    ),
    "quad": lambda: (integrate.quad(mg.grad(np.sin), 0, 1)[0], np.sin(1.0)),
    "interpolation": lambda: (
        interpolate.CubicHermiteSpline(T, np.sin(T), mg.elementwise_grad(np.sin)(T))(1.01),
        np.sin(1.01),
    ),
    "sparse": lambda: (
        sparse.csr_matrix(mg.jacobian(residuals)(np.ones(3))).toarray(),
        mg.jacobian(residuals)(np.ones(3)),
    ),
    "stats": lambda: (stats.zscore(gradient(START)), stats.zscore(gradient(START).data)),
    "linear algebra": lambda: (scipy.linalg.cho_factor(hess(np.ones(3)))[0].shape, (3, 3)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_scipy_takes_derivatives_as_they_are(call: Callable[[], Any]) -> None:
    found, expected = call()
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=2e-4)


def test_a_gaussian_process_fitted_by_minimize() -> None:
    """The marginal likelihood of noisy samples of a sine, by the Cholesky factor; and by slogdet and solve."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 6, 25)
    y = np.sin(x) + 0.1 * rng.standard_normal(25)
    square = (x[:, None] - x) ** 2

    def kernel(p: Any) -> Any:
        return np.exp(2 * p[0] - square / 2 * np.exp(-2 * p[1])) + np.exp(2 * p[2]) * np.eye(25)

    def by_factor(p: Any) -> Any:
        factor = np.linalg.cholesky(kernel(p))
        return (np.linalg.solve(factor, y) ** 2).sum() / 2 + np.log(np.diagonal(factor)).sum()

    def by_determinant(p: Any) -> Any:
        k = kernel(p)
        return y @ np.linalg.solve(k, y) / 2 + np.linalg.slogdet(k)[1] / 2

    found = [
        optimize.minimize(
            mg.value_and_grad(f), np.zeros(3), jac=True, method="L-BFGS-B", tol=1e-12
        ).x
        for f in (by_factor, by_determinant)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)
    assert 0.05 < np.exp(found[0][2]) < 0.2 and 0.5 < np.exp(found[0][1]) < 4
    assert mg.gradcheck(by_factor, found[0]) and mg.gradgradcheck(by_factor, found[0])


def test_newtons_method_on_rosenbrock() -> None:
    x: Any = START
    for _ in range(30):
        x = x - np.linalg.solve(hess(x), gradient(x))
    np.testing.assert_allclose(x.data, np.ones(3), atol=1e-12)


def test_numpy_and_matplotlib_take_derivatives_as_they_are(tmp_path: Any) -> None:
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


BELOW_ONE = ("erfinv", "erfcinv", "logit", "ndtri", "betainc")


@pytest.mark.parametrize("name", RULES)
def test_special_functions_have_derivatives_of_second_order(name: str) -> None:
    f, rng = getattr(special, name.strip("_")), np.random.default_rng(0)
    low = 1.2 if name == "_zeta" else 0.2
    operands = [rng.uniform(low, 0.8 if name in BELOW_ONE else 2.5, (2, 3)) for _ in RULES[name]]
    known = [i for i, rule in enumerate(RULES[name]) if rule]

    def closed(*xs: Any) -> Any:
        return f(*[dict(zip(known, xs)).get(i, x) for i, x in enumerate(operands)])

    np.testing.assert_array_equal(
        closed(*[mg.Tensor(operands[i], True) for i in known]).data, f(*operands)
    )
    assert mg.gradcheck(
        closed, [operands[i] for i in known]
    )  # the second derivative is only held to the first
    assert mg.gradgradcheck(closed, [operands[i] for i in known])
    for i in set(range(len(operands))) - set(known):
        with pytest.raises(TypeError, match="its derivative by . is not known"):
            f(*[mg.Tensor(x, i == k) for k, x in enumerate(operands)])


@pytest.mark.parametrize(
    ("f", "edge"), [(special.xlogy, 0.0), (special.xlog1py, -1.0)], ids=["xlogy", "xlog1py"]
)
def test_a_logarithm_times_nothing(f: Any, edge: float) -> None:
    """By the factor the derivative is the logarithm, also at 0, but for that of 0 (or less), which does not count."""
    a, b = np.array([0.0, 0.0, 0.0, 0.0, 2.0]), edge + np.array([0.0, -0.5, 0.5, 3.0, 3.0])
    by_a, by_b = mg.grad(lambda a, b: f(a, b).sum(), (0, 1))(a, b)
    np.testing.assert_allclose(by_a.data, [0, 0, np.log(0.5), np.log(3), np.log(3)])
    np.testing.assert_allclose(by_b.data, [0, 0, 0, 0, 2 / 3])


def test_special_functions_without_a_rule_are_refused_and_free_tensors_are_arrays() -> None:
    x = np.array([0.3, 0.6])
    for f in (special.spence, special.struve, special.logsumexp, special.softmax):
        args = (1.0, x) if f is special.struve else (x,)
        np.testing.assert_array_equal(f(*[mg.Tensor(a) for a in args]), f(*args))
        with pytest.raises(TypeError, match="has no rule|or minigrad's function of that name"):
            f(*[mg.Tensor(a, requires_grad=True) for a in args])
    mine = np.frompyfunc(lambda a: 2 * a, 1, 1)
    assert mine.__name__ not in RULES


class _Beta:
    """Stands for a ufunc of another library that has a name of SciPy's."""

    __name__ = "beta"


def test_other_functions_of_the_same_name_are_not_taken_for_scipys() -> None:
    assert (
        mg.numpy_ops.scipy_special.op_of(_Beta) is None
        and mg.numpy_ops.scipy_special.op_of(special.beta) is not None
    )

"""Formulas that errors recommend instead of SciPy's functions, beside their definitions, without SciPy.

tests/oracle/test_scipy_array_api.py compares them with SciPy, and makes the calls that are refused.
"""

from __future__ import annotations

import itertools
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.numpy import conversion

NODES, WEIGHTS = np.polynomial.legendre.leggauss(60)


def integral(f: Callable[[Any], Any], low: float, high: float) -> float:
    """Integrate by Gauss's rule of 60 points, in a variable that flattens both ends."""
    t = (NODES + 1) / 2
    x = low + (high - low) * t * t * (3 - 2 * t)
    return float(np.sum(WEIGHTS / 2 * f(x) * 6 * t * (1 - t)) * (high - low))


def beta_part(a: float, b: float, z: float) -> float:
    return integral(lambda x: x ** (a - 1) * (1 - x) ** (b - 1), 0, z) / math.exp(log_beta(a, b))


def gamma_part(a: float, z: float) -> float:
    return integral(lambda x: x ** (a - 1) * np.exp(-x), 0, z) / math.gamma(a)


def student(df: float, z: float) -> float:
    half = beta_part(df / 2, 0.5, df / (df + z * z)) / 2
    return half if z < 0 else 1 - half


def log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def binomial(k: float, n: float, p: float) -> float:
    return sum(math.comb(int(n), j) * p**j * (1 - p) ** (n - j) for j in range(int(k) + 1))


def poisson(k: float, mu: float) -> float:
    return sum(math.exp(-mu) * mu**j / math.factorial(j) for j in range(int(k) + 1))


def normal(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


DEFINITIONS = {
    "gammaln": math.lgamma,
    "betaln": log_beta,
    "xlogy": lambda x, y: x * math.log(y) if x else 0.0,
    "xlog1py": lambda x, y: x * math.log1p(y) if x else 0.0,
    "betainc": beta_part,
    "betaincc": lambda a, b, z: 1 - beta_part(a, b, z),
    "gammainc": gamma_part,
    "gammaincc": lambda a, z: 1 - gamma_part(a, z),
    "bdtr": binomial,
    "bdtrc": lambda k, n, p: 1 - binomial(k, n, p),
    "pdtr": poisson,
    "pdtrc": lambda k, mu: 1 - poisson(k, mu),
    "stdtr": student,
    "ndtr": normal,
    "log_ndtr": lambda z: math.log(normal(z)),
}
SPECIAL = types.SimpleNamespace(**{name: np.vectorize(f) for name, f in DEFINITIONS.items()})

PARAMETERS: dict[str, tuple[dict[str, float], list[float], tuple[float, float]]] = {
    # arguments, points inside the support at loc 0 and scale 1, and the support
    "beta": ({"a": 2.5, "b": 3.5}, [0.2, 0.6, 0.9], (0, 1)),
    "binom": ({"n": 6, "p": 0.3}, [0, 2, 5, 6], (0, 6)),
    "expon": ({}, [0.1, 1.0, 3.0], (0, np.inf)),
    "gamma": ({"a": 2.5}, [0.3, 2.0, 6.0], (0, np.inf)),
    "laplace": ({}, [-2.0, -0.1, 0.7, 3.0], (-np.inf, np.inf)),
    "logistic": ({}, [-3.0, 0.2, 2.0], (-np.inf, np.inf)),
    "lognorm": ({"s": 0.7}, [0.4, 1.0, 2.5], (0, np.inf)),
    "nbinom": ({"n": 3, "p": 0.4}, [0, 1, 4, 9], (0, np.inf)),
    "norm": ({}, [-2.0, 0.1, 1.5], (-np.inf, np.inf)),
    "poisson": ({"mu": 2.5}, [0, 1, 4, 7], (0, np.inf)),
    "t": ({"df": 3.5}, [-2.0, 0.1, 1.5], (-np.inf, np.inf)),
    "uniform": ({}, [0.1, 0.9], (0, 1)),
}
DENSITIES: dict[str, Callable[..., Any]] = {
    "beta": lambda x, a, b: x ** (a - 1) * (1 - x) ** (b - 1) / math.exp(log_beta(a, b)),
    "binom": lambda k, n, p: math.comb(n, k) * p**k * (1 - p) ** (n - k),
    "expon": lambda x: math.exp(-x),
    "gamma": lambda x, a: x ** (a - 1) * math.exp(-x) / math.gamma(a),
    "laplace": lambda x: math.exp(-abs(x)) / 2,
    "logistic": lambda x: math.exp(-x) / (1 + math.exp(-x)) ** 2,
    "lognorm": lambda x, s: (
        math.exp(-((math.log(x) / s) ** 2) / 2) / (x * s * math.sqrt(2 * math.pi))
    ),
    "nbinom": lambda k, n, p: math.comb(n + k - 1, k) * p**n * (1 - p) ** k,
    "norm": lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "poisson": lambda k, mu: math.exp(-mu) * mu**k / math.factorial(k),
    "t": lambda x, df: (
        math.gamma((df + 1) / 2)
        / (math.sqrt(df * math.pi) * math.gamma(df / 2))
        * (1 + x * x / df) ** (-(df + 1) / 2)
    ),
    "uniform": lambda x: 1.0,
}


def run(code: str, **values: Any) -> Any:
    """Return the value of the last expression of recommended code."""
    scope = {"np": np, "mg": mg, "minigrad": mg, "scipy": types.SimpleNamespace(special=SPECIAL)}
    *statements, result = code.split("; ")
    exec("\n".join(statements), scope | values, local := {})
    return np.asarray(eval(result, scope | values | local))


def formula(name: str, function: str, at: np.ndarray, **options: float) -> Any:
    """Return what is recommended for a function of a distribution, at some points."""
    shapes = PARAMETERS[name][0]
    code = conversion.of_distribution(name, function, {**shapes, **options})
    assert code is not None
    with np.errstate(all="ignore"):
        return run(code, x=at, k=at, **shapes, **options)


PLACES = [{}, {"loc": 1.0}, {"scale": 2.0}, {"loc": -0.5, "scale": 0.25}]


@pytest.mark.parametrize("options", PLACES, ids=str)
@pytest.mark.parametrize("name", PARAMETERS)
def test_recommended_density_is_that_of_its_definition(name: str, options: dict[str, Any]) -> None:
    shapes, points, _ = PARAMETERS[name]
    kind = "pmf" if f"{name}.logpmf" in conversion.LOG_DENSITIES else "pdf"
    options = {"loc": 1} if kind == "pmf" and options else options
    loc, scale = options.get("loc", 0), options.get("scale", 1)
    at = np.array(points) * scale + loc
    expected = np.array([DENSITIES[name](x, **shapes) / scale for x in points])
    np.testing.assert_allclose(formula(name, kind, at, **options), expected, rtol=1e-12)
    log = formula(name, f"log{kind}", at, **options)
    np.testing.assert_allclose(log, np.log(expected), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("options", PLACES, ids=str)
@pytest.mark.parametrize("name", PARAMETERS)
def test_recommended_tails_are_sums_of_the_density(name: str, options: dict[str, Any]) -> None:
    shapes, points, (low, _) = PARAMETERS[name]
    is_discrete = f"{name}.logpmf" in conversion.LOG_DENSITIES
    options = {"loc": 1} if is_discrete and options else options
    loc, scale = options.get("loc", 0), options.get("scale", 1)
    at = np.array(points) * scale + loc
    density = np.vectorize(lambda x: DENSITIES[name](x, **shapes))
    if is_discrete:
        below = [sum(DENSITIES[name](k, **shapes) for k in range(int(x) + 1)) for x in points]
        at = at + 0.4  # between two values
    else:
        ends = [*np.arange(-40.0 if low else 0.0, 0.0, 4.0), 0.0]
        below = [
            sum(itertools.starmap(lambda a, b: integral(density, a, b), itertools.pairwise(path)))
            for x in points
            for path in [[end for end in ends if end < x] + [x]]
        ]
        if name == "t":  # the only one that has a probability below -40
            below = [p + student(shapes["df"], -40.0) for p in below]
    tail = formula(name, "sf", at, **options)
    np.testing.assert_allclose(formula(name, "cdf", at, **options), below, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(tail, 1 - np.array(below), rtol=1e-8, atol=1e-10)
    for function, value in [("logcdf", np.array(below)), ("logsf", tail)]:
        with np.errstate(divide="ignore"):
            expected = np.log(value)
        y = formula(name, function, at, **options)
        inside = np.isfinite(expected) & (value > 1e-9)
        np.testing.assert_allclose(y[inside], expected[inside], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", PARAMETERS)
def test_recommended_code_is_that_of_scipy_outside_the_support(name: str) -> None:
    _, _, (low, high) = PARAMETERS[name]
    is_discrete = f"{name}.logpmf" in conversion.LOG_DENSITIES
    density = "pmf" if is_discrete else "pdf"
    ends = [(low - 1.0, 0.0), (high + 1.0, 1.0)] + [(low, 0.0)] * (name == "lognorm")
    for at, cdf in ends:
        if np.isfinite(at):
            values = [formula(name, f, np.array([at]))[0] for f in (density, "cdf", "sf")]
            logs = [formula(name, f"log{f}", np.array([at]))[0] for f in (density, "cdf", "sf")]
            assert values == [0.0, cdf, 1 - cdf]
            assert logs == [-np.inf] + [0.0 if p else -np.inf for p in (cdf, 1 - cdf)]
    if is_discrete:
        assert formula(name, "pmf", np.array([1.5]))[0] == 0
        assert formula(name, "logpmf", np.array([1.5]))[0] == -np.inf


@pytest.mark.parametrize("z", [-800.0, 800.0])
@pytest.mark.parametrize("name", ["laplace", "logistic"])
def test_recommended_logarithm_of_a_tail_does_not_become_infinite(name: str, z: float) -> None:
    values = [formula(name, f, np.array([z]))[0] for f in ("logcdf", "logsf")]
    lower = -800.0 - (math.log(2) if name == "laplace" else 0.0)
    np.testing.assert_allclose(sorted(values), [lower, 0.0], atol=1e-300)


def test_no_formula_if_a_parameter_without_derivative_requires_gradients() -> None:
    t = mg.Tensor(2.0, requires_grad=True)
    for name, parameters in conversion.CONSTANT.items():
        for parameter in parameters:
            for function in ("cdf", "sf", "logcdf", "logsf"):
                assert conversion.of_distribution(name, function, {parameter: t}) is None
    assert conversion.of_distribution("poisson", "cdf", {"mu": t}) is not None
    assert conversion.of_distribution("beta", "logpdf", {"a": t}) is not None
    assert conversion.of_distribution("norm", "ppf", {}) is None
    assert conversion.of_distribution("cauchy", "cdf", {}) is None


# -- functions of arrays

a, b = np.array([0.5, -1.5, 2.0, 0.25]), np.array([1.0, 0.75, -0.5, 3.0])
A, B = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]]), np.array([[2.0, 2.0], [-1.0, 0.5]])
S = np.array([[2.0, 0.5], [0.5, 1.0]])
LOWER = np.array([[2.0, 0.0], [0.5, 1.5]])
NAMES = {
    "a": a,
    "b": b,
    "A": A,
    "B": B,
    "x": a,
    "h": b,
    "y": np.array([1.0, 4.0, 2.0]),
    "V": np.array([0.5, 2.0, 1.0, 4.0]),
    "VI": np.diag(b**2),
}


def each(f: Callable[[Any, Any], float], rows: Any = A, others: Any = B) -> np.ndarray:
    return np.array([[f(u, v) for v in others] for u in rows])


def pairs(values: np.ndarray) -> list[float]:
    return [values[i, j] for i, j in itertools.combinations(range(len(values)), 2)]


def euclidean(u: Any, v: Any) -> float:
    return math.sqrt(sum((s - t) ** 2 for s, t in zip(u, v)))


def distances(f: Callable[[float, float], float]) -> list[float]:
    return [f(s, t) for s, t in zip(a, b)]


ca, cb = a - a.mean(), b - b.mean()
VALUES: list[tuple[str, dict[str, Any], Any]] = [
    # the function, its options, and its value for the operands of the same names
    ("cluster.vq.vq", {}, each(euclidean).min(1)),
    ("linalg.cholesky", {"A": S}, np.linalg.cholesky(S).T),
    ("linalg.cholesky", {"A": S, "lower": True}, np.linalg.cholesky(S)),
    ("linalg.det", {"A": S}, 1.75),
    ("linalg.inv", {"A": S}, np.array([[1.0, -0.5], [-0.5, 2.0]]) / 1.75),
    ("linalg.norm", {"A": A}, math.sqrt(sum(v * v for v in A.ravel()))),
    ("linalg.norm", {"A": A, "ord": 1}, 4.5),
    ("linalg.norm", {"A": A, "ord": 1, "axis": 0, "keepdims": True}, [[4.5, 3.0]]),
    ("linalg.solve", {"A": S, "b": np.array([1.0, 2.0])}, np.array([0.0, 3.5]) / 1.75),
    ("linalg.expm", {"A": np.diag([0.5, 2.0])}, np.diag(np.exp([0.5, 2.0]))),
    ("linalg.solve_triangular", {"A": LOWER, "b": np.array([2.0, 2.0]), "lower": True}, [1.0, 1.0]),
    ("signal.convolve", {}, np.polymul(a, b)),
    ("signal.fftconvolve", {}, np.polymul(a, b)),
    ("signal.oaconvolve", {}, np.polymul(a, b)),
    ("signal.correlate", {}, np.polymul(a, b[::-1])),
    ("spatial.distance.braycurtis", {}, 8.0 / 7.0),
    ("spatial.distance.canberra", {}, sum(distances(lambda s, t: abs(s - t) / (abs(s) + abs(t))))),
    ("spatial.distance.cdist", {}, each(euclidean)),
    ("spatial.distance.cdist", {"metric": "sqeuclidean"}, each(euclidean) ** 2),
    ("spatial.distance.cdist", {"metric": "cityblock"}, each(lambda u, v: sum(abs(u - v)))),
    ("spatial.distance.chebyshev", {}, max(distances(lambda s, t: abs(s - t)))),
    ("spatial.distance.cityblock", {}, sum(distances(lambda s, t: abs(s - t)))),
    ("spatial.distance.correlation", {}, 1 - ca @ cb / math.sqrt((ca @ ca) * (cb @ cb))),
    ("spatial.distance.cosine", {}, 1 - a @ b / math.sqrt((a @ a) * (b @ b))),
    ("spatial.distance.euclidean", {}, euclidean(a, b)),
    ("spatial.distance.mahalanobis", {}, math.sqrt(sum(((a - b) * b) ** 2))),
    ("spatial.distance.minkowski", {"p": 3}, sum(abs(a - b) ** 3) ** (1 / 3)),
    ("spatial.distance.pdist", {}, pairs(each(euclidean, A, A))),
    ("spatial.distance.seuclidean", {}, math.sqrt(sum((a - b) ** 2 / NAMES["V"]))),
    ("spatial.distance.sqeuclidean", {}, sum((a - b) ** 2)),
    ("special.logsumexp", {}, math.log(sum(map(math.exp, a)))),
    ("special.logsumexp", {"x": A, "axis": 0}, np.log(np.exp(A).sum(0))),
    ("special.logsumexp", {"x": A, "axis": 0, "keepdims": True}, np.log(np.exp(A).sum(0))[None]),
    ("special.softmax", {}, np.exp(a) / np.exp(a).sum()),
    ("special.softmax", {"x": A, "axis": 0}, np.exp(A) / np.exp(A).sum(0)),
    ("special.log_softmax", {"x": A, "axis": 0}, np.log(np.exp(A) / np.exp(A).sum(0))),
]


@pytest.mark.parametrize("name, options, expected", VALUES, ids=str)
def test_recommended_code_has_the_value_of_the_function(
    name: str, options: dict[str, Any], expected: Any
) -> None:
    operands = {key: value for key, value in options.items() if isinstance(value, np.ndarray)}
    given = {key: value for key, value in options.items() if key not in operands}
    conditions = {"in1": a, "in2": b} if name.startswith("signal") else {}
    text = conversion._formula(f"scipy.{name}", conditions | given, given)
    assert text is not None and text.startswith("; to keep them, write "), text
    y = run(text.removeprefix("; to keep them, write "), **{**NAMES, **given, **operands})
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "name, given, options, excerpt",
    [
        ("signal.convolve", {"in1": A, "in2": b}, {}, "no formula for these arguments"),
        ("signal.correlate", {"in1": a, "in2": B}, {}, "no formula for these arguments"),
        ("signal.convolve", {"in1": a, "in2": b}, {"mode": "same"}, "no formula with mode is"),
        ("signal.correlate", {"in1": a, "in2": b}, {"method": "fft"}, "no formula with method is"),
        ("signal.convolve", {"in1": a, "in2": b}, {"method": "fft"}, "; to keep them, write np.co"),
        ("linalg.solve", {}, {"assume_a": "pos"}, "(without: np.linalg.solve(A, b))"),
        ("spatial.distance.cdist", {}, {"metric": "cosine", "p": 3}, "no formula with metric, p"),
        ("spatial.distance.euclidean", {}, {"w": b}, "no formula with w is known"),
        ("special.softmax", {}, {"axis": 1}, "keepdims=True"),
        ("integrate.simpson", {"y": a, "x": A, "dx": 1}, {}, "no formula for these arguments"),
    ],
)
def test_formula_is_recommended_only_for_the_arguments_that_it_uses(
    name: str, given: dict[str, Any], options: dict[str, Any], excerpt: str
) -> None:
    assert excerpt in (conversion._formula(f"scipy.{name}", given, options) or "")


@pytest.mark.parametrize("name", [*conversion.LINEAR, *conversion.INTERPOLATING])
def test_linear_functions_are_recommended_only_for_gradients_of_their_values(name: str) -> None:
    t = mg.Tensor(np.ones(3), requires_grad=True)
    inside = name.partition("(")[2].partition(")")[0]
    words = [word.partition("=")[0] for word in inside.split(", ")]
    at = next(i for i, word in enumerate(inside.split(", ")) if "{}" in word)
    words = [f"argument{i}" if "{}" in word else word for i, word in enumerate(words)]
    given: dict[str, Any] = {"self": None, **dict.fromkeys(words, 1.0), "bc_type": None}
    function = name.partition("(")[0]
    for i, word in enumerate(words):
        value = [t] if i % 2 else t  # alone, or in a list
        text = conversion._formula(function, {**given, word: value}, {})
        assert (text is not None) and ("no formula" in text) == (i != at), word


# -- advice for functions that convert, in modules with the names of SciPy's

MODULES = {
    "scipy.linalg._basic": """
def solve(a, b, lower=False, overwrite_a=False, check_finite=True, assume_a=None):
    return np.asarray(a)
def cholesky(a, lower=False): return np.asarray(a)
def decorated(f):
    def wrapper(*args, **kwargs): return np.asarray(args[0] if f else None)
    return wrapper
def det(a, overwrite_a=False, check_finite=True): pass
wrapped_det = decorated(det)
def det_by_func(func, *args, **kwargs): return np.asarray(args[0])
""",
    "scipy.signal._filter": """
def filtfilt(b, a, x, axis=-1, padtype="odd", padlen=None): return np.asarray(b), inner(x)
def inner(x): return np.asarray(x)
def _private(x): return np.asarray(x)
def convolve(in1, in2, mode="full", method="auto"): return np.asarray(in1)
""",
    "scipy.special._functions": """
def logsumexp(a, axis=None, keepdims=False): return np.asarray(a)
def unknown(a): return np.asarray(a)
def chosen(a): return array_namespace(a) and np.asarray(a)
def array_namespace(a): return True
def calls(f, *args): return f(*args)
""",
    "scipy.sparse._csr": """
class csr_array:
    def __matmul__(self, other): return np.asarray(other)
    def __mul__(self, other): return np.asarray(other)
    def dot(self, other): return np.asarray(other)
class csr_matrix(csr_array): pass
""",
    "scipy.interpolate._splines": """
class CubicSpline:
    def __init__(self, x, y, axis=0, bc_type="not-a-knot", extrapolate=None): np.asarray(y), np.asarray(x)
class PPoly:
    def __init__(self, shape=()): self.shape = shape
    def __call__(self, x, nu=0, extrapolate=None): return np.asarray(x) if np.size(x) > 1 else np.zeros(self.shape)
""",
    "scipy.stats._distributions": """
class norm_gen:
    shapes = None
    def logpdf(self, x, *args, **kwds):
        args, loc, scale = args, kwds.get("loc", 0), kwds.get("scale", 1)
        return np.asarray(x)
class beta_gen:
    shapes = "a, b"
    def cdf(self, x, *args, **kwds):
        loc, scale = kwds.get("loc", 0), kwds.get("scale", 1)
        return np.asarray(x) + np.asarray(args[0])
norm, beta = norm_gen(), beta_gen()
""",
    "scipy.spatial.distance": """
def cdist(XA, XB, metric="euclidean", *, out=None, **kwargs): return np.asarray(XA)
""",
    "scipy.fft": "def fft_of_list(a): return np.asarray(a[0])",
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the functions of the modules, and arguments."""
    monkeypatch.delenv("SCIPY_ARRAY_API", raising=False)
    t = mg.Tensor([1.0, 2.0], requires_grad=True)
    scope: dict[str, Any] = {"np": np, "t": t, "b": np.ones(2), "m": mg.stack([t, t])}
    package = types.ModuleType("scipy")
    monkeypatch.setitem(sys.modules, "scipy", package)
    for name, code in MODULES.items():
        module = types.ModuleType(name)
        module.np = np
        monkeypatch.setitem(sys.modules, name, module)
        exec(code, module.__dict__)
        public = name.split(".")[1]
        if not hasattr(package, public):
            setattr(package, public, types.SimpleNamespace())
        for key, value in module.__dict__.items():
            if not key.startswith("__") and key != "np":
                setattr(getattr(package, public), key, value)
                scope[key] = value
    return scope


WRITE = "converts it; to keep them, write"
NO_FORMULA = (
    "and no formula is known; to keep them, write it in NumPy's functions, or add the deriv"
)


@pytest.mark.parametrize(
    "code, excerpt",
    [
        ("solve(m, b)", f"scipy.linalg.solve {WRITE} np.linalg.solve(A, b); "),
        ("solve(m, b, check_finite=False, overwrite_a=True)", f"{WRITE} np.linalg.solve(A, b); "),
        (
            "solve(m, b, assume_a='pos')",
            "scipy.linalg.solve converts it, and no formula with assume_a is known (without: "
            "np.linalg.solve(A, b)); to keep them, write it in NumPy's functions",
        ),
        ("cholesky(m)", f"{WRITE} np.linalg.cholesky(A).T; "),
        ("cholesky(m, lower=True)", f"{WRITE} np.linalg.cholesky(A); "),
        ("wrapped_det(m, check_finite=False)", f"scipy.linalg.det {WRITE} np.linalg.det(A); "),
        ("det_by_func(det, m)", f"scipy.linalg.det {WRITE} np.linalg.det(A); "),
        (
            "filtfilt(b, b, t, padtype=None, padlen=3)",
            f"scipy.signal.filtfilt {WRITE} x @ scipy.signal.filtfilt(b, a, np.eye(x.shape[-1]), "
            "padtype=None, padlen=3); ",
        ),
        ("filtfilt(b, b, t)", "scipy.signal.filtfilt(b, a, np.eye(x.shape[-1])); "),
        ("filtfilt(t, b, b)", "filtfilt converts it, and no formula for these arguments is known"),
        ("filtfilt(t, b, b, padtype=None)", "no formula for these arguments is known"),
        ("_private(t)", f"; scipy.signal converts it, {NO_FORMULA}"),
        ("cdist(m, m)", f"{WRITE} np.linalg.norm(A[:, None] - B, axis=-1); "),
        ("cdist(m, m, metric='minkowski', p=3)", "no formula with metric, p is known (without: np.li"),
        ("cdist(m, m, 'cityblock')", f"{WRITE} np.sum(np.abs(A[:, None] - B), axis=-1); "),
        ("filtfilt(b, b, t, 0)", "filtfilt converts it, and no formula with axis is known"),
        ("convolve(t, b, method='fft')", f"{WRITE} np.convolve(x, h); "),
        ("convolve(m, b)", "no formula for these arguments is known"),
        ("logsumexp(t)", f"{WRITE} mg.logsumexp(x); "),
        ("logsumexp(t, 0, True)", f"{WRITE} mg.logsumexp(x, axis=0, keepdims=True); "),
        ("logsumexp(t, b)", f"{WRITE} mg.logsumexp(x, axis=axis); "),
        ("unknown(t)", f"scipy.special.unknown converts it, {NO_FORMULA}"),
        ("inner(t)", f"scipy.signal.inner converts it, {NO_FORMULA}"),
        ("chosen(t)", "to keep them, set the environment variable SCIPY_ARRAY_API=1 before SciPy is"),
        ("calls(unknown, t)", f"scipy.special.calls converts it, {NO_FORMULA}"),
        ("calls(lambda: np.asarray(t))", "write minigrad.tensor([...]) instead of np.array([...])"),
        ("fft_of_list([t])", f"scipy.fft.fft_of_list converts it, {NO_FORMULA}"),
        ("csr_array() @ t", f"scipy.sparse {WRITE} minigrad.matmul(A, x); "),
        ("csr_array().dot(t)", f"scipy.sparse.dot {WRITE} minigrad.matmul(A, x); "),
        ("csr_matrix() * t", f"scipy.sparse {WRITE} minigrad.matmul(A, x); "),
        ("csr_array() * t", "no formula for these arguments is known"),
        (
            "CubicSpline(b, t, bc_type='natural')",
            f"scipy.interpolate.CubicSpline {WRITE} np.tensordot(scipy.interpolate.CubicSpline("
            "points, np.eye(len(x)), bc_type='natural')(at), x, 1); ",
        ),
        ("CubicSpline(b, t, bc_type='periodic')", "no formula for these arguments is known"),
        ("CubicSpline(b, t, 1)", "no formula with axis is known"),
        ("CubicSpline(t, b)", "no formula for these arguments is known"),
        ("PPoly()(t, extrapolate=False)", "spline(x, nu, extrapolate=False))(x); at(x); "),
        ("PPoly((2,))(t)", "no formula for these arguments is known"),
        ("norm.logpdf(t)", f"scipy.stats.norm.logpdf {WRITE} z = x; -0.5 * z**2"),
        ("norm.logpdf(t, scale=2.0)", f"{WRITE} z = x / scale; -0.5 * z**2"),
        ("beta.cdf(t, 2.0, 3.0)", f"scipy.stats.beta.cdf {WRITE} z = x; outside = (z < 0) | (z > 1); "),
        ("beta.cdf(t, 2.0, t)", f"scipy.stats.beta.cdf converts it, {NO_FORMULA}"),
        ("beta.cdf(b, t, 3.0)", f"scipy.stats.beta.cdf converts it, {NO_FORMULA}"),
        ("np.polynomial.polynomial.polyval(2.0, t)", "np.polynomial.polynomial.polyval converts it; to keep "),
    ],
)  # fmt: skip
def test_error_of_a_function_that_converts_names_it_and_what_to_write(
    code: str, excerpt: str, names: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as error:
        eval(code, names)
    assert excerpt in str(error.value)


def test_variable_is_not_recommended_if_it_is_set(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with pytest.raises(TypeError, match=f"scipy.special.chosen converts it, {NO_FORMULA}"):
        names["chosen"](names["t"])


@pytest.mark.parametrize(
    "value, default, expected",
    [
        (np.ones(2), 1.0, False),
        (np.ones(2), np.ones(2), False),
        (np.array([1, 2]), 1, True),
        (np.ones(2), None, True),
        (1, 1.0, True),
        ("a", "a", False),
        (mg.Tensor(1.0), 1.0, True),
    ],
)
def test_option_differs_from_its_default(value: Any, default: Any, expected: bool) -> None:
    assert conversion._is_other(value, default) is expected

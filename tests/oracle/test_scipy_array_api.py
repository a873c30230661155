"""SciPy's functions with the array API: derivatives of tensors, or errors that name what to write."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import scipy_calls
from support.environment import needs

import minigrad as mg
from minigrad.numpy import conversion

needs("scipy")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Run all calls in a process of their own."""
    program = ROOT / "tests/support/scipy_calls.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SCIPY_ARRAY_API": "1"}
    run = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env=environment, check=True
    )
    return json.loads(run.stdout)


@pytest.mark.parametrize("call", scipy_calls.calls())
def test_call_of_scipy_has_first_and_second_derivatives(
    outcomes: dict[str, str], call: str
) -> None:
    assert outcomes[call] == "right"


def name_of(call: str) -> str:
    """Return the name of the innermost function of SciPy, which is refused."""
    return re.findall(r"(scipy[\w.]+)\(", call)[-1]


def test_every_recommendation_is_tested() -> None:
    calls = {
        (name_of(call), *re.findall(r", (lower=True|mode='\w+'|metric='\w+')\)", call))
        for call in scipy_calls.REFUSED
        if "scipy.stats." not in call or "multivariate" in call
    }
    keys = {name if not option else f"{name}({option[0]})" for name, *option in calls}
    others = {f"scipy.sparse.{name}" for name in ("__matmul__", "__mul__", "dot")}
    scipys = {name for name in conversion.INSTEAD if not name.startswith("numpy.")}
    assert keys == scipys - others


@pytest.mark.parametrize(
    "call, message",
    [
        ("scipy.linalg.solve(A, x[9:], assume_a='pos')", r"assume_a is known \(without: np.linalg"),
        ("scipy.spatial.distance.cdist(A, A, 'minkowski', p=3)", "no formula with metric, p is"),
        ("scipy.spatial.distance.euclidean(x, x + 1, x)", "no formula with w is known"),
        ("scipy.signal.convolve(x, x, mode='same')", r"mode is known \(without: np.convolve"),
        ("scipy.signal.convolve(A, A)", "no formula for these arguments is known"),
        ("scipy.signal.lfilter(b, a, x, zi=np.ones(1))[0]", "no formula with zi is known"),
        ("scipy.signal.sosfilt(x[:6].reshape(1, 6), x)", "no formula for these arguments is known"),
        ("scipy.integrate.simpson(a, x=x[:2])", "no formula for these arguments is known"),
        ("scipy.interpolate.interp1d(points, np.sin(points))(x)", "and no formula is known"),
        (
            "scipy.interpolate.CubicSpline(points[:3], x[[0, 1, 0]], bc_type='periodic')(1.5)",
            "no formula for these arguments is known",
        ),
        ("scipy.interpolate.CubicSpline(points, V2)(x)", "no formula for these arguments is known"),
        ("scipy.integrate.solve_ivp(lambda t, y: x[:1], (0, 1), [1.0]).y", "solve_ivp converts it"),
        ("scipy.integrate.quad(lambda t: t * x[0], 0, 1)[0]", "quad converts it, and no formula"),
        ("scipy.signal.place_poles(S, A, [1.0, 2.0, 3.0]).gain_matrix", "place_poles converts it"),
    ],
)
def test_advice_names_options_that_it_leaves_out(call: str, message: str) -> None:
    f = scipy_calls.with_operands(call, {"V2": "np.ones((12, 2))"})
    with pytest.raises((TypeError, mg.GradientError), match=message):
        mg.grad(lambda x: f(x).sum())(np.arange(1.0, 13.0))


def test_conversion_by_the_callers_own_code_does_not_name_scipy() -> None:
    x = mg.tensor(np.ones(2), requires_grad=True)
    minimize = scipy_calls.vocabulary()["scipy"].optimize.minimize
    with pytest.raises(TypeError, match=r"to keep them, write minigrad.tensor") as refusal:
        minimize(lambda _: np.array([[x.sum()]])[0, 0], np.ones(2))
    assert "SCIPY" not in str(refusal.value)


@pytest.mark.parametrize("call", scipy_calls.REFUSED)
def test_error_for_a_refused_call_names_code_with_derivatives(call: str) -> None:
    operands = scipy_calls.REFUSED[call]
    f, x = scipy_calls.with_operands(call, operands), np.sqrt(np.arange(1.0, 13.0))
    with pytest.raises(TypeError) as refusal:
        mg.grad(lambda x: f(x).sum())(x)
    name = "scipy" if "spline" in call else re.escape(name_of(call).partition(".__")[0])
    message = rf"{name}.* converts it; to keep them, write (.*); without them"
    advice = re.search(message, str(refusal.value))
    assert advice is not None, refusal.value
    g = scipy_calls.with_operands(advice[1], operands)
    if isinstance(g(x), tuple):  # as the result of the refused call
        g = scipy_calls.with_operands(advice[1] + call.partition(")")[2], operands)
    assert scipy_calls.outcome(g, f) == "right"


def calls_with_options() -> list[tuple[str, str, str]]:
    """Return the refused calls with each option that their function may have."""
    calls = []
    for call in scipy_calls.REFUSED:
        names, function = name_of(call).split("."), scipy_calls.vocabulary()["scipy"]
        for name in names[1:]:
            function = getattr(function, name)
        options = inspect.signature(function).parameters.keys()
        options |= {"loc", "scale"} if "stats" in names else set()
        tree = ast.parse(call)
        node = next(
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name_of(call)
        )
        keywords = node.keywords
        for option in sorted(options & scipy_calls.OPTIONS.keys()):
            for value in scipy_calls.OPTIONS[option]:
                node.keywords = [*keywords, ast.keyword(option, ast.Name(option))]
                if option not in [keyword.arg for keyword in keywords]:
                    calls.append((call, ast.unparse(tree), value))
    return calls


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("call, with_option, value", calls_with_options())
def test_formula_for_a_call_with_an_option_has_the_values_of_the_call(
    call: str, with_option: str, value: str
) -> None:
    option = re.findall(r"(\w+)=\1", with_option)[-1]
    operands = {**scipy_calls.REFUSED[call], option: value}
    f, x = scipy_calls.with_operands(with_option, operands), np.sqrt(np.arange(1.0, 13.0))
    try:
        expected = f(x)
    except Exception:
        return  # SciPy refuses the option
    with pytest.raises((TypeError, ValueError, mg.GradientError)) as refusal:
        mg.grad(lambda x: f(x).sum())(x)
    message = str(refusal.value)
    advice = re.search(r"converts it; to keep them, write (.*); without", message)
    if advice is None:
        assert "no formula" in message or "mg.GradientError" not in message
        return
    y = scipy_calls.with_operands(advice[1], operands)(x)
    if isinstance(y, tuple):
        y = scipy_calls.with_operands(advice[1] + call.partition(")")[2], operands)(x)
    np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("has_location", [False, True])
@pytest.mark.parametrize("name", scipy_calls.DISTRIBUTIONS)
def test_formula_of_a_distribution_has_the_values_of_scipy_outside_the_support(
    name: str, has_location: bool
) -> None:
    values = {"a": 1.5, "b": 2.5, "s": 0.7, "n": 6, "p": 0.3, "mu": 2.5, "df": 3.5}
    shapes = getattr(scipy_calls.vocabulary()["stats"], name).shapes or ""
    values = {key: value for key, value in values.items() if key in shapes.split(", ")}
    values["n"] = 2.5 if name == "nbinom" else 6
    x = np.r_[np.linspace(-3, 9, 49), np.nan]
    given = {"loc": 1} if has_location else {}
    given |= (
        {"scale": 2.0} if has_location and "k," not in scipy_calls.DISTRIBUTIONS[name][0] else {}
    )
    distribution = getattr(scipy_calls.vocabulary()["stats"], name)
    for function in ("pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf"):
        formula = conversion.of_distribution(name, function, given)
        if formula is None:
            continue
        arguments = {key: value for key, value in values.items() if key in shapes.split(", ")}
        expected = getattr(distribution, function)(x, **arguments, **given)
        operands = {key: repr(value) for key, value in {**arguments, **given}.items()}
        operands = {**operands, "k": "x"}
        y = scipy_calls.with_operands(formula, operands)(x)
        np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-14, err_msg=formula)
        total = lambda x: np.sum(scipy_calls.with_operands(formula, operands)(x))  # noqa: B023
        inside = np.isfinite(expected) | (expected == -np.inf)
        if "k," not in scipy_calls.DISTRIBUTIONS[name][0]:
            slope = mg.grad(total)(x + 1e-3).data
            assert np.isfinite(slope[inside & (x != x[-1])]).all(), formula


@pytest.mark.parametrize("name", scipy_calls.DISTRIBUTIONS)
def test_recommended_logarithm_of_a_tail_is_finite_where_that_of_scipy_is(name: str) -> None:
    arguments, _, constant = scipy_calls.DISTRIBUTIONS[name]
    values = {
        "loc": "0.5",
        "scale": "2.0",
        "s": "0.7",
        "a": "1.5",
        "b": "2.5",
        "n": "50",
        "p": "0.3",
    }
    values |= {"mu": "9.0", "k": "np.abs(x).round()", **constant}
    values = {key: code for key, code in values.items() if re.search(rf"\b{key}\b", arguments)}
    x = np.concatenate([s * np.geomspace(1e-3, 1e3, 25) for s in (1, -1)])
    if name in ("beta", "uniform", "lognorm", "gamma", "expon"):  # without the ends of the support
        x = np.abs(x) + 0.5 if name != "beta" else np.abs(x) / 1001
    x = x[np.abs(x) < {"uniform": 2.4, "binom": 49}.get(name, np.inf)]
    for function in ("logcdf", "logsf"):
        given = {key: 2.0 for key in ("loc", "scale") if key in values}
        formula = conversion.of_distribution(name, function, given)
        assert formula is not None
        with np.errstate(all="ignore"):
            expected = scipy_calls.with_operands(
                f"scipy.stats.{name}.{function}({arguments})", values
            )(x)
            y = scipy_calls.with_operands(formula, values)(x)
        is_finite = np.isfinite(expected)
        np.testing.assert_allclose(
            np.asarray(y)[is_finite], expected[is_finite], rtol=1e-9, atol=1e-14
        )


def test_conversion_by_another_function_of_scipy_names_it() -> None:
    x = mg.Tensor(np.arange(12.0), requires_grad=True)
    message = r"scipy.ndimage.median_filter converts it, and no formula is known; .* custom_op"
    with pytest.raises(TypeError, match=message):
        scipy_calls.vocabulary()["ndimage"].median_filter(x, 3)

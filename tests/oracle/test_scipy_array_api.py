"""SciPy's functions with the array API: derivatives of tensors, or errors that name what to write."""

from __future__ import annotations

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
    }
    keys = {name if not option else f"{name}({option[0]})" for name, *option in calls}
    assert keys == conversion.INSTEAD.keys()


@pytest.mark.parametrize(
    "call, message",
    [
        ("scipy.linalg.solve(A, x[9:], assume_a='pos')", "without assume_a it is np.linalg.solve"),
        (
            "scipy.spatial.distance.cdist(A, A, 'minkowski', p=3)",
            "without metric, p it is np.linalg",
        ),
        (
            "scipy.spatial.distance.euclidean(x, x + 1, np.ones(12))",
            "without w it is np.linalg.norm",
        ),
        ("scipy.signal.convolve(x, x, mode='same')", "without mode it is np.convolve"),
        ("scipy.linalg.norm(A, 1)", "without ord it is np.linalg.norm"),
    ],
)
def test_advice_names_options_that_it_leaves_out(call: str, message: str) -> None:
    f = scipy_calls.with_operands(call, {})
    with pytest.raises(TypeError, match=message):
        mg.grad(lambda x: f(x).sum())(np.arange(1.0, 13.0))


def test_conversion_by_the_callers_own_code_does_not_name_scipy() -> None:
    x = mg.tensor(np.ones(2), requires_grad=True)
    minimize = scipy_calls.vocabulary()["scipy"].optimize.minimize
    with pytest.raises(TypeError, match=r"to keep them, write np.stack") as refusal:
        minimize(lambda _: np.array([[x.sum()]])[0, 0], np.ones(2))
    assert "SCIPY" not in str(refusal.value)


@pytest.mark.parametrize("call", scipy_calls.REFUSED)
def test_error_for_a_refused_call_names_code_with_derivatives(call: str) -> None:
    operands = scipy_calls.REFUSED[call]
    f, x = scipy_calls.with_operands(call, operands), np.sqrt(np.arange(1.0, 13.0))
    with pytest.raises(TypeError) as refusal:
        mg.grad(lambda x: f(x).sum())(x)
    message = rf"{re.escape(name_of(call))} converts it; to keep them, write (.*); without them"
    advice = re.search(message, str(refusal.value))
    assert advice is not None, refusal.value
    g = scipy_calls.with_operands(advice[1], operands)
    if isinstance(g(x), tuple):  # as the result of the refused call
        g = scipy_calls.with_operands(advice[1] + call.partition(")")[2], operands)
    assert scipy_calls.outcome(g, f) == "right"


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
        formula = conversion.INSTEAD[f"scipy.stats.{name}.{function}"]
        with np.errstate(all="ignore"):
            expected = scipy_calls.with_operands(
                f"scipy.stats.{name}.{function}({arguments})", values
            )(x)
            y = scipy_calls.with_operands(formula, values)(x)
        is_finite = np.isfinite(expected)
        np.testing.assert_allclose(
            np.asarray(y)[is_finite], expected[is_finite], rtol=1e-9, atol=1e-14
        )


def test_conversion_by_another_function_of_scipy_names_its_module() -> None:
    x = mg.Tensor(np.arange(12.0), requires_grad=True)
    message = r"scipy.ndimage converts it; .* SCIPY_ARRAY_API=1 .* custom_op"
    with pytest.raises(TypeError, match=message):
        scipy_calls.vocabulary()["ndimage"].median_filter(x, 3)

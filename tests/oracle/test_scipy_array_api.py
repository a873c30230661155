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
import scipy_calls
from environment import needs

import minigrad as mg

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


@pytest.mark.parametrize("call", [*scipy_calls.calls(), *scipy_calls.REPLACED.values()])
def test_call_of_scipy_has_first_and_second_derivatives(
    outcomes: dict[str, str], call: str
) -> None:
    assert outcomes[call] == "right"


@pytest.mark.parametrize("call", scipy_calls.REPLACED)
def test_call_of_scipy_without_derivative_names_what_to_write(call: str) -> None:
    f = eval(f"lambda x: {call}", scipy_calls.vocabulary())
    function = re.sub(r".*?\.(\w+)\(.*", r"\1", call)
    replacement = scipy_calls.REPLACED[call].removeprefix("x @ ").partition("(")[0]
    message = rf"scipy\.\w+\.{function} converts it.* write .*{replacement}"
    with pytest.raises(TypeError, match=message):
        mg.grad(lambda x: f(x).sum())(np.arange(1.0, 13.0))


def test_conversion_by_another_function_of_scipy_names_its_module() -> None:
    x = mg.Tensor(np.arange(12.0), requires_grad=True)
    with pytest.raises(TypeError, match=r"scipy.ndimage converts it; .* custom_op"):
        scipy_calls.vocabulary()["ndimage"].median_filter(x, 3)

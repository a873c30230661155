"""Ported expressions: they give NumPy's or PyTorch's results, or are refused."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.ported_expressions import NUMPY, PYTORCH, REFUSED
from support.torch_databases import as_array, assert_same_with_gradients, flat, torch

import minigrad as mg
import nn
from minigrad import Tensor

PAGE = (Path(__file__).parents[2] / "docs" / "numpy.md").read_text(encoding="utf-8")
REFUSALS = (TypeError, ValueError, AttributeError, mg.GradientError, UserWarning)
NUMPY_VERSION = np.lib.NumpyVersion(np.__version__)

rng = np.random.default_rng(0)
X = rng.uniform(0.2, 0.9, (3, 4))
SQUARE = rng.uniform(0.5, 2, (3, 3))
VARIABLES = {
    "x": X, "y": rng.uniform(1.1, 2, (3, 4)), "n": np.where(np.arange(12).reshape(3, 4) == 6, np.nan, X),
    "B": SQUARE, "A": SQUARE @ SQUARE.T + np.eye(3), "v": rng.uniform(0.2, 0.9, 4), "w": rng.uniform(0.2, 0.9, 3),
    "w4": rng.uniform(0.2, 0.9, 4), "s": np.array(0.7), "t": rng.uniform(0.2, 0.9, (2, 3, 4)),
}  # fmt: skip
"""Arrays that the expressions use; tensors have gradients for all of them."""
INDICES = {"m": rng.random((3, 4)) < 0.6, "k": np.argsort(X, 1)[:, :2], "c": np.array([1, 0, 1, 0])}


def tensors_in(results: Any) -> list[Tensor]:
    """Return the tensors of floating-point values; np.atleast_1d returns arrays without gradients."""
    arrays = [y for y in flat(results) if isinstance(y, (Tensor, np.ndarray))]
    return [y if isinstance(y, Tensor) else Tensor(y) for y in arrays if y.dtype.kind == "f"]


def evaluate(code: str, variables: dict[str, Any], **names: Any) -> Any:
    """Return the value of an expression, or skip the test if this NumPy lacks its functions."""
    needs_2_1 = code == "np.clip(x, min=0.3)" and NUMPY_VERSION < "2.1.0"
    if needs_2_1 or not all(hasattr(np, n) for n in re.findall(r"\bnp\.(\w+)", code)):
        pytest.skip("needs a function of a newer NumPy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", ".int...of a tensor")
        return eval(code, {"np": np, **variables, **INDICES, **names})


def as_tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """Return leaves that require gradients."""
    return {name: Tensor(x, requires_grad=True) for name, x in arrays.items()}


@pytest.mark.parametrize("code", [code for codes in NUMPY.values() for code in codes])
def test_expression_of_numpy_gives_values_and_gradients_of_numpy(code: str) -> None:
    expected, found = (flat(evaluate(code, v)) for v in (VARIABLES, as_tensors(VARIABLES)))
    for f, e in zip(found, expected, strict=True):
        if isinstance(e, (np.ndarray, np.generic, float, int)):
            np.testing.assert_allclose(as_array(f), e, rtol=1e-9)
    names = [name for name in VARIABLES if re.search(rf"\b{name}\b", code)]
    is_exact = all(y.dtype == np.float64 and np.isfinite(y.data).all() for y in tensors_in(found))
    if not tensors_in(found) or not is_exact:
        return

    def function(*xs: Any) -> list[Tensor]:
        variables = {**VARIABLES, **dict(zip(names, xs))}
        variables["A"] = (variables["A"] + variables["A"].T) / 2  # for functions of symmetric ones
        return tensors_in(evaluate(code, variables))

    inputs = [VARIABLES[name] for name in names]
    assert mg.gradcheck(function, inputs, elementwise=False, rtol=1e-4, atol=1e-4)


def evaluate_in_pytorch(library: Any, modules: Any, code: str, variables: dict[str, Any]) -> Any:
    """Return the value of an expression of PyTorch in a library."""
    names = {"torch": library, "nn": modules, "array": np.ones(2)}
    names |= {"index": library.tensor(INDICES["k"]), "labels": library.tensor([0, 2, 1])}
    return evaluate(code, variables, **names)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", [code for codes in PYTORCH.values() for code in codes])
def test_expression_of_pytorch_gives_values_and_gradients_of_pytorch(code: str) -> None:
    theirs = {name: torch.tensor(x, requires_grad=True) for name, x in VARIABLES.items()}
    ours = as_tensors(VARIABLES)
    expected = flat(evaluate_in_pytorch(torch, torch.nn, code, theirs))
    found = flat(evaluate_in_pytorch(mg, nn, code, ours))
    results: list[tuple[Any, Any]] = []
    for f, e in zip(found, expected, strict=True):
        if isinstance(e, (torch.Tensor, np.ndarray, int, float)):
            if isinstance(f, Tensor) and f.dtype == np.float64:  # the default dtype here
                e = torch.as_tensor(e, dtype=torch.float64)
            results.append((f, e))
    leaves = {} if "nn.Linear" in code else {theirs[name]: ours[name] for name in VARIABLES}
    if results:
        assert_same_with_gradients(*zip(*results), leaves, rtol=1e-5)


@pytest.mark.parametrize("code", REFUSED)
def test_refused_expression_raises(code: str) -> None:
    with pytest.raises(REFUSALS, match=r"\w"):
        evaluate_in_pytorch(mg, nn, code, as_tensors(VARIABLES))


def test_page_names_tested_expressions_and_their_number() -> None:
    table = PAGE.split("## What differs from NumPy")[1].split("\n## ")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    assert cells and {code for cell in cells for code in re.findall("`(.+?)`", cell)} <= {*REFUSED}
    for library, codes in (("NumPy", NUMPY), ("PyTorch", PYTORCH)):
        count = sum(map(len, codes.values()))
        assert re.search(rf"{count} (expressions )?of\s{library}", PAGE.replace("\nand", " and"))

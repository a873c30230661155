"""Every expression of docs/numpy.md: it gives NumPy's or PyTorch's results, or is refused as the page says."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_databases import as_array, assert_same_with_gradients, flat, torch

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


def expressions(*titles: str, refused: bool = False) -> Iterator[str]:
    """Yield the code spans of sections of the page: of the lists, or of the tables of refused calls."""
    for title in titles:
        section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
        for line in section.splitlines():
            text = line.replace("\\|", "|")
            if refused and line.startswith("| `"):
                text = line.split(" | ")[0].replace("\\|", "|")
            elif refused or not line.startswith("**"):
                continue
            for _, code in re.findall(r"(`+) ?(.+?) ?\1", text):
                yield code


def tensors_in(results: Any) -> list[Tensor]:
    """Return the tensors of floating-point values; np.atleast_1d returns arrays without gradients."""
    arrays = [y for y in flat(results) if isinstance(y, (Tensor, np.ndarray))]
    return [y if isinstance(y, Tensor) else Tensor(y) for y in arrays if y.dtype.kind == "f"]


def evaluate(code: str, variables: dict[str, Any], **names: Any) -> Any:
    """Return the value of an expression, or skip the test if this NumPy lacks its functions."""
    needs_2_1 = code == "np.clip(x, min=0.3)" and NUMPY_VERSION < "2.1.0"
    if needs_2_1 or not all(hasattr(np, n) for n in re.findall(r"\bnp\.(\w+)", code)):
        pytest.skip("this version of NumPy does not have the function")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", ".int...of a tensor")
        return eval(code, {"np": np, **variables, **INDICES, **names})


def as_tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """Return leaves that require gradients."""
    return {name: Tensor(x, requires_grad=True) for name, x in arrays.items()}


@pytest.mark.parametrize("code", [*expressions("Functions of NumPy", "Idioms of NumPy")])
def test_numpy_expression_of_the_page_gives_values_and_gradients_of_numpy(code: str) -> None:
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
@pytest.mark.parametrize("code", [*expressions("Idioms of PyTorch")])
def test_pytorch_expression_of_the_page_gives_values_and_gradients_of_pytorch(code: str) -> None:
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


TITLES = "Functions of NumPy", "Idioms of NumPy", "Idioms of PyTorch"


@pytest.mark.parametrize("code", [*expressions(*TITLES, refused=True)])
def test_refused_expression_of_the_page_raises(code: str) -> None:
    with pytest.raises(REFUSALS, match=r"\w"):
        evaluate_in_pytorch(mg, nn, code, as_tensors(VARIABLES))

"""Every expression of docs/numpy.md: it gives NumPy's or PyTorch's results, or is refused as the page says."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")

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


def leaves_of(results: Any, kind: type) -> list[Any]:
    """Return the results of a type in nested lists and tuples."""
    if isinstance(results, (list, tuple)):
        return [leaf for part in results for leaf in leaves_of(part, kind)]
    return [results] if isinstance(results, kind) else []


def evaluate(code: str, variables: dict[str, Any], **names: Any) -> Any:
    """Return the value of an expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", ".int...of a tensor")
        return eval(code, {**variables, **INDICES, **names})


def as_tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """Return leaves that require gradients."""
    return {name: Tensor(x, requires_grad=True) for name, x in arrays.items()}


def is_in_this_numpy(code: str) -> bool:
    """Return whether the installed NumPy has the functions of an expression."""
    needs_2_1 = code == "np.clip(x, min=0.3)" and NUMPY_VERSION < "2.1.0"
    return not needs_2_1 and all(hasattr(np, n) for n in re.findall(r"\bnp\.(\w+)", code))


@pytest.mark.parametrize("code", [*expressions("Functions of NumPy", "Idioms of NumPy")])
def test_numpy_expression_of_the_page_gives_values_and_slope_of_numpy(code: str) -> None:
    if not is_in_this_numpy(code):
        pytest.skip("this version of NumPy does not have the function")
    numbers = (np.ndarray, np.generic, float, int)
    expected = leaves_of(evaluate(code, VARIABLES, np=np), numbers)
    variables = as_tensors(VARIABLES)
    results = evaluate(code, variables, np=np)
    found = leaves_of(results, (*numbers, Tensor))
    assert len(found) == len(expected)
    for f, e in zip(found, expected):
        np.testing.assert_allclose(getattr(f, "data", f), e, rtol=1e-9)
    ys = [y for y in leaves_of(results, Tensor) if y.requires_grad]
    if not ys:
        return
    draw = np.random.default_rng(len(code)).standard_normal
    along = {name: draw(x.shape) for name, x in VARIABLES.items()}
    along["A"] = along["A"] + along["A"].T  # functions of symmetric matrices
    cotangents = [draw(y.shape).astype(y.dtype) for y in ys]
    gradients = mg.gradients(ys, [*variables.values()], cotangents, allow_unused=True)
    slope = sum(
        (g.data * along[name]).sum() for name, g in zip(variables, gradients) if g is not None
    )
    h = 1e-3 if any(y.dtype == np.float32 for y in ys) else 1e-6
    total = 0.0
    for sign in (1, -1):
        moved = as_tensors({name: x + sign * h * along[name] for name, x in VARIABLES.items()})
        moved_ys = [y for y in leaves_of(evaluate(code, moved, np=np), Tensor) if y.requires_grad]
        total += sign * sum(np.nansum(y.data * g) for y, g in zip(moved_ys, cotangents))
    if np.isfinite(slope):
        assert slope == pytest.approx(total / (2 * h), rel=1e-4, abs=1e-4 if h < 1e-3 else 1e-3)


@pytest.mark.parametrize(
    "code", [*expressions("Functions of NumPy", "Idioms of NumPy", refused=True)]
)
def test_refused_numpy_expression_of_the_page_raises(code: str) -> None:
    if not is_in_this_numpy(code):
        pytest.skip("this version of NumPy does not have the function")
    with pytest.raises(REFUSALS, match=r"\w"):
        evaluate(code, as_tensors(VARIABLES), np=np)


def evaluate_with(library: Any, modules: Any, code: str, make: Any) -> tuple[Any, dict[str, Any]]:
    """Return the value of an expression of PyTorch in a library, and its variables."""
    variables = {name: make(x) for name, x in VARIABLES.items()}
    names = {"torch": library, "nn": modules, "array": np.ones(2)}
    names |= {"index": library.tensor(INDICES["k"]), "labels": library.tensor([0, 2, 1])}
    return evaluate(code, variables, **names), variables


@pytest.mark.parametrize("code", [*expressions("Idioms of PyTorch")])
def test_pytorch_expression_of_the_page_gives_values_and_gradients_of_pytorch(code: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, leaves = evaluate_with(
            torch, torch.nn, code, lambda x: torch.tensor(x, requires_grad=True)
        )
    result, variables = evaluate_with(mg, nn, code, lambda x: Tensor(x, requires_grad=True))
    scalars = (int, float, bool)
    assert leaves_of(result, scalars) == pytest.approx(leaves_of(expected, scalars))
    theirs = leaves_of(expected, (torch.Tensor, np.ndarray))
    ours = leaves_of(result, (Tensor, np.ndarray))
    assert len(ours) == len(theirs)
    for f, e in zip(ours, theirs):
        f = f.data if isinstance(f, Tensor) else f
        e = e.detach().numpy() if isinstance(e, torch.Tensor) else e
        np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-7)
    pairs = [(f, e) for f, e in zip(ours, theirs) if getattr(e, "grad_fn", None) is not None]
    if not pairs or "nn.Linear" in code:  # whose weights are random
        return
    draw = np.random.default_rng(len(code)).standard_normal
    ys, zs = zip(*pairs)
    cotangents = [draw(y.shape).astype(y.dtype) for y in ys]
    found = mg.gradients(ys, [*variables.values()], cotangents, allow_unused=True)
    cotangents = [torch.tensor(g) for g in cotangents]
    gradients = torch.autograd.grad(zs, [*leaves.values()], cotangents, allow_unused=True)
    for f, e in zip(found, gradients, strict=True):
        if e is not None:
            f = np.zeros(e.shape) if f is None else f.data
            np.testing.assert_allclose(f, e.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("code", [*expressions("Idioms of PyTorch", refused=True)])
def test_refused_pytorch_expression_of_the_page_raises(code: str) -> None:
    with pytest.raises(REFUSALS, match=r"\w"):
        evaluate_with(mg, nn, code, lambda x: Tensor(x, requires_grad=True))

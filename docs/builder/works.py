"""What works of NumPy, SciPy and PyTorch: from the registry, and from the calls that the tests make."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad.core.tensor import DISPATCH
from minigrad.ops import habits

from .markdown import render
from .page import Page

__all__ = ["page"]

TESTS = Path(__file__).parents[2] / "tests" / "oracle" / "test_scipy.py"
TEXT = """# What works of NumPy, SciPy and PyTorch

A tensor goes where an array goes. What is not taken is refused with an error that says what to write instead: nothing
turns a tensor that wants a gradient into an array unnoticed.

## NumPy

These functions take tensors and record themselves, with derivatives of any order where there are any. So do
the operators, indexing, and the methods of arrays. [The table of operations](operations.md) tells what each computes, and
[the reference](reference/operations.html) the rule of each derivative.

{numpy}

## SciPy

Optimisers and solvers take functions of tensors as they are, for a tensor without gradient is an array, and their
derivatives from `mg.grad`, `mg.jacobian` and `mg.hessian`. The tests hold these calls to known results:

{calls}

## PyTorch

`dim=` and `keepdim=` are read as `axis=` and `keepdims=`. Beside those of arrays, a tensor has these methods and
attributes, by the names that PyTorch has for them where it has any:

{methods}

`mg` has {names} too, for who looks for them.
"""


def page() -> Page:
    shown = render(
        TEXT.format(
            numpy="\n\n".join(f"**{module}** {_listed(names)}" for module, names in _taken().items()),
            calls="; ".join(f"`{name}`" for name in _calls()),
            methods=_listed(sorted(_methods())),
            names=_listed(sorted(habits.__all__)),
        )
    )
    return Page("works.html", "What works of NumPy, SciPy and PyTorch", "Reference", shown, "NumPy, SciPy, PyTorch")


def _listed(names: list[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def _taken() -> dict[str, list[str]]:
    """The functions of NumPy that tensors answer for, by their module."""
    found: dict[str, set[str]] = {}
    for function in filter(callable, DISPATCH):
        module = (getattr(function, "__module__", None) or "numpy").replace("numpy", "np", 1)
        found.setdefault(module, set()).add(function.__name__)
    return {module: sorted(found[module]) for module in sorted(found)}


def _calls() -> Iterator[str]:
    """The names of the calls of SciPy that the tests make."""
    tree = ast.parse(TESTS.read_text(encoding="utf-8"))
    tables = (
        n.value for n in ast.walk(tree) if isinstance(n, (ast.Assign, ast.AnnAssign)) and "CALLS" in ast.unparse(n)
    )
    for table in tables:
        if isinstance(table, ast.Dict):
            yield from (ast.literal_eval(key) for key in table.keys if key is not None)


def _methods() -> set[str]:
    """The methods and attributes of tensors that arrays do not have."""
    return {name for name in dir(mg.Tensor) if not name.startswith("_") and not hasattr(np.ndarray, name)}

"""PyTorch's databases of ops, modules and optimizers, and comparisons of results and gradients."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

import hypothesis
import numpy as np
from support.environment import needs

import minigrad as mg
from minigrad import Tensor

torch: Any = needs("torch")


def import_database(module: str, name: str) -> list[Any]:
    """Return a database. Its module warns, and replaces the profile of hypothesis."""
    needs("expecttest")
    profile = hypothesis.settings.default
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        database = getattr(importlib.import_module(f"torch.testing._internal.{module}"), name)
    hypothesis.settings.register_profile("ours", profile)
    hypothesis.settings.load_profile("ours")
    return database


def as_ours(value: Any, leaves: dict[Any, Tensor]) -> Any:
    """Return an argument of PyTorch for minigrad.

    Tensors that require gradients are added to `leaves`. Other floating-point tensors are tensors,
    and the rest are arrays.
    """
    if isinstance(value, torch.Tensor):
        x = value.detach().numpy().copy()
        if value.requires_grad:
            return leaves.setdefault(value, Tensor(x, requires_grad=True))
        return Tensor(x) if value.is_floating_point() else x
    if isinstance(value, (list, tuple)):
        return type(value)([as_ours(part, leaves) for part in value])
    if isinstance(value, dict):
        return {key: as_ours(part, leaves) for key, part in value.items()}
    return torch.empty((), dtype=value).numpy().dtype if isinstance(value, torch.dtype) else value


def as_array(y: Any) -> np.ndarray:
    """Return a result of either library as an array."""
    if isinstance(y, torch.Tensor):
        return y.numpy(force=True)
    return np.asarray(y.data if isinstance(y, Tensor) else y)


def flat(results: Any) -> list[Any]:
    """Return the results in nested lists and tuples."""
    if not isinstance(results, (list, tuple)):
        return [results]
    return [y for part in results for y in flat(part)]


def assert_same(found: Any, expected: Any, rtol: float, message: str) -> None:
    """Compare shape, dtype of floating-point results, and values."""
    found, expected = as_array(found), as_array(expected)
    assert found.shape == expected.shape, f"{message}: shapes {found.shape} and {expected.shape}"
    if expected.dtype.kind == "f":
        assert found.dtype == expected.dtype, f"{message}: {found.dtype} and {expected.dtype}"
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol, err_msg=message)


def assert_same_with_gradients(
    ours: Any,
    theirs: Any,
    leaves: Mapping[Any, Tensor],
    rtol: float = 1e-8,
    symmetric: bool = False,
) -> None:
    """Compare results of both libraries, and the gradients of all leaves for random cotangents.

    `leaves` are our leaves by those of PyTorch. With `symmetric` they are symmetric matrices, whose
    gradients may stand in either half.
    """
    ys, zs = flat(ours), flat(theirs)
    assert len(ys) == len(zs), f"{len(ys)} and {len(zs)} results"
    for y, z in zip(ys, zs):
        assert_same(y, z, rtol, "values")
    rng = np.random.default_rng(0)
    gs = [rng.standard_normal(np.shape(y)).astype(as_array(y).dtype) for y in ys]
    found = gradients_of(mg.gradients, ys, [*leaves.values()], gs)
    expected = gradients_of(torch.autograd.grad, zs, [*leaves], [torch.tensor(g) for g in gs])
    for f, e in zip(found, expected, strict=True):
        if symmetric:
            f, e = f + np.swapaxes(f, -1, -2), e + np.swapaxes(e, -1, -2)
        assert_same(f, e, rtol, "gradients")


def gradients_of(derive: Any, ys: list[Any], xs: list[Any], gs: list[Any]) -> list[np.ndarray]:
    """Return the gradients of all xs, zeros if no result depends on one."""
    pairs = [(y, g) for y, g in zip(ys, gs) if getattr(y, "requires_grad", False)]
    if not pairs or not xs:
        return [np.zeros(x.shape) for x in xs]
    found = derive([y for y, _ in pairs], xs, [g for _, g in pairs], allow_unused=True)
    return [np.zeros(x.shape) if g is None else as_array(g) for g, x in zip(found, xs)]

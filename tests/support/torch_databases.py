"""PyTorch's databases of ops, modules and optimizers with their sample inputs."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import hypothesis
import pytest

from minigrad import Tensor

torch: Any = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")


def import_database(module: str, name: str) -> list[Any]:
    """Return a database. Its module warns, and replaces the profile of hypothesis."""
    pytest.importorskip("expecttest", reason="the test utilities of PyTorch need expecttest")
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

"""Tasks in MyGrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mygrad
from functional import training_step

VERSION = mygrad.__version__


def gradients(loss: Callable[[Any], Any], p: dict[str, Any]) -> dict[str, Any]:
    tensors = {name: mygrad.tensor(array) for name, array in p.items()}
    loss(tensors).backward()
    return {name: tensor.grad for name, tensor in tensors.items()}


def train(size: str, **changes: Any) -> Callable[[], None]:
    """Return a training step."""
    return training_step(size, changes, mygrad, gradients)

"""Tasks in MyGrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mygrad
import numpy as np
from functional import training_step
from programs import Functions, task

VERSION = mygrad.__version__


def gradients(loss: Callable[[Any], Any], p: dict[str, Any]) -> dict[str, Any]:
    tensors = {name: mygrad.tensor(array) for name, array in p.items()}
    loss(tensors).backward()
    return {name: tensor.grad for name, tensor in tensors.items()}


def train(size: str, **changes: Any) -> Callable[[], None]:
    """Return a training step."""
    return training_step(size, changes, mygrad, gradients)


def program(name: str, size: int) -> Callable[[], None]:
    """Return value and gradient of one of the small programs."""
    xp = Functions(mygrad, np, writes=True, rereads=True, constant=np.asarray, copied=mygrad.tensor)

    def derive(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def derived(x: Any) -> Any:
            leaf = mygrad.tensor(x)
            value = f(leaf)
            value.backward()
            return value.item(), leaf.grad

        return derived

    return task(xp, name, size, derive)

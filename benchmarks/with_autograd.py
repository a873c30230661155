"""Tasks in HIPS autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autograd
import autograd.numpy as anp
from functional import training_step

VERSION = getattr(autograd, "__version__", "1")


def train(size: str, **changes: Any) -> Callable[[], None]:
    """Return a training step."""
    return training_step(size, changes, anp, lambda loss, p: autograd.grad(loss)(p))

"""Tasks in HIPS autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
from autograd.scipy import special
from autograd.scipy.stats import norm
from functional import training_step
from programs import Functions, task

VERSION = getattr(autograd, "__version__", "1")


def train(size: str, **changes: Any) -> Callable[[], None]:
    """Return a training step."""
    return training_step(size, changes, anp, lambda loss, p: autograd.grad(loss)(p))


def program(name: str, size: int) -> Callable[[], None]:
    """Return value and gradient of one of the small programs."""
    xp = Functions(
        anp,
        special,
        writes=False,
        rereads=False,
        constant=np.asarray,
        log_ndtr=norm.logcdf,
        cho_solve=lambda factor, b: anp.linalg.solve(factor.T, anp.linalg.solve(factor, b)),
    )
    return task(xp, name, size, autograd.value_and_grad)

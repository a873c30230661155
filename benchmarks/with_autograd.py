"""The tasks, in HIPS autograd."""

from __future__ import annotations

from collections.abc import Callable

import autograd
import autograd.numpy as anp
import numpy as np
from functional import Model, adam, parameters
from sizes import SIZES

VERSION = getattr(autograd, "__version__", "1")


def train(size: str, **changes: int) -> Callable[[], None]:
    """A training step: forward with dropout, smoothed loss, backward, clipping, Adam."""
    s = SIZES[size]._replace(**changes)
    source, target = s.data()
    rng = np.random.Generator(np.random.SFC64(0))
    model = Model(s, anp, lambda shape: rng.random(shape, np.float32))
    p = parameters(s)
    m, v = ({name: np.zeros_like(array) for name, array in p.items()} for _ in range(2))
    gradient = autograd.grad(lambda q: model.loss(q, source, target))
    t = 0

    def step() -> None:
        nonlocal t
        t += 1
        adam(p, gradient(p), m, v, t, np)

    return step

"""The tasks, in MyGrad."""

from __future__ import annotations

from collections.abc import Callable

import mygrad
import numpy as np
from functional import Model, adam, parameters
from sizes import SIZES

VERSION = mygrad.__version__


def train(size: str, **changes: int) -> Callable[[], None]:
    """A training step: forward with dropout, smoothed loss, backward, clipping, Adam."""
    s = SIZES[size]._replace(**changes)
    source, target = s.data()
    rng = np.random.Generator(np.random.SFC64(0))
    model = Model(s, mygrad, lambda shape: rng.random(shape, np.float32))
    p = parameters(s)
    m, v = ({name: np.zeros_like(array) for name, array in p.items()} for _ in range(2))
    t = 0

    def step() -> None:
        nonlocal t
        t += 1
        tensors = {name: mygrad.tensor(array) for name, array in p.items()}
        model.loss(tensors, source, target).backward()
        adam(p, {name: tensor.grad for name, tensor in tensors.items()}, m, v, t, np)

    return step

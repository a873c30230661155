"""Chain of one small op, forward and backward, in a library with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def chain(
    name: str,
    n: int,
    side: int,
    xp: Any,
    variable: Callable[[Any], Any],
    constant: Callable[[Any], Any],
    reverse: Callable[[Any], Any],
    centre: Callable[[Any], Any],
) -> Callable[[], None]:
    """Return a chain of `n` ops called `name` on matrices (side, side) of the library xp."""
    rng = np.random.default_rng(0)
    x, w = (variable(rng.standard_normal((side, side)) / 4) for _ in range(2))
    mask = constant(rng.random((side, side)) < 0.5)
    op: Callable[[Any], Any] = {
        "add": lambda h: h + w,
        "multiply": lambda h: h * w,
        "divide": lambda h: h / 1.5,
        "negative": lambda h: -h,
        "tanh": lambda h: xp.tanh(h),
        "relu": lambda h: xp.relu(h),
        "exp, log": lambda h: xp.log(xp.exp(h)),
        "square": lambda h: h**2,
        "matmul": lambda h: h @ w,
        "reshape": lambda h: h.reshape(side * side) if h.ndim == 2 else h.reshape(side, side),
        "transpose": lambda h: h.T,
        "slice": reverse,
        "mean": centre,
        "softmax": lambda h: xp.softmax(h, -1),
        "maximum": lambda h: xp.maximum(h, w),
        "where": lambda h: xp.where(mask, h, w),
    }[name]

    def step() -> None:
        h = x
        for _ in range(n):
            h = op(h)
        h.sum().backward()
        x.grad = w.grad = None

    return step

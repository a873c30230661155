"""The tasks, in minigrad."""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import numpy as np

import minigrad as mg
from minigrad import Tensor

VERSION = mg.__version__


def ops(name: str, n: int, side: int) -> Callable[[], None]:
    """A chain of `n` small ops, forward and backward."""
    rng = np.random.default_rng(0)
    x, w = (Tensor(rng.standard_normal((side, side)) / 4, requires_grad=True) for _ in range(2))
    op: Callable[[Tensor], Tensor] = {
        "add": lambda h: h + w,
        "multiply": lambda h: h * w,
        "divide": lambda h: h / 1.5,
        "negative": lambda h: -h,
        "tanh": lambda h: mg.tanh(h),
        "relu": lambda h: mg.relu(h),
        "exp, log": lambda h: mg.log(mg.exp(h)),
        "square": lambda h: h**2,
        "matmul": lambda h: h @ w,
        "reshape": lambda h: h.reshape(side * side) if h.ndim == 2 else h.reshape(side, side),
        "transpose": lambda h: h.T,
        "slice": lambda h: h[::-1],
        "mean": lambda h: h - h.mean(-1, keepdims=True),
        "softmax": lambda h: mg.softmax(h),
        "maximum": lambda h: mg.maximum(h, w),
        "where": lambda h: mg.where(mask, h, w),
    }[name]
    mask = rng.random((side, side)) < 0.5

    def step() -> None:
        h = x
        for _ in range(n):
            h = op(h)
        h.sum().backward()
        x.grad = w.grad = None

    return step

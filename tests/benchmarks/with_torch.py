"""The tasks, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

VERSION = torch.__version__
torch.set_num_threads(2)


def ops(name: str, n: int, side: int) -> Callable[[], None]:
    """A chain of `n` small ops, forward and backward."""
    rng = np.random.default_rng(0)
    x, w = (torch.tensor(rng.standard_normal((side, side)) / 4, requires_grad=True) for _ in range(2))
    op: Callable[[torch.Tensor], torch.Tensor] = {
        "add": lambda h: h + w,
        "multiply": lambda h: h * w,
        "divide": lambda h: h / 1.5,
        "negative": lambda h: -h,
        "tanh": lambda h: torch.tanh(h),
        "relu": lambda h: torch.relu(h),
        "exp, log": lambda h: torch.log(torch.exp(h)),
        "square": lambda h: h**2,
        "matmul": lambda h: h @ w,
        "reshape": lambda h: h.reshape(side * side) if h.ndim == 2 else h.reshape(side, side),
        "transpose": lambda h: h.T,
        "slice": lambda h: h.flip(0),
        "mean": lambda h: h - h.mean(-1, keepdim=True),
        "softmax": lambda h: torch.softmax(h, -1),
        "maximum": lambda h: torch.maximum(h, w),
        "where": lambda h: torch.where(mask, h, w),
    }[name]
    mask = torch.tensor(rng.random((side, side)) < 0.5)

    def step() -> None:
        h = x
        for _ in range(n):
            h = op(h)
        h.sum().backward()
        x.grad = w.grad = None

    return step

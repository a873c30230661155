"""The affine map of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor
from ..ops.linalg import matmul
from ..ops.shape import swapaxes
from .blocks import as_rows, ones, row_blocks
from .definitions import kernel

__all__ = ["linear"]


def linear_definition(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """x @ weight.T + bias."""
    y = matmul(x, swapaxes(weight, 0, 1))
    return y if bias is None else y + bias


def _linear_vjp(g: Any, x: Any, weight: Any, needs: Any, grad_buffers: Any) -> tuple[Any, Any, Any]:
    g, rows = as_rows(g), as_rows(x)
    return (
        (g @ weight).reshape(x.shape) if needs[0] else None,
        np.matmul(g.T, rows, out=grad_buffers[1]) if needs[1] else None,
        (ones(len(g), g.dtype).T @ g)[0] if needs[2] else None,
    )


@kernel(vjp=_linear_vjp, definition=linear_definition)
def _linear(x, weight, bias, /):
    if weight.ndim != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ValueError("expected x (..., in) and weight (out, in), with bias (out,) or None")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape {weight.shape[:1]}, got {bias.shape}")
    y = as_rows(x) @ weight.T
    if bias is not None:
        for block in row_blocks(*y.shape):
            y[block] += bias
    return y.reshape(*x.shape[:-1], weight.shape[0])


@function()
def linear(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """x @ weight.T + bias: (..., in) to (..., out), for weight (out, in) as in PyTorch and bias
    (out,).
    """
    return _linear(x, weight, bias)

"""The affine map of rows, with an optional relu."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..op import function, op
from ..ops.activations import relu
from ..ops.linalg import matmul
from ..ops.shape import swapaxes
from ..tensor import Tensor
from .blocks import as_rows, ones, row_blocks

__all__ = ["linear"]


def linear_definition(x: Any, weight: Any, bias: Any = None, activation: str | None = None) -> Tensor:
    """activation(x @ weight.T + bias)."""
    y = matmul(x, swapaxes(weight, 0, 1))
    y = y if bias is None else y + bias
    return relu(y) if activation == "relu" else y


def _linear_vjp(g: Any, y: Any, x: Any, weight: Any, bias: Any, activation: Any, needs: Any) -> tuple[Any, Any, Any]:
    g, rows = as_rows(g), as_rows(x)
    if activation == "relu":
        alive = as_rows(y)
        passed = np.empty_like(g)
        for block in row_blocks(*g.shape):
            np.multiply(g[block], alive[block] > 0, out=passed[block])
        g = passed
    return (
        (g @ weight).reshape(x.shape) if needs[0] else None,
        g.T @ rows if needs[1] else None,
        (ones(len(g), g.dtype).T @ g)[0] if needs[2] else None,
    )


@op(vjp=_linear_vjp, definition=linear_definition)
def _linear(x, weight, bias, /, activation=None):
    if weight.ndim != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ValueError("expected x (..., in) and weight (out, in), with bias (out,) or None")
    y = as_rows(x) @ weight.T
    if bias is not None or activation is not None:
        zeros = np.zeros((1, 1), y.dtype)
        for block in row_blocks(*y.shape):
            part = y[block]
            if bias is not None:
                np.add(part, bias, out=part)
            if activation is not None:
                np.maximum(part, zeros, out=part)
    return y.reshape(*x.shape[:-1], weight.shape[0])


@function()
def linear(x: Any, weight: Any, bias: Any = None, activation: str | None = None) -> Tensor:
    """x @ weight.T + bias: (..., in) to (..., out), for weight (out, in) as in PyTorch and bias (out,).

    `activation="relu"` sets negative results to 0 on the way.
    """
    if activation not in (None, "relu"):
        raise ValueError(f"linear: expected activation None or 'relu', got {activation!r}")
    return _linear(x, weight, bias, activation=activation)

"""The affine map of rows, with an optional relu and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.op import function, op
from ..core.tensor import Tensor
from ..ops.activations import relu
from ..ops.linalg import matmul
from ..ops.shape import swapaxes
from .blocks import as_rows, ones, row_blocks
from .dropout import checked_p, keep_mask

__all__ = ["linear"]

FEW = 8


def linear_definition(
    x: Any, weight: Any, bias: Any = None, activation: str | None = None, keep: Any = None, keep_scale: float = 1.0
) -> Tensor:
    """dropout(activation(x @ weight.T + bias))."""
    y = matmul(x, swapaxes(weight, 0, 1))
    y = y if bias is None else y + bias
    y = relu(y) if activation == "relu" else y
    return y if keep is None else y * keep * keep_scale


def _linear_vjp(
    g: Any,
    y: Any,
    x: Any,
    weight: Any,
    bias: Any,
    activation: Any,
    keep: Any,
    keep_scale: Any,
    needs: Any,
    grad_buffers: Any,
) -> tuple[Any, Any, Any]:
    g, rows = as_rows(g), as_rows(x)
    if activation == "relu" or keep is not None:
        # after a relu, what is positive is what was neither cut off nor left out
        alive, level = (as_rows(y), 0) if activation == "relu" else (as_rows(keep), False)
        passed = np.empty_like(g)
        for block in row_blocks(*g.shape):
            np.multiply(g[block], alive[block] > level, out=passed[block])
            if keep is not None:
                passed[block] *= keep_scale
        g = passed
    return (
        (g @ weight).reshape(x.shape) if needs[0] else None,
        np.matmul(g.T, rows, out=grad_buffers[1]) if needs[1] else None,
        (ones(len(g), g.dtype).T @ g)[0] if needs[2] else None,
    )


def _product(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """rows @ weight.T; for a few rows, as the transpose of weight @ rows.T, which BLAS computes sooner."""
    if 1 < len(rows) <= FEW and weight.flags.c_contiguous:
        return np.ascontiguousarray((weight @ rows.T).T)
    return rows @ weight.T


@op(vjp=_linear_vjp, definition=linear_definition)
def _linear(x, weight, bias, /, activation=None, keep=None, keep_scale=1.0):
    if weight.ndim != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ValueError("expected x (..., in) and weight (out, in), with bias (out,) or None")
    y = _product(as_rows(x), weight)
    if bias is not None or activation is not None or keep is not None:
        zero = None if activation is None else np.zeros((1, 1), y.dtype)  # faster than the number 0
        kept_rows = None if keep is None else keep.reshape(y.shape)
        for block in row_blocks(*y.shape):
            part = y[block]
            if bias is not None:
                part += bias
            if zero is not None:
                np.maximum(part, zero, out=part)
            if kept_rows is not None:
                part *= kept_rows[block]
                part *= keep_scale
    return y.reshape(*x.shape[:-1], weight.shape[0])


@function()
def linear(
    x: Any,
    weight: Any,
    bias: Any = None,
    activation: str | None = None,
    dropout: float = 0.0,
    generator: np.random.Generator | None = None,
) -> Tensor:
    """x @ weight.T + bias: (..., in) to (..., out), for weight (out, in) as in PyTorch and bias (out,).

    `activation="relu"` sets negative results to 0 on the way, and `dropout` is the probability of
    leaving out a result.
    """
    if activation not in (None, "relu"):
        raise ValueError(f"linear: expected activation None or 'relu', got {activation!r}")
    if not checked_p(dropout):
        return _linear(x, weight, bias, activation=activation)
    keep, keep_scale = keep_mask((*np.shape(x)[:-1], np.shape(weight)[0]), dropout, generator)
    return _linear(x, weight, bias, activation, keep, keep_scale)

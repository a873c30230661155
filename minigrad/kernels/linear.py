"""Linear layer: x @ weight.T + bias."""

from __future__ import annotations

import math
from typing import Any

from ..core.tensor import Tensor
from ..ops.linalg import matmul
from ..ops.shape import swapaxes
from .blocks import BLOCK, as_rows, ones
from .definitions import kernel

__all__ = ["linear"]


def linear_definition(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """Compute x @ weight.T + bias."""
    y = matmul(x, swapaxes(weight, 0, 1))
    return y if bias is None else y + bias


def _linear_vjp(g: Any, x: Any, weight: Any, needs: Any) -> tuple[Any, Any, Any]:
    g, rows = as_rows(g), as_rows(x)
    return (
        (g @ weight).reshape(x.shape) if needs[0] else None,
        g.T @ rows if needs[1] else None,
        (ones(len(g), g.dtype).T @ g)[0] if needs[2] else None,
    )


@kernel(vjp=_linear_vjp, definition=linear_definition)
def linear(x, weight, bias=None, /):
    """Compute x @ weight.T + bias.

    Parameters
    ----------
    x : Tensor, shape (..., in)
    weight : Tensor, shape (out, in)
    bias : Tensor, shape (out,), optional

    Returns
    -------
    Tensor, shape (..., out)
        Outputs of the layer.
    """
    if weight.ndim != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            "x and weight must have shapes (..., in) and (out, in), and bias (out,) or None"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape {weight.shape[:1]}, got {bias.shape}")
    y = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) @ weight.T
    if bias is not None:
        rows = max(1, BLOCK // max(1, len(weight)))  # as many as fit the cache
        for start in range(0, len(y), rows):
            y[start : start + rows] += bias
    return y.reshape(*x.shape[:-1], len(weight))

"""Kernel of the linear layer: one product of all rows."""

from __future__ import annotations

import math
from typing import Any

from ..fuse import fuse
from ..ops import network
from .blocks import as_rows, ones, row_blocks


def _linear_vjp(g: Any, x: Any, weight: Any, needs: Any) -> tuple[Any, Any, Any]:
    g, rows = as_rows(g), as_rows(x)
    return (
        (g @ weight).reshape(x.shape) if needs[0] else None,
        g.T @ rows if needs[1] else None,
        (ones(len(g), g.dtype).T @ g)[0] if needs[2] else None,
    )


@fuse(network._linear, vjp=_linear_vjp)
def _linear(x, weight, bias, /):
    y = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) @ weight.T
    if bias is not None:
        for block in row_blocks(len(y), len(weight)):
            y[block] += bias
    return y.reshape(*x.shape[:-1], len(weight))

"""The Gaussian error linear unit: Hendrycks & Gimpel (2016), arXiv:1606.08415."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor
from ..ops.activations import erf
from ..ops.elementwise import tanh
from .blocks import row_blocks
from .definitions import kernel

__all__ = ["gelu"]

_SLOPE, _CUBIC = math.sqrt(2 / math.pi), 0.044715
_FLAT = 100.0
_erf = erf.op.forward  # type: ignore[attr-defined]  # of arrays


def gelu_definition(x: Any, approximate: str) -> Tensor:
    """x Φ(x), with Φ(x) = (1 + erf(x / √2)) / 2, or its tanh form."""
    if approximate == "none":
        return x * 0.5 * (1 + erf(x * math.sqrt(0.5)))
    return x * 0.5 * (1 + tanh((x + x * x * x * _CUBIC) * _SLOPE))


def _twice_cdf(x: np.ndarray, approximate: str) -> np.ndarray:
    """2 Φ(x), or what the tanh form has in its place."""
    if approximate == "none":
        y = _erf(x * x.dtype.type(math.sqrt(0.5)))
    else:
        x = np.clip(x, -_FLAT, _FLAT)  # farther out it does not change, and squares need not overflow
        y = x * x
        y *= _CUBIC
        y += 1
        y *= x
        y *= _SLOPE
        np.tanh(y, out=y)
    y += 1
    return y


def _gelu_vjp(g: Any, x: Any, approximate: Any, saved: Any) -> tuple[Any]:
    flat, g, twice_cdf = (np.ascontiguousarray(a).reshape(-1) for a in (x, g, saved))
    gx = np.empty_like(flat)
    for block in row_blocks(flat.size, 1):
        part, twice, out = flat[block], twice_cdf[block], gx[block]
        near = np.clip(part, -_FLAT, _FLAT)
        square = near * near
        if approximate == "none":  # Φ + x φ
            slope = np.exp(square * -0.5)
            slope *= _SLOPE
        else:  # t / 2 + x / 2 · (1 - tanh²) · u', and 1 - tanh² = t (2 - t)
            slope = 2 - twice
            slope *= twice
            square *= 3 * _CUBIC
            square += 1
            square *= _SLOPE
            slope *= square
        slope *= near
        slope += twice
        slope *= 0.5
        np.multiply(slope, g[block], out=out)
    return (gx.reshape(x.shape),)


@kernel(vjp=_gelu_vjp, definition=gelu_definition)
def _gelu(x, /, approximate):
    x = np.asarray(x)
    flat = np.ascontiguousarray(x if x.dtype.kind == "f" else x.astype(float)).reshape(-1)
    y, twice_cdf = np.empty_like(flat), np.empty_like(flat)
    for block in row_blocks(flat.size, 1):
        twice_cdf[block] = _twice_cdf(flat[block], approximate)
        out = np.multiply(twice_cdf[block], 0.5, out=y[block])
        out *= flat[block]
    return y.reshape(x.shape), twice_cdf


def gelu_in_place(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """A contiguous x, which is gelu(x) afterwards: for inference, where nothing else need be written to memory."""
    flat = x.reshape(-1)
    for block in row_blocks(flat.size, 1):
        cdf = _twice_cdf(flat[block], approximate)
        cdf *= 0.5
        flat[block] *= cdf
    return x


@function(methods="gelu")
def gelu(x: Any, approximate: str = "none") -> Tensor:
    """x · Φ(x), with Φ the normal distribution; `approximate="tanh"` for its tanh form."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: expected approximate 'none' or 'tanh', got {approximate!r}")
    return _gelu(x, approximate=approximate)

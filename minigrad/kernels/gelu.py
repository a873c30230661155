"""Gaussian error linear unit: Hendrycks & Gimpel (2016), arXiv:1606.08415."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.registry import function
from ..core.tensor import Tensor
from ..ops.activations import erf, ratio
from ..ops.elementwise import tanh
from .blocks import BLOCK
from .definitions import kernel

__all__ = ["gelu"]

_SLOPE, _CUBIC = math.sqrt(2 / math.pi), 0.044715
_FLAT = 100.0  # beyond it the function does not change, and squares could overflow
# log(Φ(-x) / Φ(x)) / x as a function of x², fitted to a relative error of Φ(|x|) below 2e-9
_LOG_ODDS = (
    (-9.49246607, -372.353094, -4892.03276, -39460.4937),
    (1.0, 146.155723, 1939.50898, 24728.1969),
)
_erf = erf.op.forward  # type: ignore[attr-defined]  # of arrays


def gelu_definition(x: Any, approximate: str) -> Tensor:
    """Compute x Φ(x), with Φ(x) = (1 + erf(x / √2)) / 2, or its tanh form."""
    if approximate == "none":
        return x * 0.5 * (1 + erf(x * math.sqrt(0.5)))
    return x * 0.5 * (1 + tanh((x + x * x * x * _CUBIC) * _SLOPE))


def _cdf(x: np.ndarray, approximate: str) -> np.ndarray:
    """Compute Φ(x) or its tanh form, for |x| <= _FLAT.

    Both are 1 / (1 + exp(-x r(x²))). For the tanh form r is linear. For Φ in single precision, r is
    a ratio of polynomials, which takes fewer passes than the error function and, for x < 0, loses
    no digits as 1 + erf does.
    """
    if approximate == "none" and x.dtype.itemsize > 4:
        y = _erf(x * math.sqrt(0.5))
        y += 1
        y *= 0.5
        return y
    y = x * x
    if approximate == "none":
        y = ratio(_LOG_ODDS, y)
    else:
        y *= -2 * _SLOPE * _CUBIC
        y += -2 * _SLOPE
    y *= x
    with np.errstate(over="ignore"):  # exp may be inf, and its reciprocal 0
        np.exp(y, out=y)
    y += 1
    return np.reciprocal(y, out=y)


def _slope(x: np.ndarray, cdf: np.ndarray, approximate: str) -> np.ndarray:
    """Compute the derivative from x and the result of `_cdf`."""
    slope = x * x
    if approximate == "none":  # Φ + x φ
        slope *= -0.5
        np.exp(slope, out=slope)
        slope *= _SLOPE / 2
    else:  # σ + x σ (1 - σ) · (x r(x²))'
        slope *= 6 * _SLOPE * _CUBIC
        slope += 2 * _SLOPE
        slope *= cdf
        slope *= 1 - cdf
    slope *= x
    slope += cdf
    return slope


@kernel(vjp=lambda g, x, approximate, saved: (g * saved,), definition=gelu_definition)
def _gelu(x, /, approximate):
    x = np.asarray(x)
    flat = np.ascontiguousarray(x if x.dtype.kind == "f" else x.astype(float)).reshape(-1)
    y, slope = np.empty_like(flat), np.empty_like(flat)
    for start in range(0, flat.size, BLOCK):
        block = slice(start, start + BLOCK)
        near = np.clip(flat[block], -_FLAT, _FLAT)
        cdf = _cdf(near, approximate)
        np.multiply(flat[block], cdf, out=y[block])
        slope[block] = _slope(near, cdf, approximate)
    return y.reshape(x.shape), slope.reshape(x.shape)


def gelu_in_place(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """Replace a contiguous x by gelu(x), and return it."""
    flat = x.reshape(-1)
    step = 4 * BLOCK  # larger blocks, because threads wait for the interpreter lock between them
    for start in range(0, flat.size, step):
        block = slice(start, start + step)
        flat[block] *= _cdf(np.clip(flat[block], -_FLAT, _FLAT), approximate)
    return x


@function(methods="gelu")
def gelu(x: Any, *, approximate: str = "none") -> Tensor:
    """Compute x · Φ(x), with Φ the cumulative normal distribution.

    Parameters
    ----------
    x : Tensor
    approximate : {"none", "tanh"}
        "tanh" uses an approximation by tanh.

    Returns
    -------
    Tensor
        Result in the shape of x.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return _gelu(x, approximate=approximate)

"""Kernel of GELU: the function and its slope in blocks."""

from __future__ import annotations

import math

import numpy as np

from ..fuse import fuse
from ..numpy import activations
from ..numpy.activations import CUBIC, SLOPE, erf, ratio
from .blocks import BLOCK, row_blocks

_FLAT = 100.0  # beyond it the function does not change, and squares could overflow
# log(Φ(-x) / Φ(x)) / x as a function of x², fitted to a relative error of Φ(|x|) below 2e-9
_LOG_ODDS = (
    (-9.49246607, -372.353094, -4892.03276, -39460.4937),
    (1.0, 146.155723, 1939.50898, 24728.1969),
)
_erf = erf.op.forward  # type: ignore[attr-defined]  # takes arrays


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
        y *= -2 * SLOPE * CUBIC
        y += -2 * SLOPE
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
        slope *= SLOPE / 2
    else:  # σ + x σ (1 - σ) · (x r(x²))'
        slope *= 6 * SLOPE * CUBIC
        slope += 2 * SLOPE
        slope *= cdf
        slope *= 1 - cdf
    slope *= x
    slope += cdf
    return slope


# x, from which `saved` was computed, is named for the definition
@fuse(activations._gelu, vjp=lambda g, x, approximate, saved: (g * saved,))
def _gelu(x, /, approximate):
    x = np.asarray(x)
    flat = np.ascontiguousarray(x if x.dtype.kind == "f" else x.astype(float)).reshape(-1)
    y, slope = np.empty_like(flat), np.empty_like(flat)
    for block in row_blocks(flat.size, 1):
        near = np.clip(flat[block], -_FLAT, _FLAT)
        cdf = _cdf(near, approximate)
        np.multiply(flat[block], cdf, out=y[block])
        slope[block] = _slope(near, cdf, approximate)
    return y.reshape(x.shape), slope.reshape(x.shape)


def gelu_in_place(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """Replace a contiguous x by gelu(x), and return it."""
    flat = x.reshape(-1)
    # larger blocks, because threads wait for the interpreter lock between them
    for block in row_blocks(flat.size, 1, 4 * BLOCK):
        flat[block] *= _cdf(np.clip(flat[block], -_FLAT, _FLAT), approximate)
    return x

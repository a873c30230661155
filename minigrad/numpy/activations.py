"""Activation functions and the error function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arguments import check_choice
from ..fuse import fusible
from ..ops.arithmetic import multiply, negative
from ..ops.network import as_floats, sigmoid
from ..ops.shape import floating, where
from ..registry import function, op
from ..tensor import Tensor, as_operand
from .batched import BatchedArray
from .elementwise import clip, expm1, logaddexp

__all__ = [
    "softplus",
    "log_sigmoid",
    "leaky_relu",
    "elu",
    "silu",
    "erf",
    "gelu",
]


@function(methods="softplus")
def softplus(x: Any, beta: float = 1.0) -> Tensor:
    """Compute log(1 + exp(beta * x)) / beta, without overflow.

    Other parameters: as `relu`.

    Parameters
    ----------
    beta : float
        Sharpness of the bend at 0; 1 by default.
    """
    x = floating(x)
    plain = not isinstance(beta, Tensor) and beta == 1
    return logaddexp(x, 0.0) if plain else logaddexp(x * beta, 0.0) / beta


@function(methods="log_sigmoid")
def log_sigmoid(x: Any) -> Tensor:
    """Compute log(sigmoid(x)), without underflow.

    Parameters: as `relu`.
    """
    return -logaddexp(negative(floating(x)), 0.0)


@function(methods="leaky_relu")
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """Return x if positive, else `negative_slope` * x.

    Other parameters: as `relu`.

    Parameters
    ----------
    negative_slope : float
        Factor of negative elements; 0.01 by default.
    """
    x = as_operand(x)
    return where(x > 0, x, x * negative_slope)


@function(methods="elu")
def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """Return x if positive, else `alpha` * (exp(x) - 1).

    Other parameters: as `relu`.

    Parameters
    ----------
    alpha : float
        The limit for large negative x is -alpha; 1 by default.
    """
    x = floating(x)
    return where(x > 0, x, expm1(clip(x, None, 0)) * alpha)


@function(methods="silu")
def silu(x: Any) -> Tensor:
    """Compute x * sigmoid(x), also called swish.

    Parameters: as `relu`.
    """
    return multiply(x, sigmoid(x))


# -- erf

# erf(x) / x as a function of x², for |x| <= 4: enough for float32; the coefficients are those of
# Eigen, highest power first, of numerator and denominator
_SINGLE = (
    (
        -2.72614225801306e-10,
        2.77068142495902e-8,
        -2.10102402082508e-6,
        -5.69250639462346e-5,
        -7.34990630326855e-4,
        -2.95459980854025e-3,
        -1.60960333262415e-2,
    ),
    (
        -1.45660718464996e-5,
        -2.13374055278905e-4,
        -1.68282697438203e-3,
        -7.37332916720468e-3,
        -1.42647390514189e-2,
    ),
)


def ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Any) -> Any:
    """Return a polynomial of x divided by another."""
    above, below = coefficients
    y = polynomial(above, x)
    y /= polynomial(below, x)
    return y


def polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """Evaluate a polynomial of x, highest power first, in new memory."""
    first, second, *others = coefficients
    y = x + second if first == 1 else x * first + second
    for c in others:
        y *= x
        y += c
    return y


@op(methods="erf", x=lambda g, x: g * np.exp(-x * x) * (2 / math.sqrt(math.pi)))
def erf(x, /):
    """Compute the error function, to the precision of the dtype.

    Parameters
    ----------
    x : array_like
    """
    if isinstance(x, BatchedArray):  # masks cannot index it
        return BatchedArray(erf.op.forward(x.values))  # type: ignore[attr-defined]
    x = as_floats(np.asarray(x))
    if x.dtype.itemsize <= 4:
        y = np.clip(x.astype(np.float32, copy=False), -4, 4)
        return np.clip(y * ratio(_SINGLE, y * y), -1, 1).astype(x.dtype, copy=False)
    return np.asarray(_double(x), x.dtype)


_double = np.frompyfunc(math.erf, 1, 1)


# -- GELU: Hendrycks & Gimpel (2016), arXiv:1606.08415

SLOPE, CUBIC = math.sqrt(2 / math.pi), 0.044715


@fusible
def _gelu(x: Any, approximate: str) -> Tensor:
    """Compute x Φ(x), with Φ(x) = (1 + erf(x / √2)) / 2, or its tanh form."""
    if approximate == "none":
        return x * 0.5 * (1 + erf(x * math.sqrt(0.5)))
    return x * sigmoid((x + x * x * x * CUBIC) * (2 * SLOPE))


@function(methods="gelu")
def gelu(x: Any, *, approximate: str = "none") -> Tensor:
    """Compute x · Φ(x), with Φ the cumulative normal distribution.

    Parameters
    ----------
    x : Tensor
    approximate : {"none", "tanh"}
        "tanh" uses an approximation by tanh.
    """
    check_choice("gelu", "approximate", approximate, "none", "tanh")
    return _gelu(as_operand(x), approximate=approximate)

"""The functions that make networks nonlinear, and the error function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.registry import function, op
from ..core.tensor import Tensor
from .elementwise import clip, expm1, logaddexp, where

__all__ = ["relu", "sigmoid", "softplus", "log_sigmoid", "leaky_relu", "elu", "silu", "erf"]


@op(methods="relu", x=lambda g, y: g * (y != 0))  # NaN passes it on
def relu(x, /):
    """max(x, 0); its derivative at 0 is 0."""
    return np.maximum(x, 0)


@op(methods="sigmoid", x=lambda g, y: g * y * (1 - y))
def sigmoid(x, /):
    """1 / (1 + e⁻ˣ)."""
    with np.errstate(over="ignore"):  # where e⁻ˣ is infinite, the result is 0
        y = np.asarray(np.exp(-x))
        y += 1
        return np.reciprocal(y, out=y)


@function(methods="softplus")
def softplus(x: Any, beta: float = 1.0) -> Tensor:
    """log(1 + e^(beta x)) / beta, without overflow."""
    plain = not isinstance(beta, Tensor) and beta == 1
    return logaddexp(x, 0.0) if plain else logaddexp(x * beta, 0.0) / beta


@function(methods="log_sigmoid")
def log_sigmoid(x: Any) -> Tensor:
    """log(sigmoid(x)), without underflow."""
    return -logaddexp(-x, 0.0)


@function(methods="leaky_relu")
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x where positive, else `negative_slope` · x."""
    return where(x > 0, x, x * negative_slope)


@function(methods="elu")
def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where positive, else `alpha` (eˣ - 1)."""
    return where(x > 0, x, expm1(clip(x, None, 0)) * alpha)


@function(methods="silu")
def silu(x: Any) -> Tensor:
    """x · sigmoid(x), also called swish."""
    return x * sigmoid(x)


# -- erf
# ----------------------------------------------------------------------------------------------- W.
# J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969):
# coefficients of numerator and denominator, highest power first, for the three ranges of |x|.

_SMALL = (  # erf(x) / x as a function of x², for |x| <= 0.46875
    (
        1.85777706184603153e-1,
        3.16112374387056560,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (
        1.0,
        2.36012909523441209e1,
        2.44024637934444173e2,
        1.28261652607737228e3,
        2.84423683343917062e3,
    ),
)
_MIDDLE = (  # erfc(x) · exp(x²), for |x| <= 4
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
_LARGE = (  # (1/√π - x · erfc(x) · exp(x²)) · x², as a function of 1/x²
    (
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ),
    (
        1.0,
        2.56852019228982242,
        1.87295284992346725,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ),
)
# erf(x) / x as a function of x², for |x| <= 4: enough for float32; the coefficients are those of
# Eigen
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
    """One polynomial of x over another."""
    above, below = coefficients
    y = polynomial(above, x)
    y /= polynomial(below, x)
    return y


def polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """A polynomial of x, highest power first, in new memory."""
    first, second, *others = coefficients
    y = x + second if first == 1 else x * first + second
    for c in others:
        y *= x
        y += c
    return y


@op(methods="erf", x=lambda g, x: g * np.exp(-x * x) * (2 / math.sqrt(math.pi)))
def erf(x, /):
    """The error function, 2/√π ∫₀ˣ exp(-t²) dt, to the precision of the dtype."""
    x = np.asarray(x)
    x = x if x.dtype.kind == "f" else x.astype(float)
    if x.dtype.itemsize <= 4:
        x = np.clip(x, -4, 4)
        return np.clip(x * ratio(_SINGLE, x * x), -1, 1)
    size = np.minimum(np.abs(x), 6.0)  # erf(6) = 1 in double precision
    y = np.empty_like(size)
    small, large = size <= 0.46875, size > 4.0
    middle = ~(small | large)
    s, m, b = size[small], size[middle], size[large]
    y[small] = s * ratio(_SMALL, s * s)
    y[middle] = 1 - np.exp(-m * m) * ratio(_MIDDLE, m)
    tail = 1 / (b * b)
    y[large] = 1 - np.exp(-b * b) * (1 / math.sqrt(math.pi) - tail * ratio(_LARGE, tail)) / b
    return np.copysign(y, x)

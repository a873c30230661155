"""Polynomials as vectors of coefficients, the highest power first, as in NumPy's older functions."""

from __future__ import annotations

import warnings
from functools import reduce
from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.registry import function
from ..core.tensor import Tensor, unwrap
from . import reduction
from .calculus import convolve
from .decompositions import lstsq
from .elementwise import add, multiply, power, sqrt, subtract
from .indexing import getitem
from .joining import concatenate, stack
from .linalg import inv, matmul, outer
from .shape import astype, atleast_1d, expand_dims

__all__ = ["polyval"]


@function(numpy=np.polyval)
def polyval(p: Any, x: Any) -> Tensor:
    """The polynomial with the coefficients p, highest power first, at x."""
    y: Any = multiply(x, 0)
    for i in range(np.shape(p)[0]):
        y = y * x + getitem(p, i)
    return y


def _times(name: str, p: Any, m: Any) -> int:
    if not np.ndim(p):
        raise TypeError(f"{name}: expected a vector of coefficients, got a number")
    if np.ndim(m):
        raise TypeError(f"{name}: expected a number m, got shape {np.shape(m)}")
    if int(m) < 0:
        raise ValueError(f"{name}: expected m >= 0, got {m}")
    return int(m)


@numpy_form(np.polyder)
def polyder(p: Any, m: int = 1) -> Tensor:
    """The m-th derivative."""
    m = _times("polyder", p, m)
    for _ in range(m):
        p = getitem(p, slice(None, -1)) * np.arange(len(p) - 1, 0, -1)
    return p


@numpy_form(np.polyint)
def polyint(p: Any, m: int = 1, k: Any = None) -> Tensor:
    """The m-th antiderivative, with the constants k (one number, or one for each of the m)."""
    m = _times("polyint", p, m)
    constants: Any = np.zeros(m) if k is None else atleast_1d(k)
    if np.size(constants) == 1 < m:
        constants = constants * np.ones(m)
    if np.size(constants) < m:
        raise ValueError(f"polyint: expected 1 or {m} constants, got {np.size(constants)}")
    for i in range(m):
        p = concatenate([p / np.arange(len(p), 0, -1), getitem(constants, slice(i, i + 1))])
    return p


def _of_one_length(*polynomials: Any) -> list[Any]:
    parts = [atleast_1d(p) for p in polynomials]
    n = max(map(len, parts))
    return [p if len(p) == n else concatenate([np.zeros(n - len(p), p.dtype), p]) for p in parts]


numpy_form(np.polyadd)(lambda a1, a2: add(*_of_one_length(a1, a2)))
numpy_form(np.polysub)(lambda a1, a2: subtract(*_of_one_length(a1, a2)))


def _trimmed(p: Any) -> Any:
    """p without the zeros in front."""
    p = atleast_1d(p)
    nonzero = np.flatnonzero(unwrap(p))
    return getitem(p, slice(nonzero[0] if len(nonzero) else len(p) - 1, None))


@numpy_form(np.polymul)
def polymul(a1: Any, a2: Any) -> Tensor:
    """The product of two polynomials."""
    return convolve(_trimmed(a1), _trimmed(a2))


@numpy_form(np.polydiv)
def polydiv(u: Any, v: Any) -> tuple[Tensor, Tensor]:
    """The quotient of two polynomials, and the remainder."""
    rest, v = atleast_1d(u) * 1.0, atleast_1d(v) * 1.0
    quotient, scale = list[Any](), 1.0 / v[0]
    for k in range(len(rest) - len(v) + 1):
        quotient.append(scale * rest[k])
        less = quotient[-1] * v
        rest = rest - concatenate(
            [np.zeros(k, less.dtype), less, np.zeros(len(rest) - k - len(v), less.dtype)]
        )
    first = 0
    while first < len(rest) - 1 and np.allclose(rest.data[first], 0, rtol=1e-14):
        first += 1
    return stack(quotient) if quotient else Tensor(np.zeros(1, rest.dtype)), rest[first:]


@numpy_form(np.poly)
def poly(seq_of_zeros: Any) -> Tensor:
    """The polynomial with these zeros, whose first coefficient is 1."""
    if np.ndim(seq_of_zeros) != 1:
        raise ValueError(
            "poly: expected a vector of zeros; the eigenvalues of a matrix are complex"
        )
    one = np.ones((), np.float32 if getattr(seq_of_zeros, "dtype", None) == np.float32 else float)
    return reduce(lambda p, zero: convolve(p, stack([one, -zero])), seq_of_zeros, Tensor(one[None]))


@numpy_form(np.vander)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of the vector x as columns, the highest first unless `increasing`."""
    if np.ndim(x) != 1:
        raise ValueError(f"vander: expected a vector, got shape {np.shape(x)}")
    powers = np.arange(len(x) if N is None else N)
    return power(
        expand_dims(astype(x, np.promote_types(x.dtype, int)), 1),
        powers if increasing else powers[::-1],
    )


@numpy_form(np.polyfit)
def polyfit(
    x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """The polynomial of degree `deg` that fits the points (x, y) best, by least squares with the
    weights w.

    With `full` also the residuals, rank, singular values and `rcond`; with `cov` the covariances of
    the coefficients.
    """
    kind = np.result_type(np.asarray(unwrap(x)), 0.0).type
    x, y = astype(x, float), astype(y, float)
    if deg < 0 or x.ndim != 1 or y.ndim not in (1, 2) or len(x) != len(y) or not len(x):
        raise ValueError(
            f"polyfit: expected deg >= 0 and as many x as y, got {deg}, shapes {x.shape} and "
            f"{y.shape}"
        )
    rcond = len(x) * np.finfo(kind).eps if rcond is None else rcond
    left, right = vander(x, deg + 1), y
    if w is not None:
        left, right = left * expand_dims(w, 1), y * (expand_dims(w, 1) if y.ndim == 2 else w)
    scale = sqrt(reduction.sum(left * left, 0))
    left = left / scale
    c, residuals, rank, s = lstsq(left, right, rcond)
    c = (c.T / scale).T
    if full:
        return c, residuals, rank, s, rcond
    if rank != deg + 1:
        warnings.warn("Polyfit may be poorly conditioned", np.exceptions.RankWarning, stacklevel=4)
    if not cov:
        return c
    base = inv(matmul(left.T, left)) / outer(scale, scale)
    if cov == "unscaled":
        return c, base if y.ndim == 1 else base[:, :, None]
    if len(x) <= deg + 1:
        raise ValueError(
            "polyfit: the number of points must exceed that of the coefficients to scale the "
            "covariances"
        )
    variance = residuals / (len(x) - deg - 1)
    return c, base * variance if y.ndim == 1 else base[:, :, None] * variance

"""Decompositions of matrices, and functions composed of them.

If two eigenvalues or two singular values are equal, the derivative of the vectors does not exist.
It is then inf or NaN, as in PyTorch. The derivative of the values is correct, and so are the
derivatives of `pinv` and of norms, whose results are unique, and of functions of `eigh` that do not
depend on the choice of the vectors.

References
----------
M. Giles (2008), "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation", for eigh. J. Townsend (2016), "Differentiating the singular value decomposition".
M. Seeger et al. (2017), "Auto-differentiating linear algebra", for QR.
"""

from __future__ import annotations

from functools import reduce
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ..arguments import check_choice
from ..nested import needs_gradient
from ..ops import reduce as reduction
from ..ops.arithmetic import safe_divide, square
from ..ops.network import matmul
from ..ops.shape import astype, clone, concatenate, getitem, where
from ..registry import Op, either, function, op
from ..tensor import Tensor, to_array, unwrap
from .batched import all_true
from .elementwise import ratio
from .linalg import inv

__all__ = ["eigh", "eigvalsh", "svd", "svdvals", "qr", "pinv", "lstsq", "matrix_power"]


class EighResult(NamedTuple):
    """Result of `eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """Result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class QRResult(NamedTuple):
    """Result of `qr`."""

    Q: Tensor
    R: Tensor


# Each op packs its results side by side into one array, and the functions below split it.


def _eigh_gradient(g: Any, y: Any) -> Any:
    values, vectors = y[..., 0, :], y[..., 1:, :]
    g_values, g_vectors = g[..., 0, :], g[..., 1:, :]
    inner = g_values[..., None, :] * np.eye(values.shape[-1], dtype=y.dtype)
    turns = vectors.mT @ g_vectors
    turns = (turns - turns.mT) / 2
    array, size = unwrap(values), np.abs(unwrap(turns))
    quotient = _divide_by_gaps(turns, values + _offsets(array))
    row, column = array[..., None, :], array[..., :, None]
    near = (np.abs(row - column) < _share(y.dtype) * np.abs(row)) & (size > 0)
    if not all_true(~near):
        # at equal values, only functions that do not depend on the choice of vectors are smooth,
        # and the rounding of the quotient leaves no digits for another derivative
        limit = np.sqrt(_share(y.dtype)) * np.abs(unwrap(g_vectors)).max((-2, -1), keepdims=True)
        quotient = np.where(near, np.where(size > limit, np.nan, last(quotient)), quotient)
    c = vectors @ (inner + quotient) @ vectors.mT
    return (c + c.mT) / 2


def _share(dtype: Any) -> Any:
    """Return the smallest distance of eigenvalues, in relation to their size."""
    return np.finfo(dtype).eps ** 0.6


def _offsets(values: Any) -> Any:
    """Return what moves rising values apart that are equal up to rounding; 0 for all others."""
    steps = values - np.cumsum(np.abs(values) * _share(values.dtype), -1)
    return np.maximum.accumulate(steps, -1) - steps


def _last(x: Any, /) -> Any:
    """Return x, whose derivative is NaN."""
    return x.copy()


last: Any = either(Op(_last, {"x": lambda g: np.where(g == 0, g, np.nan)}).function)


def _divide_by_gaps(x: Any, values: Any) -> Any:
    """Return x_ij / (values_j - values_i) off the diagonal, and 0 where x is 0."""
    eye = np.eye(values.shape[-1], dtype=bool)
    gaps = values[..., None, :] - values[..., :, None]
    skip = eye | ((x == 0) & (gaps == 0))
    return np.where(skip, 0, x / np.where(skip, 1, gaps))


@op(x=_eigh_gradient)
def _eigh(x, /, UPLO="L"):
    values, vectors = np.linalg.eigh(x, UPLO)
    return np.concatenate([values[..., None, :], vectors], -2)


@function(numpy=np.linalg.eigh)
def eigh(x: Any, UPLO: str = "L") -> EighResult:
    """Compute eigenvalues and eigenvectors of symmetric matrices.

    The gradient is symmetric. The signs of the vectors are arbitrary, so a function of the vectors
    has a derivative only if it does not depend on the signs. At equal eigenvalues, it must not
    depend on the choice of their vectors. Its derivative there is computed from eigenvalues that
    differ by 4e-10 of their size (7e-5 in float32): if x requires gradients, eigenvalues closer to
    each other are returned with this distance.
    """
    check_choice("eigh", "UPLO", str(UPLO).upper(), "L", "U")
    y = _eigh(x, UPLO=UPLO)
    values = y[..., 0, :]
    if needs_gradient(x):
        offsets = _offsets(unwrap(values))
        values = values if all_true(offsets == 0) else values + offsets
    return EighResult(values, y[..., 1:, :])


@function(numpy=np.linalg.eigvalsh)
def eigvalsh(x: Any, UPLO: str = "L") -> Tensor:
    """Compute the eigenvalues of symmetric matrices."""
    return eigh(x, UPLO).eigenvalues


# -- singular values


def _svd_gradient(g: Any, y: Any, x_shape: tuple[int, ...]) -> Any:
    """Return the gradient for x = U S Vᵀ, packed as [U; S; V] in columns."""
    m, n = x_shape[-2:]
    u, s, v = y[..., :m, :], y[..., m, :], y[..., m + 1 :, :]
    g_u, g_s, g_v = g[..., :m, :], g[..., m, :], g[..., m + 1 :, :]
    k = s.shape[-1]
    inner = g_s[..., None, :] * np.eye(k, dtype=y.dtype)
    left, right = u.mT @ g_u, v.mT @ g_v
    left, right = left - left.mT, right - right.mT
    row, column = s[..., None, :], s[..., :, None]
    inner = (
        inner
        + _divide_by_gaps(left, s) * ratio(row, row + column)
        + _divide_by_gaps(right, s) * ratio(column, row + column)
    )
    c = u @ inner @ v.mT
    if m > k:
        c = c + safe_divide(g_u - u @ (u.mT @ g_u), row) @ v.mT
    if n > k:
        c = c + u @ safe_divide(g_v - v @ (v.mT @ g_v), row).mT
    return c


@op(x=_svd_gradient)
def _svd(x, /):
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return np.concatenate([u, s[..., None, :], np.swapaxes(vh, -1, -2)], -2)


@function(numpy=np.linalg.svd)
def svd(x: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Compute the singular value decomposition x = U[..., :k] * S @ Vh[..., :k, :].

    The columns of U and rows of Vh beyond k = min(m, n) get no gradient.
    """
    m, n = np.shape(x)[-2:]
    y = _svd(x)
    u, s, vh = y[..., :m, :], np.real(y[..., m, :]), y[..., m + 1 :, :].mT
    if not compute_uv:
        return s
    if full_matrices and m != n:
        full_u, _, full_vh = np.linalg.svd(unwrap(x))
        k = min(m, n)
        u = u if m == k else concatenate([u, Tensor(full_u[..., :, k:])], -1)
        vh = vh if n == k else concatenate([vh, Tensor(full_vh[..., k:, :])], -2)
    return SVDResult(u, s, vh)


@function(numpy=getattr(np.linalg, "svdvals", ()))
def svdvals(x: Any) -> Tensor:
    """Compute the singular values of matrices, largest first."""
    return svd(x, compute_uv=False)


# -- QR


def _qr_gradient(g: Any, y: Any, x_shape: tuple[int, ...]) -> Any:
    """Return the gradient for x = Q R of full column rank, packed as [Q; R]."""
    m = x_shape[-2]
    q, r, g_q, g_r = y[..., :m, :], y[..., m:, :], g[..., :m, :], g[..., m:, :]
    middle = r @ g_r.mT - g_q.mT @ q
    symmetric = np.tril(middle) + np.tril(middle, -1).mT  # copyltu
    return np.linalg.solve(r, (g_q + q @ symmetric).mT).mT


@op(x=_qr_gradient)
def _qr(x, /):
    q, r = np.linalg.qr(x)
    return np.concatenate([q, r], -2)


@function(numpy=np.linalg.qr)
def qr(x: Any, mode: str = "reduced") -> Any:
    """Factor matrices into Q, with orthonormal columns, and R, upper triangular.

    The derivative exists if the first min(m, n) columns of x are independent.

    Other parameters and the result: as `numpy.linalg.qr`.

    Parameters
    ----------
    mode : {"reduced", "r", "complete"}
        "complete" requires m <= n.
    """
    m, n = np.shape(x)[-2:]
    if mode not in ("reduced", "r") and not (mode == "complete" and m <= n):
        raise ValueError(f"qr: mode must be 'reduced' or 'r' for shape {np.shape(x)}, got {mode!r}")
    y = _qr(getitem(x, (..., slice(None, min(m, n)))))
    q, r = y[..., :m, :], y[..., m:, :]
    if n > m:  # the other columns of R: the rest of x in the basis Q
        r = concatenate([r, matmul(q.mT, getitem(x, (..., slice(m, None))))], -1)
    return r if mode == "r" else QRResult(q, r)


# -- functions composed of decompositions


def _pinv_gradient(g: Any, y: Any, x: Any) -> Any:
    """Return the gradient, which assumes constant rank: Golub, Pereyra (1973)."""
    left = np.eye(x.shape[-2], dtype=y.dtype) - x @ y
    right = np.eye(x.shape[-1], dtype=y.dtype) - y @ x
    return left @ g.mT @ y @ y.mT + y.mT @ y @ g.mT @ right - y.mT @ g @ y.mT


@op(x=_pinv_gradient)
def _pinv(x, /, rcond=None):
    return np.linalg.pinv(x, rcond)


def _inverse_of_rank(x: Any, rcond: Any) -> Tensor:
    """Return pseudo-inverses, also if `rcond` leaves out singular values that are not 0."""
    array = unwrap(x)
    if not array.size or not needs_gradient(x):
        return _pinv(x, rcond=rcond)
    u, s, vh = svd(x, full_matrices=False)
    largest, rounding = unwrap(s)[..., :1], np.finfo(array.dtype).eps * max(array.shape[-2:])
    kept = unwrap(s) > np.asarray(rcond)[..., None] * largest
    if all_true(kept | (unwrap(s) <= rounding * largest)):
        return _pinv(x, rcond=rcond)
    inverses = where(kept, 1 / where(kept, s, 1.0), 0.0)
    return matmul(vh.mT * inverses[..., None, :], u.mT)


@function(numpy=np.linalg.pinv)
def pinv(x: Any, rcond: Any = None, *, rtol: Any = None) -> Tensor:
    """Compute the pseudo-inverses of matrices.

    The derivative assumes that no singular value becomes 0, or passes the limit `rcond`.
    """
    if rcond is not None and rtol is not None:
        raise ValueError("pinv: only one of rcond and rtol must be given, got both")
    limit = rcond if rtol is None else rtol
    return _pinv(x, rcond=1e-15) if limit is None else _inverse_of_rank(x, limit)


@function(numpy=np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Tensor, Tensor, Any, Tensor]:
    """Compute the x that minimizes |b - a @ x|."""
    solution, _, rank, _ = np.linalg.lstsq(unwrap(a), unwrap(b), rcond)
    a, b = astype(a, solution.dtype), astype(b, solution.dtype)
    m, n = a.shape
    least = np.finfo(float).eps * max(m, n)  # NumPy computes in double precision
    x = matmul(_pinv(a, rcond=least) if rcond is None else _inverse_of_rank(a, rcond), b)
    residuals = reduction.sum(square(b - matmul(a, x)), 0, keepdims=np.ndim(b) == 1)
    return x, residuals if rank == n < m else residuals[:0], rank, svdvals(a)


@function(numpy=np.linalg.matrix_power)
def matrix_power(x: Any, n: int) -> Tensor:
    """Raise square matrices to an integer power."""
    shape = np.shape(x)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise np.linalg.LinAlgError(f"matrix_power: x must be square matrices, got shape {shape}")
    try:
        n = index(n)
    except TypeError:
        raise TypeError(f"matrix_power: n must be an integer, got {n!r}") from None
    if n == 0:
        return Tensor(np.broadcast_to(np.eye(shape[-1], dtype=to_array(x).dtype), shape))
    return reduce(matmul, [x] * (n - 1), clone(x)) if n > 0 else matrix_power(inv(x), -n)

"""Decompositions of matrices, and what is composed of them.

The derivatives are the published ones: M. Giles (2008), "Collected matrix derivative results for
forward and reverse mode algorithmic differentiation", for eigh; J. Townsend (2016),
"Differentiating the singular value decomposition"; M. Seeger et al. (2017), "Auto-differentiating
linear algebra", for QR. Where they divide by the difference of two eigenvalues (or of the squares
of two singular values) that are equal, the derivative of the vectors does not exist: as in PyTorch
it is inf or NaN there, while that of the values alone is right. Functions whose result is unique in
spite of that (pinv, norms) give the right derivative.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..core.registry import function, op
from ..core.tensor import Tensor, unwrap
from . import reduction
from .axes import check_choice
from .elementwise import ratio, safe_divide, square
from .indexing import getitem
from .joining import concatenate
from .linalg import inv, matmul
from .shape import astype

__all__ = ["eigh", "eigvalsh", "svd", "svdvals", "qr", "pinv", "lstsq", "matrix_power"]


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """What `svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class QRResult(NamedTuple):
    """What `qr` returns."""

    Q: Tensor
    R: Tensor


# Each op packs its parts side by side into one array, and the functions below cut it.


def _eigh_gradient(g: Any, y: Any) -> Any:
    values, vectors = y[..., 0, :], y[..., 1:, :]
    g_values, g_vectors = g[..., 0, :], g[..., 1:, :]
    inner = g_values[..., None, :] * np.eye(values.shape[-1], dtype=y.dtype)
    inner = inner + _unless_zero(vectors.mT @ g_vectors, values)
    c = vectors @ inner @ vectors.mT
    return (c + c.mT) / 2


def _unless_zero(turned: Any, values: Any) -> Any:
    """turned / (values_j - values_i) off the diagonal; 0 where `turned` is, also if two values are
    equal.
    """
    eye = np.eye(values.shape[-1], dtype=bool)
    apart = values[..., None, :] - values[..., :, None]
    skip = eye | ((unwrap(turned) == 0) & (unwrap(apart) == 0))
    return np.where(skip, 0, turned / np.where(skip, 1, apart))


@op(x=_eigh_gradient)
def _eigh(x, /, UPLO="L"):
    values, vectors = np.linalg.eigh(x, UPLO)
    return np.concatenate([values[..., None, :], vectors], -2)


@function(numpy=np.linalg.eigh)
def eigh(x: Any, UPLO: str = "L") -> EighResult:
    """The eigenvalues, rising, and the eigenvectors (in columns) of symmetric matrices (..., n, n).

    Only the lower triangle is read (or the upper, with `UPLO` "U"); the gradient is that of a
    symmetric matrix. The signs of the vectors are free: a function of them has a derivative only if
    it does not depend on these.
    """
    check_choice("eigh", "UPLO", UPLO.upper(), "L", "U")
    y = _eigh(x, UPLO=UPLO)
    return EighResult(y[..., 0, :], y[..., 1:, :])


@function(numpy=np.linalg.eigvalsh)
def eigvalsh(x: Any, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices (..., n, n), rising; also where some are equal it has a
    derivative.
    """
    return eigh(x, UPLO).eigenvalues


# -- singular values
# -----------------------------------------------------------------------------------


def _svd_gradient(g: Any, y: Any, x_shape: tuple[int, ...]) -> Any:
    """For the thin decomposition x = U S Vᵀ, packed as [U; S; V] in columns."""
    m, n = x_shape[-2:]
    U, s, V = y[..., :m, :], y[..., m, :], y[..., m + 1 :, :]
    gU, gs, gV = g[..., :m, :], g[..., m, :], g[..., m + 1 :, :]
    k = s.shape[-1]
    inner = gs[..., None, :] * np.eye(k, dtype=y.dtype)
    left, right = U.mT @ gU, V.mT @ gV
    left, right = left - left.mT, right - right.mT
    row, column = s[..., None, :], s[..., :, None]
    inner = (
        inner
        + _unless_zero(left, s) * ratio(row, row + column)
        + _unless_zero(right, s) * ratio(column, row + column)
    )
    c = U @ inner @ V.mT
    if m > k:
        c = c + safe_divide(gU - U @ (U.mT @ gU), row) @ V.mT
    if n > k:
        c = c + U @ safe_divide(gV - V @ (V.mT @ gV), row).mT
    return c


@op(x=_svd_gradient)
def _svd(x, /):
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return np.concatenate([u, s[..., None, :], np.swapaxes(vh, -1, -2)], -2)


@function(numpy=np.linalg.svd)
def svd(
    x: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """U, S, Vh with x = U[..., :k] * S @ Vh[..., :k, :], for matrices (..., m, n) and k = min(m,
    n).

    With `full_matrices` (the default, as in NumPy) U and Vh are square; their columns and rows past
    k are not determined by x, and carry no gradient. Without `compute_uv`, S alone.
    """
    if hermitian:
        raise ValueError("svd: hermitian=True is not supported; use eigh")
    m, n = np.shape(x)[-2:]
    y = _svd(x)
    if not compute_uv:
        return y[..., m, :]
    u, s, vh = y[..., :m, :], y[..., m, :], y[..., m + 1 :, :].mT
    if full_matrices and m != n:
        whole = np.linalg.svd(unwrap(x))
        k = min(m, n)
        u = u if m == k else concatenate([u, Tensor(whole[0][..., :, k:])], -1)
        vh = vh if n == k else concatenate([vh, Tensor(whole[2][..., k:, :])], -2)
    return SVDResult(u, s, vh)


@function(numpy=getattr(np.linalg, "svdvals", ()))
def svdvals(x: Any) -> Tensor:
    """The singular values of matrices (..., m, n), falling."""
    return svd(x, compute_uv=False)


# -- QR
# ------------------------------------------------------------------------------------------------


def _qr_gradient(g: Any, y: Any, x_shape: tuple[int, ...]) -> Any:
    """For x = QR of full column rank, packed as [Q; R]: (gQ + Q copyltu(R gRᵀ - gQᵀ Q)) R⁻ᵀ."""
    m = x_shape[-2]
    Q, R, gQ, gR = y[..., :m, :], y[..., m:, :], g[..., :m, :], g[..., m:, :]
    middle = R @ gR.mT - gQ.mT @ Q
    symmetric = np.tril(middle) + np.tril(middle, -1).mT  # copyltu
    return np.linalg.solve(R, (gQ + Q @ symmetric).mT).mT


@op(x=_qr_gradient)
def _qr(x, /):
    q, r = np.linalg.qr(x)
    return np.concatenate([q, r], -2)


@function(numpy=np.linalg.qr)
def qr(x: Any, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and R upper triangular, whose product is x (..., m, n).

    Modes "reduced" and "r" (R alone); "complete" where m <= n. The derivative needs the first
    min(m, n) columns of x to be independent.
    """
    m, n = np.shape(x)[-2:]
    if mode not in ("reduced", "r") and not (mode == "complete" and m <= n):
        raise ValueError(
            f"qr: mode {mode!r} of shape {np.shape(x)} is not supported; use 'reduced' or 'r'"
        )
    y = _qr(getitem(x, (..., slice(None, min(m, n)))))
    q, r = y[..., :m, :], y[..., m:, :]
    if n > m:  # the other columns of R: the rest of x in the basis Q
        r = concatenate([r, matmul(q.mT, getitem(x, (..., slice(m, None))))], -1)
    return r if mode == "r" else QRResult(q, r)


# -- what is composed of them
# --------------------------------------------------------------------------


def _pinv_gradient(g: Any, y: Any, x: Any) -> Any:
    """G. Golub, V. Pereyra (1973), "The differentiation of pseudo-inverses", for matrices of
    constant rank.
    """
    left = np.eye(x.shape[-2], dtype=y.dtype) - x @ y
    right = np.eye(x.shape[-1], dtype=y.dtype) - y @ x
    return left @ g.mT @ y @ y.mT + y.mT @ y @ g.mT @ right - y.mT @ g @ y.mT


@op(x=_pinv_gradient)
def _pinv(x, /, rcond=None):
    return np.linalg.pinv(x, rcond)


@function(numpy=np.linalg.pinv)
def pinv(x: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverses (..., n, m) of matrices (..., m, n); singular values below `rcond` of the
    largest are 0.

    The derivative is that for matrices of this rank.
    """
    if hermitian:
        raise ValueError("pinv: hermitian=True is not supported; leave it out")
    if rcond is not None and rtol is not None:
        raise ValueError("pinv: rcond and rtol say the same; give one of them")
    limit = rcond if rtol is None else rtol
    return _pinv(x, rcond=1e-15 if limit is None else limit)


@function(numpy=np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Tensor, Tensor, Any, Tensor]:
    """The x with the smallest |b - a x|: (x, the sums of squares left over, the rank of a, its
    singular values).

    `a` is (m, n), `b` (m,) or (m, k). The sums are empty unless a has rank n < m, as in NumPy.
    """
    solution, _, rank, _ = np.linalg.lstsq(unwrap(a), unwrap(b), rcond)
    a, b = astype(a, solution.dtype), astype(b, solution.dtype)
    m, n = a.shape
    eps = np.finfo(a.dtype).eps
    x = matmul(_pinv(a, rcond=eps * (m if m > n else n) if rcond is None else rcond), b)
    left = reduction.sum(square(b - matmul(a, x)), 0, keepdims=np.ndim(b) == 1)
    return x, left if rank == n < m else left[:0], rank, svdvals(a)


@function(numpy=np.linalg.matrix_power)
def matrix_power(x: Any, n: int) -> Tensor:
    """The product of n factors x (..., k, k); of its inverses, for negative n."""
    shape = np.shape(x)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise np.linalg.LinAlgError(f"matrix_power: expected square matrices, got shape {shape}")
    x, n = (inv(x), -n) if n < 0 else (x, n)
    y: Any = None
    while n:  # the powers 1, 2, 4, ... that n is made of
        y = (x if y is None else matmul(y, x)) if n & 1 else y
        n >>= 1
        x = matmul(x, x) if n else x
    return (
        Tensor(np.broadcast_to(np.eye(shape[-1], dtype=unwrap(x).dtype), shape))
        if y is None
        else y * 1
    )

"""Linear algebra: products, einsum, triangles, inverses, determinants."""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.registry import function, op
from ..core.tensor import Tensor, unwrap
from . import reduction
from .axes import all_axes, one_axis, shape_of
from .elementwise import multiply, where
from .indexing import scatter
from .shape import _transpose, astype, moveaxis, reshape, swapaxes

__all__ = [
    "matmul",
    "dot",
    "vdot",
    "inner",
    "outer",
    "tensordot",
    "diagonal",
    "diag",
    "diagflat",
    "trace",
    "tril",
    "triu",
    "inv",
    "solve",
    "det",
    "slogdet",
    "cholesky",
    "vecdot",
    "kron",
    "cross",
]

# -- products --------------------------------------------------------------------------------------


def _matmul_a(g: Any, a_shape: tuple[int, ...], b: Any) -> Any:
    if b.ndim == 1:
        return g[..., None] * b
    if len(a_shape) == 1:
        return (b @ g[..., None])[..., 0]
    return g @ b.swapaxes(-1, -2)


def _matmul_b(g: Any, a: Any, b_shape: tuple[int, ...]) -> Any:
    if a.ndim == 1:
        return g[..., None] * a if len(b_shape) == 1 else a[:, None] * g[..., None, :]
    if len(b_shape) == 1:
        return (g[..., None, :] @ a)[..., 0, :]
    if len(b_shape) == 2 and a.ndim > 2:  # one product instead of a stack of them to be summed
        rows = math.prod(a.shape[:-1])
        return a.reshape(rows, a.shape[-1]).T @ g.reshape(rows, g.shape[-1])
    return a.swapaxes(-1, -2) @ g


@op(numpy=np.matmul, methods="__matmul__ __rmatmul__ matmul", a=_matmul_a, b=_matmul_b)
def matmul(a, b, /):
    """The matrix product, with NumPy's broadcasting: (..., n, k) @ (..., k, m), and vectors (k,) on
    either side.
    """
    return np.matmul(a, b)


def _times(a: Any, b: Any) -> Tensor:
    """a · b, Python numbers counting as arrays of double precision, as they do for np.dot."""
    return multiply(*[x if isinstance(x, Tensor) else np.asarray(x) for x in (a, b)])


@function(numpy=np.dot, methods="dot")
def dot(a: Any, b: Any) -> Tensor:
    """`np.dot`: the sum over the last axis of a and the last but one of b (or its only one)."""
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return _times(a, b)
    return matmul(a, b) if np.ndim(b) <= 2 else tensordot(a, b, ((-1,), (-2,)))


@function(numpy=np.vdot)
def vdot(a: Any, b: Any) -> Tensor:
    """The sum of the products of all elements."""
    return matmul(reshape(a, -1), reshape(b, -1))


@function(numpy=np.inner)
def inner(a: Any, b: Any) -> Tensor:
    """The sum over the last axes of both."""
    return _times(a, b) if np.ndim(a) == 0 or np.ndim(b) == 0 else tensordot(a, b, ((-1,), (-1,)))


@function(numpy=np.outer, methods="outer")
def outer(a: Any, b: Any) -> Tensor:
    """All products of an element of a (n in all) and one of b (m in all): (n, m)."""
    return reshape(a, -1, 1) * reshape(b, -1)


@function(numpy=np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """The sum over pairs of axes of a and b: `axes` of each, or that many of the last of a and the
    first of b.
    """
    if isinstance(axes, (int, np.integer)):
        axes = (range(-axes, 0), range(axes))
    summed_a, summed_b = (
        list(all_axes("tensordot", along, np.ndim(x))) for x, along in zip((a, b), axes)
    )
    lengths_a, lengths_b = (
        [shape_of(x)[i] for i in along] for x, along in ((a, summed_a), (b, summed_b))
    )
    if lengths_a != lengths_b:
        raise ValueError(
            f"tensordot: axes {summed_a} of a, of lengths {lengths_a}, do not fit axes {summed_b} "
            f"of b, {lengths_b}"
        )
    rest_a = [i for i in range(np.ndim(a)) if i not in summed_a]
    rest_b = [i for i in range(np.ndim(b)) if i not in summed_b]
    left, right = [shape_of(a)[i] for i in rest_a], [shape_of(b)[i] for i in rest_b]
    rows = reshape(_transpose(a, axes=rest_a + summed_a), math.prod(left), math.prod(lengths_a))
    columns = reshape(_transpose(b, axes=summed_b + rest_b), math.prod(lengths_a), math.prod(right))
    return reshape(matmul(rows, columns), (*left, *right))


@function(numpy=(np.vecdot, np.linalg.vecdot))
def vecdot(a: Any, b: Any, *, axis: int = -1) -> Tensor:
    """The sum of products along `axis`, for arrays that broadcast."""
    lengths = {shape_of(x)[one_axis("vecdot", axis, np.ndim(x))] for x in (a, b)}
    if len(lengths) > 1:
        raise ValueError(
            f"vecdot: expected vectors of one length, got shapes {shape_of(a)} and {shape_of(b)}"
        )
    products = multiply(moveaxis(a, axis, -1), moveaxis(b, axis, -1))
    total = reduction.sum(products, -1)
    return total if products.dtype.kind == "f" else astype(total, products.dtype)


@function(numpy=np.kron)
def kron(a: Any, b: Any) -> Tensor:
    """Blocks of b, each times an element of a."""
    ndim = max(np.ndim(a), np.ndim(b))
    shapes = [(1,) * (ndim - np.ndim(x)) + shape_of(x) for x in (a, b)]
    y = tensordot(reshape(a, shapes[0]), reshape(b, shapes[1]), 0)
    order = [i + j for i in range(ndim) for j in (0, ndim)]
    return reshape(_transpose(y, axes=order), [n * m for n, m in zip(*shapes)])


@function(numpy=np.cross)
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """The cross products of vectors of 3 elements along `axis` (or `axisa`, `axisb`, and in the
    result `axisc`).
    """
    if axis is not None:
        axisa = axisb = axisc = index(axis)
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(
            f"cross: expected vectors of 3 elements, got shapes {a.shape} and {b.shape}"
        )
    after, before = np.array([1, 2, 0]), np.array([2, 0, 1])
    return moveaxis(a[..., after] * b[..., before] - a[..., before] * b[..., after], -1, axisc)


# Second names in np.linalg, whose axes are the last ones.
numpy_form(np.linalg.matmul)(lambda x1, x2: matmul(x1, x2))
numpy_form(np.linalg.tensordot)(lambda x1, x2, *, axes=2: tensordot(x1, x2, axes))
numpy_form(np.linalg.cross)(lambda x1, x2, *, axis=-1: cross(x1, x2, axis=axis))
numpy_form(np.linalg.matrix_transpose, np.matrix_transpose)(lambda x: swapaxes(x, -1, -2))
numpy_form(np.linalg.diagonal)(lambda x, *, offset=0: diagonal(x, offset, -2, -1))
numpy_form(np.linalg.trace)(lambda x, *, offset=0, dtype=None: trace(x, offset, -2, -1, dtype))


# -- triangles and diagonals -----------------------------------------------------------------------


@function(numpy=np.diagonal, methods="diagonal")
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonals of the matrices in axes `axis1` and `axis2`, as a last axis."""
    axis1, axis2 = all_axes("diagonal", (axis1, axis2), np.ndim(x))
    rows, columns = shape_of(x)[axis1], shape_of(x)[axis2]
    i = np.arange(np.diagonal(np.empty((rows, columns), bool), offset).shape[0])
    return moveaxis(x, (axis1, axis2), (-2, -1))[..., i + max(-offset, 0), i + max(offset, 0)]


@function(numpy=np.diagflat)
def diagflat(v: Any, k: int = 0) -> Tensor:
    """The matrix with the elements of v, flattened, as its k-th diagonal."""
    return diag(reshape(v, -1), k)


@function(numpy=np.diag)
def diag(x: Any, k: int = 0) -> Tensor:
    """The k-th diagonal of a matrix; from a vector, a matrix with it as its k-th diagonal."""
    if np.ndim(x) == 2:
        return diagonal(x, k)
    if np.ndim(x) != 1:
        raise ValueError(f"diag: expected a vector or a matrix, got shape {np.shape(x)}")
    i, n = np.arange(np.shape(x)[0]), np.shape(x)[0] + abs(k)
    return scatter(x, index=(i + max(-k, 0), i + max(k, 0)), shape=(n, n))


@function(numpy=np.trace, methods="trace")
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    """The sum of the diagonal, computed in `dtype`."""
    return reduction.sum(diagonal(x, offset, axis1, axis2), -1, dtype=dtype)


def _lower(x: Any, k: int) -> Any:
    return np.tri(*shape_of(x)[-2:], k=k, dtype=bool)  # type: ignore[call-overload]


@function(numpy=np.tril, methods="tril")
def tril(x: Any, k: int = 0) -> Tensor:
    """x with 0 above its k-th diagonal."""
    return where(_lower(x, k), x, 0)


@function(numpy=np.triu, methods="triu")
def triu(x: Any, k: int = 0) -> Tensor:
    """x with 0 below its k-th diagonal."""
    return where(_lower(x, k - 1), 0, x)


# -- inverses and determinants ---------------------------------------------------------------------


@op(numpy=np.linalg.inv, methods="inv", x=lambda g, y: -(y.mT @ g @ y.mT))
def inv(x, /):
    """The inverses of matrices (..., n, n)."""
    return np.linalg.inv(x)


def _solve_b(g: Any, a: Any, b_shape: tuple[int, ...]) -> Any:
    if len(b_shape) == 1:
        return np.linalg.solve(a.mT, g[..., None])[..., 0]
    return np.linalg.solve(a.mT, g)


def _solve_a(g: Any, y: Any, a: Any, b_shape: tuple[int, ...]) -> Any:
    c = _solve_b(g, a, b_shape)
    return -c[..., :, None] * y[..., None, :] if len(b_shape) == 1 else -(c @ y.mT)


@op(numpy=np.linalg.solve, a=_solve_a, b=_solve_b)
def solve(a, b, /):
    """x such that a @ x = b, for matrices a (..., n, n) and b (n,) or (..., n, k)."""
    return np.linalg.solve(a, b)


def _cofactors(x: Any) -> Any:
    """The signed determinants of the minors: the derivative of det, also of a singular matrix."""
    n = x.shape[-1]
    rest = np.array([[j for j in range(n) if j != i] for i in range(n)], int).reshape(n, n - 1)
    minors = x[..., rest[:, None, :, None], rest[None, :, None, :]]  # (..., n, n, n-1, n-1)
    signs = (-1.0) ** np.add.outer(np.arange(n), np.arange(n))
    return np.linalg.det(minors) * signs.astype(x.dtype)


def _det_gradient(g: Any, y: Any, x: Any) -> Any:
    g, y = g[..., None, None], y[..., None, None]
    # each further derivative multiplies the error of the inverse by the condition of x once more
    limit = 1e4 if isinstance(x, Tensor) else 1e8
    regular = not x.size or (
        np.isfinite(unwrap(x)).all() and np.all(np.linalg.cond(unwrap(x)) < limit)
    )
    return g * y * np.linalg.inv(x).mT if regular else g * _cofactors(x)


@op(numpy=np.linalg.det, methods="det", x=_det_gradient)
def det(x, /):
    """The determinants of matrices (..., n, n); singular ones have a gradient too."""
    return np.linalg.det(x)


@op(x=lambda g, x: g[..., None, None] * np.linalg.inv(x).mT)
def _logabsdet(x, /):
    return np.linalg.slogdet(x)[1]


@function(numpy=np.linalg.slogdet, methods="slogdet")
def slogdet(x: Any) -> Any:
    """The sign of the determinant of matrices (..., n, n), and the logarithm of its size: (sign,
    logabsdet).
    """
    result = np.linalg.slogdet(unwrap(x))
    return type(result)(Tensor(result.sign), _logabsdet(x))


def _cholesky_gradient(g: Any, y: Any) -> Any:
    """I. Murray (2016), "Differentiation of the Cholesky decomposition", eq. 10."""
    middle = np.tril(y.mT @ g)
    middle = (
        middle - np.diagonal(middle, 0, -2, -1)[..., None] * np.eye(y.shape[-1], dtype=y.dtype) / 2
    )
    s = np.linalg.solve(y.mT, np.linalg.solve(y.mT, middle.mT).mT)  # L⁻ᵀ · middle · L⁻¹
    return (s + s.mT) / 2


@op(x=_cholesky_gradient)
def _cholesky(x, /):
    return np.linalg.cholesky(x)


@function(numpy=np.linalg.cholesky, methods="cholesky")
def cholesky(x: Any, *, upper: bool = False) -> Tensor:
    """The lower triangles L with L @ L.T = x, of symmetric positive matrices (..., n, n); with
    `upper`, their mT.

    Only the lower triangle of x is read, or with `upper` the upper one; its gradient is given as
    that of a symmetric matrix.
    """
    return _cholesky(swapaxes(x, -1, -2)).mT if upper else _cholesky(x)

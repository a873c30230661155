"""Linear algebra: products, triangles, diagonals, inverses, determinants."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np

from ..arguments import all_axes, one_axis, shape_of
from ..arrays import all_values
from ..ops import reduce as reduction
from ..ops.arithmetic import multiply
from ..ops.network import matmul
from ..ops.shape import astype, reordered, reshape, swapaxes, where
from ..registry import Op, either, function, op
from ..tensor import Tensor, as_operand, to_array, unwrap
from .batched import all_true
from .einsum import einsum
from .forms import numpy_form
from .indexing import scatter
from .shape import moveaxis

__all__ = [
    "dot",
    "vdot",
    "inner",
    "outer",
    "tensordot",
    "vecdot",
    "kron",
    "cross",
    "diagonal",
    "diagflat",
    "diag",
    "trace",
    "tril",
    "triu",
    "inv",
    "solve",
    "det",
    "slogdet",
    "cholesky",
]

# -- products


def _times(a: Any, b: Any) -> Tensor:
    """Multiply a and b, with Python numbers as arrays of double precision, as np.dot."""
    return multiply(as_operand(a), as_operand(b))


@function(numpy=np.dot, methods="dot")
def dot(a: Any, b: Any) -> Tensor:
    """Sum products over the last axis of a and the second-to-last axis of b."""
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return _times(a, b)
    return matmul(a, b) if np.ndim(b) <= 2 else tensordot(a, b, ((-1,), (-2,)))


def conjugate(x: Any) -> Any:
    """Return the complex conjugates; x itself if it is real."""
    return Tensor(np.conj(unwrap(x))) if to_array(x).dtype.kind == "c" else x


@function(numpy=np.vdot)
def vdot(a: Any, b: Any) -> Tensor:
    """Sum the products of all elements, with the complex conjugates of a."""
    return matmul(conjugate(reshape(a, -1)), reshape(b, -1))


@function(numpy=np.inner)
def inner(a: Any, b: Any) -> Tensor:
    """Sum products over the last axes of a and b."""
    return _times(a, b) if np.ndim(a) == 0 or np.ndim(b) == 0 else tensordot(a, b, ((-1,), (-1,)))


@function(numpy=(np.outer, np.linalg.outer), methods="outer")
def outer(a: Any, b: Any) -> Tensor:
    """Multiply each element of a by each element of b."""
    return reshape(a, -1, 1) * reshape(b, -1)


@function(numpy=(np.tensordot, np.linalg.tensordot))
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """Sum products over pairs of axes."""
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
            f"tensordot: axes {summed_a} of a and {summed_b} of b must have the same lengths, got "
            f"{lengths_a} and {lengths_b}"
        )
    names_a, names_b = list(ascii_lowercase[: np.ndim(a)]), list(ascii_uppercase[: np.ndim(b)])
    for i, j in zip(summed_a, summed_b):
        names_b[j] = names_a[i]
    once = [name for name in names_a + names_b if (name in names_a) != (name in names_b)]
    return einsum(f"{''.join(names_a)},{''.join(names_b)}->{''.join(once)}", a, b)


@function(numpy=(np.vecdot, np.linalg.vecdot))
def vecdot(a: Any, b: Any, *, axis: int = -1) -> Tensor:
    """Sum products along `axis` of arrays that broadcast, with the complex conjugates of a.

    Parameters and result: as `numpy.linalg.vecdot`.
    """
    lengths = {shape_of(x)[one_axis("vecdot", axis, np.ndim(x))] for x in (a, b)}
    if len(lengths) > 1:
        raise ValueError(
            f"vecdot: a and b must have one length along axis, got shapes {shape_of(a)} and "
            f"{shape_of(b)}"
        )
    products = multiply(conjugate(moveaxis(a, axis, -1)), moveaxis(b, axis, -1))
    total = reduction.sum(products, -1)
    return total if products.dtype.kind == "f" else astype(total, products.dtype)


@function(numpy=np.kron)
def kron(a: Any, b: Any) -> Tensor:
    """Compute the Kronecker product: blocks of b, each times an element of a."""
    ndim = max(np.ndim(a), np.ndim(b))
    shapes = [(1,) * (ndim - np.ndim(x)) + shape_of(x) for x in (a, b)]
    y = tensordot(reshape(a, shapes[0]), reshape(b, shapes[1]), 0)
    order = [i + j for i in range(ndim) for j in (0, ndim)]
    return reshape(reordered(y, order), [n * m for n, m in zip(*shapes)])


@function(numpy=(np.cross, np.linalg.cross))
def cross(a: Any, b: Any, *, axis: int | None = -1) -> Tensor:
    """Compute the cross products of vectors of 3 elements along `axis`.

    Parameters and result: as `numpy.linalg.cross`.
    """
    axis = -1 if axis is None else axis
    a, b = moveaxis(a, axis, -1), moveaxis(b, axis, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(f"cross: a and b must have 3 elements, got shapes {a.shape} and {b.shape}")
    after, before = np.array([1, 2, 0]), np.array([2, 0, 1])
    return moveaxis(a[..., after] * b[..., before] - a[..., before] * b[..., after], -1, axis)


# Functions of np.linalg, which use the last axes.

numpy_form(np.linalg.matrix_transpose, np.matrix_transpose)(lambda x: swapaxes(x, -1, -2))
numpy_form(np.linalg.diagonal)(lambda x, *, offset=0: diagonal(x, offset, -2, -1))
numpy_form(np.linalg.trace)(lambda x, *, offset=0, dtype=None: trace(x, offset, -2, -1, dtype))


# -- triangles and diagonals


def _on_diagonal(g: Any, /, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    """Return zeros with g on the diagonals."""
    y = np.zeros_like(g, shape=shape)
    view = np.diagonal(y, offset, axis1, axis2)
    all_values(view).flags.writeable = True
    view[...] = g
    return y


_diagonals: Any = either(
    Op(
        _on_diagonal,
        {"g": lambda g, offset, axis1, axis2: np.diagonal(g, offset, axis1, axis2)},
    ).function
)


@op(
    numpy=np.diagonal,
    methods="diagonal",
    view=True,
    x=lambda g, x_shape, offset, axis1, axis2: _diagonals(g, x_shape, offset, axis1, axis2),
)
def diagonal(x, /, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """Return diagonals as a last axis."""
    return np.diagonal(x, offset, axis1, axis2)


@function(numpy=np.diagflat)
def diagflat(v: Any, k: int = 0) -> Tensor:
    """Return a matrix with the elements of v on a diagonal."""
    return diag(reshape(v, -1), k)


@function(numpy=np.diag)
def diag(x: Any, k: int = 0) -> Tensor:
    """Return a diagonal of a matrix, or a matrix with a vector on its diagonal."""
    shape = shape_of(x)
    if len(shape) == 2:
        return diagonal(x, k)
    if len(shape) != 1:
        raise ValueError(f"diag: x must be a vector or a matrix, got shape {shape}")
    i, n = np.arange(shape[0]), shape[0] + abs(k)
    return scatter(x, index=(i + max(-k, 0), i + max(k, 0)), shape=(n, n))


@function(numpy=np.trace, methods="trace")
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    """Sum the elements of a diagonal."""
    return reduction.sum(diagonal(x, offset, axis1, axis2), -1, dtype=dtype)


def _lower(x: Any, k: int) -> Any:
    return np.tri(*shape_of(x)[-2:], k=k, dtype=bool)  # type: ignore[call-overload]


@function(numpy=np.tril, methods="tril")
def tril(x: Any, k: int = 0) -> Tensor:
    """Replace the elements above a diagonal by 0."""
    x = as_operand(x)
    return where(_lower(x, k), x, np.zeros((), x.dtype))


@function(numpy=np.triu, methods="triu")
def triu(x: Any, k: int = 0) -> Tensor:
    """Replace the elements below a diagonal by 0.

    Parameters and result: as `numpy.tril`.
    """
    x = as_operand(x)
    return where(_lower(x, k - 1), np.zeros((), x.dtype), x)


# -- inverses and determinants


@op(numpy=np.linalg.inv, methods="inv", x=lambda g, y: -(y.mT @ g @ y.mT))
def inv(x, /):
    """Compute the inverses of matrices."""
    return np.linalg.inv(x)


def _solve_gradients(
    g: Any, y: Any, a: Any, b_shape: tuple[int, ...], needs: tuple[bool, ...]
) -> tuple[Any, Any]:
    if len(b_shape) == 1:
        c = np.linalg.solve(a.mT, g[..., None])[..., 0]
        return -c[..., :, None] * y[..., None, :] if needs[0] else None, c
    c = np.linalg.solve(a.mT, g)
    return -(c @ y.mT) if needs[0] else None, c


@op(numpy=np.linalg.solve, vjp=_solve_gradients)
def solve(a, b, /):
    """Compute the solutions x of the linear equations a @ x = b."""
    return np.linalg.solve(a, b)


def _cofactors(x: Any) -> Any:
    """Return the signed determinants of the minors, which are the derivative of det."""
    n = x.shape[-1]
    rest = np.array([[j for j in range(n) if j != i] for i in range(n)], int).reshape(n, n - 1)
    minors = x[..., rest[:, None, :, None], rest[None, :, None, :]]  # (..., n, n, n-1, n-1)
    signs = (-1.0) ** np.add.outer(np.arange(n), np.arange(n))
    return np.linalg.det(minors) * signs


def _det_gradient(g: Any, y: Any, x: Any) -> Any:
    g, y = g[..., None, None], y[..., None, None]
    # each further derivative multiplies the error of the inverse by the condition of x once more
    limit = 1e4 if isinstance(x, Tensor) else 1e8
    with suppress(np.linalg.LinAlgError), np.errstate(over="ignore", invalid="ignore"):
        inverse = np.linalg.inv(x)
        if not x.size or all_true(_norm(unwrap(x)) * _norm(unwrap(inverse)) < limit):
            return g * y * inverse.mT
    return g * _cofactors(x)


def _norm(x: Any) -> Any:
    """Return the largest sum of absolute values of a row."""
    return np.abs(x).sum(-1).max(-1)


@op(numpy=np.linalg.det, methods="det", x=_det_gradient)
def det(x, /):
    """Compute the determinants of matrices; singular ones have gradients too."""
    return np.linalg.det(x)


@op(x=lambda g, x: g[..., None, None] * np.linalg.inv(x).mT)
def _logabsdet(x, /):
    return np.linalg.slogdet(x)[1]


@function(numpy=np.linalg.slogdet, methods="slogdet")
def slogdet(x: Any) -> Any:
    """Compute signs and logarithms of absolute values of determinants.

    The signs have no gradient.
    """
    result = np.linalg.slogdet(unwrap(x))
    return type(result)(Tensor(result.sign), _logabsdet(x))


MAX_WHOLE = 32
"""Largest length of triangles that are not halved."""


def invert_lower(x: Any, /) -> Any:
    """Compute the inverses of lower triangles, by halves; the rest of x is not read."""
    n = x.shape[-1]
    if n <= MAX_WHOLE:
        return np.linalg.inv(np.where(triangle_weights(n, bool), x, 0))
    y, half = np.zeros_like(x), n // 2
    top = y[..., :half, :half] = invert_lower(x[..., :half, :half])
    low = y[..., half:, half:] = invert_lower(x[..., half:, half:])
    y[..., half:, :half] = -low @ x[..., half:, :half] @ top
    return y


_inverse_of_lower: Any = either(
    Op(invert_lower, {"x": lambda g, y: -np.tril(y.mT @ g @ y.mT)}).function
)


@lru_cache(16)
def triangle_weights(n: int, dtype: Any) -> np.ndarray:
    """Return ones below the diagonal, halves on it, and zeros above."""
    return (np.tri(n) - np.eye(n) / 2).astype(dtype)


def _cholesky_gradient(g: Any, y: Any, inverse: Any) -> Any:
    """Return the gradient by equation 10 of Murray (2016), arXiv:1602.07527.

    A large x has four parts, [[a @ a.mT, a @ b.mT], [b @ a.mT, b @ b.mT + c @ c.mT]].
    """
    n = y.shape[-1]
    if n <= 2 * MAX_WHOLE:
        s = inverse.mT @ ((y.mT @ g) * triangle_weights(n, y.dtype)) @ inverse
        return (s + s.mT) / 2
    first, last = slice(None, n // 2), slice(n // 2, None)
    a, b, c = ((..., first, first), (..., last, first), (..., last, last))
    low = _cholesky_gradient(g[c], y[c], inverse[c])
    side = (g[b] / 2 - low @ y[b]) @ inverse[a]
    top = _cholesky_gradient(g[a] - 2 * side.mT @ y[b], y[a], inverse[a])
    upper, lower = np.concatenate([top, side.mT], -1), np.concatenate([side, low], -1)
    return np.concatenate([upper, lower], -2)


_inverses: dict[int, tuple[weakref.ref[Any], np.ndarray]] = {}


def keep_inverse(y: Any, inverse: Any) -> None:
    """Keep the inverse of a lower triangle for the gradient of `cholesky`, until y is freed."""
    key = id(y)
    if type(y) is np.ndarray:
        _inverses[key] = weakref.ref(y, lambda _: _inverses.pop(key, None)), inverse


def _kept_inverse(y: Any) -> Any:
    reference, inverse = _inverses.get(id(y), (lambda: None, None))
    return inverse if reference() is y else _inverse_of_lower(y)


@op(x=lambda g, y: _cholesky_gradient(g, y, _kept_inverse(y)))
def _cholesky(x, /):
    return np.linalg.cholesky(x)


@function(numpy=np.linalg.cholesky, methods="cholesky")
def cholesky(x: Any, *, upper: bool = False) -> Tensor:
    """Compute the lower triangles L with L @ L.mT = x.

    The gradient is symmetric.
    """
    return _cholesky(swapaxes(x, -1, -2)).mT if upper else _cholesky(x)

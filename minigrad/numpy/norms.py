"""Norms of vectors and matrices."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from ..arguments import all_axes
from ..arrays import Axis
from ..nested import needs_gradient
from ..ops import reduce as reduction
from ..ops.arithmetic import absolute, power
from ..ops.reduce import is_half, reduced, restored, total
from ..ops.shape import astype, expand_dims, floating, reshape, where
from ..registry import function, op
from ..tensor import Tensor, to_array
from .decompositions import svdvals
from .elementwise import ratio
from .linalg import inv
from .shape import flattened_last, moveaxis

__all__ = ["norm", "vector_norm", "matrix_norm", "cond"]


@op(x=lambda g, y, x, axis: restored(g, x.shape, axis) * ratio(x, restored(y, x.shape, axis)))
def _euclidean_norm(x, /, axis=None, keepdims=False):
    if is_half(x):
        return np.sqrt(total(np.square(x, dtype=np.float32), axis, keepdims)).astype(np.float16)
    return np.sqrt(reduced(np.add, x * x, axis, keepdims))


def _sizes(x: Any) -> Any:
    """Return absolute values of complex numbers, and other numbers as they are."""
    return absolute(x) if to_array(x).dtype.kind == "c" else x


def _check_order(name: str, ord: Any) -> None:
    if needs_gradient(ord):
        raise TypeError(
            f"{name}: ord must not require gradients; write "
            "np.sum(np.abs(x) ** ord, axis) ** (1 / ord)"
        )


@function(numpy=np.linalg.norm, methods="norm")
def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Compute norms of vectors or matrices.

    The gradient at 0 is 0.
    """
    _check_order("norm", ord)
    x = floating(x)
    if axis is not None and not isinstance(axis, tuple):
        axis = index(axis)  # refuses lists, as NumPy does
    if axis is None and ord is None:
        return _euclidean_norm(_sizes(x), axis=None, keepdims=keepdims)
    axes = all_axes("norm", axis, np.ndim(x))
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ValueError(
            f"norm: axis must be one axis (of vectors) or two (of matrices) for ord={ord!r}, got "
            f"{axes}"
        )
    return _matrix_norm(x, ord, axes, keepdims)


def _largest(sizes: Any, axis: Axis, keepdims: bool = False) -> Tensor:
    """Return the largest of values that are not negative; 0 if there are none."""
    largest = reduction.max if np.size(sizes) else reduction.sum
    return largest(sizes, axis, keepdims=keepdims)


def _vector_norm(x: Any, ord: Any, axis: Axis, keepdims: bool) -> Tensor:
    if is_half(x):  # its powers overflow
        return astype(_vector_norm(astype(x, np.float32), ord, axis, keepdims), np.float16)
    x = _sizes(x)
    if ord is None or ord == 2:
        return _euclidean_norm(x, axis=axis, keepdims=keepdims)
    if isinstance(ord, str):
        raise ValueError(f"norm: ord must be a number over one axis, got {ord!r}")
    size = absolute(x)
    if ord in (np.inf, -np.inf):
        return (
            _largest(size, axis, keepdims)
            if ord > 0
            else reduction.min(size, axis, keepdims=keepdims)
        )
    if ord == 0:
        return reduction.sum((size != 0).astype(size.dtype), axis, keepdims=keepdims)
    if ord == 1:
        return reduction.sum(size, axis, keepdims=keepdims)
    limit = np.inf if ord < 0 else 0.0  # 0 to the power ord
    if ord > 0 and ord % 2 == 0:
        total = reduction.sum(power(x, ord), axis, keepdims=keepdims)
    else:
        zero = size == 0
        total = reduction.sum(
            where(zero, limit, power(where(zero, 1, size), ord)), axis, keepdims=keepdims
        )
    zero = total == limit
    return where(zero, 0, power(where(zero, 1, total), 1 / ord))


def _matrix_norm(x: Any, ord: Any, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    if ord is None or ord in ("f", "fro"):
        return _euclidean_norm(_sizes(x), axis=axis, keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        s = svdvals(moveaxis(x, axis, (-2, -1)))
        y = (
            reduction.sum(s, -1)
            if ord == "nuc"
            else _largest(s, -1)
            if ord == 2
            else reduction.min(s, -1)
        )
        return expand_dims(y, axis) if keepdims else y
    if ord not in (1, -1, np.inf, -np.inf):
        raise ValueError(
            "norm: ord must be None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf over two axes, got "
            f"{ord!r}"
        )
    summed, compared = axis if abs(ord) == 1 else axis[::-1]
    sums = reduction.sum(absolute(x), summed, keepdims=True)
    y = _largest(sums, compared, True) if ord > 0 else reduction.min(sums, compared, keepdims=True)
    return y if keepdims else reduction.sum(y, axis)


@function(numpy=np.linalg.vector_norm)
def vector_norm(x: Any, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """Compute norms of vectors; the gradient at 0 is 0."""
    _check_order("vector_norm", ord)
    flat, with_ones = flattened_last(floating(x), axis, "vector_norm")
    y = _vector_norm(flat, ord, -1, False)
    return reshape(y, with_ones) if keepdims else y


@function(numpy=np.linalg.matrix_norm)
def matrix_norm(x: Any, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Compute norms of the matrices in the last two axes."""
    return norm(x, ord, (-2, -1), keepdims)


@function(numpy=np.linalg.cond)
def cond(x: Any, p: Any = None) -> Tensor:
    """Compute the condition number of matrices; singular ones get no gradient."""
    x = floating(x)
    # "nuc" of NumPy does not converge for singular matrices
    singular = np.isinf(np.linalg.cond(to_array(x), "fro" if p == "nuc" else p))
    x = where(singular[..., None, None], np.eye(*x.shape[-2:], dtype=x.dtype), x)
    if p is None or p in (2, -2):
        s = svdvals(x)
        y = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    else:
        y = norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))
    return where(singular, np.inf, y)

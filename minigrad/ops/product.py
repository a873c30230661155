"""Products of matrices, and the linear layer.

Look at the rules of `matmul` first. They are the two lines of the textbook, dA = G Bᵀ and
dB = Aᵀ G, at the end of each rule. The lines before them are for vectors, stacks of matrices, and
constant sparse matrices.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays import as_array
from ..fuse import fusible
from ..op import either
from ..registry import function, op
from ..tensor import Tensor

__all__ = ["matmul", "linear"]


def _matmul_a(g: Any, a_shape: tuple[int, ...], b: Any) -> Any:
    if type(b) is not np.ndarray and _is_sparse(b):
        return _product(g, b.T)
    if b.ndim == 1:
        return g[..., None] * b
    if len(a_shape) == 1:
        return (b @ g[..., None])[..., 0]
    return g @ b.swapaxes(-1, -2)


def _matmul_b(g: Any, a: Any, b_shape: tuple[int, ...]) -> Any:
    if type(a) is not np.ndarray and _is_sparse(a):
        return _product(a.T, g)
    if a.ndim == 1:
        return g[..., None] * a if len(b_shape) == 1 else a[:, None] * g[..., None, :]
    if len(b_shape) == 1:
        return (g[..., None, :] @ a)[..., 0, :]
    if len(b_shape) == 2 and a.ndim > 2:  # one product instead of the sum of a stack of products
        rows = math.prod(a.shape[:-1])
        return a.reshape(rows, a.shape[-1]).T @ g.reshape(rows, g.shape[-1])
    return a.swapaxes(-1, -2) @ g


@op(
    numpy=(np.matmul, np.linalg.matmul),
    methods="__matmul__ __rmatmul__ matmul",
    a=_matmul_a,
    b=_matmul_b,
)
def matmul(a, b, /):
    """Multiply matrices, as the operator `@`.

    Either operand can be a constant matrix of scipy.sparse. `x @ A` works then, but for `A @ x`
    write `matmul(A, x)`, since SciPy would make an array of x.

    Parameters
    ----------
    a : array_like, shape (..., n, k) or (k,)
    b : array_like, shape (..., k, m) or (k,)

    Returns
    -------
    Tensor, shape (..., n, m)
        Products, without n or m for a vector. The other axes broadcast.
    """
    try:
        return np.matmul(a, b)
    except ValueError:
        if _is_sparse(a) and isinstance(b, np.ndarray):
            if b.ndim > 2:
                raise ValueError("b must have 1 or 2 axes if a is sparse") from None
            return a @ b
        if _is_sparse(b) and isinstance(a, np.ndarray) and a.ndim:
            rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1]) @ b
            return rows.reshape(*a.shape[:-1], b.shape[1])
        raise


def _is_sparse(x: Any) -> bool:
    """Return whether x is a matrix of scipy.sparse, without importing it."""
    return hasattr(x, "tocsr")


_product: Any = either(matmul)


# -- the linear layer


@fusible
def _linear(x: Any, weight: Any, bias: Any) -> Tensor:
    y = matmul(x, weight.T)
    return y if bias is None else y + bias


@function()
def linear(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """Compute x @ weight.T + bias.

    Parameters
    ----------
    x : Tensor, shape (..., in)
    weight : Tensor, shape (out, in)
    bias : Tensor, shape (out,), optional
    """
    x = x if isinstance(x, Tensor) else as_array(x)
    weight = weight if isinstance(weight, Tensor) else as_array(weight)
    bias = bias if bias is None or isinstance(bias, Tensor) else as_array(bias)
    if weight.ndim != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            "linear: x and weight must have shapes (..., in) and (out, in), and bias (out,) or "
            f"None; got x {tuple(x.shape)} {x.dtype}, weight {tuple(weight.shape)} {weight.dtype}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"linear: bias must have shape {tuple(weight.shape[:1])}, got {bias.shape}"
        )
    return _linear(x, weight, bias)

"""Functions of networks: matrix products, activations, dropout, and norms of rows.

Look at the rules of `matmul` first. They are the two lines of the textbook, dA = G Bᵀ and dB = Aᵀ
G, at the end of each rule. The lines before them are for vectors and stacks of matrices.
`softmax` subtracts the largest element first, so that no exponential overflows.
`_row_norm` is both norms in four lines, and its gradient follows from the operations in it.

Dropout: Srivastava et al. (2014), JMLR 15, 1929-1958. The mask is drawn once, outside the
operations that it multiplies, so the forward and the backward pass use the same mask. Norms: Ba,
Kiros, Hinton (2016), arXiv:1607.06450; Zhang, Sennrich (2019), arXiv:1910.07467.
"""

from __future__ import annotations

import math

import numpy as np

from ..arguments import booleans, check_shape, checked_number
from ..arrays import Array, ArrayLike, Function, Mask, Shape, as_array
from ..fuse import fusible
from ..random import random_words
from ..registry import either, function, op
from ..tensor import Tensor, as_operand
from .arithmetic import over_cosh_squared, sqrt, square
from .reduce import centring_mean, largest, mean, total
from .shape import floating

__all__ = [
    "dropout",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "relu",
    "relu_dropout",
    "rms_norm",
    "sigmoid",
    "softmax",
]


# usual: a (N, L, k) and b (k, m). The cases of one axis are vectors.


def _matmul_a(g: Array, a_shape: Shape, b: Array) -> Array:
    if b.ndim == 1:
        return g[..., None] * b
    if len(a_shape) == 1:
        return (b @ g[..., None])[..., 0]
    return g @ b.mT


def _matmul_b(g: Array, a: Array, b_shape: Shape) -> Array:
    if a.ndim == 1:
        return g * a if len(b_shape) == 1 else a[:, None] * g[..., None, :]
    if len(b_shape) == 1:
        return (g[..., None, :] @ a)[..., 0, :]
    if len(b_shape) == 2 and a.ndim > 2:  # one product instead of the sum of a stack of products
        rows = math.prod(a.shape[:-1])
        return a.reshape(rows, a.shape[-1]).T @ g.reshape(rows, g.shape[-1])
    return a.mT @ g


@op(
    numpy=(np.matmul, np.linalg.matmul),
    methods="__matmul__ __rmatmul__ matmul",
    a=_matmul_a,
    b=_matmul_b,
)
def matmul(a, b, /):
    """Multiply matrices, as the operator `@`.

    Parameters
    ----------
    a : array_like, shape (..., n, k) or (k,)
    b : array_like, shape (..., k, m) or (k,)

    Returns
    -------
    Tensor, shape (..., n, m)
        Products, without n or m for a vector. The other axes broadcast.
    """
    return np.matmul(a, b)


# -- the linear layer


@fusible
def _linear(x: Array, weight: Array, bias: Array) -> Tensor:
    y = matmul(x, weight.T)
    return y if bias is None else y + bias


@function()
def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike = None) -> Tensor:
    """Compute x @ weight.T + bias.

    Parameters
    ----------
    x : Tensor, shape (..., in)
    weight : Tensor, shape (out, in)
    bias : Tensor, shape (out,), optional
    """
    x, weight = as_operand(x), as_operand(weight)
    bias = None if bias is None else as_operand(bias)
    if weight.ndim != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            "linear: x and weight must have shapes (..., in) and (out, in), and bias (out,) or "
            f"None; got x {tuple(x.shape)} {x.dtype}, weight {tuple(weight.shape)} {weight.dtype}"
        )
    if bias is not None:
        check_shape("linear", "bias", bias, weight.shape[:1])
    return _linear(x, weight, bias)


# -- activations


@op(methods="relu", x=lambda g, y: g * (y != 0.0))  # passes the gradient at NaN
def relu(x, /):
    """Compute max(x, 0); the derivative at 0 is 0.

    Parameters
    ----------
    x : array_like
    """
    return np.maximum(x, 0)


def as_floats(x: ArrayLike) -> Array:
    """Return an array of integers or booleans as float64."""
    x = as_array(x)
    return x.astype(float) if x.dtype.kind in "iub" else x


@op(methods="sigmoid", x=lambda g, x: over_cosh_squared(g * 0.25, x * 0.5))  # g · y · (1 - y)
def sigmoid(x, /):
    """Compute 1 / (1 + exp(-x)).

    Parameters: as `relu`.
    """
    with np.errstate(over="ignore"):  # where e⁻ˣ is infinite, the result is 0
        y = as_array(np.exp(-as_floats(x)))
        y += 1
        return np.reciprocal(y, out=y)


logistic: Function = either(sigmoid)  # for rules

# -- softmax


@op(methods="softmax", x=lambda g, y, axis: y * (g - (g * y).sum(axis=axis, keepdims=True)))
def softmax(x, /, axis: int = -1, *, where=None):
    """Compute exp(x) / sum(exp(x)) over `axis`.

    Parameters
    ----------
    x : array_like
    axis : int
        The last by default.
    where : array of bool, broadcastable to x, optional
        True = the element counts; the others get 0. A slice without a True gets zeros, and zero
        gradients.
    """
    x = as_array(x)
    if where is None:
        y = as_array(np.exp(x - largest(x, axis)))
        return np.divide(y, total(y, axis), out=y)
    where = np.broadcast_to(booleans("where", where), x.shape)
    top = largest(x, axis, where)
    y = as_array(np.exp(np.where(where, x - np.where(top == -np.inf, 0, top), -np.inf)))
    sums = total(y, axis)
    return np.divide(y, np.where(sums == 0, 1, sums), out=y)


@op(methods="log_softmax", x=lambda g, y, axis: g - np.exp(y) * g.sum(axis=axis, keepdims=True))
def log_softmax(x, /, axis=-1):
    """Compute log(softmax(x)) over `axis`, without underflow.

    Parameters: as `softmax`.
    """
    x = as_array(x)
    x = as_array(x - largest(x, axis))
    with np.errstate(divide="ignore"):  # the sum over an axis of length 0 is 0
        return np.subtract(x, np.log(total(np.exp(x), axis)), out=x)


# -- dropout

_LEVELS = 256  # a random byte for each element


def dropout_mask(
    shape: Shape, p: float, generator: np.random.Generator | None
) -> tuple[np.ndarray, float]:
    """Return a mask that is True with probability 1 - q, and 1 / (1 - q).

    q = k / 256 is the nearest to p with 0 < k < 256; k is 0 only for p = 0.
    """
    checked_number("dropout", "p", p, high=1.0)
    dropped = min(max(1, round(p * _LEVELS)), _LEVELS - 1) if p else 0
    n = math.prod(shape)
    words = random_words(-(-n // 8), generator)
    return (words.view(np.uint8)[:n] >= dropped).reshape(shape), _LEVELS / (_LEVELS - dropped)


@fusible(any_dtype=True)
def _dropout(x: Array, mask: Mask, scale: float) -> Tensor:
    return x * mask * scale


@function()
def dropout(
    x: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: np.random.Generator | None = None,
) -> Tensor:
    """Return x with elements set to 0 with probability `p`, and the others divided by 1 - p.

    Parameters
    ----------
    x : Tensor
    p : float
        At least 0 and less than 1; 0.5 by default. It is rounded to the nearest k / 256 with
        0 < k < 256, and the elements are divided by 1 - k / 256, so the expectation is exact.
    training : bool
        Drop elements, as by default; False returns x unchanged.
    generator : numpy.random.Generator, optional
        Source of random numbers; the default generator by default.
    """
    x = x if isinstance(x, Tensor) else Tensor(x)
    if not training or p == 0:
        return x
    mask, scale = dropout_mask(x.shape, p, generator)
    return _dropout(x, mask=mask, scale=scale)


@fusible(any_dtype=True)
def _relu_dropout(x: Array, mask: Mask, scale: float) -> Tensor:
    return relu(x) * mask * scale


@function()
def relu_dropout(
    x: ArrayLike,
    *,
    p: float = 0.5,
    training: bool = True,
    generator: np.random.Generator | None = None,
) -> Tensor:
    """Compute dropout(relu(x)). A kernel saves only the result for the gradient.

    Parameters: as `dropout`.
    """
    if not training or p == 0:
        return relu(x)
    x = floating(x)
    mask, scale = dropout_mask(x.shape, p, generator)
    return _relu_dropout(x, mask=mask, scale=scale)


# -- norms


@fusible
def _row_norm(x: Array, weight: Array, bias: Array, eps: float, centred: bool) -> Tensor:
    """Compute c / √(mean(c²) + eps) · weight + bias for each row; c = row - mean if `centred`."""
    c = x - centring_mean(x, -1) if centred else x
    y = c / sqrt(mean(square(c), -1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _checked_row(name: str, x: Array, weight: Array, bias: Array) -> Array:
    """Return x; raise a ValueError unless weight and bias have the shape of a row, or are None."""
    x = as_operand(x)
    if not x.shape:
        raise ValueError(f"{name}: x must have rows, a last axis, got a scalar")
    for argument, value in (("weight", weight), ("bias", bias)):
        if value is not None:
            check_shape(name, argument, value, x.shape[-1:])
    return x


@function()
def layer_norm(
    x: ArrayLike, *, weight: ArrayLike = None, bias: ArrayLike = None, eps: float = 1e-5
) -> Tensor:
    """Return x with each row (last axis) normalized to mean 0 and variance 1.

    Parameters
    ----------
    x : Tensor, shape (..., d)
    weight : Tensor, shape (d,), optional
        Factor of the normalized rows.
    bias : Tensor, shape (d,), optional
        Added to the normalized rows.
    eps : float
        Added to the variance, whose divisor is d; 1e-5 by default.
    """
    x = _checked_row("layer_norm", x, weight, bias)
    return _row_norm(x, weight, bias, eps=eps, centred=True)


@function()
def rms_norm(x: ArrayLike, *, weight: ArrayLike = None, eps: float | None = None) -> Tensor:
    """Return x with each row (last axis) divided by its root mean square.

    Other parameters: as `layer_norm`.

    Parameters
    ----------
    eps : float, optional
        Added to the mean square; the machine epsilon of the dtype of x by default.
    """
    x = _checked_row("rms_norm", x, weight, None)
    if eps is None:
        eps = float(np.finfo(x.dtype if x.dtype.kind == "f" else float).eps)
    return _row_norm(x, weight, None, eps=eps, centred=False)

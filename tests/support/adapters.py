"""The ops of PyTorch, as minigrad expresses them.

`TABLE` has, by the name of an op in PyTorch's `op_db`, a function that takes what the op takes (with its
names, such as `dim`, and its defaults, such as `correction=1`) and calls what minigrad has for it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

import minigrad as mg

Function = Callable[..., Any]
Table = dict[str, Function]

LN2, PI = math.log(2), math.pi

NO_AXIS = "are 0-d, and have no axis in NumPy"
RANDOM = "have random results"


class LeftOut(Exception):
    """The reason why a sample is not compared."""


def left_out(reason: str) -> NoReturn:
    raise LeftOut(reason)


def ax(x: Any, dim: Any) -> Any:
    """The axis that PyTorch calls `dim`: () is all of them, and a number has an axis 0."""
    if dim is None or np.ndim(x) == 0:
        return None
    return dim if isinstance(dim, int) else tuple(dim) or None


def cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else x.astype(dtype)


def grid(x: Any) -> np.ndarray:
    """The places of the elements of x, in its shape."""
    return np.arange(x.size).reshape(x.shape)


def of_arrays(f: Function) -> Function:
    """A function that refuses numbers, to which PyTorch lends an axis."""
    return lambda x, *args, **options: f(x, *args, **options) if np.ndim(x) else left_out(NO_AXIS)


def at(x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """The index that is `index` along one axis, and all there is along those before it."""
    return (slice(None),) * (dim % x.ndim) + (index,) if x.ndim else left_out(NO_AXIS)


def each(f: Function) -> Function:
    """A function of one tensor as one of several, or of a list."""
    return lambda *xs: (
        [f(x) for x in xs[0]] if isinstance(xs[0], (list, tuple)) else [f(x) for x in xs]
    )


# -- elementwise -----------------------------------------------------------------------------------------


def to(x: Any, *args: Any, **options: Any) -> Any:
    """The dtype is one of the arguments, or that of another tensor among them."""
    return mg.astype(
        x, next(getattr(a, "dtype", a) for a in args if isinstance(a, (np.dtype, mg.Tensor)))
    )


ELEMENTWISE: Table = {
    "abs": mg.absolute,
    "acos": mg.arccos,
    "acosh": mg.arccosh,
    "add": lambda a, b, alpha=1: mg.add(a, b * alpha),
    "addcdiv": lambda x, a, b, value=1: x + a / b * value,
    "addcmul": lambda x, a, b, value=1: x + a * b * value,
    "alias_copy clone contiguous real resolve_conj resolve_neg": mg.clone,
    "conj conj_physical": mg.conjugate,
    "asin": mg.arcsin,
    "asinh": mg.arcsinh,
    "atan": mg.arctan,
    "atan2": mg.arctan2,
    "atanh": mg.arctanh,
    "clamp": lambda x, low=None, high=None: mg.clip(x, low, high),
    "clamp_max": lambda x, high: mg.clip(x, None, high),
    "clamp_min": lambda x, low: mg.clip(x, low, None),
    "copysign": mg.copysign,
    "cos": mg.cos,
    "cosh": mg.cosh,
    "deg2rad": mg.deg2rad,
    "div:floor_rounding": lambda a, b, rounding_mode: a // b,
    "div:no_rounding_mode true_divide": mg.divide,
    "div:trunc_rounding": lambda a, b, rounding_mode: mg.trunc(a / b),
    "double": lambda x, **_: mg.astype(x, np.float64),
    "erf": mg.erf,
    "erfc": lambda x: 1 - mg.erf(x),
    "exp": mg.exp,
    "exp2": mg.exp2,
    "expm1": mg.expm1,
    "fill": lambda x, value: mg.full_like(x, value),
    "float": lambda x, **_: mg.astype(x, np.float32),
    "fmod": mg.fmod,
    "frac": lambda x: x - np.trunc(x),
    "half": lambda x, **_: mg.astype(x, np.float16),
    "hypot": mg.hypot,
    "ldexp": lambda a, b: a * mg.power(2.0, b),
    "lerp": lambda a, b, weight: a + (b - a) * weight,
    "log": mg.log,
    "log10": mg.log10,
    "log1p": mg.log1p,
    "log2": mg.log2,
    "logaddexp": mg.logaddexp,
    "logaddexp2": mg.logaddexp2,
    "logit": lambda x, eps=None: (
        mg.log(y := x if eps is None else mg.clip(x, eps, 1 - eps)) - mg.log(1 - y)
    ),
    "masked_fill": mg.masked_fill,
    "fmax": mg.fmax,
    "fmin": mg.fmin,
    "maximum max:binary": mg.maximum,
    "minimum min:binary": mg.minimum,
    "mul": mg.multiply,
    "nan_to_num": lambda x, nan=0.0, posinf=None, neginf=None: mg.nan_to_num(
        x, True, nan or 0.0, posinf, neginf
    ),
    "neg": mg.negative,
    "positive": mg.positive,
    "pow": mg.power,
    "float_power": lambda a, b: mg.power(*[mg.astype(x, float) for x in (a, b)]),
    "rad2deg": mg.rad2deg,
    "reciprocal": mg.reciprocal,
    "remainder": mg.remainder,
    "rsqrt": mg.rsqrt,
    "rsub": lambda a, b, alpha=1: mg.subtract(b, a * alpha),
    "sigmoid": mg.sigmoid,
    "sign sgn": mg.sign,
    "sin": mg.sin,
    "sinc": mg.sinc,
    "sinh": mg.sinh,
    "special.entr": lambda x: -x * mg.log(x),
    "special.ndtr": lambda x: (1 + mg.erf(x / math.sqrt(2))) / 2,
    "special.xlog1py": lambda a, b: a * mg.log1p(b),
    "sqrt": mg.sqrt,
    "square": mg.square,
    "sub": lambda a, b, alpha=1: mg.subtract(a, b * alpha),
    "tan": mg.tan,
    "tanh": mg.tanh,
    "to": to,
    "where": lambda a, condition, b: mg.where(condition, a, b),
    "xlogy": mg.xlogy,
    "__radd__": lambda a, b: a.__radd__(b),
    "__rdiv__": lambda a, b: a.__rtruediv__(b),
    "__rmatmul__": lambda a, b: a.__rmatmul__(b),
    "__rmod__": lambda a, b: a.__rmod__(b),
    "__rmul__": lambda a, b: a.__rmul__(b),
    "__rpow__": lambda a, b: a.__rpow__(b),
    "__rsub__": lambda a, b: a.__rsub__(b),
}

# -- reductions ------------------------------------------------------------------------------------------


def reduction(f: Function) -> Function:
    return lambda x, dim=None, keepdim=False, dtype=None: f(
        cast(x, dtype), ax(x, dim), keepdims=keepdim
    )


def along_axis(f: Function) -> Function:
    return lambda x, dim, dtype=None: f(cast(x, dtype), ax(x, dim))


def flattened(f: Function) -> Function:
    """A function of a last axis as one of several axes."""

    def run(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        axes = [i % x.ndim for i in np.atleast_1d(range(x.ndim) if ax(x, dim) is None else dim)]
        kept = [i for i in range(x.ndim) if i not in axes]
        size = math.prod(x.shape[i] for i in axes)
        y = f(mg.reshape(mg.transpose(x, [*kept, *axes]), [*[x.shape[i] for i in kept], size]))
        return (
            mg.reshape(y, [1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdim else y
        )

    return run


def spread(f: Function, *others: Function) -> Function:
    """var or std, alone or together with other functions."""

    def run(
        x: Any,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        correction: Any = None,
    ) -> Any:
        correction = int(unbiased) if correction is None else correction
        return [
            f(x, ax(x, dim), keepdims=keepdim, correction=correction),
            *[g(x, ax(x, dim), keepdims=keepdim) for g in others],
        ]

    return run


def running(f: Function, neutral: float) -> Function:
    """A reduction as the running one: over each first part of an axis."""

    def run(x: Any, dim: int, dtype: Any = None) -> Any:
        last = mg.swapaxes(x, dim, -1)[..., None, :] if x.ndim else x
        parts = mg.where(np.tri(x.shape[dim] if x.ndim else 1, dtype=bool), last, neutral)
        return mg.swapaxes(f(parts, -1), dim, -1) if x.ndim else f(parts)

    return run


def sort(x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return mg.sort(x, dim, descending=descending)


def top_k(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return mg.top_k(x, k, dim)[0] if largest else -mg.top_k(-x, k, dim)[0]


def kth(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest element."""
    return mg.take(mg.sort(x, dim), np.array([k - 1]) if keepdim else k - 1, dim) if x.ndim else x


def median(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    x, dim = (mg.ravel(x), 0) if dim is None else (x, dim)
    return kth(x, (x.shape[dim] + 1) // 2, dim, keepdim) if x.ndim else x


def ranked(f: Function) -> Function:
    """Quantiles."""
    return lambda x, q, dim=None, keepdim=False, interpolation="linear": f(
        x, q, ax(x, dim), method=interpolation, keepdims=keepdim
    )


def vector_norm(
    x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    return mg.vector_norm(cast(x, dtype), ord=ord, axis=ax(x, dim), keepdims=keepdim)


def matrix_norm(x: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    y = mg.matrix_norm(mg.moveaxis(x, tuple(dim), (-2, -1)), ord=ord, keepdims=keepdim)
    return mg.moveaxis(y, (-2, -1), tuple(dim)) if keepdim else y


def linalg_norm(x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
    if ord is None:
        return vector_norm(x, 2, dim, keepdim)
    return mg.norm(x, ord, dim if dim is None or isinstance(dim, int) else tuple(dim), keepdim)


def norm(x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False) -> Any:
    return vector_norm(x, 2 if p == "fro" else p, dim, keepdim)


def trapezoids(y: Any, x: Any = None, dx: float = 1.0, dim: int = -1) -> Any:
    """The areas below the lines from one point to the next."""
    if x is not None:
        dx = mg.diff(x, axis=-1 if x.ndim == 1 else dim)
        dx = (
            mg.reshape(dx, [-1 if i == dim % y.ndim else 1 for i in range(y.ndim)])
            if x.ndim == 1
            else dx
        )
    return (
        (mg.getitem(y, at(y, dim, slice(1, None))) + mg.getitem(y, at(y, dim, slice(None, -1))))
        * dx
        / 2
    )


def renorm(x: Any, p: float, dim: int, maxnorm: float) -> Any:
    size = vector_norm(x, p, [i for i in range(x.ndim) if i != dim % x.ndim], True)
    return mg.where(size > maxnorm, x * maxnorm / (size + 1e-7), x)


def sum_to_size(x: Any, *shape: Any) -> Any:
    shape = shape[0] if isinstance(shape[0], (tuple, list)) else shape
    wide = (1,) * (x.ndim - len(shape)) + tuple(shape)
    return mg.reshape(mg.sum(x, tuple(i for i in range(x.ndim) if wide[i] != x.shape[i])), shape)


REDUCTIONS: Table = {
    "amax max:reduction_with_dim max:reduction_no_dim": reduction(mg.amax),
    "amin min:reduction_with_dim min:reduction_no_dim": reduction(mg.amin),
    "aminmax": lambda x, dim=None, keepdim=False: [
        f(x, ax(x, dim), keepdims=keepdim) for f in (mg.min, mg.max)
    ],
    "cdist": lambda a, b, p=2.0, _=None: vector_norm(
        a[..., :, None, :] - b[..., None, :, :], p, -1
    ),
    "cummax": running(mg.max, -np.inf),
    "cummin": running(mg.min, np.inf),
    "cumprod": lambda x, dim, **options: (
        mg.cumprod(x, ax(x, dim), **options) if x.ndim else cast(x, options.get("dtype"))
    ),
    "cumsum": lambda x, dim, dtype=None: mg.reshape(mg.cumsum(cast(x, dtype), ax(x, dim)), x.shape),
    "cumulative_trapezoid": lambda *args, **options: mg.cumsum(
        trapezoids(*args, **options), options.get("dim", -1)
    ),
    "dist": lambda a, b, p=2: vector_norm(a - b, p),
    "kthvalue": kth,
    "linalg.matrix_norm": matrix_norm,
    "linalg.norm linalg.norm:subgradients_at_zero": linalg_norm,
    "linalg.vector_norm": vector_norm,
    "log_softmax log_softmax:with_dtype": along_axis(mg.log_softmax),
    "logcumsumexp": running(mg.logsumexp, -np.inf),
    "logsumexp": reduction(mg.logsumexp),
    "mean": reduction(mg.mean),
    "median": median,
    "msort": lambda x: mg.sort(x, 0),
    "nanmean": lambda x, dim=None, keepdim=False: mg.nanmean(x, ax(x, dim), keepdims=keepdim),
    "quantile": ranked(mg.quantile),
    "nansum": lambda x, dim=None, keepdim=False: mg.nansum(x, ax(x, dim), keepdims=keepdim),
    "norm norm:fro norm:inf": norm,
    "prod": reduction(mg.prod),
    "renorm": renorm,
    "softmax softmax:with_dtype": along_axis(mg.softmax),
    "sort": of_arrays(sort),
    "std": spread(mg.std),
    "std:unbiased": lambda x, unbiased: mg.std(x, correction=int(unbiased)),
    "std_mean": spread(mg.std, mg.mean),
    "std_mean:unbiased": lambda x, unbiased: [mg.std(x, correction=int(unbiased)), mg.mean(x)],
    "sum": reduction(mg.sum),
    "sum_to_size": sum_to_size,
    "topk": of_arrays(top_k),
    "torch.ops.aten._safe_softmax.default": lambda x, dim: mg.softmax(x, dim, where=x > -np.inf),
    "trapezoid trapz": lambda y, x=None, dx=1.0, dim=-1: mg.trapezoid(y, x, dx, dim),
    "var": spread(mg.var),
    "var:unbiased": lambda x, unbiased: mg.var(x, correction=int(unbiased)),
    "var_mean": spread(mg.var, mg.mean),
    "var_mean:unbiased": lambda x, unbiased: [mg.var(x, correction=int(unbiased)), mg.mean(x)],
    "_softmax_backward_data": lambda g, y, dim, _: y * (g - mg.sum(g * y, dim, keepdims=True)),
}

# -- reductions of what a mask leaves --------------------------------------------------------------------


def fill(x: Any, mask: Any, neutral: float) -> Any:
    return x if mask is None else mg.where(mask, x, neutral)


def masked(f: Function, neutral: float) -> Function:
    return lambda x, dim=None, keepdim=False, mask=None: f(
        fill(x, mask, neutral), ax(x, dim), keepdims=keepdim
    )


def along_masked(f: Function, neutral: float) -> Function:
    return lambda x, dim, mask=None: f(fill(x, mask, neutral), dim)


def masked_count(x: Any, dim: Any, keepdim: bool, mask: Any) -> Any:
    return np.sum(
        np.broadcast_to(True if mask is None else mask, x.shape), ax(x, dim), keepdims=keepdim
    )


def masked_mean(x: Any, dim: Any = None, keepdim: bool = False, mask: Any = None) -> Any:
    return mg.sum(fill(x, mask, 0.0), ax(x, dim), keepdims=keepdim) / masked_count(
        x, dim, keepdim, mask
    )


def masked_var(
    x: Any,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    mask: Any = None,
    correction: Any = None,
) -> Any:
    correction = int(unbiased) if correction is None else correction
    squares = mg.square(fill(x - masked_mean(x, dim, True, mask), mask, 0.0))
    return mg.sum(squares, ax(x, dim), keepdims=keepdim) / np.maximum(
        masked_count(x, dim, keepdim, mask) - correction, 0
    )


def masked_norm(
    x: Any, ord: float, dim: Any = None, keepdim: bool = False, mask: Any = None
) -> Any:
    return vector_norm(fill(x, mask, 0.0 if ord >= 0 else np.inf), ord, dim, keepdim)


def masked_softmax(x: Any, dim: Any, mask: Any = None) -> Any:
    if not np.all(masked_count(x, dim, False, mask)):
        left_out("have slices with nothing that counts: 0 here, NaN there")
    return mg.softmax(x, ax(x, dim), where=mask)


def normalized(x: Any, size: Any, eps: float = 1e-12) -> Any:
    return x / mg.clip(size, eps, None)


MASKED: Table = {
    "amax": masked(mg.max, -np.inf),
    "amin": masked(mg.min, np.inf),
    "argmax": masked(
        lambda x, axis, keepdims: mg.argmax(x, axis, keepdims=keepdims).astype(float), -np.inf
    ),
    "argmin": masked(
        lambda x, axis, keepdims: mg.argmin(x, axis, keepdims=keepdims).astype(float), np.inf
    ),
    "cumprod": along_masked(REDUCTIONS["cumprod"], 1.0),
    "cumsum": along_masked(REDUCTIONS["cumsum"], 0.0),
    "log_softmax": along_masked(along_axis(mg.log_softmax), -np.inf),
    "logaddexp": lambda a, b, input_mask, other_mask: mg.logaddexp(
        fill(a, input_mask, -np.inf), fill(b, other_mask, -np.inf)
    ),
    "logsumexp": masked(mg.logsumexp, -np.inf),
    "mean": masked_mean,
    "norm": masked_norm,
    "normalize": lambda x, ord, dim, mask=None: normalized(
        fill(x, mask, 0.0), masked_norm(x, ord, dim, True, mask)
    ),
    "prod": masked(mg.prod, 1.0),
    "softmax": masked_softmax,
    "softmin": lambda x, dim, mask=None: masked_softmax(-x, dim, mask),
    "std": lambda *args, **options: mg.sqrt(masked_var(*args, **options)),
    "sum": masked(mg.sum, 0.0),
    "var": masked_var,
}

# -- linear algebra --------------------------------------------------------------------------------------


def mT(x: Any) -> Any:
    return mg.swapaxes(x, -1, -2)


def triangle(x: Any, upper: bool, unitriangular: bool = False) -> Any:
    y = mg.triu(x, int(unitriangular)) if upper else mg.tril(x, -int(unitriangular))
    return y + np.eye(x.shape[-1]) if unitriangular else y


def gram(factor: Any, upper: bool = False) -> Any:
    """The matrix of a Cholesky factor."""
    return mT(factor) @ factor if upper else factor @ mT(factor)


def solve(a: Any, b: Any, left: bool = True) -> Any:
    """Where the shapes allow it, b is a stack of vectors."""
    if not left:
        return mT(solve(mT(a), mT(b)))
    return mg.solve(a, b[..., None])[..., 0] if b.shape == a.shape[:-1] else mg.solve(a, b)


def triangular_solve(
    b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    part = triangle(a, upper, unitriangular)
    return [solve(mT(part) if transpose else part, b), mg.clone(a)]


def tensorsolve(a: Any, b: Any, dims: Any = None) -> Any:
    a = mg.moveaxis(a, dims, range(-len(dims), 0)) if dims else a
    return mg.reshape(mg.solve(mg.reshape(a, (b.size, b.size)), mg.ravel(b)), a.shape[b.ndim :])


def einsum(operands: Any, equation: str) -> Any:
    if "..." in equation and "..." not in equation.split("->")[-1]:
        left_out("sum over `...`, which NumPy refuses")
    return mg.einsum(equation, *operands)


def tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    if not isinstance(dims, int) and any(a.shape[i] != b.shape[j] for i, j in zip(*dims)):
        left_out("contract axes of different lengths")
    return mg.tensordot(a, b, dims)


def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    i, n = np.arange(x.shape[-1]), x.shape[-1] + abs(offset)
    index = (..., i + max(-offset, 0), i + max(offset, 0))
    return mg.moveaxis(
        mg.scatter(x, index=index, shape=(*x.shape[:-1], n, n)), (-2, -1), (dim1, dim2)
    )


def vander(x: Any, N: int | None = None) -> Any:
    x = mg.atleast_1d(x)
    return mg.power(mg.expand_dims(x, -1), np.arange(x.shape[-1] if N is None else N))


def cross(a: Any, b: Any, dim: int = -1) -> Any:
    """Shapes that broadcast, and the axis in the shape that they have together."""
    return mg.cross(*mg.broadcast_arrays(a, b), axis=dim)


def gradient(x: Any, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> Any:
    spacing = (
        spacing if isinstance(spacing, (list, tuple)) else [1.0 if spacing is None else spacing]
    )
    return mg.gradient(x, *spacing, axis=ax(x, dim), edge_order=edge_order)


def svd(x: Any, full_matrices: bool = True) -> Any:
    return mg.svd(x, full_matrices)


def old_svd(x: Any, some: bool = True, compute_uv: bool = True) -> Any:
    if not compute_uv:
        left_out("ask for no vectors and get zeros")
    u, s, vh = mg.svd(x, not some)
    return u, s, vh.mT


def qr(x: Any, mode: Any = "reduced") -> Any:
    mode = {True: "reduced", False: "complete"}.get(mode, mode)
    if mode == "r":
        return mg.qr(x, mode)
    if mode == "complete" and x.shape[-2] > x.shape[-1]:
        left_out("ask for columns that nothing determines")
    return [*mg.qr(x, "reduced")]


def lstsq(a: Any, b: Any, driver: Any = None) -> Any:
    if a.ndim > 2:
        left_out("are several systems at once, which NumPy refuses")
    return mg.lstsq(a, b)


def products(u: Any, s: Any, vh: Any) -> Any:
    """What the signs of singular vectors cancel in."""
    k = s.shape[-1]
    u, vh = u[..., :k], vh[..., :k, :]
    return s, (u * s[..., None, :]) @ vh, (u * s[..., None, :]) @ u.mT


DETERMINED: dict[str, Function] = {
    "linalg.lstsq:grad_oriented": lambda y: y[0],
    "linalg.eigh": lambda y: (y[0], (y[1] * y[0][..., None, :] ** 2) @ y[1].mT),
    "linalg.svd": lambda y: products(*y),
    "svd": lambda y: products(y[0], y[1], y[2].mT),
}
"""Of results of which more is free, such as signs of vectors, or left out at will: what both have to give."""


LINEAR_ALGEBRA: Table = {
    "addbmm": lambda x, a, b, alpha=1, beta=1: x * beta + mg.sum(a @ b, 0) * alpha,
    "addmm addmm:decomposed addmv baddbmm": lambda x, a, b, alpha=1, beta=1: (
        x * beta + a @ b * alpha
    ),
    "addr": lambda x, a, b, alpha=1, beta=1: x * beta + mg.outer(a, b) * alpha,
    "cholesky linalg.cholesky linalg.cholesky_ex": lambda x, upper=False: (
        mT if upper else mg.clone
    )(mg.cholesky(x)),
    "cholesky_inverse": lambda x, upper=False: mg.inv(gram(x, upper)),
    "cholesky_solve": lambda b, x, upper=False: mg.solve(gram(x, upper), b),
    "corrcoef": mg.corrcoef,
    "cov": lambda x, correction=1, fweights=None, aweights=None: (
        mg.cov(x, ddof=correction)
        if fweights is None and aweights is None
        else left_out("weight observations, which is refused")
    ),
    "cross linalg.cross": cross,
    "diag": mg.diag,
    "diag_embed": diag_embed,
    "diagflat": lambda x, offset=0: mg.diag(mg.ravel(x), offset),
    "diagonal diagonal_copy": lambda x, offset=0, dim1=0, dim2=1: mg.diagonal(
        x, offset, dim1, dim2
    ),
    "dot": mg.dot,
    "einsum": einsum,
    "inner": mg.inner,
    "gradient": gradient,
    "kron": mg.kron,
    "linalg.det": mg.det,
    "linalg.diagonal": lambda x, offset=0, dim1=-2, dim2=-1: mg.diagonal(x, offset, dim1, dim2),
    "linalg.inv linalg.inv_ex": mg.inv,
    "linalg.eigh": lambda x, UPLO="L": mg.eigh(x, UPLO),
    "linalg.eigvalsh": lambda x, UPLO="L": mg.eigvalsh(x, UPLO),
    "linalg.lstsq:grad_oriented": lstsq,
    "linalg.matrix_power": mg.matrix_power,
    "linalg.multi_dot": lambda xs: functools.reduce(mg.matmul, xs),
    "linalg.pinv": lambda x, **rcond: mg.pinv(x, **rcond),
    "linalg.pinv:singular": lambda a, b: mg.pinv(a @ b.mT),
    "linalg.qr qr": qr,
    "linalg.svd": svd,
    "linalg.svdvals": mg.svdvals,
    "pinverse": mg.pinv,
    "svd": old_svd,
    "linalg.slogdet": mg.slogdet,
    "linalg.solve linalg.solve_ex": solve,
    "linalg.solve_triangular": lambda a, b, upper, left, unitriangular: solve(
        triangle(a, upper, unitriangular), b, left
    ),
    "linalg.tensorinv": lambda x, ind: mg.reshape(
        mg.inv(mg.reshape(x, (math.prod(x.shape[:ind]), -1))), (*x.shape[ind:], *x.shape[:ind])
    ),
    "linalg.tensorsolve": tensorsolve,
    "linalg.vander": vander,
    "linalg.vecdot": lambda a, b, dim=-1: mg.vecdot(*mg.broadcast_arrays(a, b), axis=dim),
    "logdet": lambda x: mg.where((y := mg.slogdet(x))[0] > 0, y[1], np.nan),
    "matmul bmm mm": mg.matmul,
    "mv": mg.matmul,
    "outer": mg.outer,
    "tensordot": tensordot,
    "trace": mg.trace,
    "triangular_solve": triangular_solve,
    "tril": mg.tril,
    "triu": mg.triu,
    "vdot": mg.vdot,
}

# -- shapes ----------------------------------------------------------------------------------------------


def expand(x: Any, shape: Sequence[int]) -> Any:
    """x broadcast to a shape, in which -1 is the length that there is."""
    own = (1,) * (len(shape) - x.ndim) + x.shape
    return mg.broadcast_to(x, tuple(m if n == -1 else n for m, n in zip(own, shape)))


def squeeze(x: Any, dim: Any = None) -> Any:
    """Axes in `dim` that are longer than 1 are passed over."""
    if dim is None or x.ndim == 0:
        return mg.squeeze(x)
    return mg.squeeze(x, tuple(i for i in np.atleast_1d(dim).astype(int) if x.shape[i] == 1))


def split(x: Any, sizes: Any, dim: int = 0) -> Any:
    """Parts of one size (the last can be smaller), or of several."""
    ends = (
        np.arange(sizes, x.shape[dim], sizes) if isinstance(sizes, int) else np.cumsum(sizes)[:-1]
    )
    return mg.split(x, ends, dim)


def unflatten(x: Any, dim: int, sizes: Sequence[int]) -> Any:
    return mg.reshape(x, (*x.shape[: dim % x.ndim], *sizes, *x.shape[dim % x.ndim + 1 :]))


def pad(x: Any, widths: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """The widths are those of the last axis first; a negative one cuts elements off."""
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + [*zip(widths[::2], widths[1::2])][::-1]
    mode = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    grow = lambda y: mg.pad(
        y, [(max(a, 0), max(b, 0)) for a, b in pairs], mode, constant_values=value
    )
    cut = lambda y: mg.getitem(
        y, tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, y.shape))
    )
    return grow(cut(x)) if mode == "wrap" else cut(grow(x))


def meshgrid(*xs: Any, indexing: str) -> Any:
    return mg.meshgrid(*(xs[0] if isinstance(xs[0], list) else xs), indexing=indexing)


def gather(x: Any, dim: int, index: np.ndarray) -> Any:
    if index.ndim != x.ndim:
        left_out("have empty indices with any number of axes")
    return mg.gather(x, dim, index)


def block_diag(*xs: Any) -> Any:
    xs = each(mg.atleast_2d)(*xs)
    ends = np.cumsum([x.shape for x in xs], 0)
    return sum(mg.pad(x, [*zip(end - x.shape, ends[-1] - end)]) for x, end in zip(xs, ends))


def diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    parts = [part for part in (prepend, x, append) if part is not None]
    return mg.diff(mg.concatenate(parts, dim), n, dim) if n else x


def combinations(x: Any, r: int = 2, with_replacement: bool = False) -> Any:
    pick = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    return mg.take(x, np.array([*pick(range(x.size), r)], int).reshape(-1, r)) if r else np.empty(0)


def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    (n, c, h, w), f = x.shape, upscale_factor
    blocks = mg.transpose(mg.reshape(x, (n, c // f**2, f, f, h, w)), 0, 1, 4, 2, 5, 3)
    return mg.reshape(blocks, (n, c // f**2, h * f, w * f))


def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    (n, c, h, w), f = x.shape, downscale_factor
    blocks = mg.transpose(mg.reshape(x, (n, c, h // f, f, w // f, f)), 0, 1, 3, 5, 2, 4)
    return mg.reshape(blocks, (n, c * f**2, h // f, w // f))


SHAPES: Table = {
    "atleast_1d": each(mg.atleast_1d),
    "atleast_2d": each(mg.atleast_2d),
    "atleast_3d": each(mg.atleast_3d),
    "block_diag": block_diag,
    "broadcast_tensors": lambda *xs: [*mg.broadcast_arrays(*xs)],
    "broadcast_to": expand,
    "expand expand_copy": mg.expand,
    "cartesian_prod": lambda *xs: (
        mg.stack(each(mg.ravel)(meshgrid(*xs, indexing="ij")), -1) if xs[1:] else xs[0]
    ),
    "cat": lambda xs, dim=0: mg.cat([x for x in xs if x.shape != (0,)] or xs, dim),
    "chunk unsafe_chunk": lambda x, chunks, dim=0: mg.chunk(x, chunks, dim),
    "column_stack": mg.column_stack,
    "combinations": combinations,
    "constant_pad_nd": lambda x, widths, value=0.0: pad(x, widths, "constant", value),
    "diff": diff,
    "dsplit": lambda x, parts: np.dsplit(x, parts),
    "dstack": mg.dstack,
    "expand_as": lambda x, y: mg.broadcast_to(x, y.shape),
    "flatten": mg.flatten,
    "flip": lambda x, dims: mg.flip(x, dims),
    "fliplr": mg.fliplr,
    "flipud": mg.flipud,
    "hsplit": lambda x, parts: np.hsplit(x, parts),
    "hstack": mg.hstack,
    "meshgrid:list_of_tensors meshgrid:variadic_tensors": meshgrid,
    "movedim": mg.moveaxis,
    "mT mH": lambda x: x.mT,
    "nn.functional.channel_shuffle": lambda x, n: mg.reshape(
        mg.swapaxes(unflatten(x, 1, (n, -1)), 1, 2), x.shape
    ),
    "nn.functional.pad:circular nn.functional.pad:constant nn.functional.pad:reflect": pad,
    "nn.functional.pad:replicate nn.functional.pad:replicate_negative": pad,
    "nn.functional.pixel_shuffle": pixel_shuffle,
    "nn.functional.pixel_unshuffle": pixel_unshuffle,
    "permute permute_copy": mg.transpose,
    "ravel": mg.ravel,
    "repeat tile": mg.tile,
    "repeat_interleave": lambda x, repeats, dim=None, output_size=None: mg.repeat(x, repeats, dim),
    "reshape view view_copy": mg.reshape,
    "reshape_as view_as": lambda x, y: mg.reshape(x, y.shape),
    "roll": lambda x, shifts, dims=None: mg.roll(x, shifts, ax(x, dims)),
    "rot90": lambda x, k=1, dims=(0, 1): mg.rot90(x, k, dims),
    "split split:list_args split_with_sizes split_with_sizes_copy unsafe_split": split,
    "squeeze squeeze:multiple squeeze_copy": squeeze,
    "stack": mg.stack,
    "T H": lambda x: x.T,
    "t t_copy": mg.transpose,
    "tensor_split": mg.array_split,
    "transpose transpose_copy": lambda x, dim0, dim1: mg.swapaxes(x, dim0, dim1) if x.ndim else x,
    "unflatten": unflatten,
    "unfold unfold_copy": of_arrays(lambda x, dim, size, step: mg.unfold(x, dim, size, step)),
    "unsqueeze unsqueeze_copy": mg.expand_dims,
    "vsplit": lambda x, parts: np.vsplit(x, parts),
    "vstack": mg.vstack,
}

# -- indexing --------------------------------------------------------------------------------------------


def along(index: np.ndarray, dim: int) -> tuple[Any, ...]:
    """The index that is `index` along one axis, and its elements' own positions along the others."""
    places = np.indices(index.shape, sparse=True)
    return tuple(index if i == dim % index.ndim else place for i, place in enumerate(places))


def take_along_dim(x: Any, index: np.ndarray, dim: int | None = None) -> Any:
    if dim is None:
        return mg.take(x, index.ravel())
    first, last = (
        np.broadcast_shapes(x.shape[part], index.shape[part])
        for part in (slice(dim), slice(dim + 1, None))
    )
    x = mg.broadcast_to(x, (*first, x.shape[dim], *last))
    return mg.take_along_axis(x, np.broadcast_to(index, (*first, index.shape[dim], *last)), dim)


def written(x: Any, places: Any, values: Any, accumulate: bool = False) -> Any:
    """x with values in the place of some of its elements, or added to them."""
    flat = (
        mg.ravel(x)
        if accumulate
        else mg.masked_fill(mg.ravel(x), np.isin(np.arange(x.size), places), 0)
    )
    values = mg.reshape(values, places.shape) if np.size(values) == places.size else values
    return mg.reshape(mg.index_add(flat, index=places, values=values), x.shape)


def scatter(
    x: Any, dim: int, index: Any, values: Any, reduce: str = "sum", include_self: bool = False
) -> Any:
    values = values[tuple(map(slice, index.shape))] if np.ndim(values) else values
    return written(x, grid(x)[along(index, dim)], values, include_self)


def strided(
    x: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0
) -> np.ndarray:
    """The places that `as_strided` picks."""
    steps = [n * np.arange(m) for m, n in zip(size, stride)]
    return functools.reduce(np.add.outer, steps, np.array(storage_offset))


def masked_scatter(x: Any, mask: Any, values: Any) -> Any:
    x = mg.broadcast_to(x, np.broadcast_shapes(x.shape, mask.shape))
    places = grid(x)[np.broadcast_to(mask, x.shape)]
    return written(x, places, mg.ravel(values)[: len(places)])


def slices(
    x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> tuple[Any, ...]:
    return at(x, dim, slice(start, end, step))


def narrow(x: Any, dim: int, start: Any, length: int) -> Any:
    return mg.getitem(x, slices(x, dim, start % x.shape[dim], start % x.shape[dim] + length))


INDEXING: Table = {
    "__getitem__": mg.getitem,
    "as_strided as_strided_copy": lambda x, *args, **options: mg.take(
        x, strided(x, *args, **options)
    ),
    "diagonal_scatter": lambda x, values, *where: written(x, np.diagonal(grid(x), *where), values),
    "gather": of_arrays(gather),
    "index_add": lambda x, dim, index, values, alpha=1: mg.index_add(
        x, index=at(x, dim, index), values=values * alpha
    ),
    "index_copy": lambda x, dim, index, values: written(x, grid(x)[at(x, dim, index)], values),
    "index_fill": lambda x, dim, index, value: mg.masked_fill(
        x, np.isin(grid(x), grid(x)[at(x, dim, index)]), value
    ),
    "index_put": lambda x, index, values, accumulate: written(
        x, grid(x)[index], values, accumulate
    ),
    "index_select": of_arrays(mg.index_select),
    "masked_scatter": masked_scatter,
    "masked_select": mg.masked_select,
    "narrow narrow_copy": narrow,
    "nn.functional.embedding": mg.embedding,
    "put": lambda x, index, values, accumulate: written(x, index % x.size, values, accumulate),
    "scatter scatter_reduce:sum": scatter,
    "scatter_add": lambda x, dim, index, values: scatter(x, dim, index, values, include_self=True),
    "select": lambda x, dim, index: mg.getitem(x, at(x, dim, index)),
    "select_scatter": lambda x, values, dim, index: written(x, grid(x)[at(x, dim, index)], values),
    "slice": lambda x, *args, **options: mg.getitem(x, slices(x, *args, **options)),
    "slice_scatter": lambda x, values, *args: written(x, grid(x)[slices(x, *args)], values),
    "take": mg.take,
    "take_along_dim": take_along_dim,
    "unbind unbind_copy": lambda x, dim=0: [*mg.unstack(x, axis=dim)],
}

# -- networks --------------------------------------------------------------------------------------------


def loss(y: Any, reduction: str = "mean") -> Any:
    return {"mean": mg.mean, "sum": mg.sum, "none": mg.clone}[reduction](y)


def nll(
    x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    return mg.nll_loss(
        mg.moveaxis(x, min(1, x.ndim - 1), -1),
        target,
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def cross_entropy(
    x: Any, t: Any, weight: Any = None, ignore_index: Any = -100, reduction: str = "mean"
) -> Any:
    axis = min(1, x.ndim - 1)
    x = mg.moveaxis(x, axis, -1)
    if t.dtype.kind == "i":
        return mg.cross_entropy(x, t, weight, ignore_index=ignore_index, reduction=reduction)
    return loss(
        -mg.sum(affine(mg.log_softmax(x) * mg.moveaxis(t, axis, -1), weight), -1), reduction
    )


def linear_cross_entropy(
    x: Any,
    weights: Any,
    t: Any,
    linear_bias: Any = None,
    weight: Any = None,
    ignore_index: Any = None,
    reduction: str = "mean",
    options: Any = None,
) -> Any:
    if t.dtype.kind == "i" and weights.ndim == 2 and reduction != "none":
        return mg.linear_cross_entropy(
            x,
            weights,
            t,
            linear_bias=linear_bias,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )
    scores = affine(mg.tensordot(x, weights, (-1, -1)), bias=linear_bias)
    return cross_entropy(scores, t, weight, ignore_index, reduction)


def gaussian_nll(
    x: Any, t: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    var = mg.expand_dims(var, -1) if var.ndim < x.ndim else var
    return loss((mg.log(var) + mg.square(x - t) / var + full * math.log(2 * PI)) / 2, reduction)


def poisson_nll(
    x: Any,
    t: Any,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    y = mg.exp(x) - t * x if log_input else x - t * mg.log(x + eps)
    stirling = mg.where(t > 1, t * mg.log(t) - t + mg.log(t * 2 * PI) / 2, 0.0) if full else 0.0
    return loss(y + stirling, reduction)


def cosine_similarity(a: Any, b: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    a, b = (mg.broadcast_to(x, np.broadcast_shapes(a.shape, b.shape)) for x in (a, b))
    a, b = (normalized(x, vector_norm(x, 2, dim, True), eps) for x in (a, b))
    return mg.sum(a * b, ax(a, dim))


def cosine_embedding(a: Any, b: Any, t: Any, margin: float = 0.0, reduction: str = "mean") -> Any:
    y = cosine_similarity(a, b, -1)
    return loss(
        mg.where(t == 1, 1 - y, 0.0) + mg.where(t == -1, mg.relu(y - margin), 0.0), reduction
    )


def hinge_embedding(x: Any, t: Any, margin: float = 1.0, reduction: str = "mean") -> Any:
    return loss(mg.where(t == 1, 0.0, mg.relu(margin - x)) + mg.where(t == -1, 0.0, x), reduction)


def pairwise_distance(
    a: Any, b: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    return vector_norm(a - b + eps, p, -1, keepdim)


def triplet_margin(
    a: Any, p: Any, n: Any, margin: float = 1.0, swap: bool = False, reduction: str = "mean"
) -> Any:
    far = mg.minimum(pairwise_distance(a, n), pairwise_distance(p, n) if swap else np.inf)
    return loss(mg.relu(pairwise_distance(a, p) - far + margin), reduction)


def multi_margin(
    x: Any, t: Any, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Any:
    x, t = mg.atleast_2d(x), np.reshape(t, (-1, 1))
    y = mg.power(mg.relu(x - mg.take_along_axis(x, t, 1) + margin), p) * (
        1.0 if weight is None else weight[t]
    )
    return loss(mg.mean(mg.where(t == np.arange(x.shape[1]), 0.0, y), 1), reduction)


def by_channel(x: Any, v: Any) -> Any:
    """A vector with an element for each channel (axis 1), to be broadcast with x."""
    return None if v is None else mg.reshape(v, (-1, *[1] * (x.ndim - 2)))


def affine(y: Any, weight: Any = None, bias: Any = None) -> Any:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def standard(x: Any, axis: Any, eps: float) -> Any:
    return (x - mg.mean(x, axis, keepdims=True)) / mg.sqrt(mg.var(x, axis, keepdims=True) + eps)


def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    weight, bias = (None if v is None else mg.ravel(v) for v in (weight, bias))
    return mg.reshape(
        mg.layer_norm(mg.flatten(x, -len(shape)), weight=weight, bias=bias, eps=eps), x.shape
    )


def rms_norm(x: Any, shape: Any, weight: Any = None, eps: float = np.finfo(float).eps) -> Any:
    weight = None if weight is None else mg.ravel(weight)
    return mg.reshape(mg.rms_norm(mg.flatten(x, -len(shape)), weight=weight, eps=eps), x.shape)


def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    rows = mg.reshape(x, (x.shape[0], groups, x.size // (x.shape[0] * groups or 1)))
    y = mg.reshape(standard(rows, -1, eps), x.shape)
    return affine(y, by_channel(x, weight), by_channel(x, bias))


def instance_norm(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, **running: Any
) -> Any:
    return affine(
        standard(x, tuple(range(2, x.ndim)), eps), by_channel(x, weight), by_channel(x, bias)
    )


def batch_norm(
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if training:
        y = standard(x, (0, *range(2, x.ndim)), eps)
    else:
        y = (x - by_channel(x, mean)) / mg.sqrt(by_channel(x, var) + eps)
    return affine(y, by_channel(x, weight), by_channel(x, bias))


def attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False
) -> Any:
    if dropout_p:
        left_out(RANDOM)
    if attn_mask is not None:  # numbers to be added
        return mg.softmax(q @ mT(k) / math.sqrt(q.shape[-1]) + attn_mask) @ v
    batch = np.broadcast_shapes(*[x.shape[:-2] for x in (q, k, v)])
    n, heads = (1, *batch)[-2:]
    q, k, v = (mg.broadcast_to(x, (n, heads, *x.shape[-2:])) for x in (q, k, v))
    mask = np.tri(q.shape[2], k.shape[2], dtype=bool) if is_causal else None
    y = mg.scaled_dot_product_attention(q, k, v, mask)
    return mg.reshape(y, (*batch, *y.shape[2:]))


def dropout(x: Any, p: float = 0.5, training: bool = True) -> Any:
    if training and p:
        left_out(RANDOM if p < 1 else "drop everything, which is refused")
    return mg.dropout(x, p, training)


def rrelu(x: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    if training:
        left_out(RANDOM)
    return mg.leaky_relu(x, (lower + upper) / 2)


NETWORKS: Table = {
    "alpha_dropout feature_alpha_dropout:without_train": lambda x, p=0.5, training=False: dropout(
        x, p, training
    ),
    "batch_norm": batch_norm,
    "bilinear": lambda a, b, weight, bias=None: affine(
        mg.einsum("...i,kij,...j->...k", a, weight, b), bias=bias
    ),
    "binary_cross_entropy": mg.binary_cross_entropy,
    "binary_cross_entropy_with_logits": mg.binary_cross_entropy_with_logits,
    "celu": lambda x, alpha=1.0: mg.elu(x / alpha) * alpha,
    "cosine_embedding_loss": cosine_embedding,
    "cosine_similarity": cosine_similarity,
    "cross_entropy": cross_entropy,
    "dropout dropout2d dropout3d": dropout,
    "elu": mg.elu,
    "gaussian_nll_loss": gaussian_nll,
    "gelu": mg.gelu,
    "glu": lambda x, dim=-1: (halves := mg.split(x, 2, dim))[0] * mg.sigmoid(halves[1]),
    "group_norm": group_norm,
    "hardshrink": lambda x, lambd=0.5: mg.where(mg.absolute(x) > lambd, x, 0.0),
    "hardsigmoid": lambda x: mg.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * mg.clip(x + 3, 0, 6) / 6,
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: mg.clip(x, min_val, max_val),
    "hinge_embedding_loss": hinge_embedding,
    "huber_loss": mg.huber_loss,
    "instance_norm": instance_norm,
    "kl_div": mg.kl_div,
    "l1_loss": mg.l1_loss,
    "layer_norm": layer_norm,
    "leaky_relu": mg.leaky_relu,
    "linear": mg.linear,
    "linear_cross_entropy linear_cross_entropy:chunked linear_cross_entropy:chunked_none": linear_cross_entropy,
    "logsigmoid": mg.log_sigmoid,
    "margin_ranking_loss": lambda a, b, t, margin=0.0, reduction="mean": loss(
        mg.relu(-t * (a - b) + margin), reduction
    ),
    "mish": lambda x: x * mg.tanh(mg.softplus(x)),
    "mse_loss": mg.mse_loss,
    "multi_margin_loss": multi_margin,
    "multilabel_soft_margin_loss": mg.binary_cross_entropy_with_logits,
    "nll_loss": nll,
    "normalize": lambda x, p=2.0, dim=1, eps=1e-12: normalized(
        x, vector_norm(x, p, dim, True), eps
    ),
    "one_hot": lambda x, num_classes: mg.one_hot(
        x, x.max() + 1 if num_classes < 0 else num_classes, dtype=np.int64
    ),
    "pairwise_distance": pairwise_distance,
    "pdist": lambda x, p=2.0: vector_norm(
        *(lambda i, j: (x[i] - x[j], p, -1))(*np.triu_indices(len(x), 1))
    ),
    "poisson_nll_loss": poisson_nll,
    "prelu": lambda x, weight: mg.where(
        x > 0, x, x * mg.reshape(weight, (-1, *[1] * (x.ndim - 2))[: x.ndim])
    ),
    "relu": mg.relu,
    "relu6": lambda x: mg.clip(x, 0, 6),
    "rms_norm": rms_norm,
    "rrelu": rrelu,
    "scaled_dot_product_attention": attention,
    "selu": lambda x: mg.elu(x, 1.6732632423543772) * 1.0507009873554805,
    "silu": mg.silu,
    "smooth_l1_loss": mg.smooth_l1_loss,
    "soft_margin_loss": lambda x, t, reduction="mean": loss(mg.softplus(-t * x), reduction),
    "softmin softmin:with_dtype": lambda x, dim, dtype=None: mg.softmax(
        -cast(x, dtype), ax(x, dim)
    ),
    "softplus": lambda x, beta, threshold: mg.where(x * beta > threshold, x, mg.softplus(x, beta)),
    "softshrink": lambda x, lambd=0.5: mg.where(
        mg.absolute(x) > lambd, x - mg.sign(x) * lambd, 0.0
    ),
    "softsign": lambda x: x / (1 + mg.absolute(x)),
    "tanhshrink": lambda x: x - mg.tanh(x),
    "threshold": lambda x, threshold, value: mg.where(x > threshold, x, value),
    "triplet_margin_loss": triplet_margin,
}

# -- what has no gradient --------------------------------------------------------------------------------


def named(f: Function) -> Function:
    """A reduction that takes its axis by name."""
    return lambda x, dim=None, keepdim=False: f(x, axis=ax(x, dim), keepdims=keepdim)


def argsort(x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return mg.argsort(x, axis=dim, kind="stable", descending=descending)


def arange(
    start: Any, end: Any = None, step: Any = None, dtype: Any = None, device: Any = None
) -> Any:
    return mg.arange(*[n for n in (start, end, step) if n is not None], dtype=dtype)


def linspace(start: float, end: float, steps: int, dtype: Any = None, device: Any = None) -> Any:
    if dtype is None:
        left_out("ask for the default dtype, float64 here")
    return mg.linspace(start, end, steps, dtype=dtype)


WITHOUT_GRADIENT: Table = {
    "all": named(mg.all),
    "allclose": mg.allclose,
    "any": named(mg.any),
    "arange": arange,
    "argmax": named(mg.argmax),
    "argmin": named(mg.argmin),
    "argsort": of_arrays(argsort),
    "argwhere": of_arrays(lambda x: np.transpose(mg.nonzero(x))),
    "bitwise_and": mg.bitwise_and,
    "bitwise_not": mg.bitwise_not,
    "bitwise_or": mg.bitwise_or,
    "bitwise_xor": mg.bitwise_xor,
    "bool": lambda x, **_: mg.astype(x, bool),
    "bucketize": lambda x, boundaries, right, **_: mg.searchsorted(
        boundaries, x, "right" if right else "left"
    ),
    "ceil": mg.ceil,
    "count_nonzero": lambda x, dim=None: mg.count_nonzero(x, ax(x, dim)),
    "eq": mg.equal,
    "equal": mg.array_equal,
    "eye": lambda n, m=None, dtype=None, **_: mg.eye(n, m, dtype=dtype),
    "floor": mg.floor,
    "floor_divide": mg.floor_divide,
    "full": lambda shape, value, dtype, **_: mg.full(shape, value, dtype),
    "full_like": lambda x, value, **_: mg.full_like(x, value),
    "ge": mg.greater_equal,
    "gt": mg.greater,
    "heaviside": lambda a, b: mg.where(a == 0, b, a > 0),
    "int": lambda x, **_: mg.astype(x, np.int32),
    "isclose": mg.isclose,
    "isfinite": mg.isfinite,
    "isinf": mg.isinf,
    "isnan": mg.isnan,
    "isneginf": np.isneginf,
    "isposinf": np.isposinf,
    "le": mg.less_equal,
    "linspace": linspace,
    "logical_and": mg.logical_and,
    "logical_not": mg.logical_not,
    "logical_or": mg.logical_or,
    "logical_xor": mg.logical_xor,
    "long": lambda x, **_: mg.astype(x, np.int64),
    "lt": mg.less,
    "ne": mg.not_equal,
    "nonzero": of_arrays(
        lambda x, as_tuple: mg.nonzero(x) if as_tuple else np.transpose(mg.nonzero(x))
    ),
    "ones": lambda shape, dtype, **_: mg.ones(shape, dtype=dtype),
    "ones_like": lambda x, **_: mg.ones_like(x),
    "round round:decimals_0 round:decimals_3 round:decimals_neg_3": mg.round,
    "short": lambda x, **_: mg.astype(x, np.int16),
    "signbit": mg.signbit,
    "trunc": mg.trunc,
    "zeros": lambda shape, dtype, **_: mg.zeros(shape, dtype=dtype),
    "zeros_like": lambda x, **_: mg.zeros_like(x),
    "__rand__": lambda a, b: mg.Tensor(a).__rand__(b),
    "__ror__": lambda a, b: mg.Tensor(a).__ror__(b),
    "__rxor__": lambda a, b: mg.Tensor(a).__rxor__(b),
}

TABLE: Table = {
    prefix + name: function
    for prefix, table in [
        ("", ELEMENTWISE), ("", REDUCTIONS), ("masked.", MASKED), ("", LINEAR_ALGEBRA), ("", SHAPES), ("", INDEXING),
        ("nn.functional.", NETWORKS), ("", WITHOUT_GRADIENT),
    ]
    for names, function in table.items()
    for name in names.split()
}  # fmt: skip

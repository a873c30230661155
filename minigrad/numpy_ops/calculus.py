"""Differences, integrals and interpolation of sampled functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.nested import needs_gradient, without_tensors
from ..core.registry import function
from ..core.tensor import Tensor, unwrap
from ..ops import reduction
from ..ops.axes import all_axes, check_choice, one_axis, shape_of
from ..ops.compare import not_equal
from ..ops.elementwise import subtract, where
from ..ops.indexing import getitem, take
from ..ops.joining import concatenate
from ..ops.linalg import matmul, tensordot
from ..ops.shape import astype, clone, moveaxis, ravel, reshape
from .rearrange import flip, sliding_window_view

__all__ = ["diff", "trapezoid", "gradient", "interp", "convolve", "correlate"]


@function(numpy=np.diff, methods="diff")
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """The differences of neighbours along `axis`, taken `n` times; of x with `prepend` before and
    `append` after it.
    """
    if n < 0:
        raise ValueError(f"diff: expected n >= 0, got {n}")
    if n == 0:
        return clone(x)
    if np.ndim(x) == 0:
        raise ValueError("diff: expected at least one axis, got a scalar")
    axis = one_axis("diff", axis, np.ndim(x))
    parts = [
        part for part in (_end(prepend, x, axis), x, _end(append, x, axis)) if part is not None
    ]
    x = concatenate(parts, axis) if len(parts) > 1 else x
    before = (slice(None),) * axis
    step = subtract if np.asarray(unwrap(x)).dtype != bool else not_equal  # as in NumPy
    for _ in range(n):
        x = step(getitem(x, (*before, slice(1, None))), getitem(x, (*before, slice(None, -1))))
    return x


def _end(value: Any, x: Any, axis: int) -> Any:
    """What is put at an end of x: a number stands for one at each place."""
    if value is None or np.ndim(value):
        return value
    return np.broadcast_to(value, [1 if i == axis else k for i, k in enumerate(shape_of(x))])


@function(numpy=np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """The integral of y along `axis` by the trapezoidal rule, at places x or `dx` apart."""
    along, axis = axis, one_axis("trapezoid", axis, np.ndim(y))
    if x is not None:
        dx = diff(x, axis=-1 if np.ndim(x) == 1 else along)
        dx = (
            reshape(dx, [-1 if i == axis else 1 for i in range(np.ndim(y))])
            if np.ndim(x) == 1
            else dx
        )
    before = (slice(None),) * axis
    heights = getitem(y, (*before, slice(1, None))) + getitem(y, (*before, slice(None, -1)))
    return reduction.sum(heights * dx / 2.0, along)


@function(numpy=np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """The slopes of f along each axis (or `axis`), from differences of neighbours: one tensor, or a
    tuple of them.

    `varargs` are the distances: one number, or for each axis a number or the places. `edge_order`
    is that of the ends.
    """
    axes = all_axes("gradient", axis, np.ndim(f))
    spacings = [*varargs] * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    if len(spacings) != len(axes) or (not axes and any(map(np.ndim, varargs))):
        raise TypeError(
            f"gradient: expected one distance or one for each of {len(axes)} axes, got "
            f"{len(varargs)}"
        )
    found = [_slope(f, h, a, edge_order) for h, a in zip(spacings, axes)]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(f: Any, h: Any, axis: int, edge_order: int) -> Tensor:
    """Slopes along one axis: the product with a matrix of weights, which NumPy gives of the
    identity.
    """
    n = shape_of(f)[axis]
    if needs_gradient(h):
        if np.ndim(h):
            raise TypeError(
                "gradient: places that require gradients are not supported; divide differences by "
                "theirs"
            )
        return _slope(f, 1.0, axis, edge_order) / h
    weights = np.gradient(np.eye(n), without_tensors(h), axis=0, edge_order=edge_order)  # type: ignore[call-overload]
    dtype = f.dtype if f.dtype.kind == "f" else float
    return moveaxis(tensordot(weights.astype(dtype), f, ((1,), (axis,))), 0, axis)


@function(numpy=np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Tensor:
    """The values at x of the line through the points (xp, fp), xp rising; beyond its ends `left`
    and `right`.
    """
    x, xp, fp = (
        astype(v, float) for v in (x, xp, fp)
    )  # as NumPy: differences of unsigned integers wrap around
    places, knots = x.data, xp.data
    if knots.ndim != 1 or shape_of(fp) != knots.shape or not knots.size:
        raise ValueError(
            f"interp: expected xp and fp as vectors of one length, got {knots.shape} and "
            f"{shape_of(fp)}"
        )
    low, high = places < knots[0], places > knots[-1]
    i = np.clip(np.searchsorted(knots, places, side="right") - 1, 0, np.maximum(knots.size - 2, 0))
    j = np.minimum(i + 1, knots.size - 1)
    a, b = getitem(xp, i), getitem(xp, j)
    width = where(i == j, 1.0, b - a)
    y = take(fp, i) + (take(fp, j) - take(fp, i)) * ((where(low | high, knots[i], x) - a) / width)
    y = where(low, getitem(fp, 0) if left is None else left, y)
    return where(high, getitem(fp, -1) if right is None else right, y)


@function(numpy=np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """The convolution of two vectors, yₖ = Σ aᵢ vₖ₋ᵢ; `mode` "full", "same" (as long as the longer)
    or "valid".
    """
    a, v = (
        ravel(x) if np.ndim(x) == 0 else x if isinstance(x, Tensor) else np.asarray(x)
        for x in (a, v)
    )
    if np.ndim(a) != 1 or np.ndim(v) != 1 or not np.size(a) or not np.size(v):
        raise ValueError(
            f"convolve: expected two vectors that are not empty, got {shape_of(a)} and "
            f"{shape_of(v)}"
        )
    check_choice("convolve", "mode", mode, "full", "same", "valid")
    a, v = (a, v) if np.size(a) >= np.size(v) else (v, a)
    n, m = np.size(a), np.size(v)
    rows = sliding_window_view(
        concatenate([np.zeros(m - 1, a.dtype), a, np.zeros(m - 1, a.dtype)]), m
    )
    y = matmul(rows, flip(v))
    skip = {"full": 0, "same": (m - 1) // 2, "valid": m - 1}[mode]
    return getitem(y, slice(skip, skip + {"full": n + m - 1, "same": n, "valid": n - m + 1}[mode]))


@function(numpy=np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    """The cross-correlation of two vectors, yₖ = Σ aᵢ₊ₖ vᵢ, which is `convolve` with v reversed."""
    if np.ndim(a) != 1 or np.ndim(v) != 1:
        raise ValueError(
            f"correlate: expected two vectors, got shapes {shape_of(a)} and {shape_of(v)}"
        )
    return convolve(a, flip(v), mode)

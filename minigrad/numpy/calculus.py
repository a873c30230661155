"""Differences, integrals and interpolation of sampled functions, and convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import all_axes, check_choice, checked_count, one_axis, shape_of
from ..nested import needs_gradient, without_tensors
from ..ops import reduce as reduction
from ..ops.arithmetic import subtract
from ..ops.network import matmul
from ..ops.shape import astype, clone, concatenate, getitem, reshape, where
from ..registry import function
from ..tensor import Tensor, as_operand, to_array, unwrap
from .batched import all_true
from .compare import not_equal
from .indexing import take
from .linalg import conjugate
from .rearrange import flip, pad, sliding_window_view

__all__ = ["diff", "trapezoid", "gradient", "interp", "convolve", "correlate"]


@function(numpy=np.diff, methods="diff")
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Compute differences of neighbours along `axis`."""
    checked_count("diff", "n", n, 0)
    if n == 0:
        return clone(x)
    if np.ndim(x) == 0:
        raise ValueError("diff: x must have at least one axis, got a scalar")
    axis = one_axis("diff", axis, np.ndim(x))
    parts = [
        part for part in (_end(prepend, x, axis), x, _end(append, x, axis)) if part is not None
    ]
    x = concatenate(parts, axis) if len(parts) > 1 else x
    before = (slice(None),) * axis
    difference = not_equal if to_array(x).dtype == bool else subtract  # as NumPy
    for _ in range(n):
        x = difference(
            getitem(x, (*before, slice(1, None))), getitem(x, (*before, slice(None, -1)))
        )
    return x


def _end(value: Any, x: Any, axis: int) -> Any:
    """Return `prepend` or `append` as an array; a number is repeated along the other axes."""
    if value is None or np.ndim(value):
        return value
    return np.broadcast_to(value, [1 if i == axis else k for i, k in enumerate(shape_of(x))])


@function(numpy=np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """Integrate y along `axis` by the trapezoidal rule."""
    along, axis = axis, one_axis("trapezoid", axis, np.ndim(y))
    if x is not None and np.ndim(x) == 1:
        dx = reshape(diff(x), [-1 if i == axis else 1 for i in range(np.ndim(y))])
    elif x is not None:
        dx = diff(x, axis=along)
    before = (slice(None),) * axis
    heights = getitem(y, (*before, slice(1, None))) + getitem(y, (*before, slice(None, -1)))
    return reduction.sum(heights * dx / 2.0, along)


@function(numpy=np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Estimate the derivatives of sampled values."""
    f = as_operand(f)
    axes = all_axes("gradient", axis, np.ndim(f))
    spacings = [*varargs] * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    is_shared = len(varargs) == 1 and len(axes) != 1
    if len(spacings) != len(axes) or (is_shared and np.ndim(varargs[0])):
        got = f"coordinates of shape {np.shape(varargs[0])}" if is_shared else len(varargs)
        raise TypeError(
            "gradient: varargs must be one distance, or a distance or coordinates for each of "
            f"{len(axes)} axes, got {got}"
        )
    slopes = [_slope(f, h, a, edge_order) for h, a in zip(spacings, axes)]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _slope(f: Any, h: Any, axis: int, edge_order: int) -> Tensor:
    """Return derivatives along one axis, weighted sums of three neighbours over distances."""
    n = shape_of(f)[axis]
    dtype = f.dtype if f.dtype.kind == "f" else float
    if np.ndim(h) and needs_gradient(h):
        raise TypeError(
            "gradient: positions must not require gradients; divide differences of f by "
            "differences of the positions"
        )
    positions = without_tensors(h) if np.ndim(h) else 1.0
    numpy_gradient: Any = np.gradient  # its annotations lack coordinates
    if f.dtype.kind == "b":  # most formulas subtract, which raises NumPy's error
        numpy_gradient(without_tensors(f), positions, axis=axis, edge_order=edge_order)
    # the slopes of three combs are the weights, since no estimate reads a tooth of a comb twice
    combs = (np.arange(n)[:, None] % 3 == np.arange(3)).astype(float)
    weights = numpy_gradient(combs, positions, axis=0, edge_order=edge_order)
    along = [-1 if a == axis else 1 for a in range(f.ndim)]
    if np.ndim(h):  # divide by the distances last, which may be 0
        steps, h = np.diff(np.asarray(positions, float)), np.ones(n)
        if (steps == steps[0]).all():
            weights, h[:] = numpy_gradient(combs, axis=0, edge_order=edge_order), steps[0]
        elif edge_order == 1:
            weights[[0, -1]], h[[0, -1]] = combs[[1, -1]] - combs[[0, -2]], steps[[0, -1]]
        h = h.reshape(along)
    first = np.clip(np.arange(n) - 1, 0, max(n - 3, 0))
    y: Any = 0
    for i in (first, first + 1, first + 2):
        weight = weights[np.arange(n), i % 3].astype(dtype).reshape(along)
        neighbour = take(f, np.minimum(i, n - 1), axis)
        y = y + where(weight == 0, 0, neighbour) * weight  # a weight of 0 does not read NaN
    return astype(y / h, dtype)


@function(numpy=np.interp)
def interp(x: Any, xp: Any, fp: Any) -> Tensor:
    """Interpolate linearly between points."""
    if np.iscomplexobj(unwrap(fp)):
        return interp(x, xp, np.real(fp)) + 1j * interp(x, xp, np.imag(fp))
    # as NumPy: differences of unsigned integers wrap around
    x, xp, fp = (astype(v, float) for v in (x, xp, fp))
    at, knots = x.data, xp.data
    if knots.ndim != 1 or shape_of(fp) != knots.shape or not knots.size:
        raise ValueError(
            f"interp: xp and fp must be vectors of one length, not 0, got {knots.shape} and "
            f"{shape_of(fp)}"
        )
    low, high = at < knots[0], (at > knots[-1]) | ((at == knots[-1]) & (knots[-2:][0] == at))
    i = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, np.maximum(knots.size - 2, 0))
    j = np.minimum(i + 1, knots.size - 1)
    start = getitem(xp, i)
    same = getitem(knots, i) == getitem(knots, j)
    width = where(same, 1.0, getitem(xp, j) - start)
    fraction = (where(low | high, getitem(knots, i), x) - start) / width
    first, last = take(fp, i), take(fp, j)
    with np.errstate(over="ignore", invalid="ignore"):
        rise = last - first
        steep, is_last = ~np.isfinite(rise.data), fraction.data == 1  # exact at the last point
        y = where(is_last, last, first) + where(steep, 0, rise) * (fraction - is_last)
        if not all_true(~steep):  # no gradient by x; a weight of 0 does not read inf
            weight = fraction.data
            first, last = where(weight == 1, 0, first), where(weight == 0, 0, last)
            y = where(steep, first * (1 - weight) + last * weight, y)
    return where(high, getitem(fp, -1), where(low, getitem(fp, 0), y))


@function(numpy=np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Convolve two vectors: y[k] is the sum of a[i] * v[k - i]."""
    if np.ndim(a) != 1 or np.ndim(v) != 1 or not np.size(a) or not np.size(v):
        raise ValueError(
            f"convolve: a and v must be vectors that are not empty, got shapes {shape_of(a)} and "
            f"{shape_of(v)}"
        )
    check_choice("convolve", "mode", mode, "full", "same", "valid")
    a, v = (a, v) if np.size(a) >= np.size(v) else (v, a)
    last = np.size(v) - 1
    before = {"full": last, "same": (last + 1) // 2, "valid": 0}[mode]
    after = {"full": last, "same": last // 2, "valid": 0}[mode]
    windows = sliding_window_view(pad(a, (before, after)), last + 1)
    if all_true(np.isfinite(unwrap(v))):
        return matmul(windows, flip(v))
    inside = sliding_window_view(np.pad(np.ones(np.size(a), bool), (before, after)), last + 1)
    return reduction.sum(windows * where(inside, flip(v), 0), -1)  # since 0 * inf is NaN


@function(numpy=np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    """Correlate two vectors: y[k] is the sum of a[i + k] * v[i]."""
    if np.size(a) < np.size(v):
        return flip(conjugate(correlate(v, a, mode)))
    return convolve(a, conjugate(flip(v)), mode)

"""`np.add.reduce(t)`, `np.multiply.outer(t, u)` and their kind: methods of NumPy's ufuncs."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ..core.forms import ufunc_form
from ..core.nested import as_tensors, needs_gradient, on_arrays
from ..core.tensor import DISPATCH, Tensor, unwrap
from . import parts as parts  # whose ufuncs have these methods too
from . import reduction
from . import special as special
from .axes import all_axes, one_axis
from .indexing import getitem, take_along_axis
from .joining import concatenate, stack, unstack
from .reduction import cumprod, cumsum, logsumexp, prod
from .shape import astype, expand_dims, reshape


def _reduce(reduction: Any) -> Any:
    """Reductions of ufuncs run over the first axis by default."""
    return lambda x, axis=0, **options: reduction(x, axis, **options)


DISPATCH[np.add, "reduce"] = _reduce(reduction.sum)
DISPATCH[np.multiply, "reduce"] = _reduce(prod)
DISPATCH[np.maximum, "reduce"] = _reduce(reduction.max)
DISPATCH[np.minimum, "reduce"] = _reduce(reduction.min)
DISPATCH[np.logaddexp, "reduce"] = _reduce(logsumexp)
DISPATCH[np.add, "accumulate"] = lambda x, axis=0, **options: cumsum(x, axis, **options)
DISPATCH[np.multiply, "accumulate"] = lambda x, axis=0, **options: cumprod(x, axis, **options)


def _running_extreme(ufunc: np.ufunc, x: Any, axis: int = 0) -> Tensor:
    """The largest (or smallest) element so far; of equal ones the last has the gradient, as in
    PyTorch's `cummax`.
    """
    array = np.asarray(unwrap(x))
    axis = one_axis(f"np.{ufunc.__name__}.accumulate", axis, array.ndim)
    places = np.arange(array.shape[axis]).reshape(
        [-1 if i == axis else 1 for i in range(array.ndim)]
    )
    is_new = (array == ufunc.accumulate(array, axis)) | np.isnan(array)
    return take_along_axis(x, np.maximum.accumulate(np.where(is_new, places, 0), axis), axis)


DISPATCH[np.maximum, "accumulate"] = partial(_running_extreme, np.maximum)
DISPATCH[np.minimum, "accumulate"] = partial(_running_extreme, np.minimum)


# -- of all ufuncs
# -----------------------------------------------------------------------------------


def _outer(ufunc: np.ufunc) -> Any:
    f = DISPATCH[ufunc]

    def outer(a: Any, b: Any, **options: Any) -> Tensor:
        operands = (reshape(a, np.shape(a) + (1,) * np.ndim(b)), b)
        return ufunc_form(f, ufunc, operands, options) if options else f(*operands)

    return outer


def _running(ufunc: np.ufunc, x: Any, axis: int) -> list[Any]:
    """x₀, f(x₀, x₁), f(f(x₀, x₁), x₂), ... for the slices of x along `axis`."""
    f = DISPATCH[ufunc]
    found: list[Any] = []
    for part in unstack(x, axis=axis):
        found.append(f(found[-1], part) if found else part)
    return found


def _reduced(
    ufunc: np.ufunc, x: Any, axis: Any = 0, keepdims: bool = False, dtype: Any = None
) -> Tensor:
    axes = all_axes(f"np.{ufunc.__name__}.reduce", axis, np.ndim(x))
    like = ufunc.reduce(
        unwrap(x), axis=axis, keepdims=keepdims, dtype=dtype
    )  # refuses what it refuses
    x = x if dtype is None else astype(x, dtype)
    for a in sorted(axes, reverse=True):
        if not x.shape[a]:
            return Tensor(like)
        x = _running(ufunc, x, a)[-1]
    return reshape(x, np.shape(like))


def _accumulated(ufunc: np.ufunc, x: Any, axis: int = 0, dtype: Any = None) -> Tensor:
    axis = one_axis(f"np.{ufunc.__name__}.accumulate", axis, np.ndim(x))
    x = x if dtype is None else astype(x, dtype)
    found = _running(ufunc, x, axis)
    return stack(found, axis) if found else x * 1


def _reduced_at(ufunc: np.ufunc, x: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Tensor:
    """For each index the reduction from there to the next, or the element where the next is no
    larger.
    """
    ufunc.reduceat(unwrap(x), unwrap(indices), axis, dtype)  # refuses what it refuses
    axis = one_axis(f"np.{ufunc.__name__}.reduceat", axis, np.ndim(x))
    x, before = x if dtype is None else astype(x, dtype), (slice(None),) * axis
    reduce = DISPATCH[ufunc, "reduce"]
    slices = [
        slice(i, j if i < j else i + 1)
        for i, j in pairwise([*map(int, unwrap(indices)), x.shape[axis]])
    ]
    return concatenate(
        [expand_dims(reduce(getitem(x, (*before, s)), axis), axis) for s in slices], axis
    )


def _unless_untracked(ufunc: np.ufunc, method: str, rule: Any) -> Any:
    """`rule` where a gradient is recorded; NumPy elsewhere, and for ufuncs that have no derivative."""

    def call(*args: Any, **options: Any) -> Any:
        if not needs_gradient((args, options)) or not hasattr(DISPATCH[ufunc], "op"):
            return as_tensors(on_arrays(getattr(ufunc, method), args, options))
        return rule(ufunc, *args, **options)

    return call


for _ufunc in [
    f for f in DISPATCH if isinstance(f, np.ufunc) and f.nin == 2 and f.signature is None
]:
    DISPATCH[_ufunc, "outer"] = _outer(_ufunc)
    if _ufunc.nout == 1:
        for _method, _rule in {
            "reduce": _reduced,
            "accumulate": _accumulated,
            "reduceat": _reduced_at,
        }.items():
            DISPATCH.setdefault((_ufunc, _method), _unless_untracked(_ufunc, _method, _rule))

"""Functions that give the same elements another shape, and compute nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.creation import ints
from ..core.forms import numpy_form
from ..core.registry import function, op
from ..core.tensor import Tensor, unwrap
from .axes import all_axes, check_choice, one_axis, shape_of

__all__ = [
    "astype",
    "clone",
    "reshape",
    "transpose",
    "swapaxes",
    "moveaxis",
    "expand_dims",
    "squeeze",
    "ravel",
    "broadcast_to",
    "broadcast_arrays",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
]


@op(methods="astype", x=lambda g: g)
def astype(x, /, dtype):
    """x converted to `dtype`; the gradient comes back in the dtype of x."""
    return np.asarray(x).astype(dtype)


@op(methods="clone copy", numpy=np.copy, x=lambda g: g)
def clone(x, /):
    """A copy of x, in memory of its own."""
    return np.array(x)


# -- reshape
# -----------------------------------------------------------------------------------------


@op(view=True, x=lambda g, x_shape: g.reshape(x_shape))
def _reshape(x, /, shape):
    return np.asarray(x).reshape(shape)


@function(methods="reshape")
def reshape(x: Any, *shape: Any, order: str = "C") -> Tensor:
    """x with another shape of the same size, as ints or one tuple; one length can be -1.

    With `order` "F" the first index runs fastest, in x and in the result, as in Fortran.
    """
    check_choice("reshape", "order", order, "C", "F", "A")
    if order == "F" or (order == "A" and np.asarray(unwrap(x)).flags.fnc):
        return _transpose(_reshape(_transpose(x), shape=ints(shape)[::-1]))
    return _reshape(x, shape=ints(shape))


@numpy_form(np.reshape)
def _np_reshape(a: Any, shape: Any, order: str = "C", copy: Any = None) -> Tensor:
    if copy is False:
        raise ValueError(
            "np.reshape: copy=False says nothing for tensors, which are views where NumPy's are"
        )
    return reshape(clone(a) if copy else a, shape, order=order)


@function(numpy=np.ravel, methods="ravel")
def ravel(x: Any, order: str = "C") -> Tensor:
    """x as one axis; `order` as in `reshape`."""
    if order == "K":  # the order in memory
        flags = np.asarray(unwrap(x)).flags
        if not flags.c_contiguous and not flags.f_contiguous:
            raise ValueError(
                "ravel: order 'K' of an array that is neither C- nor F-contiguous is not supported"
            )
        order = "C" if flags.c_contiguous else "F"
    return reshape(x, -1, order=order)


def _shaped(shape: tuple[int, ...]) -> np.ndarray:
    """An array of this shape that takes no memory."""
    return np.broadcast_to(np.empty((), bool), shape)


@function(numpy=np.expand_dims, methods="expand_dims")
def expand_dims(x: Any, axis: int | Sequence[int]) -> Tensor:
    """x with a new axis of length 1 at each place `axis` of the result."""
    return _reshape(x, shape=np.expand_dims(_shaped(shape_of(x)), axis).shape)


@function(numpy=np.squeeze, methods="squeeze")
def squeeze(x: Any, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """x without its axes of length 1, or without those in `axis`."""
    return _reshape(x, shape=np.squeeze(_shaped(shape_of(x)), axis).shape)


def _at_least(ndim: int) -> Any:
    numpy = (np.atleast_1d, np.atleast_2d, np.atleast_3d)[ndim - 1]

    def atleast(*arrays: Any) -> Any:
        results = [_reshape(x, shape=numpy(_shaped(shape_of(x))).shape) for x in arrays]
        return results[0] if len(results) == 1 else tuple(results)

    atleast.__name__ = atleast.__qualname__ = numpy.__name__
    atleast.__doc__ = (
        f"Each of the arrays with at least {ndim} axes, those that it lacks of length 1."
    )
    atleast.__module__ = __name__
    return function(numpy=numpy)(atleast)


atleast_1d, atleast_2d, atleast_3d = map(_at_least, (1, 2, 3))

# -- the order of axes
# -------------------------------------------------------------------------------


@op(view=True, x=lambda g, axes: np.transpose(g, _inverse(axes)))
def _transpose(x, /, axes=None):
    return np.asarray(x).transpose(axes)


def _inverse(axes: Sequence[int] | None) -> list[int] | None:
    return None if axes is None else sorted(range(len(axes)), key=lambda i: axes[i] % len(axes))


@function(methods="transpose")
def transpose(x: Any, *axes: Any) -> Tensor:
    """x with its axes in the order `axes` (ints or one tuple), or reversed. To exchange two axes:
    `swapaxes`.
    """
    order = ints(axes)
    if len(axes) == 2 == np.ndim(x) and order in ((0, 1), (-2, -1)):
        raise ValueError(
            f"transpose: {order} leaves the axes as they are, as in NumPy; to exchange them, as "
            "PyTorch does, write x.T"
        )
    if len(order) == 2 < np.ndim(x):
        raise ValueError(
            f"transpose: expected the order of all {np.ndim(x)} axes, as in NumPy, got {order}; "
            "to exchange two axes, "
            f"write swapaxes{order}"
        )
    return _transpose(x, axes=order if order != (None,) and (order or axes) else None)


numpy_form(np.transpose)(
    lambda a, axes=None: _transpose(a, axes=None if axes is None else ints([axes]))
)


@function(numpy=np.swapaxes, methods="swapaxes")
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """x with two axes exchanged."""
    order = list(range(np.ndim(x)))
    first, second = (one_axis("swapaxes", axis, len(order)) for axis in (axis1, axis2))
    order[first], order[second] = second, first
    return _transpose(x, axes=tuple(order))


@function(numpy=np.moveaxis, methods="moveaxis")
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """x with the axes `source` moved to the places `destination`; the others keep their order."""
    ndim = np.ndim(x)
    if source is None or destination is None:
        raise TypeError("moveaxis: expected axes as ints or sequences of them, got None")
    sources, targets = all_axes("source", source, ndim), all_axes("destination", destination, ndim)
    if len(sources) != len(targets):
        raise ValueError(
            f"moveaxis: expected as many sources as destinations, got {source} and {destination}"
        )
    order = [a for a in range(ndim) if a not in sources]
    for target, axis in sorted(zip(targets, sources)):
        order.insert(target, axis)
    return _transpose(x, axes=tuple(order))


Tensor.T = property(transpose, doc="The tensor with its axes reversed.")  # type: ignore[assignment]
Tensor.mT = property(  # type: ignore
    lambda x: swapaxes(x, -2, -1), doc="The tensor with its last two axes exchanged."
)

# -- broadcasting
# ------------------------------------------------------------------------------------


@op(view=True, numpy=np.broadcast_to, methods="broadcast_to", x=lambda g: g)
def broadcast_to(x, /, shape):
    """x repeated to `shape`, as NumPy broadcasts; its memory is shared."""
    return np.broadcast_to(x, shape)


@function(numpy=np.broadcast_arrays)
def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """The arrays, each repeated to the shape that they have together."""
    shape = np.broadcast_shapes(*map(shape_of, arrays))
    return tuple([broadcast_to(x, shape) for x in arrays])


def flattened_last(x: Any, axis: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """x with the axes `axis` as one last axis, and x's shape with these at length 1."""
    axes = all_axes(name, axis, np.ndim(x))
    shape = shape_of(x)
    others = [i for i in range(len(shape)) if i not in axes]
    last = moveaxis(x, axes, range(len(others), len(shape)))
    last = reshape(last, *[shape[i] for i in others], math.prod(shape[i] for i in axes))
    return last, tuple([1 if i in axes else n for i, n in enumerate(shape)])


Tensor.flat = property(ravel, doc="The elements one after the other.")  # type: ignore

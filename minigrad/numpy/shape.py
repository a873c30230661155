"""Shapes beyond the core set: flat views, moved axes, axes of length 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import all_axes, check_choice, ints, shape_of
from ..arrays import as_array
from ..ops.shape import broadcast_to, clone, placeholder, reordered, reshape
from ..registry import Op, add_methods, function
from ..tensor import Tensor, unwrap
from .forms import numpy_form

__all__ = [
    "ravel",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "moveaxis",
    "broadcast_arrays",
]


@numpy_form(np.reshape)
def _np_reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    y = reshape(a, shape, order=order)
    if copy is False and np.ndim(a) and not np.shares_memory(unwrap(y), unwrap(a)):
        raise ValueError("np.reshape: this shape needs a copy, and copy=False")
    return y.clone() if copy else y


numpy_form(np.transpose)(lambda a, axes=None: reordered(a, None if axes is None else ints((axes,))))


@function(numpy=np.ravel, methods="ravel")
def ravel(x: Any, order: str = "C") -> Tensor:
    """Return the elements of x as a vector.

    Other parameters and the result: as `numpy.ravel`.

    Parameters
    ----------
    order : {"C", "F"}
        The index that changes fastest: the last or the first; "C" by default.
    """
    check_choice("ravel", "order", order, "C", "F")
    return _raveled(x if order == "C" else reordered(x, None))


def _ravel(x: Any, /) -> Any:
    x = as_array(x)
    if isinstance(x, np.ndarray):
        return x.ravel()
    y = x.reshape(-1)
    return y if x.values[0, ...].flags.c_contiguous else y.copy()


_raveled = Op(_ravel, {"x": lambda g, x_shape: g.reshape(x_shape)}, view=True).function


def _at_least(ndim: int) -> Any:
    numpy = (np.atleast_1d, np.atleast_2d, np.atleast_3d)[ndim - 1]

    def atleast(*arrays: Any) -> Any:
        results = [reshape(x, numpy(placeholder(shape_of(x))).shape) for x in arrays]
        return results[0] if len(results) == 1 else tuple(results)

    atleast.__name__ = atleast.__qualname__ = numpy.__name__
    atleast.__doc__ = f"Add axes of length 1 to arrays with fewer than {ndim} axes."
    atleast.__module__ = __name__
    return function(numpy=numpy)(atleast)


atleast_1d, atleast_2d, atleast_3d = map(_at_least, (1, 2, 3))


@function(numpy=np.moveaxis, methods="moveaxis")
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Move axes to other positions; the others keep their order."""
    ndim = np.ndim(x)
    if source is None or destination is None:
        raise TypeError(
            "moveaxis: source and destination must be ints or sequences of ints, got None"
        )
    sources, targets = all_axes("source", source, ndim), all_axes("destination", destination, ndim)
    if len(sources) != len(targets):
        raise ValueError(
            f"moveaxis: source and destination must have one length, got {source} and {destination}"
        )
    order = [a for a in range(ndim) if a not in sources]
    for target, axis in sorted(zip(targets, sources)):
        order.insert(target, axis)
    return reordered(x, tuple(order))


@function(numpy=np.broadcast_arrays)
def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """Repeat arrays to their common shape."""
    shape = np.broadcast_shapes(*map(shape_of, arrays))
    return tuple([broadcast_to(x, shape) for x in arrays])


def flattened_last(x: Any, axis: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """Return x with several axes as one last axis, and its shape with these at length 1."""
    axes = all_axes(name, axis, np.ndim(x))
    shape = shape_of(x)
    others = [i for i in range(len(shape)) if i not in axes]
    last = moveaxis(x, axes, range(len(others), len(shape)))
    last = reshape(last, *[shape[i] for i in others], math.prod(shape[i] for i in axes))
    return last, tuple([1 if i in axes else n for i, n in enumerate(shape)])


def _copy(self: Tensor, order: str = "C") -> Tensor:
    """Return the elements in new memory, as `ndarray.copy`.

    Parameters
    ----------
    order : {"C", "F", "A", "K"}
        Order of the memory; "C" by default.
    """
    return clone(self, order=order)


_flat = property(ravel, doc="Elements one after the other.")
add_methods(Tensor, {"copy": _copy, "flat": _flat})

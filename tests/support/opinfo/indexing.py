"""Functions that pick elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add, by_flat_index


def _index(d: Draw, shape: tuple[int, ...]) -> Any:
    """Any index that NumPy knows, for an array of this shape."""
    ints = lambda n: d.rng.integers(-n, n, d.one_of((), (2,), (5,), (2, 3)))
    part = lambda n: d.one_of(
        slice(None),
        slice(1, None),
        slice(None, None, -1),
        slice(0, n, 2),
        -1,
        n - 1,
        None,
        ints(n),
        ints(n),
        [0, 0, -1],
    )
    kind = d.one_of("basic", "mixed", "mask", "row mask", "ellipsis", "array")
    if kind == "basic":
        return tuple(d.one_of(slice(None), slice(-1, None, -2), 0, -1) for n in shape[:2]) + (None,)
    if kind == "mask":
        return d.rng.random(shape) < 0.5
    if kind == "row mask":
        return d.rng.random(shape[:1]) < 0.5
    if kind == "ellipsis":
        return (..., -1)
    if kind == "array":
        return ints(shape[0])
    index = tuple(part(n) for n in shape)
    try:
        np.empty(shape)[index]
    except IndexError:  # arrays that do not broadcast with one another
        index = index[:1]
    return index


def _getitem(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    return Sample([x], {"index": _index(d, x.shape)})


add(
    "getitem",
    by_flat_index(lambda i, index: i[index]),
    _getitem,
    errors=[
        (
            lambda: mg.Tensor(np.ones((2, 3)))[2],
            IndexError,
            r"getitem: index 2 is out of bounds.*\(2, 3\)",
        ),
        (
            lambda: mg.Tensor(np.ones((2, 3)))[0, 0, 0],
            IndexError,
            r"getitem: too many indices.*\(2, 3\)",
        ),
    ],
)


def _scatter(d: Draw) -> Sample:
    shape = d.shape(1, 3, 1)
    index = _index(d, shape)
    return Sample([d.array(np.empty(shape)[index].shape)], {"index": index, "shape": shape})


def _scatter_reference(x: np.ndarray, index: Any, shape: tuple[int, ...]) -> np.ndarray:
    y = np.zeros(math.prod(shape))
    for place, value in zip(np.arange(y.size).reshape(shape)[index].ravel(), x.ravel()):
        y[place] += value
    return y.reshape(shape)


add(
    "scatter",
    _scatter_reference,
    _scatter,
    errors=[
        (
            lambda: mg.scatter(np.ones(2), index=[0, 3], shape=(3,)),
            IndexError,
            r"scatter: index 3 is out of bounds.*\(2,\)",
        )
    ],
)


def _index_add(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    index = _index(d, x.shape)
    return Sample([x, index, d.array(x[index].shape)])


add(
    "index_add",
    lambda x, index, v: x + _scatter_reference(v, index, x.shape),
    _index_add,
    call=lambda x, index, v: mg.index_add(x, index=index, values=v),
)
add(
    "take",
    lambda x, indices, axis: np.take(x, indices, axis),
    lambda d: Sample(
        [x := d.array(d.shape(1, 3, 2))],
        {
            "indices": d.one_of(1, [0, 1, 1], np.array([[0, 1], [1, -1]])),
            "axis": d.axis(x.ndim, several=False),
        },
    ),
    errors=[
        (
            lambda: mg.take(np.ones((2, 3)), [5], 1),
            IndexError,
            "index 5 is out of bounds for axis 1",
        )
    ],
)


def _along(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    axis = d.axis(x.ndim, False, False)
    shape = list(x.shape)
    shape[axis] = d.one_of(1, 2, 5)
    return Sample([x], {"indices": d.rng.integers(0, x.shape[axis], shape), "axis": axis})


add(
    "take_along_axis",
    np.take_along_axis,
    _along,
    errors=[
        (
            lambda: mg.take_along_axis(np.ones((2, 2)), [0]),
            ValueError,
            "expected indices with 2 axes as x",
        )
    ],
)
add(
    "gather",
    lambda x, axis, index: np.take_along_axis(x, index, axis),
    lambda d: _gathered(d),
    errors=[
        (
            lambda: mg.gather(np.ones((2, 2)), 0, [0]),
            ValueError,
            "gather: expected indices with 2 axes as x",
        )
    ],
)


def _gathered(d: Draw) -> Sample:
    sample = _along(d)
    return Sample(
        sample.operands, {"axis": sample.options["axis"], "index": sample.options["indices"]}
    )


def _conditions(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    axis = d.axis(x.ndim, several=False)
    n = x.size if axis is None else x.shape[axis]
    return Sample([d.rng.random(n) < 0.6, x], {"axis": axis})


add(
    "compress",
    np.compress,
    _conditions,
    errors=[
        (
            lambda: mg.compress([[True]], np.ones(2)),
            ValueError,
            "compress: expected a vector of conditions",
        )
    ],
)
add(
    "extract",
    np.extract,
    lambda d: Sample([d.rng.random(s := d.shape(min_side=1)) < 0.6, d.array(s)]),
)
add(
    "index_select",
    lambda x, axis, index: np.take(x, index, axis),
    lambda d: Sample(
        [x := d.array(d.shape(1, 3, 2))],
        {"axis": d.axis(x.ndim, False, False), "index": d.one_of([0, 1, 1], np.array([1]), [])},
    ),
    errors=[
        (
            lambda: mg.index_select(np.ones((2, 2)), 0, [[0]]),
            ValueError,
            "expected a vector of indices",
        )
    ],
)
add(
    "masked_select",
    lambda x, mask: np.broadcast_to(x, np.broadcast_shapes(x.shape, mask.shape))[
        np.broadcast_to(mask, np.broadcast_shapes(x.shape, mask.shape))
    ],
    lambda d: Sample([d.array(s := d.shape(min_side=1)), d.rng.random(d.partner(s)) < 0.6]),
    errors=[
        (
            lambda: mg.masked_select(np.ones(2), np.ones(2)),
            TypeError,
            "masked_select: expected booleans",
        )
    ],
)

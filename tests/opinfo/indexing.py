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
        (lambda: mg.Tensor(np.ones((2, 3)))[2], IndexError, r"getitem: index 2 is out of bounds.*\(2, 3\)"),
        (lambda: mg.Tensor(np.ones((2, 3)))[0, 0, 0], IndexError, r"getitem: too many indices.*\(2, 3\)"),
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


add("index_add", lambda x, index, v: x + _scatter_reference(v, index, x.shape), _index_add)
add(
    "take",
    lambda x, indices, axis: np.take(x, indices, axis),
    lambda d: Sample(
        [x := d.array(d.shape(1, 3, 2))],
        {"indices": d.one_of(1, [0, 1, 1], np.array([[0, 1], [1, -1]])), "axis": d.axis(x.ndim, several=False)},
    ),
    errors=[(lambda: mg.take(np.ones((2, 3)), [5], 1), IndexError, "index 5 is out of bounds for axis 1")],
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
    errors=[(lambda: mg.take_along_axis(np.ones((2, 2)), [0]), ValueError, "expected indices with 2 axes as x")],
)
add(
    "sort",
    lambda x, axis: np.apply_along_axis(sorted, axis, x) if x.size else x,
    lambda d: Sample([x := d.distinct(d.shape(1))], {"axis": d.axis(x.ndim, False, False)}),
)
add(
    "top_k",
    lambda x, k, axis: np.flip(np.sort(x, axis), axis).take(range(k), axis),
    lambda d: Sample(
        [x := d.distinct(d.shape(1, 3, 1))],
        {"axis": (a := d.axis(x.ndim, False, False)), "k": d.one_of(*range(1, x.shape[a] + 1))},
    ),
    call=lambda x, k, axis: mg.top_k(x, k, axis)[0],
    errors=[
        (lambda: mg.top_k(np.ones(3), 4), ValueError, "top_k: expected 1 <= k <= 3, got 4"),
        (lambda: mg.top_k(np.ones(()), 1), ValueError, r"top_k: axis -1 is not one of the 0 axes of shape \(\)"),
        (lambda: mg.sort(np.ones(2), 1), ValueError, r"sort: axis 1 is not one of the 1 axes of shape \(2,\)"),
    ],
)

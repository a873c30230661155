"""Functions that move, join, choose and repeat elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Draw, Sample, Shape, add


def _reshape(d: Draw) -> Sample:
    x = d.array(d.shape())
    shape = d.one_of((-1,), x.shape[::-1], (1, *x.shape), (*x.shape, 1)) if x.size else (0, 2)
    return Sample(x, shape)


def _transpose(d: Draw) -> Sample:
    x = d.array(d.shape())
    return Sample(x, d.one_of(None, d.permutation(x.ndim)))


def _broadcast_to(d: Draw) -> Sample:
    x = d.array(tuple(d.one_of(1, n) for n in d.shape(min_side=1)))
    return Sample(x, shape=(2, *[3 if n == 1 else n for n in x.shape]))


def _concatenate(d: Draw) -> Sample:
    shape = list(d.shape(1))
    axis = d.axis(len(shape), several=False)
    arrays = []
    for _ in range(d.one_of(1, 2, 3)):
        if axis is not None:
            shape[axis] = d.one_of(0, 1, 2)
        arrays.append(d.array(tuple(shape)))
    return Sample(arrays, axis=axis)


def _pad(d: Draw) -> Sample:
    x = d.array(d.shape(1, 2, 2))
    each = tuple((d.integer(0, 2), d.integer(0, 2)) for _ in range(x.ndim))
    mode = d.one_of("constant", "edge", "reflect", "symmetric", "wrap")
    return Sample(x, pad_width=d.one_of(1, (0, 2), each), mode=mode)


add("reshape", _reshape)
add("transpose", _transpose)
add("broadcast_to", _broadcast_to)
add("concatenate", _concatenate)
add("pad", _pad)
add(
    "unfold",
    lambda d: Sample(
        x := d.array(d.shape(1, 3, 3, 6)),
        axis=d.axis(x.ndim, none=False, several=False),
        size=d.one_of(1, 2, 3),
        step=d.one_of(1, 2),
    ),
    lambda x, axis, size, step: np.stack(
        [
            x.take(range(start, x.shape[axis] - size + start + 1, step), axis)
            for start in range(size)
        ],
        -1,
    ),
)

# -- indices -----------------------------------------------------------------------------------------


def _index(d: Draw, shape: Shape) -> Any:
    """Draw an index of any kind for an array of this shape."""
    several = d.one_of((), (2,), (5,), (2, 3))
    integers = lambda n: d.integers(-n, n, several)
    slices = (slice(None), slice(1, None), slice(None, None, -1), slice(-1, None, -2))
    return d.one_of(
        tuple(d.one_of(*slices, 0, -1) for _ in shape[:2]) + (None,),
        tuple(d.one_of(*slices, n - 1, integers(n)) for n in shape),
        d.mask(shape),
        d.mask(shape[:1]),
        (..., -1),
        integers(shape[0]),
        [0, 0, -1],
        (..., (0, -1, 0)),
    )


def _getitem(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    return Sample(x, index=_index(d, x.shape))


def _scatter(d: Draw) -> Sample:
    shape = d.shape(1, 3, 1)
    index = _index(d, shape)
    return Sample(d.array(np.empty(shape)[index].shape), index=index, shape=shape)


def _index_add(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    index = _index(d, x.shape)
    return Sample(x, index=index, values=d.array(x[index].shape))


def _added(x: np.ndarray, index: Any, values: np.ndarray) -> np.ndarray:
    y = x.copy()
    np.add.at(y, index, values)
    return y


def _along(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    axis = d.axis(x.ndim, none=False, several=False)
    shape = list(x.shape)
    shape[axis] = d.one_of(1, 2, 5)
    return Sample(x, axis, d.integers(0, x.shape[axis], tuple(shape)))


add("getitem", _getitem, lambda x, index: x[index])
add("scatter", _scatter, lambda x, index, shape: _added(np.zeros(shape), index, x))
add("index_add", _index_add, _added)
add("gather", _along, lambda x, axis, index: np.take_along_axis(x, index, axis))
add(
    "index_select",
    lambda d: Sample(
        x := d.array(d.shape(1, 3, 2)),
        d.axis(x.ndim, none=False, several=False),
        d.one_of([0, 1, 1], np.array([1]), []),
    ),
    lambda x, axis, index: np.take(x, np.array(index, int), axis),
)
add(
    "masked_select",
    lambda d: Sample(x := d.array(d.shape(min_side=1)), d.mask(d.partner(x.shape))),
    lambda x, mask: np.broadcast_arrays(x, mask)[0][np.broadcast_arrays(x, mask)[1]],
)

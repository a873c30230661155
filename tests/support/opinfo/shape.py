"""Functions that rearrange elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add, by_flat_index


def _reshape(d: Draw) -> Sample:
    x = d.array(d.shape())
    shape = d.one_of((-1,), x.shape[::-1], (1, *x.shape), (*x.shape, 1)) if x.size else (0, 2)
    return Sample([x], {"shape": shape})


add(
    "reshape",
    lambda x, shape: np.array(x.ravel().tolist()).reshape(shape),
    _reshape,
    call=lambda x, shape: mg.reshape(x, shape),
    errors=[
        (
            lambda: mg.reshape(np.ones((2, 3)), 4),
            ValueError,
            r"reshape: .*\(2, 3\) float64, shape=\(4,\)",
        )
    ],
)
add(
    "transpose",
    by_flat_index(
        lambda i, axes: np.einsum(i, list(range(i.ndim)), list(axes or range(i.ndim)[::-1]))
    ),
    lambda d: Sample(
        [x := d.array(d.shape())],
        {"axes": d.one_of(None, tuple(int(a) for a in d.rng.permutation(x.ndim)))},
    ),
    call=lambda x, axes: mg.transpose(x, axes),
    errors=[
        (lambda: mg.transpose(np.ones((2, 3)), 0, 0), ValueError, r"transpose: .*\(2, 3\)"),
        (
            lambda: mg.transpose(np.ones((2, 3, 4)), 0, 1),
            ValueError,
            r"to exchange two axes, write swapaxes\(0, 1\)",
        ),
    ],
)
add(
    "swapaxes",
    np.swapaxes,
    lambda d: Sample(
        [x := d.array(d.shape(1))],
        {"axis1": d.axis(x.ndim, False, False), "axis2": d.axis(x.ndim, False, False)},
    ),
    errors=[
        (
            lambda: mg.swapaxes(np.ones((2, 3)), 0, 2),
            ValueError,
            "swapaxes: axis 2 is out of bounds for array of dimension 2",
        )
    ],
)


def _moveaxis(d: Draw) -> Sample:
    x = d.array(d.shape(1))
    n = int(d.rng.integers(1, x.ndim + 1))
    ends = [tuple(int(a) for a in d.rng.permutation(x.ndim)[:n]) for _ in range(2)]
    source, destination = (ends[0][0], ends[1][0]) if d.bool() else ends
    return Sample([x], {"source": source, "destination": destination})


add("moveaxis", np.moveaxis, _moveaxis)
add(
    "expand_dims",
    np.expand_dims,
    lambda d: Sample([x := d.array(d.shape())], {"axis": d.one_of(0, -1, x.ndim, (0, -1))}),
)
add(
    "squeeze",
    np.squeeze,
    lambda d: Sample(
        [d.array((1, *d.shape(max_ndim=2), 1))], {"axis": d.one_of(None, 0, -1, (0, -1))}
    ),
)
add("ravel", np.ravel, lambda d: Sample([d.array(d.shape())]))
add(
    "broadcast_to",
    lambda x, shape: x + np.zeros(shape),
    lambda d: Sample(
        [x := d.array(tuple(d.one_of(1, n) for n in d.shape(min_side=1)))],
        {"shape": (2, *[3 if n == 1 else n for n in x.shape])},
    ),
    errors=[
        (
            lambda: mg.broadcast_to(np.ones(3), (2,)),
            ValueError,
            r"broadcast_to: .*\(3,\) float64, shape=\(2,\)",
        )
    ],
)


def _joined(d: Draw) -> Sample:
    shape = list(d.shape(1))
    axis = d.axis(len(shape), allow_none=True, several=False)
    arrays = []
    for _ in range(d.one_of(1, 2, 3)):
        if axis is not None:
            shape[axis] = d.one_of(0, 1, 2)
        arrays.append(d.array(tuple(shape)))
    return Sample(arrays, {"axis": axis})


def _joined_reference(*arrays: np.ndarray, axis: int | None) -> np.ndarray:
    if axis is None:
        return np.array([v for x in arrays for v in x.ravel()])
    return np.moveaxis(np.array([row for x in arrays for row in np.moveaxis(x, axis, 0)]).reshape(
        sum(x.shape[axis] for x in arrays), *np.moveaxis(arrays[0], axis, 0).shape[1:]), 0, axis)  # fmt: skip


add(
    "concatenate",
    _joined_reference,
    _joined,
    call=lambda *xs, axis: mg.concatenate(xs, axis),
    errors=[
        (
            lambda: mg.concatenate([np.ones((2, 3)), np.ones((2, 4))]),
            ValueError,
            r"concatenate: .*\(2, 3\).*\(2, 4\)",
        )
    ],
)
add(
    "stack",
    lambda *xs, axis: np.stack(xs, axis),
    lambda d: Sample(
        [d.array(shape := d.shape()), *[d.array(shape) for _ in range(d.one_of(0, 1, 2))]],
        {"axis": d.one_of(0, -1, len(shape))},
    ),
    call=lambda *xs, axis: mg.stack(xs, axis),
    errors=[
        (
            lambda: mg.stack([np.ones(2), np.ones(3)]),
            ValueError,
            r"stack: expected arrays of one shape, got \[\(2,\), \(3,\)\]",
        )
    ],
)


def _pad(d: Draw) -> Sample:
    x = d.distinct(d.shape(1, 2, 2))
    widths = d.one_of(
        1, (0, 2), tuple((int(a), int(b)) for a, b in d.rng.integers(0, 3, (x.ndim, 2)))
    )
    return Sample(
        [x],
        {
            "pad_width": widths,
            "mode": d.one_of(
                "constant",
                "constant",
                "edge",
                "reflect",
                "symmetric",
                "wrap",
            ),
        },
    )


add(
    "pad",
    np.pad,
    _pad,
    call=mg.pad,
    errors=[
        (
            lambda: mg.pad(np.ones(3), 1, mode="empty"),
            ValueError,
            "pad: mode= must be 'constant', .* got 'empty'",
        )
    ],
)
add("flip", np.flip, lambda d: Sample([x := d.array(d.shape())], {"axis": d.axis(x.ndim)}))
add(
    "roll",
    np.roll,
    lambda d: Sample(
        [d.array(d.shape(1))],
        d.one_of({"shift": 2}, {"shift": -1, "axis": 0}, {"shift": (1, 2), "axis": (0, -1)}),
    ),
)
add(
    "repeat",
    np.repeat,
    lambda d: Sample(
        [d.array(d.shape(1))],
        d.one_of({"repeats": 2}, {"repeats": 3, "axis": 0}, {"repeats": 0, "axis": -1}),
    ),
)
add(
    "tile",
    np.tile,
    lambda d: Sample([d.array(d.shape())], {"reps": d.one_of(2, (2, 1), (1, 3), (2, 1, 2))}),
)


def _differences(d: Draw) -> Sample:
    x = d.array(d.shape(1))
    axis = d.axis(x.ndim, False, False)
    end = lambda: d.array(
        tuple(d.one_of(1, 2) if i == axis % x.ndim else n for i, n in enumerate(x.shape))
    )
    return Sample(
        [x, end() if d.bool() else None, end() if d.bool() else None],
        {"axis": axis, "n": d.one_of(0, 1, 2)},
    )


def _diff_reference(x: np.ndarray, prepend: Any, append: Any, axis: int, n: int) -> np.ndarray:
    x = (
        np.concatenate([part for part in (prepend, x, append) if part is not None], axis)
        if n
        else x
    )
    for _ in range(n):
        x = x.take(range(1, x.shape[axis]), axis) - x.take(range(x.shape[axis] - 1), axis)
    return x


add(
    "diff",
    _diff_reference,
    _differences,
    call=lambda x, prepend, append, axis, n: mg.diff(x, n, axis, prepend, append),
    errors=[
        (lambda: mg.diff(np.ones(3), -1), ValueError, "diff: expected n >= 0, got -1"),
        (lambda: mg.diff(np.ones(3), axis=1), ValueError, "diff: axis 1 is out of bounds"),
        (lambda: mg.diff(np.ones(())), ValueError, "diff: expected at least one axis"),
    ],
)


def _windows(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 3, 6))
    if x.ndim == 2 and d.bool():
        return Sample([x], {"window_shape": (1, 3), "axis": (1, 0)})
    return Sample([x], {"window_shape": d.one_of(1, 2, 3), "axis": d.axis(x.ndim, False, False)})


add(
    "sliding_window_view",
    np.lib.stride_tricks.sliding_window_view,
    _windows,
    errors=[
        (
            lambda: mg.sliding_window_view(np.ones(3), 4),
            ValueError,
            "window shape cannot be larger than input",
        )
    ],
)


add(
    "flatten",
    lambda x, start_dim, end_dim: x.reshape(
        [*x.shape[:start_dim], math.prod(x.shape[start_dim : end_dim + 1]), *x.shape[end_dim + 1 :]]
    ),
    lambda d: Sample(
        [d.array((2, *d.shape(1, 2)))], {"start_dim": d.one_of(0, 1), "end_dim": d.one_of(1)}
    ),
    errors=[
        (
            lambda: mg.flatten(np.ones((2, 3)), 1, 0),
            ValueError,
            "flatten: expected start_dim <= end_dim, got 1 and 0",
        ),
    ],
)

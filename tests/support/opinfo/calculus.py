"""Integrals, slopes, interpolation, convolution, and products of tensors."""

from __future__ import annotations

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add


def _sampled(d: Draw) -> Sample:
    y = d.array(d.shape(1, 3, 2))
    axis = d.axis(y.ndim, False, False)
    n = y.shape[axis]
    x = np.cumsum(d.rng.uniform(0.2, 1, n)) if d.bool() else None
    return Sample([y, x], {"axis": axis, "dx": d.one_of(1.0, 0.5)})


add(
    "trapezoid",
    lambda y, x, axis, dx: np.trapezoid(y, x, dx, axis),
    _sampled,
    call=lambda y, x, axis, dx: mg.trapezoid(y, x, dx, axis),
)
add(
    "gradient",
    lambda f, h, **options: [*g] if isinstance(g := np.gradient(f, h, **options), tuple) else g,
    lambda d: Sample(
        [f := d.array(d.shape(1, 2, 3, 5))],
        {
            "h": d.one_of(1.0, 0.5),
            "axis": d.axis(f.ndim, several=False),
            "edge_order": d.one_of(1, 2),
        },
    ),
    call=lambda f, h, **options: mg.gradient(f, h, **options),
    errors=[
        (
            lambda: mg.gradient(np.ones((3, 3)), 1.0, 2.0, 3.0),
            TypeError,
            "expected one distance or one for each of 2",
        )
    ],
)


def _knots(d: Draw) -> Sample:
    n = d.one_of(2, 3, 5)
    xp = np.arange(n) + d.rng.uniform(0, 0.4, n)
    x = np.arange(-1, n + 1) + d.rng.uniform(0.5, 0.9, n + 2)
    return Sample(
        [x, xp, d.array((n,))], {"left": d.one_of(None, 7.0), "right": d.one_of(None, -7.0)}
    )


add(
    "interp",
    lambda x, xp, fp, left, right: np.interp(x, xp, fp, left, right),
    _knots,
    analytic=False,
    dtypes=(np.float64,),
    errors=[
        (
            lambda: mg.interp(0.5, np.ones(2), np.ones(3)),
            ValueError,
            "expected xp and fp as vectors of one length",
        )
    ],
)
add(
    "convolve",
    lambda a, v, mode: np.convolve(a, v, mode),
    lambda d: Sample(
        [d.array((d.one_of(1, 2, 5),)), d.array((d.one_of(1, 2, 3),))],
        {"mode": d.one_of("full", "same", "valid")},
    ),
    errors=[
        (
            lambda: mg.convolve(np.ones(2), np.ones(1), "no"),
            ValueError,
            "expected mode 'full', 'same' or 'valid'",
        )
    ],
)
add(
    "vecdot",
    lambda a, b, axis: np.einsum("...,...->...", a, b).sum(axis),
    lambda d: Sample(
        [d.array(s := d.shape(1)), d.array(s)], {"axis": d.axis(len(s), False, False)}
    ),
)
add("kron", np.kron, lambda d: Sample([d.array(d.shape(max_ndim=2)), d.array(d.shape(max_ndim=2))]))
add(
    "cross",
    np.cross,
    lambda d: Sample([d.array((2, 3)), d.array(d.one_of((3,), (2, 3)))]),
    errors=[
        (
            lambda: mg.cross(np.ones(2), np.ones(2)),
            ValueError,
            r"cross: expected vectors of 3 elements.*\(2,\)",
        )
    ],
)

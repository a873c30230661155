"""Less common functions of each element."""

from __future__ import annotations

import math

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add
from .elementwise import binary, by_element, unary

unary("cbrt", by_element(lambda v: math.copysign(abs(v) ** (1 / 3), v)), kinks=(0,), analytic=False)
unary("exp2", by_element(lambda v: 2.0**v))
unary("deg2rad", by_element(math.radians), analytic=False)  # NumPy takes no complex degrees
unary("rad2deg", by_element(math.degrees), analytic=False)
unary(
    "sinc",
    by_element(lambda v: math.sin(math.pi * v) / (math.pi * v) if v else 1.0),
    analytic=False,
)
binary("logaddexp2", lambda a, b: np.log2(2.0**a + 2.0**b), analytic=False)
binary("fmax", lambda a, b: (a + b + abs(a - b)) / 2, apart=True, analytic=False)
binary("fmin", lambda a, b: (a + b - abs(a - b)) / 2, apart=True, analytic=False)
binary("copysign", lambda a, b: np.abs(a) * np.sign(b), b=(0.3, 2), a_kinks=(0,), analytic=False)
add(
    "divmod",
    lambda a, b: [np.floor(a / b), a - np.floor(a / b) * b],
    lambda d: Sample(
        [
            (d.rng.integers(-3, 3, s := d.shape()) + d.array(s, 0.2, 0.8))
            * (b := d.array(s, 0.5, 2)),
            b,
        ]
    ),
    analytic=False,
)


def _chosen(d: Draw) -> Sample:
    shape = d.shape(max_ndim=2)
    first, second = (d.rng.random(shape) < 0.4 for _ in range(2))
    return Sample(
        [d.array(shape), d.array(shape), d.array(shape)], {"first": first, "second": second}
    )


add(
    "select",
    lambda a, b, c, first, second: np.where(first, a, np.where(second, b, c)),
    _chosen,
    call=lambda a, b, c, first, second: mg.select([first, second], [a, b], c),
    errors=[
        (
            lambda: mg.select([np.ones(2)], [np.ones(2)]),
            TypeError,
            "select: expected booleans as conditions",
        ),
        (
            lambda: mg.select([], []),
            ValueError,
            "select: expected as many conditions as choices, got 0 and 0",
        ),
    ],
)
add(
    "polyval",
    lambda p, x: sum([c * x ** (len(p) - 1 - i) for i, c in enumerate(p)], 0 * x),
    lambda d: Sample([d.array(d.shape(1, 1)), d.array(d.shape())]),
)


def _weighted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([u * math.log(v) if u else 0.0 for u, v in zip(a.ravel(), b.ravel())]).reshape(
        a.shape
    )


add(
    "xlogy",
    lambda a, b: _weighted(*np.broadcast_arrays(a, b)),
    lambda d: Sample([d.array(shape := d.shape(max_ndim=2)), d.array(d.partner(shape), 0.3, 3)]),
    analytic=False,
)


add("conjugate", lambda x: x, lambda d: Sample([d.array(d.shape())]), analytic=False)

"""Reductions with all their options, of all dtypes, beside the limits of formats, and on NaN."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import minigrad as mg

DTYPES = (bool, np.int8, np.float16, np.float32, float)
AXES = ({}, {"axis": 1}, {"axis": 0, "keepdims": True}, {"axis": (2, 0), "keepdims": True})
VALUES = np.array([[[1, -3, 2, 0], [4, 4, -1, 5]], [[0, 0, 1, 7], [2, -2, 2, 3]]])
MASK = VALUES % 3 < 2
SUMS = [{"where": True}, {"where": MASK[0, 0]}, {"dtype": np.float32}]
SUMS += [{"where": MASK}, {"where": MASK, "dtype": float}]
SQUARES = [*SUMS[:-1], {"ddof": 1}, {"ddof": 7.5}, {"where": MASK, "ddof": 2}]
SQUARES += [{"mean": None}, {"mean": None, "dtype": np.float32}, {"mean": None, "where": MASK}]
ORDERS = [{"ord": ord} for ord in (0, 1, 2, 3, 4, 0.5, -1, -2, np.inf, -np.inf)]
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "sum": SUMS,
    "mean": SUMS,
    "var": SQUARES,
    "std": SQUARES,
    **{name: [] for name in ("max", "min", "ptp", "prod", "average", "median", "any", "all")},
    **{name: [] for name in ("nansum", "nanprod", "nanmean", "nanmax", "nanmin")},
    **{name: [{"ddof": 1}, {"ddof": 2}] for name in ("nanvar", "nanstd")},
    "linalg.vector_norm": ORDERS,
    "linalg.norm": [*ORDERS, {"ord": "fro"}, {"ord": "nuc"}],
}
WIDE = {"mean": "e", "var": "ef", "std": "ef", "linalg.norm": "e", "linalg.vector_norm": "e"}
"""Functions whose sums do not overflow: they compute in a wider format than these."""


def arrays(name: str, dtype: Any) -> list[np.ndarray]:
    """Return values, values of the size of the dtype, and values with NaN, some slices full of it."""
    x = VALUES.astype(dtype)
    if np.dtype(dtype).kind != "f":
        return [] if name in ("nanvar", "nanstd") else [x]  # which are `var` and `std` in NumPy
    if "nan" in name:
        x[1], x[0, 0, 1:3], x[0, 1, 2] = np.nan, np.nan, np.inf
        return [x]
    if np.dtype(dtype).char not in WIDE.get(name, ""):
        return [x]
    largest = np.finfo(dtype).max
    return [x, x * (largest / 100), x * np.sqrt(largest / 20), x + dtype(1000)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", OPTIONS)
def test_reduction_with_its_options_equals_that_of_numpy(name: str) -> None:
    f = functools.reduce(getattr, name.split("."), np)
    for dtype, axes, options in itertools.product(DTYPES, AXES, [{}, *OPTIONS[name]]):
        for x in arrays(name, dtype):
            if x.dtype.kind == "f":  # without gradients NumPy computes the result
                call = functools.partial(f, mg.Tensor(x, requires_grad=True))
            else:
                call = functools.partial(getattr(mg, f.__name__), x)
            chosen: Any = axes | options
            if "mean" in chosen:  # a number that is not the mean
                if x.dtype == "f2":  # whose squares overflow in NumPy, too
                    continue
                chosen["mean"] = np.mean(x, **axes | {"keepdims": True}) + x.dtype.type(1)
            try:
                expected = f(x, **chosen)
            except (ValueError, TypeError) as error:
                with pytest.raises(type(error)):
                    call(**chosen)
                continue
            y = call(**chosen)
            assert y.dtype == expected.dtype and y.shape == expected.shape, (x.dtype, chosen)
            if x.dtype.char in WIDE.get(name, "") and "dtype" not in chosen:
                wide = {k: v.astype(float) for k, v in chosen.items() if k == "mean"}
                expected = f(x.astype(float), **chosen | wide).astype(y.dtype)
            eps = max([np.finfo(d).eps for d in (x.dtype, y.dtype) if d.kind == "f"], default=0)
            np.testing.assert_allclose(y.data, expected, 8 * eps, 8 * eps, err_msg=str(chosen))

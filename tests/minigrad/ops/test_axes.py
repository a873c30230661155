"""Axes from the end, and axes out of range: an AxisError, never an axis modulo ndim."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.forms import BEFORE_2_4

import minigrad as mg
from minigrad.ops import reduce
from minigrad.registry import FUNCTIONS, OPS

X = np.arange(9.0).reshape(3, 3)
ARGUMENTS: dict[str, Any] = {
    "b": X + 1, "indices": np.zeros((3, 3), int), "index": [0], "condition": [True, False, True],
    "arrays": [X, X], "tensors": [X, X], "indices_or_sections": 3, "kth": 1, "k": 1, "q": 0.5, "shift": 1,
    "repeats": 2, "obj": 0, "window_shape": 2, "size": 2, "chunks": 2, "axis1": 0, "axis2": 1, "source": 0,
    "destination": 1,
}  # fmt: skip
"""Values of the arguments that have no default and are not x."""


def parameters_of(f: Any) -> Any:
    """Return the parameters of a function; none of one that NumPy 2.0 wrote in C."""
    try:
        return inspect.signature(f).parameters
    except ValueError:
        return {}


CALLS = FUNCTIONS | {name: op.function for name, op in OPS.items() if name not in FUNCTIONS}
CASES = [
    (name, axis)
    for name, f in sorted(CALLS.items())
    for axis in ("axis", "axis1", "axis2", "source", "destination")
    if axis in parameters_of(f) and not (BEFORE_2_4 and name == "size")
]


@pytest.mark.parametrize("name, parameter", CASES)
@pytest.mark.parametrize("tracked", [False, True])
def test_axis_out_of_range_is_refused(
    name: str, parameter: str, tracked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduce, "MAX_BY_ROWS", 0 if tracked else 100)
    x = mg.Tensor(X[:1] if name == "squeeze" else X, requires_grad=tracked)
    signature = inspect.signature(CALLS[name])
    call = signature.bind_partial()
    for p in signature.parameters.values():
        if p.default is p.empty and p.kind < p.VAR_POSITIONAL:
            call.arguments[p.name] = ARGUMENTS.get(p.name, x)
    if name == "gather":
        call.arguments["index"] = np.zeros((3, 3), int)
    call.arguments[parameter] = 1 if parameter == "axis2" else 0
    CALLS[name](*call.args, **call.kwargs)
    ndim = 3 if name in ("expand_dims", "stack") else 2
    for axis in (ndim, -ndim - 1):
        call.arguments[parameter] = axis
        with pytest.raises(
            np.exceptions.AxisError, match=f"axis {axis} is out of bounds.* dimension {ndim}"
        ):
            CALLS[name](*call.args, **call.kwargs)


@pytest.mark.parametrize("axes", [(), (0, 1), (1, 0), (-2, -1), (-1, -2), ((0, 1),), ((1, 0),)])
def test_transpose_of_a_matrix_orders_its_axes_as_numpy_does(axes: Any) -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(mg.Tensor(x).transpose(*axes).data, x.transpose(*axes))
    with pytest.raises(ValueError, match="axes"):
        mg.Tensor(x).transpose(())
    assert mg.Tensor(2.0).transpose(()).shape == ()


@pytest.mark.parametrize("axes", [*itertools.permutations(range(3))])
def test_gradient_of_transpose_is_transposed_back_by_axes_from_either_end(axes: Any) -> None:
    x = mg.Tensor(np.zeros((2, 3, 4)), requires_grad=True)
    weights = np.arange(24.0).reshape(2, 3, 4)
    for less in itertools.product((0, 3), repeat=3):
        named = tuple(axis - n for axis, n in zip(axes, less))
        (g,) = mg.gradients((x.transpose(named) * weights.transpose(axes)).sum(), [x])
        np.testing.assert_array_equal(g.data, weights)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_moveaxis_of_several_axes_in_any_order_is_that_of_numpy(count: int) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for source, target in itertools.product(
        itertools.permutations(range(-3, 0), count), itertools.permutations(range(3), count)
    ):
        y = mg.moveaxis(x, source, target)
        np.testing.assert_array_equal(y.data, np.moveaxis(x, source, target))


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int8, bool]),
        hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=9),
    ),
    st.integers(-2, 1),
    st.booleans(),
)
@example(np.full((2, 3), -0.0), -1, False)
@example(np.full((3, 2), 40, np.float16), -1, False)
def test_reductions_by_columns_have_the_bits_of_numpy(x: Any, axis: int, keepdims: bool) -> None:
    options = {"axis": axis, "keepdims": keepdims}
    with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore", invalid="ignore"):
        patch.setattr(reduce, "MAX_BY_ROWS", 0)
        for f, numpy in ((mg.sum, np.sum), (mg.max, np.max), (mg.min, np.min)):
            y, expected = f(x, **options), numpy(x, **options)
            assert y.dtype == expected.dtype
            np.testing.assert_array_equal(y.data, expected)
            real = ~np.isnan(expected.astype(float))
            np.testing.assert_array_equal(np.signbit(y.data[real]), np.signbit(expected[real]))


@pytest.mark.parametrize("first", [(0,), (2, 0), (2, 1)])
def test_gradient_of_flat_concatenation_is_split_at_the_ends_of_the_arrays(first: Any) -> None:
    x, y = (mg.Tensor(np.ones(shape), requires_grad=True) for shape in (first, (3,)))
    joined = mg.concatenate([x, y, x], axis=None)
    g = np.arange(float(joined.size))
    gx, gy = mg.gradients(joined, [x, y], g)
    assert gy.tolist() == g[x.size : x.size + 3].tolist()
    np.testing.assert_array_equal(gx.data.ravel(), g[: x.size] + g[x.size + 3 :])


def outcome(function: Any, *args: Any) -> Any:
    try:
        y = function(*args)
    except np.exceptions.AxisError:
        return "refused"
    return y.shape, y.tolist()


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "var", "std", "prod", "all", "any"])
def test_reduction_of_a_number_takes_the_axes_that_numpys_takes(name: str) -> None:
    for axis in (None, (), 0, -1, (0,), 1, -2):
        for dtype in (float, np.float16, int):
            x = np.array(2, dtype)
            y = outcome(getattr(mg, name), mg.Tensor(x), axis)
            assert y == outcome(getattr(np, name), x, axis)

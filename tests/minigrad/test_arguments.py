"""Checks of arguments beside their definitions: Python's comparisons and NumPy's broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Tensor
from minigrad.arguments import (
    all_axes,
    booleans,
    check_broadcast,
    check_choice,
    check_shape,
    checked_count,
    checked_number,
    integers,
    ints,
    number,
    one_axis,
    shape_of,
)

few = st.integers(-2, 2)
lengths = st.lists(st.integers(0, 2), max_size=3).map(tuple)


def accepts(call: Any) -> bool:
    try:
        call()
    except ValueError:
        return False
    return True


@given(few, few, few.map(float) | st.sampled_from([math.inf, -math.inf, math.nan]), st.booleans())
def test_numbers_are_finite_and_within_their_limits(low: int, high: int, value: float, above: bool) -> None:  # fmt: skip
    inside = math.isfinite(value) and (low < value if above else low <= value) and value < high
    call = lambda: checked_number("f", "x", value, low, high, above=above)
    assert accepts(call) == inside and (not inside or call() == value)
    if math.isfinite(value):
        whole = int(value)
        assert accepts(lambda: checked_count("f", "n", whole, low)) == (whole >= low)


def test_number_is_a_real_scalar_or_a_tensor_that_requires_gradients() -> None:
    for value in (2, 2.0, np.int8(2), np.float32(2), np.array(2.0), Tensor(2.0), Tensor(2)):
        result = number("f", "x", value)
        assert type(result) is float and result == 2
    t = Tensor(2.0, requires_grad=True)
    assert number("f", "x", t) is t
    for value in (True, np.True_, Tensor(True), 1j, "2", None, [2.0], np.ones(1), Tensor([2.0])):
        with pytest.raises(TypeError, match="^f: x must be a number, got"):
            number("f", "x", value)


def test_lengths_are_given_one_by_one_or_as_a_sequence() -> None:
    for values in ((2, 3), ((2, 3),), ([2, 3],), (np.array([2, 3]),)):
        assert ints(values) == (2, 3)
    for values in ((2,), ((2,),), ([2],), (np.array([2]),), (np.int64(2),), (np.array(2),)):
        assert ints(values) == (2,)
    assert ints(()) == ints(((),)) == ints(([],)) == () and ints((None,)) == (None,)


@given(few, st.integers(0, 2))
def test_axes_count_from_either_end(axis: int, ndim: int) -> None:
    inside = -ndim <= axis < ndim
    assert accepts(lambda: one_axis("f", axis, ndim)) == inside
    assert accepts(lambda: all_axes("f", (axis,), ndim)) == inside
    if inside:
        assert (one_axis("f", axis, ndim),) == all_axes("f", axis, ndim) == (range(ndim)[axis],)
    assert all_axes("f", None, ndim) == tuple(range(ndim))
    with pytest.raises(ValueError, match="repeated axis"):
        all_axes("f", (0, 0), 1)


@given(lengths, lengths)
def test_shapes_are_equal_or_broadcast(shape: Any, target: Any) -> None:
    array = np.zeros(shape)
    for x in (array, Tensor(array), array.tolist()):
        shown = np.shape(x)  # nested lists may lack the last axes
        assert shape_of(x) == shown
        assert accepts(lambda: check_shape("f", "x", x, target)) == (shown == target)  # noqa: B023
        fits = accepts(lambda: np.broadcast_to(np.zeros(shown), target))  # noqa: B023
        assert accepts(lambda: check_broadcast("f", "x", x, target, "y")) == fits  # noqa: B023


@pytest.mark.parametrize("value", [[0, 1], [], [[]], np.zeros(0, bool), np.ones(2, np.uint8), 1])
def test_indices_are_integers_of_their_width_or_empty(value: Any) -> None:
    for x in (value, Tensor(value)):
        result = integers("f", x)
        kept = np.asarray(value).dtype if np.size(value) else np.dtype(np.intp)
        assert result.dtype == kept and np.array_equal(result, np.asarray(value))


@pytest.mark.parametrize("dtype", [float, bool, complex, "m8[s]", "U1"])
def test_indices_and_masks_refuse_other_dtypes(dtype: Any) -> None:
    x = np.zeros(1, dtype)
    with pytest.raises(TypeError, match="^f: indices must be integers, got dtype"):
        integers("f", x)
    if dtype is bool:
        assert booleans("m", x) is x and booleans("m", [True]).dtype == bool
    else:
        with pytest.raises(TypeError, match="^m must be booleans, True = the element counts, got"):
            booleans("m", x)


def test_choice_names_all_values() -> None:
    check_choice("f", "o", "a", "a", "b")
    for name, choices, shown in (
        ("f", "abc", "f: o must be 'a', 'b' or 'c'"),
        ("", "a", "o must be 'a'"),
    ):
        with pytest.raises(ValueError, match=f"^{shown}, got 'd'$"):
            check_choice(name, "o", "d", *choices)

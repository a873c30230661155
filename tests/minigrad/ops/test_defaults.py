"""Defaults and modes of functions, and series near 0, beside NumPy or the definition."""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.forms import BEFORE_2_1

import minigrad as mg
from minigrad import Tensor
from minigrad.numpy.nested import signature
from minigrad.tensor import DISPATCH

X = np.array([[3.0, -1.0, 2.0], [0.5, 4.0, -2.0]])


@given(
    indices=st.lists(st.integers(-7, 7), min_size=1, max_size=4),
    mode=st.sampled_from(["wrap", "clip"]),
    axis=st.sampled_from([None, 0, 1, -1]),
)
def test_take_outside_the_axis_equals_numpy(indices: list[int], mode: Any, axis: Any) -> None:
    places = np.arange(X.size).reshape(X.shape)
    x = Tensor(X, requires_grad=True)
    y = mg.take(x, indices, axis=axis, mode=mode)
    np.testing.assert_array_equal(y.data, np.take(X, indices, axis, mode=mode))
    y.sum().backward()
    taken = np.take(places, indices, axis, mode=mode)
    np.testing.assert_array_equal(
        x.grad.data, np.bincount(taken.ravel(), minlength=6).reshape(2, 3)
    )


@pytest.mark.parametrize(
    ("f", "numpy"),
    [
        (lambda x: mg.isclose(x, x + 1e-9), np.ones((2, 3), bool)),
        (lambda x: mg.isclose(x, x * (1 + 2e-5)), np.zeros((2, 3), bool)),
        (lambda x: mg.isclose(x * np.nan, x * np.nan), np.zeros((2, 3), bool)),
        (lambda x: mg.take_along_axis(x, np.array([[0], [1]]), -1), X[[0, 1], [0, 1], None]),
        (lambda x: mg.unfold(x, 1, 2), np.lib.stride_tricks.sliding_window_view(X, 2, 1)),
        (lambda x: mg.unfold(x, 1, 2, 2), X[:, None, :2]),
        (lambda x: np.gradient(x, 0.5)[1], np.gradient(X, 0.5)[1]),
        (lambda x: np.gradient(x, 0.5, [0.0, 1, 3])[1], np.gradient(X, 0.5, [0.0, 1, 3])[1]),
        (lambda x: np.take_along_axis(x, np.array([5, 0]), None), X.ravel()[[5, 0]]),
        (lambda x: np.linalg.qr(x[:, :2], "complete")[1], np.linalg.qr(X[:, :2])[1]),
        (lambda x: mg.pad(x, {1: (1, 2), 0: 1}), np.pad(X, ((1, 1), (1, 2)))),
        (lambda x: mg.pad(x, {-2: 1}), np.pad(X, ((1, 1), (0, 0)))),
        (lambda x: mg.index_select(x, 0, 1), X[1:2]),
        (lambda x: np.vecdot(x, x + 1, axis=0), np.vecdot(X, X + 1, axis=0)),
        (lambda x: np.linalg.eigh(x[:, :2], "u")[0], np.linalg.eigh(X[:, :2], "u")[0]),
        (lambda x: np.linalg.eigvalsh(x[:, :2], "l"), np.linalg.eigh(X[:, :2])[0]),
        (lambda x: np.median(x, overwrite_input=True), np.median(X)),
        (lambda x: np.sort(x, kind=None, order=None, stable=None), np.sort(X)),
        (lambda x: np.sum(x, axis=0, dtype=None, out=None), np.sum(X, 0)),
    ],
)  # fmt: skip
def test_function_with_few_or_default_options_has_the_values_of_numpy(f: Any, numpy: Any) -> None:
    result = f(Tensor(X, requires_grad=True))
    np.testing.assert_array_equal(getattr(result, "data", result), numpy)


@pytest.mark.parametrize("method", ["reduce", "accumulate"])
def test_methods_of_ufuncs_work_along_the_first_axis_by_default(method: str) -> None:
    for ufunc in (np.add, np.multiply, np.maximum, np.minimum, np.logaddexp):
        f = getattr(ufunc, method)
        for options in ({}, {"axis": 1}, {"axis": -1}):
            y = f(Tensor(X, requires_grad=True), **options)
            assert y.requires_grad
            np.testing.assert_allclose(y.data, f(X, **options), rtol=1e-14)


METHOD_OPTIONS: list[dict[str, Any]] = [
    {"dtype": np.float32}, {"where": X > 0}, {"initial": 2.0}, {"keepdims": True}, {"axis": None}, {"axis": (0, 1)},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:'where' used without 'out'")
@pytest.mark.parametrize("options", METHOD_OPTIONS, ids=str)
@pytest.mark.parametrize("method", ["reduce", "accumulate", "outer"])
def test_option_of_a_ufunc_method_has_its_effect_or_is_refused(method: str, options: Any) -> None:
    for ufunc in (np.add, np.multiply, np.maximum, np.logaddexp, np.subtract):
        f, others = getattr(ufunc, method), [X[0]] * (method == "outer")
        try:
            expected = f(X, *others, **options)
        except (TypeError, ValueError):
            expected = None
        try:
            y = f(Tensor(X, requires_grad=True), *others, **options)
        except (TypeError, ValueError):
            continue
        if options != {"axis": None}:
            assert y.dtype == expected.dtype
            np.testing.assert_allclose(y.data, expected, rtol=1e-6)


UNSET = {"keepdims": (False,), "where": (None, True), "axis": (-1,), "descending": (False,)}
"""Defaults of options that NumPy's functions leave to methods, or define in another way."""


def test_defaults_in_signatures_are_those_of_numpy() -> None:
    compared = 0
    for function, answer in DISPATCH.items():
        try:
            expected = signature(function).parameters
        except (TypeError, ValueError):  # a method of a ufunc, or a function in C
            continue
        for p in inspect.signature(answer).parameters.values():
            if p.name not in expected or p.empty in (p.default, expected[p.name].default):
                continue
            compared += 1
            theirs = expected[p.name].default
            is_unset = repr(theirs) in ("<no value>", "None", "0", "False")
            is_equal = p.default is theirs or p.default == theirs
            assert is_equal or (is_unset and p.default in UNSET.get(p.name, (None,))), (function, p)
    assert compared > 200


def test_tensors_are_created_in_the_dtype_and_mode_that_is_named() -> None:
    x = Tensor(X, requires_grad=True)
    assert mg.as_tensor(x) is x and mg.as_tensor(x, dtype=float) is x
    assert mg.as_tensor(x, dtype=np.float32).dtype == np.float32
    for y in (mg.linspace(0, 1, 3, dtype=np.float32, requires_grad=True), mg.linspace(0, x[0], 3)):
        assert y.requires_grad
    assert mg.linspace(0, 1, 3).tolist() == [0, 0.5, 1]


INDICES = [
    [], [[]], ([], []), ([], 0), (0, []), [[0], [-1]], [True, False], [[True, False, True]] * 2, ([True, False], 0),
    ([0, 1], [True, False, True]), True, False, (True, 0), np.True_, np.array(1), np.array([], int), np.int8(-1),
    (None, [1, 0]), (..., [0]), (slice(0, 0), [0]), [0, 1, 0], (np.array([[1]], np.uint8), slice(None)), (), ...,
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_index_of_any_form_selects_what_it_selects_of_an_array(index: Any) -> None:
    x, expected = Tensor(X, requires_grad=True), X[index]
    for t in (x, Tensor(X)):
        np.testing.assert_array_equal(t[index].data, expected, strict=True)
    g = np.zeros_like(X)
    np.add.at(g, index, np.cos(expected))
    np.testing.assert_allclose(mg.gradients(np.sin(x[index]).sum(), x)[0].data, g)
    y, array = Tensor(X.copy()), X.copy()
    y[index] = array[index] = 7.0
    np.testing.assert_array_equal(y.data, array)


@pytest.mark.skipif(BEFORE_2_1, reason="needs the forms of NumPy 2.1")
@pytest.mark.parametrize("copies", [None, True, False])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reshape_shares_memory_as_that_of_an_array(order: Any, copies: bool | None) -> None:
    for array in (X, X.T, X[:, ::2]):
        outcomes: list[Any] = []
        for x in (array, Tensor(array), Tensor(array, requires_grad=True)):
            try:
                y = np.reshape(x, (-1,), order=order, copy=copies)
                outcomes.append(np.shares_memory(getattr(y, "_array", y), array))
            except ValueError:
                outcomes.append("refused")
        assert len({*outcomes}) == 1, outcomes


@pytest.mark.skipif(BEFORE_2_1, reason="needs the forms of NumPy 2.1")
def test_reshape_of_a_number_without_a_copy_is_that_of_numpy() -> None:
    y = np.reshape(Tensor(X, requires_grad=True).sum(), (1,), copy=False)
    assert y.tolist() == [X.sum()] and y.requires_grad


@pytest.mark.skipif(BEFORE_2_1, reason="needs a function of a newer NumPy")
def test_cumulative_prod_begins_with_one() -> None:
    x = Tensor(X[0], requires_grad=True)
    y = np.cumulative_prod(x, include_initial=True)
    np.testing.assert_array_equal(y.data, [1, 3, -3, -6])
    for f, axis in itertools.product((np.cumulative_prod, np.cumulative_sum), (0, 1, -1)):
        y = f(Tensor(X, requires_grad=True), axis=axis, include_initial=True)
        np.testing.assert_array_equal(y.data, f(X, axis=axis, include_initial=True))
    for f, dtype in itertools.product((np.cumulative_prod, np.cumulative_sum), ("f2", "f4")):
        y = f(Tensor(X[0].astype(dtype), requires_grad=True), include_initial=True)
        assert y.dtype == dtype
    none = np.cumulative_prod(x[:0], include_initial=True)
    np.testing.assert_array_equal(none.data, [1])
    with pytest.raises(TypeError, match=r"cumulative_prod: axis must be an integer, got \(0,\)"):
        np.cumulative_prod(x, axis=(0,))


@pytest.mark.parametrize("exponent", [0, 1, 1.0, 2, 3, -1])
def test_power_of_a_number_has_its_slope(exponent: float) -> None:
    g = mg.grad(lambda x: (x**exponent).sum())(X)
    np.testing.assert_allclose(g.data, exponent * X ** (exponent - 1.0), rtol=1e-15)


@given(x=st.floats(-0.1, 0.1))
def test_slope_of_sinc_near_zero_equals_its_series(x: float) -> None:
    t = math.pi * x
    terms = [(-1) ** k * 2 * k * t ** (2 * k - 1) / math.factorial(2 * k + 1) for k in range(1, 12)]
    slope = mg.grad(np.sinc)(x).item()
    assert slope == pytest.approx(math.pi * math.fsum(terms), rel=2e-13, abs=0)


def test_fft_of_several_axes_has_the_lengths_dtypes_and_order_of_numpy() -> None:
    half = Tensor(X.astype(np.float16), requires_grad=True)
    for f in (np.fft.rfftn, np.fft.irfftn, np.fft.ifftn):
        assert f(half).dtype == f(half.data).dtype
    x = Tensor(X, requires_grad=True)
    with pytest.raises(ValueError, match=r"s must have a length for each of the axes \(-2, -1\)"):
        np.fft.fft2(x, (2,))
    for f in (np.fft.fftn, np.fft.rfftn):
        np.testing.assert_allclose(f(x, (4, 2), (1, 1)).data, f(X, (4, 2), (1, 1)), atol=1e-12)

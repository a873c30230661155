"""Calls of ported scripts: einsum with lists, accumulated extremes, keepdim by position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import minigrad as mg
from minigrad import Tensor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))


@pytest.mark.parametrize(
    ("lists", "subscripts"),
    [
        (lambda x, y: (x, [0, 1], y, [2, 1], [0, 2]), "ij,kj->ik"),
        (lambda x, y: (x, [0, 1], y, [2, 1]), "ij,kj"),
        (lambda x, y: (x, [51, 30], y, [2, 30]), "ba,Aa"),  # the result has the order of numbers
        (lambda x, y: (x, [0, 1], y, [2, 1], []), "ij,kj->"),
        (lambda x, y: (x, [..., np.int64(3)], y, (..., 3), [...]), "...a,...a->..."),
    ],
)
def test_einsum_of_lists_equals_subscripts(lists: Any, subscripts: str) -> None:
    x, y = (Tensor(RNG.standard_normal((3, 4)), requires_grad=True) for _ in range(2))
    for einsum in (np.einsum, mg.einsum):
        result = einsum(*lists(x, y))
        np.testing.assert_allclose(result.data, np.einsum(*lists(x.data, y.data)))
        g = RNG.standard_normal(result.shape)
        expected = np.einsum(subscripts, x, y)
        for a, b in zip(*[mg.gradients(z, [x, y], g) for z in (result, expected)]):
            np.testing.assert_allclose(a.data, b.data)


@pytest.mark.parametrize("args", [(X, 3), (X, [52, 1]), (X, [-1, 0]), (X, [0.5, 1]), (X,), (3,)])
def test_einsum_of_other_lists_is_refused(args: Any) -> None:
    first, *rest = args
    with pytest.raises(
        TypeError, match="einsum: subscripts must be a string, or lists of integers"
    ):
        np.einsum(Tensor(np.asarray(first, float), requires_grad=True), *rest)


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum, np.logaddexp])
@given(
    x=arrays(float, (3, 4), elements=st.sampled_from([-800.0, -1, 0, 0.5, 1, 30, 800, np.nan])),
    axis=st.integers(-2, 1),
)
def test_accumulate_equals_numpy(ufunc: Any, x: np.ndarray, axis: int) -> None:
    with np.errstate(invalid="ignore"):
        result = ufunc.accumulate(Tensor(x, requires_grad=True), axis)
        np.testing.assert_allclose(result.data, ufunc.accumulate(x, axis), rtol=1e-12)
    assert result.requires_grad


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum, np.logaddexp])
@pytest.mark.parametrize("axis", [0, 1])
def test_accumulate_has_exact_gradients(ufunc: Any, axis: int) -> None:
    assert mg.gradcheck(lambda x: ufunc.accumulate(x, axis), X)


def test_accumulate_of_equal_values_selects_the_last_as_pytorch() -> None:
    g = mg.grad(lambda x: np.maximum.accumulate(x)[-1])(np.array([1.0, 1.0, 0.0]))
    assert g.tolist() == [0, 1, 0]


def test_accumulate_of_an_option_without_derivative_is_refused() -> None:
    with pytest.raises(TypeError, match="maximum: dtype= has no rule"):
        np.maximum.accumulate(Tensor(X, requires_grad=True), dtype=np.float32)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "all", "any", "argmax", "argmin"])
@pytest.mark.parametrize("keepdim", [True, False])
def test_reduction_takes_keepdim_as_third_argument(name: str, keepdim: bool) -> None:
    for x in (Tensor(X), Tensor(X, requires_grad=True)):
        for result in (getattr(x, name)(1, keepdim), getattr(mg, name)(x, 1, keepdim)):
            expected = getattr(np, name)(X, axis=1, keepdims=keepdim)
            np.testing.assert_array_equal(result.data, expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(1, 1),  # a number is no keepdim
        lambda x: x.sum(1, True, True),
        lambda x: x.sum(1, True, keepdim=False),
        lambda x: x.sum(1, True, axis=0),
        lambda x: x.max(1, True),
        lambda x: x.std(1, True),  # `unbiased` in PyTorch
    ],
)
def test_reduction_refuses_other_third_arguments(call: Any) -> None:
    with pytest.raises(TypeError):
        call(Tensor(X, requires_grad=True))


def test_insert_of_gradients_into_integers_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"insert: x must be floating .*, got int\d+; write x.astype"
    ):
        np.insert(np.arange(3), 1, Tensor(0.5, requires_grad=True))


@pytest.mark.parametrize(
    "call",
    [
        lambda v: mg.jvp(np.sin, X, v),
        lambda v: mg.jvp(np.add, (X, X), (X, v)),
        lambda v: mg.hvp(lambda x: (x * x * x).sum(), X, v),
        lambda v: mg.vjp(np.sin, X)[1](v),
    ],
)
@pytest.mark.parametrize("kind", [np.asarray, Tensor, np.ndarray.tolist])
def test_direction_with_an_imaginary_part_is_refused(call: Any, kind: Any) -> None:
    with pytest.raises((TypeError, mg.GradientError)):
        call(kind(X * 1j))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: mg.full_like(x, 1j),
        lambda x: mg.full_like(x.detach(), 2 + 0j),
        lambda x: np.full_like(x, 1j),
        lambda x: mg.full((2,), 1j, dtype=float),
    ],
)
def test_fill_value_with_an_imaginary_part_is_refused(call: Any) -> None:
    with pytest.raises(TypeError, match="fill_value must be real for dtype float64, got .*j"):
        call(Tensor(X, requires_grad=True))
    assert mg.full_like(X, 1j, dtype=complex).data.imag.all() and mg.full((2,), 1j).dtype == complex


@pytest.mark.parametrize("shape", [(3, 3), (3, 3, 3), ()])
@pytest.mark.parametrize("kind", [np.asarray, Tensor, np.ndarray.tolist])
def test_gradient_refuses_coordinates_of_one_axis_for_several(shape: Any, kind: Any) -> None:
    x = RNG.standard_normal(shape)
    for f in (x, Tensor(x), Tensor(x, requires_grad=True)):
        with pytest.raises(TypeError):
            np.gradient(f, kind(np.array([0.0, 1, 3])))


def test_gradient_takes_coordinates_of_one_axis() -> None:
    x, at = RNG.standard_normal((3, 3)), np.array([0.0, 1, 3])
    for axis in (0, 1):
        result = np.gradient(Tensor(x, requires_grad=True), at, axis=axis)
        np.testing.assert_allclose(result.data, np.gradient(x, at, axis=axis))

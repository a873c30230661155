"""Functions of NumPy beside their limits: as many values as degrees of freedom, knots, the largest integers."""

from __future__ import annotations

import copy
import itertools
import operator
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.edges import overwrite
from support.environment import max_examples
from support.opinfo.linalg import EINSUMS
from support.properties import normal, seeds

import minigrad as mg
from minigrad import Tensor

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, at these limits


@pytest.mark.parametrize("name", ["nanvar", "nanstd", "var", "std"])
@max_examples(8)
@given(seed=seeds)
def test_variance_of_as_many_values_as_degrees_of_freedom_equals_numpy(
    name: str, seed: int
) -> None:
    for n, ddof in itertools.product(range(1, 5), range(5)):
        x = normal([seed, n], 2, 4)
        if name.startswith("nan"):
            x[0, n:] = np.nan
        else:
            x = x[:, :n]
        expected = getattr(np, name)(x, axis=1, ddof=ddof)
        found = getattr(np, name)(Tensor(x, True), axis=1, ddof=ddof).data
        np.testing.assert_allclose(found, expected, rtol=1e-12)


SHAPES = [(1,), (2,), (3,), (1, 1), (1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)]


@pytest.mark.parametrize("rowvar", [True, False])
@pytest.mark.parametrize("other", [None, *SHAPES])
def test_covariances_of_every_shape_equal_numpy(other: Any, rowvar: bool) -> None:
    if not rowvar and np.lib.NumpyVersion(np.__version__) < "2.2.0":
        pytest.skip("needs a function of a newer NumPy: this one does not transpose a single row")
    for shape, ddof, bias in itertools.product(SHAPES, (None, 0, 1, 2, 3, 4), (False, True)):
        m = normal([1, *shape], *shape)
        y = None if other is None else normal([2, *other], *other)
        options: dict[str, Any] = {"rowvar": rowvar, "bias": bias, "ddof": ddof}
        try:
            expected = np.cov(m, y, **options)
        except ValueError:
            with pytest.raises(ValueError):
                np.cov(Tensor(m, True), y, **options)
        else:
            found = np.cov(Tensor(m, True), y, **options).data
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@given(lengths=st.tuples(*[st.integers(1, 5)] * 2), kinds=st.sampled_from(["dd", "DD", "dD", "Dd"]), seed=seeds)  # fmt: skip
def test_convolution_and_correlation_of_any_lengths_equal_numpy(
    mode: str, lengths: tuple[int, int], kinds: str, seed: int
) -> None:
    a, v = (
        normal([seed, i], n, 2).view(complex)[:, 0] if kind == "D" else normal([seed, i], n)
        for i, (n, kind) in enumerate(zip(lengths, kinds))
    )
    for function in (np.convolve, np.correlate):
        found = getattr(mg, function.__name__)(Tensor(a), Tensor(v), mode)
        np.testing.assert_allclose(found.data, function(a, v, mode), rtol=1e-12, atol=1e-12)


@given(st.data(), st.sampled_from(["int8", "uint8", "int64", "uint64", "bool"]))
def test_descending_order_of_integers_keeps_equal_ones_in_order(
    data: st.DataObject, dtype: str
) -> None:
    """Also of the smallest one, whose negative does not fit."""
    edges = [0, 1] if dtype == "bool" else [np.iinfo(dtype).min, 0, 1, np.iinfo(dtype).max]
    x = data.draw(arrays(dtype, st.integers(0, 6), elements=st.sampled_from(edges)))
    expected = sorted(range(len(x)), key=lambda i: -int(x[i]))
    assert mg.argsort(x, descending=True, stable=True).tolist() == expected
    np.testing.assert_array_equal(mg.sort(x, descending=True).data, x[expected])


def test_sort_of_many_equal_values_gives_gradients_in_their_order() -> None:
    x = np.arange(300) % 3 * 1.0
    slopes = mg.grad(lambda x: mg.sort(x) @ np.arange(300.0))(x).data
    np.testing.assert_array_equal(slopes[np.argsort(x, kind="stable")], np.arange(300.0))


@given(arrays(int, st.integers(1, 5), elements=st.integers(0, 4)), seeds)
def test_interpolation_at_knots_and_beside_them_equals_numpy(knots: np.ndarray, seed: int) -> None:
    """Also if knots are equal."""
    xp, fp = np.sort(knots).astype(float), normal(seed, len(knots))
    at = np.concatenate([xp, np.nextafter(xp, 9), np.nextafter(xp, -9), np.arange(-0.5, 6, 0.5)])
    for x, y in zip(at, mg.interp(at, xp, fp).data):
        np.testing.assert_allclose(y, np.interp(x, xp, fp), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("equal", [2, 3])
def test_interpolation_at_last_knots_that_are_equal_has_slope_zero(equal: int) -> None:
    """As beyond them: the value is the last one."""
    xp = [0.0, 1.0, *[2.0] * equal]
    slopes = mg.grad(lambda x, fp: mg.interp(x, xp, fp), (0, 1))(2.0, np.arange(2.0 + equal) ** 2)
    assert slopes[0].item() == 0
    np.testing.assert_array_equal(slopes[1].data, np.eye(2 + equal)[-1])


def test_interpolation_between_infinities_and_large_values_equals_numpy_without_a_warning() -> None:
    values = [-np.inf, np.inf, 8e307, -8e307, 0.0, 1.0]
    at = np.array([-1.0, 0.0, 0.25, 1.0, 2.0])
    for fp in itertools.product(values, repeat=2):
        expected = np.interp(at, [0.0, 1.0], fp)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = mg.interp(at, [0.0, 1.0], fp).data
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gradient_of_booleans_is_refused_as_in_numpy() -> None:
    for f in ([True, False, True], np.ones((2, 2), bool)):
        for numpy in (np, mg):
            with pytest.raises(TypeError, match="boolean subtract"):
                numpy.gradient(f)


@pytest.mark.parametrize("q", [0, 1, 0.5, 1.0, [0.5, 0], [0, 1], np.float32(0.5), np.array([0.5], "f4"), np.array(0.5), []], ids=repr)  # fmt: skip
def test_quantile_has_the_values_and_dtype_of_numpy_for_every_form_of_q(q: Any) -> None:
    """NumPy's dtype for arrays of integers depends on its version."""
    for dtype, method in itertools.product((np.float64, np.float32, np.float16), ("linear", "lower", "midpoint")):  # fmt: skip
        x = np.array([[4, 1, 3], [2, 5, 0]], dtype)
        for axis in (None, 0, -1):
            y = mg.quantile(x, q, axis, method=method)
            expected = np.quantile(x, q, axis, method=method)
            np.testing.assert_allclose(y.data, expected, rtol=1e-3)
            assert y.dtype == expected.dtype or np.asarray(q).dtype.kind == "i"


@given(st.sampled_from([2047, 2048, 2049, 5000]), st.floats(0, 1), seeds)
def test_quantile_of_more_values_than_float16_counts_equals_numpy(
    n: int, q: float, seed: int
) -> None:
    x = normal(seed, n).astype(np.float16)
    for method in ("linear", "lower", "higher", "nearest"):
        found = mg.quantile(x, q, method=method).data
        expected = np.quantile(x.astype(float), q, method=method)
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("method", ["lower", "linear"])
def test_rank_of_float16_is_multiplied_exactly(method: str) -> None:
    x, q = normal(1, 70_001), np.float16(0.3)
    y, expected = (mg.quantile(x, rank, method=method).item() for rank in (q, float(q)))
    assert y == pytest.approx(expected, abs=1e-3 * (method == "linear"))


def test_largest_of_many_equal_values_keep_their_order() -> None:
    values, indices = mg.top_k(np.arange(100.0) % 2, 60)
    assert values.tolist() == [1] * 50 + [0] * 10
    assert (np.diff(indices.data) > 0).tolist() == [True] * 49 + [False] + [True] * 9


@pytest.mark.parametrize("subscripts, shapes", [*EINSUMS, ("ji", ((2, 3),)), ("b...a", ((2, 1, 3),)), ("...,b...", ((3,), (2, 4, 3))), ("i,i->", ((1,), (4,))), ("ii , a b -> i b", ((2, 2), (3, 2))), ("aa,ab", ((2, 2), (2, 3)))])  # fmt: skip
def test_gradient_of_einsum_is_the_einsum_of_each_direction(
    subscripts: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """A sum of products is linear in each operand, which can also be a number."""
    arrays = [normal([1, i], *shape) for i, shape in enumerate(shapes)]
    leaves = [Tensor(x, requires_grad=True) for x in arrays]
    y = mg.einsum(subscripts, *leaves)
    np.testing.assert_allclose(y.data, np.einsum(subscripts, *arrays), rtol=1e-12)
    g = normal(2, *y.shape)
    for i, gradient in enumerate(mg.gradients(y, leaves, g)):
        direction = normal([3, i], *shapes[i])
        along = [*arrays[:i], direction, *arrays[i + 1 :]]
        expected = np.sum(np.einsum(subscripts, *along) * g)
        np.testing.assert_allclose(np.sum(gradient.data * direction), expected, rtol=1e-10)
    assert mg.einsum(",", 2.0, Tensor(3.0, requires_grad=True)).item() == 6


OPTIONS: list[tuple[Any, Any]] = [
    # calls with a list or an array, which the caller changes before the backward pass
    (np.roll, [1]),
    (lambda x, a: np.roll(x, a, a), [1, 0]),
    (np.tile, [1, 2]),
    (lambda x, a: np.pad(x, a, mode="edge"), [[1, 0], [0, 2]]),
    (lambda x, a: np.pad(x, a), np.array([[1, 0], [0, 2]])),
    (lambda x, a: np.rot90(x, 1, a), [1, 0]),
    (lambda x, a: np.lib.stride_tricks.sliding_window_view(x, a, a), [1, 1]),
    (np.transpose, [1, 0]),
    (lambda x, a: np.moveaxis(x, a, [1, 0]), [0, 1]),
    (lambda x, a: np.repeat(x, a, 0), [2, 1]),
    (lambda x, a: np.delete(x, a, 1), [1]),
    (lambda x, a: np.insert(x, a, 5.0, 1), [1, 2]),
    (lambda x, a: np.split(x, a, 1)[1], [1]),
    (lambda x, a: np.hsplit(x, a)[1], [1]),
    (np.reshape, [3, 2]),
    (lambda x, a: np.tensordot(x, np.ones((3, 1)), a), [[1], [0]]),
    (lambda x, a: np.einsum(x, a, [1]), [0, 1]),
    (lambda x, a: np.gradient(x, a, axis=1), [0.0, 1.0, 4.0]),
    (lambda x, a: np.interp(x, a, [1.0, 2.0, 4.0]), [-9.0, 0.0, 9.0]),
    (lambda x, a: np.diff(x, append=a), [[1], [2]]),
    (lambda x, a: np.trapezoid(x, a), [0.0, 1.0, 4.0]),
    (lambda x, a: np.average(x, 1, a), [1.0, 2.0, 1.0]),
    (lambda x, a: np.cov(x[0], a), [1.0, 0.0, 4.0]),
    (lambda x, a: np.clip(x, a, None), [0.1, -0.1, 0.3]),
    (lambda x, a: np.where(a, x, 0), [True, False, True]),
    (lambda x, a: np.select([a], [x]), [True, False, True]),
    (lambda x, a: np.sum(x, where=a), [True, False, True]),
    (lambda x, a: np.fft.fft(x, norm="ortho", axis=a[0]).real, [1]),
    (lambda x, a: np.fft.fftn(x, a).real, [4, 2]),
    (lambda x, a: np.fft.fftshift(x, a), [1]),
    (lambda x, a: mg.scatter(x[0], index=a, shape=(4,)), [3, 1, 1]),
    (lambda x, a: mg.index_add(x, index=a, values=x[:1]), [1]),
    (lambda x, a: mg.index_add(np.ones((2, 3)), index=a, values=x[:1]), [1]),
    (lambda x, a: mg.masked_select(x, a), [True, False, True]),
    (lambda x, a: mg.gather(x, 1, a), [[2], [1]]),
    (lambda x, a: np.linalg.norm(x, axis=tuple(a)), [1, 0]),
    (lambda x, a: np.quantile(x, a, 1), [0.25, 1.0]),
    (lambda x, a: mg.solve_triangular(a, x), [[2.0, 1.0], [0.0, 1.0]]),
    (lambda x, a: mg.solve_banded((0, 1), a, x), [[0.0, 1.0], [2.0, 4.0]]),
    # values that require gradients, written into constants
    (lambda x, a: mg.index_add(np.zeros((4, 3)), index=a, values=x), np.array([1, 1])),
    (lambda x, a: np.insert(np.zeros((4, 3)), a, x, 0), np.array([1, 2])),
    (lambda x, a: np.where(a, np.zeros((2, 3)), x), np.array([True, False, True])),
    *(
        (lambda x, a, f=f: written(lambda t: f(t, a, x)), a)
        for f, a in (
            (operator.setitem, np.array([1, 0])),
            (np.add.at, np.array([1, 1])),
            (lambda t, a, x: np.copyto(t, x, where=a), np.array([True, False, True])),
            (np.put, np.array([4, 2, 0, 1, 3, 5])),
            (np.put, [4, 2, 0, 1, 3, 5]),
            (np.putmask, np.eye(2, 3) > 0),
            (np.place, np.eye(2, 3) > 0),
            (lambda t, a, x: np.put_along_axis(t, a, x, 1), np.array([[1, 0, 2], [0, 1, 2]])),
        )
    ),
]  # fmt: skip


def written(write: Any) -> Tensor:
    write(t := mg.zeros((2, 3)))
    return t


@pytest.mark.parametrize("f, option", OPTIONS)
def test_gradient_keeps_an_option_that_the_caller_changes(f: Any, option: Any) -> None:
    """Change a list, an array of indices, and an array of booleans."""
    values = normal(1, 2, 3)
    x = Tensor(values, requires_grad=True)
    found = []
    kinds: list[Any] = [copy.deepcopy] + [np.array] * (np.asarray(option).dtype.kind != "f")
    for kind in kinds:
        for changes in (False, True):
            given = kind(option)
            y = np.sin(f(x, given))
            if changes:
                overwrite(given)
            found.append(mg.gradients(y.sum(), x)[0].data)
    for g in found[1:]:
        np.testing.assert_array_equal(g, found[0])


@pytest.mark.parametrize("method", ["lower", "higher", "nearest", "linear"])
def test_percentile_of_every_whole_number_equals_numpy(method: Any) -> None:
    x, q = np.arange(101.0) ** 2, np.arange(101)
    found = np.percentile(Tensor(x, requires_grad=True), q, method=method).data
    np.testing.assert_array_equal(found, np.percentile(x, q, method=method))

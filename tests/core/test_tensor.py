"""Construction, attributes, conversion, printing, and life among NumPy's functions."""

from __future__ import annotations

import copy
import operator
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.core.random import random_words


def test_tensor_of_array_or_list_has_the_dtype_of_numpy() -> None:
    assert Tensor([1, 2]).dtype == np.int64
    assert Tensor([1.0, 2]).dtype == np.float64
    assert Tensor([1.0], dtype=np.float32).dtype == np.float32
    assert Tensor(np.float32(1)).dtype == np.float32
    assert Tensor([[True]]).dtype == bool
    a = np.ones(3)
    assert np.shares_memory(Tensor(a).data, a)
    assert not np.shares_memory(mg.tensor(a).data, a)
    t = Tensor(a, requires_grad=True)
    assert Tensor(t.detach()).data is a and Tensor(t, requires_grad=True).is_leaf
    with pytest.raises(
        TypeError, match="Tensor: data must be numbers or booleans, got dtype object"
    ):
        Tensor([None])
    with pytest.raises(TypeError, match="dtype <U1"):
        Tensor("a")
    with pytest.raises(
        TypeError, match="this tensor requires gradients, which an ndarray cannot have"
    ):
        Tensor([t, t])


def test_tensor_has_the_attributes_of_an_array() -> None:
    t = Tensor(np.arange(6.0).reshape(2, 3))
    assert (t.shape, t.ndim, t.size, t.dtype, t.nbytes, len(t)) == ((2, 3), 2, 6, np.float64, 48, 2)
    assert t.T.shape == (3, 2) and mg.zeros(2, 3, 4).mT.shape == (2, 4, 3)
    assert t.is_leaf and not t.requires_grad and t.grad is None
    assert t.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert Tensor(2.5).item() == 2.5 and float(Tensor([2.5])) == 2.5 and int(Tensor(3)) == 3
    assert complex(Tensor(1.0)) == 1 + 0j and [10, 20][Tensor(1)] == 20
    assert bool(Tensor(1.0)) and 3.0 in t and 9.0 not in t
    assert f"{Tensor(1.23456):.2f}" == "1.23"
    with pytest.raises(
        ValueError, match=r"item: the tensor must have one element, got shape \(2, 3\)"
    ):
        t.item()
    with pytest.raises(TypeError, match="0-d"):
        iter(Tensor(1.0))
    assert [row.tolist() for row in t] == t.tolist()
    assert {t: 1}[t] == 1


def test_repr_shows_values_dtype_and_op() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], dtype=float64, requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], dtype=float64, op=multiply)"
    assert repr(Tensor([1], dtype=np.int32)) == "tensor([1], dtype=int32)"
    assert repr(x[0]) == "tensor(1., dtype=float64, op=getitem)"


def test_detach_clone_and_astype_keep_or_cut_the_graph() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    assert np.shares_memory(x.detach().data, x.data) and not x.detach().requires_grad
    y = x.clone()
    assert not np.shares_memory(y.data, x.data) and y.requires_grad
    z = x.astype(np.float32)
    assert z.dtype == np.float32
    z.sum().backward()
    assert x.grad.dtype == np.float64


_PAIRS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.pow,
    operator.mod,
    operator.floordiv,
]
_COMPARE = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("f", [*_PAIRS, *_COMPARE], ids=lambda f: f.__name__)
def test_operator_with_array_or_number_on_either_side_equals_numpy(f: Any) -> None:
    a, b = np.array([[1.5, 2.0], [3.0, 0.5]]), np.array([2.0, 1.25])
    for left, right in [(a, b), (a, 2), (2.5, b), (a, np.float64(3)), (np.float64(3), b)]:
        expected = f(left, right)
        wrapped = [Tensor(v) if isinstance(v, np.ndarray) else v for v in (left, right)]
        for x, y in [(wrapped[0], right), (left, wrapped[1]), wrapped]:
            if isinstance(x, Tensor) or isinstance(y, Tensor):
                got = f(x, y)
                assert isinstance(got, Tensor) and got.dtype == expected.dtype
                np.testing.assert_array_equal(got.data, expected)


def test_matmul_with_array_on_either_side_equals_numpy() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    for left, right in [(Tensor(a), b), (a, Tensor(b)), (Tensor(a), Tensor(b))]:
        got = left @ right
        assert isinstance(got, Tensor)
        np.testing.assert_array_equal(got.data, a @ b)


def test_unary_and_boolean_operators_equal_numpy() -> None:
    t = Tensor([-1.5, 2.0])
    np.testing.assert_array_equal((-t).data, [1.5, -2])
    np.testing.assert_array_equal((+t).data, [-1.5, 2])
    np.testing.assert_array_equal(abs(t).data, [1.5, 2])
    m = t > 0
    np.testing.assert_array_equal((~m).data, [True, False])
    np.testing.assert_array_equal((m & ~m | m ^ m).data, [False, False])


# -- NumPy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, function",
    [
        (lambda t: np.add.reduce(t), lambda t: np.sum(t, 0)),
        (lambda t: np.add.reduce(t, axis=(0, 1)), np.sum),
        (lambda t: np.multiply.reduce(t, axis=1), lambda t: np.prod(t, 1)),
        (lambda t: np.maximum.reduce(t), lambda t: np.max(t, 0)),
        (lambda t: np.minimum.reduce(t), lambda t: np.min(t, 0)),
        (lambda t: np.logaddexp.reduce(t, axis=None), mg.logsumexp),
        (lambda t: np.add.accumulate(t, axis=1), lambda t: np.cumsum(t, 1)),
        (lambda t: np.multiply.accumulate(t), lambda t: np.cumprod(t, 0)),
        (lambda t: np.multiply.outer(t, t[0]), lambda t: t[:, :, None] * t[0]),
    ],
)
def test_ufunc_method_has_value_and_gradient_of_the_function(method: Any, function: Any) -> None:
    results = []
    for f in (method, function):
        x = Tensor(np.random.default_rng(0).standard_normal((3, 4)), requires_grad=True)
        y = f(x)
        y.backward(np.random.default_rng(1).standard_normal(y.shape))
        results.append((y.data, x.grad.data))
    for value, expected in zip(*results):
        np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_numpy_reads_shape_and_values_of_tensors() -> None:
    x = Tensor(np.ones((3, 4)), requires_grad=True)
    assert np.shape(x) == (3, 4) and np.ndim(x) == 2 and np.size(x) == 12
    assert np.allclose(x, x.data) is True and np.array_equal(x, x.data)
    assert all(isinstance(part, Tensor) for part in np.split(x, 2, axis=1))


def test_numpy_value_on_the_left_gives_a_tensor() -> None:
    x = Tensor(np.ones(3, np.float32), requires_grad=True)
    assert (np.float32(2) * x).dtype == np.float32
    assert (2.0 * x).dtype == np.float32
    assert isinstance(np.ones(3) - x, Tensor) and isinstance(np.arange(3)[:, None] + x, Tensor)


def test_numpy_function_without_a_rule_is_named() -> None:
    x = Tensor(np.ones((2, 2)), requires_grad=True)
    for call, name in [
        (lambda: np.histogramdd(x), "np.histogramdd"),
        (lambda: np.fft.fft(x), "np.fft.fft"),
        (lambda: np.spacing(x), "np.spacing"),
        (lambda: np.nextafter.accumulate(x), "np.nextafter.accumulate"),
        (lambda: np.nextafter.reduceat(x, [0]), "np.nextafter.reduceat"),
    ]:
        with pytest.raises(
            TypeError, match=f"^{name.replace('.', chr(92) + '.')} has no rule for Tensors"
        ):
            call()


def test_numpy_option_without_a_rule_is_named() -> None:
    x = Tensor(np.ones((2, 2)), requires_grad=True)
    mask = np.ones((2, 2), bool)
    for call, message in [
        (
            lambda: np.log(x, where=mask),
            r"np.log: where= leaves elements unset.* np.where\(mask, np.log\(np.where\(mask",
        ),
        (
            lambda: np.exp(x, signature="d->d"),
            "np.exp: signature='d->d' has no rule for tensors that require gradients",
        ),
        (
            lambda: np.sum(x, out=np.ones(())),
            "np.sum: out= cannot hold",
        ),
        (
            lambda: np.take(x, 1, mode="wrap", out=np.ones(())),
            "np.take: out= cannot hold",
        ),
        (
            lambda: np.copy(x, order="F"),
            "np.copy: order=.F. has no rule for tensors that require gradients",
        ),
    ]:
        with pytest.raises(TypeError, match=message):
            call()


def test_conversion_to_an_array_refuses_to_lose_the_gradient() -> None:
    x = Tensor(np.ones(3), requires_grad=True)
    for call in [
        lambda: np.asarray(x),
        lambda: np.array([x, x]),
        lambda: x.numpy(),
        lambda: np.array(x, float),
    ]:
        with pytest.raises(TypeError, match=r"use \.detach\(\) or \.data to leave the graph"):
            call()
    a = np.ones(3)
    with pytest.raises(
        TypeError,
        match=r"np\.add: the result of a tensor that requires gradients cannot be written into",
    ):
        a += x
    with pytest.raises(TypeError, match="np.add: out must be an ndarray, got a Tensor"):
        np.add(a, a, out=x)
    np.testing.assert_array_equal(a, np.ones(3))
    a += x.detach()
    np.testing.assert_array_equal(a, np.full(3, 2.0))
    np.testing.assert_array_equal(np.asarray(x.detach()), np.ones(3))
    assert x.detach().numpy() is x.data
    assert np.asarray(x.detach(), np.float32).dtype == np.float32


def test_operators_never_return_an_object_array() -> None:
    x = Tensor(np.ones(3), requires_grad=True)
    for result in [np.arange(3) * x, np.float64(2) / x, [1.0, 2.0, 3.0] + x, x + [1.0, 2.0, 3.0]]:
        assert isinstance(result, Tensor) and result.dtype == np.float64


# -- creation and randomness ---------------------------------------------------------------------------


def test_creation_functions_set_shape_dtype_and_values() -> None:
    assert mg.zeros(2, 3).shape == mg.zeros((2, 3)).shape == (2, 3)
    assert mg.ones(2, dtype=np.float32).dtype == np.float32
    assert mg.full((2,), 7).tolist() == [7, 7] and mg.full((), 1.5).item() == 1.5
    assert mg.arange(3).tolist() == [0, 1, 2] and mg.arange(1, 7, 2).tolist() == [1, 3, 5]
    assert mg.linspace(0, 1, 3).tolist() == [0, 0.5, 1] and mg.eye(2).tolist() == [[1, 0], [0, 1]]
    x = Tensor(np.ones((2, 3), np.float32), requires_grad=True)
    for like in (mg.zeros_like, mg.ones_like, mg.rand_like, mg.randn_like):
        assert like(x).shape == (2, 3) and like(x).dtype == np.float32 and not like(x).requires_grad
    assert mg.full_like(x, 3).tolist() == [[3] * 3] * 2
    assert mg.zeros(3, requires_grad=True).requires_grad
    assert mg.one_hot([1, 0], 3).tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("bits", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_random_words_equal_integers_of_the_generator(bits: str) -> None:
    a, b = (np.random.Generator(getattr(np.random, bits)(3)) for _ in range(2))
    for n in (1, 5, 0, 64):
        expected = b.integers(0, 2**64 - 1, n, np.uint64, endpoint=True)
        np.testing.assert_array_equal(random_words(n, a), expected, strict=True)


def test_random_numbers_repeat_from_seed_state_or_generator() -> None:
    mg.manual_seed(5)
    state = mg.get_rng_state()
    a = mg.randn(3, 4)
    mg.manual_seed(5)
    np.testing.assert_array_equal(a.data, mg.randn(3, 4).data)
    mg.set_rng_state(state)
    np.testing.assert_array_equal(a.data, mg.randn(3, 4).data)
    one, two = (mg.rand(5, generator=np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(one.data, two.data)
    assert mg.randn(3, dtype=np.float16).dtype == np.float16
    assert set(mg.randint(0, 2, (100,)).tolist()) == {0, 1}
    with pytest.raises(TypeError, match=r"generator must be a numpy\.random\.Generator, got a int"):
        mg.rand(2, generator=3)  # type: ignore[arg-type]
    big = mg.randn(100_000)
    assert abs(big.mean().item()) < 0.02 and abs(big.std().item() - 1) < 0.02


def test_copy_of_a_computed_tensor_keeps_its_graph() -> None:
    x = Tensor(np.arange(3.0), requires_grad=True)
    y = copy.copy(x * x)
    (y * y).sum().backward()
    np.testing.assert_allclose(x.grad.data, 4 * x.data**3)
    leaf = copy.copy(x)
    assert leaf.is_leaf and leaf.requires_grad and leaf.data is x.data

"""Construction, attributes, conversion, printing, and life among NumPy's functions."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor


def test_tensor_of_array_shares_its_memory_and_tensor_function_copies() -> None:
    a = np.ones(3)
    assert Tensor(a).data is a
    assert not np.shares_memory(mg.tensor(a).data, a)
    assert Tensor(Tensor(a)).data is Tensor(Tensor(a).detach(), True).data is a
    assert Tensor([1, 2]).dtype == int and Tensor([1.0], dtype=np.float32).dtype == np.float32
    t = Tensor([1.0, 2.0])
    converted = Tensor(t, dtype=np.float32)
    t.requires_grad_()
    converted += 1  # has memory of its own
    assert converted.tolist() == [2, 3] and t.tolist() == [1, 2]


@pytest.mark.parametrize(
    "data, message",
    [
        ([None], "an array must contain numbers .* write np.array"),
        *[
            (x, "Tensor: data must be numbers or booleans, got dtype")
            for x in ("text", ["a"], np.datetime64("2020"), np.array(1, "m8[s]"))
        ],
        ([Tensor(1.0, True)], "this tensor requires gradients, which an ndarray cannot have"),
    ],
)
def test_tensor_of_other_data_is_refused(data: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Tensor(data)


@pytest.mark.parametrize("cls", [Tensor, nn.Parameter])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_tensor_of_a_tensor_with_a_gradient_is_refused(cls: Any, requires_grad: bool) -> None:
    leaf = Tensor([1.0, 2.0], requires_grad=True)
    for data in (leaf, leaf * 2):
        with pytest.raises(mg.GradientError, match="data must not require gradients"):
            cls(data, requires_grad)
        new = cls(data.detach(), requires_grad)
        assert new.is_leaf and new.requires_grad is requires_grad
        with mg.no_grad():
            assert cls(data, requires_grad).requires_grad is requires_grad


@pytest.mark.parametrize("package", [mg, nn], ids=lambda m: m.__name__)
def test_public_functions_and_classes_can_be_sent_to_another_process(package: Any) -> None:
    for name in package.__all__:
        value = getattr(package, name)
        if callable(value):
            assert pickle.loads(pickle.dumps(value)) is value, name


@pytest.mark.parametrize("value", [1, True, 1j, [1], [1 + 0j], np.uint8(1)])
def test_tensor_of_no_floating_dtype_requires_no_gradient(value: Any) -> None:
    x = Tensor(value)
    calls = [
        lambda: Tensor(value, requires_grad=True),
        x.requires_grad_,
        lambda: setattr(x, "requires_grad", True),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="requires_grad: the dtype must be floating-point, got"):
            call()
    assert not x.requires_grad and not x.requires_grad_(False).requires_grad


def test_tensor_of_detached_memory_stays_constant() -> None:
    w, x = Tensor(3.0, requires_grad=True), Tensor(np.zeros(2))
    x[0] = w
    constants = [x.detach(), Tensor(x.detach()), Tensor(Tensor(x.detach()))]
    x[1] = w * 2
    assert x.requires_grad and not any((c * 2).requires_grad for c in constants)
    assert [c.tolist() for c in constants] == [[3, 6]] * 3


def test_tensor_has_the_attributes_of_an_array() -> None:
    t = Tensor([[1.0, 2.0, 3.0]])
    assert (t.shape, t.ndim, t.size, t.dtype, t.nbytes, len(t)) == ((1, 3), 2, 3, float, 24, 1)
    assert t.T.shape == (3, 1) and mg.zeros(2, 3, 4).mT.shape == (2, 4, 3)
    assert [row.tolist() for row in t] == t.tolist() == [[1, 2, 3]]
    assert 3.0 in t and 9.0 not in t and {t: 1}[t] == 1
    for several in (t, Tensor([])):
        with pytest.raises(ValueError, match=r"item: the tensor must have one element, got shape"):
            several.item()


def test_tensor_of_one_element_converts_to_numbers() -> None:
    t = Tensor([2.5])
    assert t.item() == float(t) == complex(t) == 2.5
    assert int(t) == 2 and bool(t) and f"{t:.2f}" == "2.50" and [10, 20][Tensor(1)] == 20
    with pytest.raises(TypeError, match="0-d"):
        iter(Tensor(1))


def test_repr_shows_values_dtype_and_op() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], dtype=float64, requires_grad=True)"
    assert repr(x[0]) == "tensor(1., dtype=float64, op=getitem)"
    assert repr(Tensor([1], dtype=np.int32)) == "tensor([1], dtype=int32)"


def test_detach_and_copies_keep_or_cut_the_graph() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    assert x.detach().data is x.data and not x.detach().requires_grad
    y = x.clone()
    assert not np.shares_memory(y.data, x.data) and y.requires_grad
    leaf = copy.copy(x)
    assert leaf.is_leaf and leaf.requires_grad and copy.copy(y).requires_grad
    for t, other in ((leaf, x), (copy.copy(y), y)):  # as copies of ndarrays
        np.testing.assert_array_equal(t.data, other.data)
        assert not np.shares_memory(t.data, other.data)


X3, Y3, INTEGERS = np.array([5.0, -3.0, 2.5]), np.array([2.0, 1.5, -0.5]), np.array([6, 3, 12])
SQUARE, FLAGS = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([True, False, True])
ARITHMETIC = [(X3, Y3), (INTEGERS, INTEGERS[::-1])]
LOGIC, SHIFTS = [ARITHMETIC[1], (FLAGS, FLAGS[::-1])], [(INTEGERS, np.array([1, 0, 2]))]
OPERATORS: dict[str, list[tuple[Any, Any]]] = {
    **dict.fromkeys(["add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "eq", "ne", "gt", "ge"], ARITHMETIC),
    **dict.fromkeys(("and_", "or_", "xor"), LOGIC), "lshift": SHIFTS, "rshift": SHIFTS, "matmul": [(SQUARE, SQUARE.T)],
    "pow": [(abs(X3), Y3), (INTEGERS, np.array([2, 0, 1]))],
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_equals_that_of_arrays_on_either_side_and_in_place(name: str) -> None:
    function, in_place = getattr(operator, name), getattr(operator, f"i{name.strip('_')}", None)
    for a, b in OPERATORS[name]:
        forms = [(Tensor(a), Tensor(b)), (Tensor(a), b), (a, Tensor(b))]
        for x, y in forms:
            np.testing.assert_array_equal(function(x, y).data, function(a, b), strict=True)
        if name != "matmul":
            numbers = a[0].item(), b[0].item()
            for x, y in ((Tensor(a), numbers[1]), (numbers[0], Tensor(b))):
                expected = function(*[t.data if isinstance(t, Tensor) else t for t in (x, y)])
                np.testing.assert_array_equal(function(x, y).data, expected, strict=True)
        if in_place is not None and not (name == "truediv" and a is INTEGERS):
            for other in (b, Tensor(b)):
                t = Tensor(a.copy())
                memory = t.data
                assert in_place(t, other) is t and t.data is memory
                np.testing.assert_array_equal(memory, function(a, b), strict=True)


@pytest.mark.parametrize("function", [operator.neg, operator.pos, abs, operator.invert])
def test_operator_of_one_operand_equals_that_of_arrays(function: Any) -> None:
    for x in (INTEGERS - 7,) if function is operator.invert else (X3, INTEGERS - 7):
        np.testing.assert_array_equal(function(Tensor(x)).data, function(x), strict=True)


@pytest.mark.parametrize("array", [np.ones((2, 3, 1), np.float32)[:, ::-1], np.array(2.0), np.zeros((0, 2), int)], ids=str)  # fmt: skip
def test_attributes_are_those_of_the_array(array: np.ndarray) -> None:
    t = Tensor(array)
    for name in ("shape", "ndim", "dtype", "itemsize", "nbytes", "strides", "size"):
        assert getattr(t, name) == getattr(array, name)
    assert t.flags.c_contiguous == array.flags.c_contiguous
    for data in (t, Tensor(array.T).T):
        assert np.shares_memory(data.data, array) or not array.size


@pytest.mark.parametrize("other", ["text", ["a", "b"], None, np.datetime64("2020-01-01")])
def test_comparison_with_another_type_equals_numpy(other: Any) -> None:
    x = np.array([1.0, 2.0])
    for f in (operator.eq, operator.ne):
        np.testing.assert_array_equal(f(Tensor(x), other).data, f(x, other), strict=True)


def test_comparison_of_numbers_is_an_array() -> None:
    y = Tensor(1.5) > 1
    assert type(y.data) is np.ndarray and y.dtype == bool and y.item() is True


# -- NumPy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, function",
    [
        (lambda t: np.maximum.reduce(t, axis=1), lambda t: np.max(t, 1)),
        (lambda t: np.logaddexp.reduce(t, axis=None), mg.logsumexp),
        (lambda t: np.add.accumulate(t, axis=1), lambda t: np.cumsum(t, 1)),
        (lambda t: np.multiply.outer(t, t[0]), lambda t: t[:, :, None] * t[0]),
    ],
)
def test_ufunc_method_has_value_and_gradient_of_the_function(method: Any, function: Any) -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((3, 4)), requires_grad=True)
    y, expected = method(x), function(x)
    np.testing.assert_allclose(y.data, expected.data, rtol=1e-12)
    g = np.random.default_rng(1).standard_normal(y.shape)
    slopes = [mg.gradients(f, x, g)[0].data for f in (y, expected)]
    np.testing.assert_allclose(*slopes, rtol=1e-12)


X = Tensor(np.ones((2, 2)), requires_grad=True)
MASK = np.ones((2, 2), bool)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: np.linalg.eig(X), r"^np\.linalg\.eig has no rule for Tensors"),
        (lambda: np.spacing(X), r"^np\.spacing has no rule"),
        (lambda: np.nextafter.accumulate(X), r"^np\.nextafter\.accumulate has no rule"),
        (
            lambda: np.log(X, where=MASK),
            r"np.log: where= leaves .* np.where\(mask, np.log\(np.where",
        ),
        (lambda: np.exp(X, signature="d->d"), "np.exp: signature='d->d' has no rule for tensors"),
        (lambda: np.sum(X, out=np.ones(())), "np.sum: out= cannot hold"),
        (lambda: np.add.reduce(X, initial=5.0), "np.sum: initial=5.0 has no rule"),
        (lambda: np.multiply.accumulate(X, dtype=float), "np.cumprod: dtype= has no rule"),
        (lambda: np.asarray(X), r"without them, write x\.detach\(\)"),
        (lambda: np.array([X, X]), r"to keep them, write minigrad.tensor"),
        (lambda: X.numpy(), r"write x\.detach\(\)"),
        (lambda: operator.iadd(np.ones((2, 2)), X), "np.add: .* cannot be written into an ndarray"),
    ],
)
def test_numpy_call_without_a_rule_is_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_conversion_of_a_constant_to_an_array_shares_its_memory() -> None:
    a, x = np.ones(3), Tensor(np.ones(3))
    a += x
    assert a.tolist() == [2, 2, 2]
    assert np.asarray(x) is x.numpy() is x.data
    assert np.asarray(x, np.float32).dtype == np.float32


@pytest.mark.parametrize("dtype", [None, float, np.float32, int])
@pytest.mark.parametrize("copies", [None, True, False])
def test_conversion_to_an_array_copies_as_from_an_array(dtype: Any, copies: bool | None) -> None:
    array, outcomes = np.ones(3), list[Any]()
    for x in (array, Tensor(array)):
        for convert in (np.array, np.asarray):
            try:
                y = convert(x, dtype=dtype, copy=copies)
                outcomes.append((y.dtype, np.shares_memory(y, array)))
            except ValueError:
                outcomes.append("refused")
    assert outcomes[:2] == outcomes[2:]


# -- creation and randomness ---------------------------------------------------------------------------


def test_creation_functions_set_shape_dtype_and_values() -> None:
    assert mg.zeros(2, 3).shape == mg.zeros((2, 3)).shape == (2, 3)
    assert mg.ones(2, dtype=np.float32).dtype == np.float32
    assert mg.zeros(3, requires_grad=True).requires_grad
    assert mg.full((2,), 7).tolist() == [7, 7] and mg.arange(1, 7, 2).tolist() == [1, 3, 5]
    assert mg.linspace(0, 1, 3).tolist() == [0, 0.5, 1] and mg.eye(2).tolist() == [[1, 0], [0, 1]]
    for like in (mg.zeros_like, mg.ones_like, mg.rand_like, mg.randn_like):
        y = like(Tensor(np.ones((2, 3), np.float32), requires_grad=True))
        assert y.shape == (2, 3) and y.dtype == np.float32 and not y.requires_grad
        assert like([0.5, 1.5]).shape == (2,)


def test_random_values_repeat_from_seed_state_or_generator() -> None:
    mg.manual_seed(5)
    mg.rand(3, dtype=np.float32)  # leaves half of a 64-bit number
    state = mg.get_rng_state()
    b, _ = mg.rand(3, dtype=np.float32), mg.rand(2, dtype=np.float32)
    mg.set_rng_state(state)
    np.testing.assert_array_equal(mg.rand(3, dtype=np.float32), b)
    mg.manual_seed(5)
    state = mg.get_rng_state()
    a = mg.randn(100_000).data
    assert abs(a.mean()) < 0.02 and abs(a.std() - 1) < 0.02
    for restore in (lambda: mg.set_rng_state(state), lambda: mg.manual_seed(5)):
        restore()
        np.testing.assert_array_equal(mg.randn(100_000).data, a)
    assert mg.manual_seed(7) is mg.default_generator()
    np.testing.assert_array_equal(
        mg.default_generator().integers(99, size=9),
        np.random.Generator(np.random.SFC64(7)).integers(99, size=9),
    )
    one, two = (mg.rand(5, generator=np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(one.data, two.data)
    assert set(mg.randint(0, 2, (100,)).tolist()) == {0, 1}
    with pytest.raises(TypeError, match=r"generator must be a numpy\.random\.Generator, got a int"):
        mg.rand(2, generator=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: mg.rand(2, dtype=int), "dtype of random numbers must be floating-point, got int"),
        (lambda: mg.randn_like(np.ones(2, bool)), "must be floating-point, got bool; pass dtype="),
        (
            lambda: mg.randint(2, (3, 4)),
            r"high must be an integer, got \(3, 4\); write randint\(0,",
        ),
        (lambda: mg.randint(0.5, 3), r"low must be an integer, got 0\.5"),
    ],
)
def test_random_numbers_of_wrong_dtype_or_bound_are_refused(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("order", ["C", "F", "A", "K", None])
def test_copy_has_the_order_of_memory_of_numpy(order: Any) -> None:
    options = {} if order is None else {"order": order}
    for array in (np.zeros((2, 3)), np.zeros((3, 2)).T, np.zeros((2, 3, 4)).transpose(1, 0, 2)):
        for requires_grad in (False, True):
            y = Tensor(array, requires_grad=requires_grad).copy(**options)
            assert y.data.strides == array.copy(**options).strides


@pytest.mark.parametrize("generator", [np.random, np.random.RandomState(0), 0, "0"])
def test_source_of_random_numbers_is_a_generator(generator: Any) -> None:
    calls = [lambda **o: mg.rand(2, **o), lambda **o: mg.dropout(np.ones(2), 0.5, **o)]
    for call in calls:
        with pytest.raises(TypeError, match="generator must be a numpy.random.Generator, got a"):
            call(generator=generator)

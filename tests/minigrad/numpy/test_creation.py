"""Functions that create tensors: values and dtypes of NumPy, and the options that all of them share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import minigrad as mg
from minigrad import Tensor

sides = st.integers(0, 3)
shapes = st.lists(sides, max_size=3).map(tuple)
bounds = st.integers(-3, 3) | st.sampled_from([0.5, -1.5])
arrays = st.builds(np.ones, shapes, st.sampled_from([np.float32, np.float16, np.int8, bool]))
ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys(("zeros", "ones", "empty"), st.tuples(shapes)),
    "full": st.tuples(shapes, bounds),
    "eye": st.tuples(sides, st.none() | sides, st.integers(-2, 2)),
    "arange": st.lists(bounds, min_size=1, max_size=2).map(tuple)
    | st.tuples(bounds, bounds, st.sampled_from([-1, 2, 0.5])),
    "linspace": st.tuples(bounds, bounds, sides),
    **dict.fromkeys(("zeros_like", "ones_like", "empty_like"), st.tuples(arrays)),
    "full_like": st.tuples(arrays, st.integers(0, 1)),
}
RANDOM: dict[str, Any] = {
    **dict.fromkeys(("rand", "randn"), shapes),
    **dict.fromkeys(("rand_like", "randn_like"), st.tuples(arrays)),
    "randint": st.tuples(st.integers(-3, 0), st.integers(1, 3), shapes),
    "randperm": st.tuples(sides),
}
DTYPES = [None, np.float32, np.float64, np.float16, np.int64]


def assert_options(name: str, args: tuple[Any, ...], options: dict[str, Any], dtype: Any) -> None:
    """Check what `requires_grad` and `device` do."""
    f = getattr(mg, name)
    with pytest.raises((TypeError, ValueError), match="device"):
        f(*args, device="cuda", **options)
    for device in ("cpu", "cpu:0"):
        assert f(*args, device=device, **options).dtype == dtype
    if name in ("randint", "randperm"):
        return
    if dtype.kind == "f":
        assert f(*args, requires_grad=True, **options).requires_grad
    else:
        with pytest.raises(TypeError, match="floating"):
            f(*args, requires_grad=True, **options)


@pytest.mark.parametrize("name", ARGUMENTS)
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_created_tensor_equals_numpy(name: str, data: st.DataObject, dtype: Any) -> None:
    args = data.draw(ARGUMENTS[name], "arguments")
    options = {} if dtype is None else {"dtype": dtype}
    expected = getattr(np, name)(*args, **options)
    y = getattr(mg, name)(*args, **options)
    assert type(y) is Tensor and not y.requires_grad
    assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
    if not name.startswith("empty"):
        np.testing.assert_array_equal(y.data, expected)
    if name in ("zeros", "ones", "empty") and args[0]:
        assert getattr(mg, name)(*args[0]).shape == args[0]
    if name.endswith("_like"):
        assert getattr(mg, name)(Tensor(args[0]), *args[1:], **options).dtype == expected.dtype
    assert_options(name, args, options, expected.dtype)


@pytest.mark.parametrize("name", RANDOM)
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.float64, np.int64, np.int16]))
def test_random_tensor_has_the_shape_dtype_and_generator_that_are_named(
    name: str, data: st.DataObject, dtype: Any
) -> None:
    args, whole = data.draw(RANDOM[name], "arguments"), name in ("randint", "randperm")
    if whole != (np.dtype(dtype).kind == "i"):
        return
    f, rngs = getattr(mg, name), [np.random.default_rng(0), np.random.default_rng(0)]
    y, again = (f(*args, dtype=dtype, generator=rng).data for rng in rngs)
    shape = args[2] if name == "randint" else args
    assert (y.shape, y.dtype) == (np.shape(args[0]) if name.endswith("_like") else shape, dtype)
    np.testing.assert_array_equal(y, again)
    rng, size = np.random.default_rng(0), y.shape
    by_generator = {
        "rand": lambda: rng.random(size, dtype),
        "randn": lambda: rng.standard_normal(size, dtype),
        "randint": lambda: rng.integers(*args[:2], size, dtype),
        "randperm": lambda: rng.permutation(*args),
    }
    np.testing.assert_array_equal(y, by_generator[name.removesuffix("_like")]())
    if name == "randint":
        assert ((args[0] <= y) & (y < args[1])).all()
    if name == "randperm":
        assert sorted(y) == [*range(args[0])]
    assert_options(name, args, {"dtype": dtype}, np.dtype(dtype))


@pytest.mark.parametrize("value", [1j, np.complex64(1j), np.array(1j), Tensor(np.array([1j, 0]))])
def test_complex_fill_value_is_refused_unless_the_dtype_is_complex(value: Any) -> None:
    for f, like in ((mg.full, 2), (mg.full_like, np.ones(2))):
        with pytest.raises(TypeError, match="fill_value must be real for dtype float64"):
            f(like, value, dtype=float)
        np.testing.assert_array_equal(
            f(like, value, dtype=complex).data, np.full(2, np.asarray(value))
        )
    for x in (np.ones(2), Tensor([1.0, 2.0], requires_grad=True)):
        with pytest.raises(TypeError, match="fill_value must be real for dtype float64"):
            mg.full_like(x, value)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.integers(0, 9))
@example(1.0, 2.0, 0)
@example(1.0, 2.0, 1)
def test_values_between_tensors_begin_and_end_with_them(low: float, high: float, n: int) -> None:
    for start, stop in ((Tensor(low, True), high), (low, Tensor(high, True))):
        for f in (mg.linspace, np.linspace):
            y = f(start, stop, n)
            assert y.requires_grad and y.tolist()[:1] == [low][:n]
            assert n < 2 or y[-1].item() == high
            assert f(start, stop, n, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize("value", [1.0, [1.0], Tensor(1.0), np.float64(1)])
def test_memory_is_shared_with_ndarrays_only(value: Any) -> None:
    with pytest.raises(TypeError, match="from_numpy: array must be an ndarray, got a "):
        mg.from_numpy(value)


@pytest.mark.parametrize("dtype", [None, np.float64, np.float32])
def test_tensor_of_a_tensor_is_a_copy_with_its_gradient(dtype: Any) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    for data in (x, [x, [3.0, 4.0]], (x,), x.data, [x.detach()]):
        y = mg.tensor(data, dtype=dtype)
        assert y is not x and not np.shares_memory(y.data, x.data)
        assert y.dtype == (dtype or np.float64) and y.data.ravel()[:2].tolist() == [1, 2]
        if y.requires_grad:
            assert mg.gradients(y.sum(), x)[0].tolist() == [1, 1]
        else:
            assert data is not x and mg.tensor(data, requires_grad=True).is_leaf
    with pytest.raises(mg.GradientError, match="data must not require gradients if requires_grad"):
        mg.tensor([x], requires_grad=True)
    single = x.astype(np.float32)
    assert mg.tensor([single, [3.0, 4]]).dtype == mg.as_tensor([single, (1, True)]).dtype == "f4"
    y = x * 2
    assert mg.as_tensor(y) is y and mg.as_tensor(y, dtype=np.float64) is y
    assert mg.as_tensor([x, x]).requires_grad and mg.as_tensor(x.data)._array is x.data

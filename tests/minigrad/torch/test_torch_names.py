"""PyTorch's names and arguments on tensors; those that mean something else in NumPy are refused."""

from __future__ import annotations

import importlib
import math
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.environment import max_examples
from support.properties import normal, seeds
from support.torch_defaults import DEFAULTS, PLACES, defaults

import minigrad as mg
import nn
from minigrad import Tensor

VALUES = np.arange(6.0).reshape(2, 3) ** 2
X = Tensor(VALUES, requires_grad=True)


@pytest.mark.parametrize(
    "torch_form, numpy_form",
    [
        (lambda x: x.view(3, -1), lambda x: x.reshape(3, 2)),
        (lambda x: x[None].flatten(1), lambda x: x.reshape(1, 6)),
        (lambda x: x.flatten(order="F"), lambda x: x.T.ravel()),
        (lambda x: x.add(1).mul(2).sub(3).div(4), lambda x: ((x + 1) * 2 - 3) / 4),
        (lambda x: x.std(dim=0, unbiased=True), lambda x: x.std(0, ddof=1)),
        (lambda x: x.var(dim=0, ddof=1), lambda x: x.var(0, ddof=1)),
        (lambda x: x[:, None].expand(-1, 4, 3), lambda x: np.repeat(x[:, None], 4, 1)),
    ],
)
def test_torch_form_has_value_and_gradient_of_numpy_form(torch_form: Any, numpy_form: Any) -> None:
    y, expected = torch_form(X), numpy_form(X)
    np.testing.assert_array_equal(y.data, expected.data, strict=True)
    g = np.random.default_rng(0).standard_normal(y.shape)
    np.testing.assert_array_equal(*[mg.gradients(f, X, g)[0].data for f in (y, expected)])


@max_examples(20)
@given(data=st.data(), seed=seeds)
def test_joined_split_and_broadcast_tensors_equal_those_of_numpy(
    data: st.DataObject, seed: int
) -> None:
    draw = lambda low, high: data.draw(st.integers(low, high))
    sides = [draw(1, 6) for _ in range(draw(1, 3))]
    x, axis = Tensor(normal(seed, *sides), requires_grad=True), draw(0, len(sides) - 1)
    count, last, new = draw(1, 4), draw(axis, len(sides) - 1), draw(1, 3)
    length = -(-sides[axis] // count)
    cuts = range(length, sides[axis], length)
    flat = [*sides[:axis], math.prod(sides[axis : last + 1]), *sides[last + 1 :]]
    wide = [new, *[-1 if data.draw(st.booleans()) else side for side in sides]]
    pairs = [
        (mg.cat([x, x * 2], dim=axis), np.concatenate([x, x * 2], axis)),
        (mg.flatten(x, axis, last), x.reshape(flat)),
        (x.expand(*wide), np.broadcast_to(x, (new, *sides))),
        *zip(x.chunk(count, dim=axis), np.split(x, [*cuts], axis), strict=True),
    ]
    for y, expected in pairs:
        np.testing.assert_array_equal(y.data, expected.data, strict=True)
        g = normal([seed, 1], *y.shape)
        np.testing.assert_array_equal(*[mg.gradients(f, x, g)[0].data for f in (y, expected)])


@given(ids=arrays(int, st.lists(st.integers(1, 3), max_size=2).map(tuple), elements=st.integers(0, 4)), more=st.none() | st.integers(0, 2))  # fmt: skip
def test_one_hot_has_the_rows_of_the_identity(ids: np.ndarray, more: int | None) -> None:
    classes = ids.max() + 1 + (more or 0)
    y = mg.one_hot(ids) if more is None else mg.one_hot(ids, classes)
    np.testing.assert_array_equal(y.data, np.eye(classes, dtype=np.float32)[ids], strict=True)


@pytest.mark.parametrize(
    "call, numpy",
    [
        (lambda x: x.sum(dim=0), lambda x: x.sum(axis=0)),
        (lambda x: x.mean(dim=-1, keepdim=True), lambda x: x.mean(axis=-1, keepdims=True)),
        (lambda x: x.flip(dims=(0, 1)), lambda x: np.flip(x, (0, 1))),
        (lambda x: mg.flip(x, dims=[1]), lambda x: np.flip(x, 1)),
        (lambda x: x.roll(1, dims=1), lambda x: np.roll(x, 1, 1)),
        (lambda x: mg.softmax(x, dim=0), lambda x: np.exp(x) / np.exp(x).sum(0)),
        (lambda x: x.sum(dim=[0, 1]), lambda x: x.sum()),
        (lambda x: x.amax(dim=1), lambda x: x.max(1)),
        (lambda x: x.amin(0), lambda x: x.min(0)),
    ],
)
def test_option_with_the_name_of_pytorch_is_that_of_numpy(call: Any, numpy: Any) -> None:
    np.testing.assert_allclose(call(X).data, numpy(VALUES), rtol=1e-12)


def test_third_argument_of_a_reduction_keeps_its_axis() -> None:
    for name in ("all", "any", "argmax", "argmin", "mean", "nanmean", "nansum", "prod", "sum"):
        y, expected = (
            getattr(mg, name)(VALUES, 1, True),
            getattr(np, name)(VALUES, 1, keepdims=True),
        )
        np.testing.assert_array_equal(y.data, expected, strict=True)
    for name in ("max", "median", "min"):
        with pytest.raises(TypeError, match=f"{name}: dim= has another result in PyTorch"):
            getattr(mg, name)(VALUES, 1, True)


def test_tensor_has_sizes_and_dtypes_of_pytorch() -> None:
    assert X.numel() == X.size == pickle.loads(pickle.dumps(X.size)) == 6 and X.dim() == 2
    assert X.size() == (2, 3) and X.size(-1) == 3 and isinstance(X.size, int)
    dtypes = {"float": "f4", "double": "f8", "half": "f2", "long": "i8", "bool": "?"}
    assert all(getattr(X, name)().dtype == dtype for name, dtype in dtypes.items())
    assert X.to("cpu") is X
    assert X.to(np.float32).dtype == X.to(Tensor(np.float32(1))).dtype == np.float32
    assert mg.from_numpy(VALUES).data is VALUES


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: X.max(dim=1), TypeError, "write x.max.axis=...., and x.argmax"),
        (lambda: X.std(dim=1), TypeError, "PyTorch divides by n - 1, NumPy by n"),
        (lambda: X.repeat(2, 1), TypeError, r"axis must be given by name, got \(2, 1\)"),
        (lambda: X.repeat(2, 1, 1), TypeError, r"write x.tile\(\(2, 1, 1\)\), as in PyTorch"),
        (lambda: X.expand(3), ValueError, r"expand: shape must extend \(2, 3\) and have a length"),
        (lambda: X.var(0, ddof=1, correction=1), ValueError, "only one of correction, ddof and"),
        (lambda: X.sum(dim=1, axis=1), TypeError, "the same option was given twice"),
        (lambda: X.to("cuda"), TypeError, "or the device 'cpu', got 'cuda'"),
        (lambda: X.view(np.int64), TypeError, "view: shape must be integers, got .*; convert to a"),
        (lambda: X.view(float, 6), TypeError, "view: shape must be integers, got <class 'float'>"),
        (lambda: X.view("int64"), TypeError, "view: shape must be integers, got 'int64'"),
        (lambda: X.to("quick"), TypeError, "a tensor, or the device 'cpu', got 'quick'"),
    ],
)
def test_tensor_refuses_what_numpy_means_otherwise(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_tensor_has_no_attribute_that_pickle_or_numpy_would_misread() -> None:
    assert not hasattr(X, "no_such_name") and not hasattr(X, "__array_interface__")


def test_defaults_are_those_of_pytorch() -> None:
    """`tests/oracle/test_signatures.py` compares the table with PyTorch."""
    found = defaults("minigrad.torch")
    wrong = {
        f"{name}: {parameter}": value
        for name, expected in DEFAULTS.items()
        for parameter, value in expected.items()
        if found[name].get(parameter) != value
    }
    assert not wrong and len(DEFAULTS) > 60


def test_conversion_returns_the_tensor_itself_unless_something_changes() -> None:
    x = Tensor(VALUES)
    assert x.to(float) is x and x.to("cpu", float) is x and x.to(Tensor(1.0)) is x
    assert x.to("cpu", np.float32).dtype == np.float32
    assert x.to("cpu", dtype=np.float32).dtype == x.to("cpu", np.float32, True).dtype == np.float32
    copied = x.to(float, copy=True)
    assert copied is not x and not np.shares_memory(copied.data, x.data)
    assert np.shares_memory(x.view().data, x.data) and x.view() is not x
    assert x.view(float).shape == x.view("float64").shape == x.shape
    row = Tensor(VALUES[0])
    for y in (x.flatten("F"), x.flatten(), row.flatten(), row.flatten(order="F")):
        assert not np.shares_memory(y.data, VALUES)


def test_parts_of_an_axis_may_be_empty_but_not_negative() -> None:
    x = mg.zeros(2, 0)
    assert (
        [part.shape for part in x.chunk(3, 1)] == [part.shape for part in x.split(2, 1)] == [(2, 0)]
    )
    assert [part.shape for part in x.split([0, 0], 1)] == [(2, 0)] * 2
    assert [part.shape[1] for part in X.split(np.int64(2), 1)] == [2, 1]
    assert [part.shape[1] for part in X.split((0, 3, 0), -1)] == [0, 3, 0]
    for sizes in ([-1, 4], [4, -1], [2, 2], []):
        with pytest.raises(ValueError, match="split: split_size must add up to 3"):
            X.split(sizes, 1)


@pytest.mark.parametrize(
    "target, expected",
    [((2, 3), (2, 3)), ((-1, -1), (2, 3)), ((4, 2, 3), (4, 2, 3)), ((1, -1, 3), (1, 2, 3)), ((-1, 2, 3), None), ((3,), None), ((4, 3), None)],
)  # fmt: skip
def test_expansion_needs_a_length_for_each_new_axis(target: Any, expected: Any) -> None:
    for call in (lambda: X.expand(*target), lambda: X.expand(target)):
        if expected:
            np.testing.assert_array_equal(call().data, np.broadcast_to(VALUES, expected))
        else:
            with pytest.raises(ValueError):
                call()


@pytest.mark.parametrize("axis", [0, -1, (0, 1), None])
@pytest.mark.parametrize("keep", [True, False])
def test_extremes_keep_their_axes(axis: Any, keep: bool) -> None:
    for name, extreme in (("amax", np.max), ("amin", np.min)):
        expected = extreme(VALUES, axis, keepdims=keep)
        for y in (
            getattr(X, name)(axis, keep), getattr(mg, name)(X, dim=axis, keepdim=keep), getattr(mg, name)(X, axis, keepdims=keep),
        ):  # fmt: skip
            np.testing.assert_array_equal(y.data, expected, strict=True)


def test_joined_axes_are_in_order() -> None:
    cube = mg.zeros(2, 3, 4)
    for axes, shape in {
        (0, 0): (2, 3, 4),
        (1, 1): (2, 3, 4),
        (-2, 2): (2, 12),
        (0, -1): (24,),
    }.items():
        assert cube.flatten(*axes).shape == shape
    with pytest.raises(ValueError, match="flatten: start_dim must be at most end_dim, got 1 and 0"):
        cube.flatten(1, 0)


LAYOUTS = [
    np.arange(3.0), np.array(2.0), np.arange(6.0)[::-1], np.arange(6.0).reshape(2, 3)[:, ::-1], np.arange(3), np.array([True]), np.array([True, False])[::-1], np.zeros((0, 2)),
    np.arange(6.0, dtype="f4").reshape(2, 3).T, np.broadcast_to(1.0, (2, 2)),
]  # fmt: skip


@pytest.mark.parametrize("array", LAYOUTS, ids=lambda a: f"{a.dtype}{a.strides}")
def test_other_libraries_read_a_tensor(array: np.ndarray) -> None:
    if not (array.flags.writeable or hasattr(np, "cumulative_sum")):
        pytest.skip("needs a function of a newer NumPy")  # which exports read-only arrays
    read = np.from_dlpack(Tensor(array))
    np.testing.assert_array_equal(read, array, strict=True)
    assert min(read.strides, default=0) >= 0  # as PyTorch needs


@pytest.mark.slow
@pytest.mark.parametrize("array", LAYOUTS, ids=lambda a: f"{a.dtype}{a.strides}")
def test_pytorch_reads_a_tensor(array: np.ndarray) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for read in (torch.as_tensor, torch.tensor, torch.asarray, torch.from_dlpack):
        np.testing.assert_array_equal(read(Tensor(array)).numpy(), array, strict=True)


def test_other_libraries_read_no_tensor_that_requires_gradients() -> None:
    assert X.__dlpack_device__() == VALUES.__dlpack_device__()
    with pytest.raises(BufferError, match=r"must not require gradients; write x.detach\(\)"):
        np.from_dlpack(X)
    assert np.from_dlpack(X.detach()).shape == X.shape
    for copies in (True, False) if hasattr(np, "cumulative_sum") else ():  # since NumPy 2.1
        read = np.from_dlpack(Tensor(VALUES), copy=copies)
        assert np.shares_memory(read, VALUES) != copies


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("minigrad.sofmax", "softmax"), ("minigrad.optim.Adm", "Adam"), ("nn.Liner", "Linear"),
        ("nn.functional.sofmax", "softmax"), ("minigrad.ones(3).sofmax()", "softmax"),
    ],
)  # fmt: skip
def test_misspelt_name_is_corrected(
    code: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AttributeError) as error:
        eval(code, {"minigrad": mg, "nn": nn})
    sys.__excepthook__(error.type, error.value, error.tb)  # as Python does at the end of a program
    assert capsys.readouterr().err.endswith(f"Did you mean: '{name}'?\n")


@pytest.mark.parametrize("place", PLACES)
def test_error_of_a_missing_name_shows_the_module_that_has_it(place: str) -> None:
    module = importlib.import_module(f"minigrad.torch.{place}".rstrip("."))
    public = getattr(module, "__all__", None) or dir(module)
    names = [name for name in public if name[0] != "_" and not hasattr(mg, name)]
    for name in names:
        with pytest.raises(AttributeError, match=f"write from .* import {name}$") as caught:
            getattr(mg, name)
        found = str(caught.value).split("write from ")[1].split()[0]
        assert getattr(importlib.import_module(found), name) is getattr(module, name)
    assert names


@pytest.mark.parametrize("name", ["nanmedian", "select"])
def test_error_of_a_name_that_means_something_else_in_numpy_does_not_recommend_it(
    name: str,
) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; docs/torch.md lists"):
        getattr(mg.torch, name)

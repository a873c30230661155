"""PyTorch's names and words on tensors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor

X = Tensor(np.arange(6.0).reshape(2, 3) ** 2, requires_grad=True)


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (lambda x: x.view(3, -1), lambda a: a.reshape(3, 2)),
        (lambda x: x.t(), lambda a: a.T),
        (lambda x: x[None].flatten(1), lambda a: a.reshape(1, 6)),
        (lambda x: x[None].flatten(end_dim=1), lambda a: a),
        (lambda x: x.flatten("F"), lambda a: a.flatten("F")),
        (lambda x: x.flatten(order="F"), lambda a: a.flatten("F")),
        (lambda x: x.sum().flatten(), lambda a: a.sum().flatten()),
        (lambda x: x.contiguous(), lambda a: a),
        (lambda x: x.unbind(dim=1)[2], lambda a: a[:, 2]),
        (lambda x: x.clamp(min=1, max=9), lambda a: a.clip(1, 9)),
        (lambda x: x.add(1).mul(2).sub(3).div(4), lambda a: ((a + 1) * 2 - 3) / 4),
        (lambda x: x.sum(dim=1, keepdim=True), lambda a: a.sum(1, keepdims=True)),
        (lambda x: x.flip(dims=(0,)), lambda a: a[::-1]),
        (lambda x: x.softmax(dim=0).sum(dim=0), lambda a: np.ones(3)),
        (lambda x: x.unsqueeze(dim=1).squeeze(dim=1), lambda a: a),
        (lambda x: x.std(dim=0, unbiased=True), lambda a: a.std(0, ddof=1)),
        (lambda x: x.index_select(1, [0, 2]), lambda a: a[:, [0, 2]]),
        (lambda x: x.masked_select(x > 3), lambda a: a[a > 3]),
        (lambda x: mg.cat([x, x], dim=1), lambda a: np.concatenate([a, a], 1)),
        (lambda x: mg.stack([x, x], dim=-1), lambda a: np.stack([a, a], -1)),
    ],
)
def test_words(ours: Any, expected: Any) -> None:
    np.testing.assert_allclose(ours(X).data, expected(X.data))


def test_sizes_and_dtypes() -> None:
    assert X.numel() == 6 and X.dim() == 2
    assert X.size == 6 and X.size() == (2, 3) and X.size(-1) == 3 and isinstance(X.size, int)
    assert copy.deepcopy(X.size) == pickle.loads(pickle.dumps(X.size)) == 6 and f"{X.size:,}" == "6"
    assert [getattr(X, name)().dtype for name in ("float", "double", "half", "long", "bool")] == [
        np.float32, np.float64, np.float16, np.int64, bool,
    ]  # fmt: skip
    assert (
        X.to("cpu") is X
        and X.to(np.float32).dtype == X.to(Tensor(np.float32(1))).dtype == np.float32
    )
    array = np.zeros(2)
    assert mg.from_numpy(array).data is array
    with pytest.raises(TypeError, match="from_numpy: expected an ndarray, got a list"):
        mg.from_numpy([1.0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: X.max(dim=1), TypeError, "write x.max.axis=...., and x.argmax"),
        (lambda: X.sort(dim=1), TypeError, r"write np.sort\(x\) and np.argsort\(x\)"),
        (
            lambda: X.sort(),
            mg.GradientError,
            r"sort: a leaf that requires gradients cannot be changed in place",
        ),
        (
            lambda: (X * 2).sort(),
            mg.GradientError,
            r"the gradient of x would be lost; write np.sort\(x\)",
        ),
        (lambda: X.transpose(0, 1), ValueError, "write x.T"),
        (lambda: X.transpose(-2, -1), ValueError, "write x.T"),
        (lambda: X.std(dim=1), TypeError, "PyTorch divides by n - 1, NumPy by n"),
        (lambda: X.split(2, dim=0), TypeError, "write x.chunk"),
        (lambda: X.repeat(2, 1, 1), TypeError, "write tile"),
        (lambda: X.sum(dim=1, axis=1), TypeError, "the same option was given twice"),
        (lambda: X[None].transpose(0, 1), ValueError, "write swapaxes"),
        (lambda: X.view_as(X), AttributeError, "no `view_as`: write x.reshape.y.shape."),
        (lambda: X.to("cuda"), ValueError, "to: no device 'cuda'; everything is on the CPU"),
        (
            lambda: X.to("quick"),
            TypeError,
            "to: expected a dtype, a tensor, or the device 'cpu', got 'quick'",
        ),
        (
            lambda: X.add_(1),
            AttributeError,
            "no `add_`: tensors are not changed in place; write x = x.add",
        ),
        (lambda: X.no_such_name, AttributeError, "no `no_such_name`"),
        (lambda: X.add(1, alpha=2), TypeError, "add: alpha= is not supported"),
    ],
)
def test_what_pytorch_means_otherwise_is_refused(
    call: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_missing_names_disturb_nothing() -> None:
    assert not hasattr(X, "no_such_name") and not hasattr(X, "__array_interface__")
    np.testing.assert_array_equal(copy.deepcopy(X).data, X.data)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(X)).data, X.data)


def test_complex_numbers_are_refused() -> None:
    for call in (
        lambda: X * 1j,
        lambda: X + np.array(1j),
        lambda: X.astype(complex),
        lambda: np.where(X > 1, X, 1j),
    ):
        with pytest.raises(
            TypeError, match="the result is complex, and complex numbers have no gradients"
        ):
            call()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64, bool, np.float32])
def test_top_k_of_every_dtype(dtype: Any) -> None:
    x = np.array([3, 0, 127, 1, 127, 2]).astype(dtype)
    x[1] = (
        False if dtype is bool else np.iinfo(dtype).min if np.dtype(dtype).kind in "iu" else -np.inf
    )
    values, places = mg.top_k(x, 6)
    np.testing.assert_array_equal(values.data, np.sort(x)[::-1])
    np.testing.assert_array_equal(values.data, x[places])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64, bool, np.float32])
def test_falling_order(dtype: Any) -> None:
    """As Python sorts in reverse: equal elements keep their order. NaN comes last, as in NumPy from 2.5 on."""
    x = np.array([[3, 0, 127, 1, 127, 0], [1, 0, 2, 2, 1, 0]]).astype(dtype)
    if np.dtype(dtype).kind == "i":
        x[0, 1] = np.iinfo(dtype).min
    places = [sorted(range(6), key=row.__getitem__, reverse=True) for row in x.tolist()]
    np.testing.assert_array_equal(mg.argsort(x, stable=True, descending=True), places)
    np.testing.assert_array_equal(
        Tensor(x).argsort(dim=0, kind="stable", descending=True),
        mg.argsort(~x if x.dtype.kind != "f" else -x, 0, "stable"),
    )
    np.testing.assert_array_equal(
        mg.sort(x, descending=True), np.take_along_axis(x, np.array(places), 1)
    )
    np.testing.assert_array_equal(mg.sort([1.0, np.nan, 2.0], descending=True), [2.0, 1.0, np.nan])


def test_lists_as_operands() -> None:
    rows = [[1.0, 2.0], [3.0, 5.0]]
    x = Tensor(np.eye(2), requires_grad=True)
    for f in (
        lambda a: x @ a,
        lambda a: np.linalg.solve(a, x),
        lambda a: x * a,
        lambda a: np.einsum("ij,jk", a, x),
    ):
        (found,), (expected,) = (mg.gradients(f(a).sum(), x) for a in (rows, np.array(rows)))
        np.testing.assert_array_equal(found.data, expected.data)


@pytest.mark.parametrize(
    ("f", "inputs"),
    [
        (lambda a, b: np.einsum("ia,i->", a, b), [np.ones((4, 1)), np.full(1, 2.0)]),
        (lambda a: np.prod(a), [np.array(0.0)]),
        (lambda a: mg.prod(a, axis=0), [np.array(3.0)]),
        (
            lambda x, w, b: mg.layer_norm(x, weight=w, bias=b),
            [np.ones((2, 0)), np.ones(0), np.ones(0)],
        ),
        (lambda a, b: np.linalg.vecdot(a, b, axis=0), [np.eye(2) + 1, np.array([1.0, 5.0])]),
    ],
)
def test_edges_of_shape(f: Any, inputs: Any) -> None:
    assert mg.gradcheck(f, inputs)


BESIDE = (mg.power, mg.xlogy, mg.hypot, mg.arctan2, mg.divide, mg.logaddexp, mg.logaddexp2)


@pytest.mark.parametrize("f", BESIDE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_integers_beside_a_tensor_cost_no_digits(f: Any, dtype: Any) -> None:
    """NumPy's logarithm of 8 bits has 11, and 0 - 1 is 255 there."""
    integers = np.array([152 if dtype == np.uint8 else 100, 7, 3, 0, 1], dtype)
    for turn in (slice(None), slice(None, None, -1)):
        found = []
        for other in (integers, integers.astype(float)):
            x = Tensor([0.7, 20.0, 0.9, 1.5, 2.6], requires_grad=True)
            with np.errstate(divide="ignore"):
                y = f(*(x, other)[turn])
                found.append([y.data, mg.gradients(y.sum(), x)[0].data])
        for a, b in zip(*found):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_integers_beside_gradients_do_not_wrap_around() -> None:
    assert mg.mean(np.ones(300, bool), where=np.ones(300, bool)).item() == 1  # counted in float64
    assert mg.var(np.arange(300, dtype=np.uint8) % 2, where=np.ones(300, bool)).item() == 0.25
    knots, heights = Tensor([0.0, 1.0, 2.0], requires_grad=True), np.array([9, 4, 6], np.uint8)
    np.testing.assert_allclose(np.interp([0.5, 1.5], knots, heights).data, [6.5, 5.0])
    a = Tensor([1.0, 7.0], requires_grad=True)
    (g,) = mg.gradients(np.fmin(a, np.array([3, 3], np.uint8)).sum(), a)
    np.testing.assert_array_equal(g.data, [1, 0])

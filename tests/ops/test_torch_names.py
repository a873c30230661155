"""PyTorch's names and arguments on tensors; those that mean something else in NumPy are refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import minigrad as mg
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
        (lambda x: x[:, None].expand(-1, 4, 3), lambda x: np.repeat(x[:, None], 4, 1)),
    ],
)
def test_torch_form_has_value_and_gradient_of_numpy_form(torch_form: Any, numpy_form: Any) -> None:
    y, expected = torch_form(X), numpy_form(X)
    np.testing.assert_array_equal(y.data, expected.data, strict=True)
    g = np.random.default_rng(0).standard_normal(y.shape)
    np.testing.assert_array_equal(*[mg.gradients(f, X, g)[0].data for f in (y, expected)])


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
        (lambda: X.transpose(0, 1), ValueError, "write x.T"),
        (lambda: X[None].transpose(0, 1), ValueError, r"write swapaxes\(0, 1\)"),
        (lambda: X.std(dim=1), TypeError, "PyTorch divides by n - 1, NumPy by n"),
        (lambda: X.repeat(2, 1, 1), TypeError, "write tile"),
        (lambda: X.sum(dim=1, axis=1), TypeError, "the same option was given twice"),
        (lambda: X.view_as, AttributeError, "no `view_as`: write x.reshape.y.shape."),
        (lambda: X.to("cuda"), ValueError, "to: device must be 'cpu', got 'cuda'"),
        (lambda: X.view(np.int64), TypeError, "view: shape must be integers, got .*; convert to a"),
        (lambda: X.view("int64"), TypeError, "view: shape must be integers, got 'int64'"),
        (lambda: X.to("quick"), TypeError, "a tensor, or the device 'cpu', got 'quick'"),
        (lambda: X.add_(1), AttributeError, "tensors are not changed in place; write x = x.add"),
        (lambda: X.add(1, alpha=2), TypeError, "add: alpha= is not supported"),
        (lambda: X * 1j, TypeError, "the result is complex, and complex numbers have no gradients"),
    ],
)
def test_tensor_refuses_what_numpy_means_otherwise(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_tensor_has_no_attribute_that_pickle_or_numpy_would_misread() -> None:
    assert not hasattr(X, "no_such_name") and not hasattr(X, "__array_interface__")

"""Indices: integers of every width, also where the machine's have 32 bits, and sequences."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.ops import shape

NUMPY = {"take": np.take, "repeat": np.repeat}


def refuse_wide_indices(name: str) -> Any:
    """Return a NumPy function as on a machine of 32 bits, where it refuses indices of 64 bits."""

    def call(a: Any, i: Any, *args: Any, **options: Any) -> Any:
        if isinstance(i, np.ndarray) and not np.can_cast(i.dtype, np.int32):
            raise TypeError(f"Cannot cast array data from {i.dtype} to int32")
        return NUMPY[name](a, i, *args, **options)

    return call


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.uint64])
def test_indices_reach_numpy_in_the_width_of_the_machine(dtype: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(shape, "INTP", np.int32)
    for name in NUMPY:
        monkeypatch.setattr(np, name, refuse_wide_indices(name))
    x, i = (
        mg.Tensor(np.arange(12.0).reshape(4, 3), requires_grad=True),
        np.array([2, 0, 2, 1], dtype),
    )
    for y, rows in (
        (mg.embedding(x, i), [2, 0, 2, 1]),
        (mg.repeat(x, mg.Tensor(i), axis=0), [0, 0, 2, 2, 3]),
        (x[i, None][:, 0], [2, 0, 2, 1]),
    ):
        np.testing.assert_array_equal(y.data, x.data[rows])
        (g,) = mg.gradients(y.sum(), x)
        np.testing.assert_array_equal(g.data[:, 0], np.bincount(rows, minlength=4))


def test_indices_of_each_example_reach_numpy_in_the_width_of_the_machine(monkeypatch: Any) -> None:
    monkeypatch.setattr(shape, "INTP", np.int32)
    table, indices = np.arange(12.0).reshape(4, 3), np.array([[2, 0], [1, 1]])
    gradients = mg.vmap(mg.grad(lambda x, i: mg.embedding(x, i).sum()), (None, 0))(table, indices)
    counts = [np.bincount(row, minlength=4) for row in indices]
    np.testing.assert_array_equal(gradients.data[..., 0], counts)


@pytest.mark.parametrize(
    "width, index", [(np.int32, np.int64(2**32)), (np.int64, np.uint64(2**63))]
)
def test_index_that_does_not_fit_is_refused(monkeypatch: Any, width: Any, index: Any) -> None:
    monkeypatch.setattr(shape, "INTP", width)
    with pytest.raises(IndexError, match="indices must fit into int"):
        mg.Tensor(np.arange(3.0), True)[np.array([index])]


@pytest.mark.parametrize(
    "index",
    [
        array("q", [0, 0]),
        deque([0, 0]),
        (slice(None), (0, 0)),
        ((0, 0), [1, 1]),
        (0, ((0, 0), (0, 1))),
        (np.array([True, False]), [1, 1]),
        (slice(None), array("q", [0, 0])),
    ],
    ids=str,
)
def test_getitem_repeated_indices_in_any_sequence_add_up(index: Any) -> None:
    x = mg.Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    y = x[index]
    np.testing.assert_array_equal(y.data, x.data[index])
    expected = np.zeros(x.shape)
    np.add.at(expected, index, 1)
    np.testing.assert_array_equal(mg.gradients(y.sum(), x)[0].data, expected)

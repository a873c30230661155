"""Batches of arrays and datasets: their contents and their order."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad.nested import leaves

X = np.random.default_rng(0).standard_normal((23, 4)).astype(np.float32)
Y = np.arange(23)
Pair = namedtuple("Pair", "x y")


def test_batches_in_a_loop_are_tensors_of_a_new_order() -> None:
    batches = nn.Batches(X, Y, batch_size=8, drop_last=True)
    first, second = list(batches), list(batches)
    assert len(first) == len(batches) == 2
    x, y = first[0]
    assert x.dtype == np.float32 and y.dtype == Y.dtype and not x.requires_grad
    assert x.tolist() != second[0][0].tolist()


@pytest.mark.parametrize("dtype", ["?", "u2", "i1", "f2", "c8", "U3"])
def test_batches_in_a_loop_are_tensors_of_numbers(dtype: str) -> None:
    array = np.arange(4).astype(dtype)
    ((batch,),) = nn.Batches(array, batch_size=4, shuffle=False)
    assert isinstance(batch, mg.Tensor) == (dtype != "U3")
    np.testing.assert_array_equal(np.asarray(batch), array, strict=True)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"x": X, "y": Y}, {"x": X[:3], "y": Y[:3]}),
        ([{"x": x, "name": "row"} for x in X], {"x": X[:3], "name": ["row"] * 3}),
        ([Pair(x, (float(y), mg.tensor([y]))) for x, y in zip(X, Y)], Pair(X[:3], (Y[:3] / 1.0, Y[:3, None]))),
    ],
    ids=["dict of arrays", "dicts", "named tuples"],
)  # fmt: skip
def test_batches_keep_the_structure_of_their_data(data: Any, expected: Any) -> None:
    batch = next(nn.Batches(data, batch_size=3, shuffle=False).epoch())
    assert type(batch) is type(expected)
    for found, array in zip(leaves(batch), leaves(expected), strict=True):
        np.testing.assert_array_equal(found, array, strict=isinstance(array, np.ndarray))
        assert type(found) is (np.ndarray if isinstance(array, mg.Tensor) else type(array))


def test_batches_with_collate_pad_samples_of_different_lengths() -> None:
    texts = [[5], [6, 7, 8], [9, 9]]
    batches = nn.Batches(texts, batch_size=3, shuffle=False, collate=nn.text.padded)
    assert [b.tolist() for b in batches] == [[[5, 0, 0], [6, 7, 8], [9, 9, 0]]]


def test_batches_of_arrays_with_collate_are_what_it_returns() -> None:
    collate = lambda samples: [x.sum() + y for x, y in samples]
    ((batch,)) = nn.Batches(X, Y, batch_size=23, shuffle=False, collate=collate).epoch()
    assert batch == [x.sum() + y for x, y in zip(X, Y)]


def test_padded_of_other_values_than_integers_raises() -> None:
    assert nn.text.padded([[], [True], np.array([7], np.uint8)], 1).tolist() == [[1], [1], [7]]
    for row, dtype in (([1, 2.5], "float64"), (["1"], "<U1")):
        with pytest.raises(TypeError, match=f"padded: sequences must hold integers, got {dtype}"):
            nn.text.padded([[1, 2], row])
    for left in (False, True):
        with pytest.raises(ValueError, match=r"shape \(3,\) into shape"):
            nn.text.padded([[1, 2, 3], [4]], length=2, left=left)


def test_no_rows_have_no_columns() -> None:
    assert nn.text.padded([]).shape == (0, 0) and nn.text.padded([], length=3).shape == (0, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([X, Y[:-1]], r"one length, got shapes \[\(23, 4\), \(22,\)\]"),
        ([np.array(1.0)], "one length"),
        ([{"x": X}, Y], "one length"),
        ([{}], "one length"),
        ([iter(X)], "with a length and indices, got .* make a list"),
        ([{1, 2}], "with a length and indices, got .* make a list"),
        ([[X[0], X[0, :2]]], "samples must have one structure and shape"),
    ],
)
def test_batches_of_data_that_do_not_fit_raise(data: list[Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        list(nn.Batches(*data, batch_size=2))


def test_dataset_is_read_by_python_integers() -> None:
    class Data(Sequence[int]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, i: Any) -> int:
            assert type(i) is int
            return i

    assert sorted(np.concatenate([*nn.Batches(Data(), batch_size=2).epoch()])) == [*range(5)]
    assert sorted(nn.as_batches(Data()).epoch()) == [*range(5)]


class Rows(nn.Batches):
    """A subclass with another plan, and without the arguments of the base class."""

    def __init__(self) -> None:
        pass

    def plan(self, epoch: int = 0) -> list[Any]:
        return [[epoch, i] for i in range(3)]

    def take(self, rows: Any) -> Any:
        return rows


def test_batches_of_a_subclass_need_plan_and_take_alone() -> None:
    batches = Rows()
    assert [list(batches), list(batches)] == [[[e, 0], [e, 1], [e, 2]] for e in range(2)]
    assert list(batches.epoch(4, 2)) == [[4, 2]]


@pytest.mark.parametrize("batches", [(x for x in [1]), iter([1]), map(abs, [1]), zip([1])])
def test_batches_that_can_be_read_once_are_refused(batches: Any) -> None:
    with pytest.raises(TypeError, match="batches must be a list, or a function .* runs once only"):
        nn.as_batches(batches)


@pytest.mark.parametrize("batches", ["ab", b"ab", 5, None])
def test_batches_of_another_type_are_refused(batches: Any) -> None:
    with pytest.raises(TypeError, match="batches must be an iterable of batches, or a function"):
        nn.as_batches(batches)


@pytest.mark.parametrize(
    "batches", [{5: 6}, {5}, range(5, 6), dict.fromkeys([5]).keys(), lambda epoch: iter([5])]
)
def test_batches_of_any_iterable_or_function_are_read_again(batches: Any) -> None:
    source = nn.as_batches(batches)
    assert [[*source.epoch(epoch)] for epoch in range(2)] == [[5], [5]]
    assert nn.as_batches(source) is source

"""Batches of arrays and datasets: their contents and their order."""

from __future__ import annotations

from collections import namedtuple
from itertools import chain
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad.trees import leaves

X = np.random.default_rng(0).standard_normal((23, 4)).astype(np.float32)
Y = np.arange(23) % 3
Pair = namedtuple("Pair", "x y")


class Dataset:
    """A dataset with a length and indices."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> Any:
        return {"x": X[i], "y": int(Y[i]), "name": f"row {i}"}


def rows_of(epoch: int, start: int = 0, seed: int = 3, shuffle: bool = True) -> list[list[int]]:
    """Return the rows of each batch of 5 rows."""
    batches = nn.Batches(X, Y, batch_size=5, shuffle=shuffle, seed=seed)
    rows = []
    for x, y in batches.epoch(epoch, start):
        rows.append([np.flatnonzero((row == X).all(1)).item() for row in x])
        np.testing.assert_array_equal(y, Y[rows[-1]])
    return rows


def test_batches_without_shuffle_keep_the_order() -> None:
    assert [*chain(*rows_of(2, shuffle=False))] == [*range(23)]


def test_batches_with_shuffle_have_an_order_by_seed_and_epoch() -> None:
    rows = rows_of(2)
    assert [len(batch) for batch in rows] == [5, 5, 5, 5, 3]
    assert sorted(chain(*rows)) == list(range(23))
    assert rows_of(2, start=3) == rows[3:]
    assert rows_of(3) != rows and rows_of(2, seed=4) != rows


def test_batches_shuffle_as_version_0_2_did() -> None:
    """Runs of version 0.2 go on in their order."""
    expected = np.random.default_rng([3, 1]).permutation(23)
    assert [*chain(*rows_of(1))] == expected.tolist()
    listed = nn.as_batches(list(range(9)))
    assert list(listed.epoch(2)) == np.random.default_rng([0, 2]).permutation(9).tolist()


def test_batches_in_a_loop_are_tensors_of_a_new_order() -> None:
    batches = nn.Batches(X, Y, batch_size=8, drop_last=True)
    first, second = list(batches), list(batches)
    assert len(first) == len(batches) == 2
    for x, y in first:
        assert x.dtype == np.float32 and y.dtype == Y.dtype and not x.requires_grad
    assert first[0][0].tolist() != second[0][0].tolist()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"x": X, "y": Y}, {"x": X[:3], "y": Y[:3]}),
        (Dataset(), {"x": X[:3], "y": Y[:3], "name": ["row 0", "row 1", "row 2"]}),
        ([Pair(x, (float(y), mg.tensor([y]))) for x, y in zip(X, Y)], Pair(X[:3], (Y[:3] / 1.0, Y[:3, None]))),
        ([*range(7)], np.arange(3)),
    ],
    ids=["dict of arrays", "dataset", "named tuples", "numbers"],
)  # fmt: skip
def test_batches_keep_the_structure_of_their_data(data: Any, expected: Any) -> None:
    batch = next(nn.Batches(data, batch_size=3, shuffle=False).epoch())
    assert type(batch) is type(expected)
    for found, array in zip(leaves(batch), leaves(expected), strict=True):
        np.testing.assert_array_equal(found, array, strict=isinstance(array, np.ndarray))


def test_batches_with_collate_pad_samples_of_different_lengths() -> None:
    texts = [[5], [6, 7, 8], [9, 9]]
    batches = nn.Batches(texts, batch_size=3, shuffle=False, collate=nn.text.padded)
    assert [b.tolist() for b in batches] == [[[5, 0, 0], [6, 7, 8], [9, 9, 0]]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([X, Y[:-1]], r"one length, got shapes \[\(23, 4\), \(22,\)\]"),
        ([np.array(1.0)], r"one length, got shapes \[\(\)\]"),
        ([], r"one length, got shapes \[\]"),
        ([(x for x in X)], "with a length and indices, got <generator .*make a list"),
        ([[X[0], X[0, :2]]], "samples must have one structure and shape"),
        ([[(1, 2), (1, 2, 3)]], "samples must have one structure and shape"),
        ([[{"a": 1}, {"b": 1}]], "samples must have one structure and shape"),
    ],
)
def test_batches_of_data_that_do_not_fit_raise(data: list[Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        list(nn.Batches(*data, batch_size=2))


def test_removed_array_batches_names_its_replacement() -> None:
    with pytest.raises(ImportError, match=r"nn.ArrayBatches was removed: use nn.Batches"):
        from nn import ArrayBatches  # noqa: F401


class Rows(nn.Batches):
    """A subclass with another plan, and without the arguments of the base class."""

    def plan(self, epoch: int = 0) -> list[Any]:
        return [[epoch, i] for i in range(3)]

    def take(self, rows: Any) -> Any:
        return np.array(rows)


def test_batches_of_a_subclass_need_plan_and_take_alone() -> None:
    batches = Rows.__new__(Rows)
    assert [b.tolist() for b in batches] == [[0, 0], [0, 1], [0, 2]]
    assert [b.tolist() for b in batches] == [[1, 0], [1, 1], [1, 2]]
    assert [b.tolist() for b in batches.epoch(4, 2)] == [[4, 2]]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_batches_of_ranks_make_up_the_batch(ranks: int) -> None:
    """The last batch has one row, so the second and third rank have none."""
    batches = nn.Batches(Y, batch_size=11)
    shares = zip(*(batches.epoch(0, 0, rank, ranks) for rank in range(ranks)))
    for (whole,), parts in zip(batches.epoch(), shares):
        for rank, part in enumerate(parts):
            expected = whole[rank::ranks]
            assert (part[0].tolist() if part else []) == expected.tolist()

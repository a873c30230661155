"""Batches of arrays and datasets: their contents and their order."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor, optim

X = np.random.default_rng(0).standard_normal((23, 4)).astype(np.float32)
Y = np.arange(23) % 3
Pair = namedtuple("Pair", "x y")


class Dataset:
    """A dataset with a length and indices."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> Any:
        return {"x": X[i], "y": int(Y[i]), "name": f"row {i}"}


def gathered(batches: nn.Batches, epoch: int) -> Any:
    return [np.concatenate(column) for column in zip(*batches.epoch(epoch))]


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_of_arrays_contain_each_row_once_in_an_order_by_seed_and_epoch(
    shuffle: bool,
) -> None:
    batches = nn.Batches(X, Y, batch_size=5, shuffle=shuffle, seed=3)
    assert len(batches) == 5 and len(batches.dataset) == 23
    x, y = gathered(batches, 2)
    order = [np.flatnonzero((row == X).all(1)).item() for row in x]
    assert sorted(order) == list(range(23)) and (order == list(range(23))) is not shuffle
    np.testing.assert_array_equal(y, Y[order])
    again = nn.Batches(X, Y, batch_size=5, shuffle=shuffle, seed=3)
    np.testing.assert_array_equal(gathered(again, 2)[0], x)
    assert [len(b[0]) for b in batches.epoch(2, start=3)] == [5, 3]
    np.testing.assert_array_equal(next(batches.epoch(2, start=3))[0], x[15:20])
    if shuffle:
        other = nn.Batches(X, Y, batch_size=5, seed=4)
        assert not np.array_equal(gathered(batches, 3)[0], x)
        assert not np.array_equal(gathered(other, 2)[0], x)


def test_batches_shuffle_as_version_0_2_did() -> None:
    """Runs of version 0.2 go on in their order."""
    rows = np.random.default_rng([7, 1]).permutation(np.arange(23))
    batches = list(nn.Batches(X, Y, batch_size=5, seed=7).epoch(1))
    np.testing.assert_array_equal(np.concatenate([x for x, _ in batches]), X[rows])
    listed = nn.as_batches(list(range(9)))
    assert list(listed.epoch(2)) == np.random.default_rng([0, 2]).permutation(9).tolist()


def test_batches_in_a_loop_are_tensors_that_a_torch_loop_can_use() -> None:
    batches = nn.Batches(X, Y, batch_size=8, drop_last=True)
    device, total, seen = "cpu", 0, []
    model = nn.Linear(4, 3)
    for _ in range(2):
        seen.append([])
        for x, y in batches:
            x, y = x.to(device), y.to(device)
            loss = mg.cross_entropy(model(x), y)
            total += loss.item() * x.size(0)
            assert x.dtype == np.float32 and y.dtype == Y.dtype and not x.requires_grad
            seen[-1].append(x.tolist())
    assert len(batches) == 2 == len(seen[0]) and seen[0] != seen[1]


def test_batches_of_dicts_and_datasets_keep_the_structure() -> None:
    batch = next(iter(nn.Batches({"x": X, "y": Y}, batch_size=3, shuffle=False)))
    assert batch.keys() == {"x", "y"} and isinstance(batch["x"], Tensor)
    np.testing.assert_array_equal(batch["x"].data, X[:3])
    (own,) = nn.Batches(Dataset(), batch_size=23, shuffle=False)
    np.testing.assert_array_equal(own["x"].data, X)
    np.testing.assert_array_equal(own["y"].data, Y)
    assert own["name"] == [f"row {i}" for i in range(23)]
    samples = [Pair(x, (float(y), mg.tensor([y]))) for x, y in zip(X, Y)]
    batch = next(nn.Batches(samples, batch_size=4, shuffle=False).epoch())
    assert type(batch) is Pair and batch.y[0].dtype == np.float64 and batch.y[1].shape == (4, 1)
    np.testing.assert_array_equal(batch.x, X[:4])
    numbers = nn.Batches(list(range(7)), batch_size=3, shuffle=False)
    assert [b.tolist() for b in numbers] == [[0, 1, 2], [3, 4, 5], [6]]


def test_batches_with_collate_pad_samples_of_different_lengths() -> None:
    texts = [[5], [6, 7, 8], [9, 9]]
    batches = nn.Batches(texts, batch_size=3, shuffle=False, collate=nn.text.padded)
    assert [b.tolist() for b in batches] == [[[5, 0, 0], [6, 7, 8], [9, 9, 0]]]
    of_arrays = nn.Batches(X, Y, batch_size=2, shuffle=False, collate=lambda samples: samples)
    (x, y), _ = next(of_arrays.epoch())
    np.testing.assert_array_equal(x, X[0])
    assert y == Y[0]


def test_batches_refuse_data_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"one length, got shapes \[\(23, 4\), \(22,\)\]"):
        nn.Batches(X, Y[:-1], batch_size=2)
    with pytest.raises(ValueError, match=r"one length, got shapes \[\(\)\]"):
        nn.Batches(np.array(1.0), batch_size=2)
    with pytest.raises(ValueError, match=r"one length, got shapes \[\]"):
        nn.Batches(batch_size=2)
    with pytest.raises(TypeError, match="with a length and indices, got <generator .*make a list"):
        nn.Batches((x for x in X), batch_size=2)
    with pytest.raises(ValueError, match="batch_size"):
        nn.Batches(X, batch_size=0)
    for samples in ([X[0], X[0, :2]], [(1, 2), (1, 2, 3)], [{"a": 1}, {"b": 1}]):
        with pytest.raises(ValueError, match="samples must have one structure and shape"):
            list(nn.Batches(samples, batch_size=2))
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
    batches = nn.Batches(Dataset(), batch_size=11)
    shares = [list(batches.epoch(0, 0, rank, ranks)) for rank in range(ranks)]
    for number, whole in enumerate(batches.epoch(0)):
        for rank in range(ranks):
            if not len(whole["y"][rank::ranks]):
                assert shares[rank][number] is None
                continue
            np.testing.assert_array_equal(shares[rank][number]["y"], whole["y"][rank::ranks])


class Model(nn.Module):
    """A model that takes the batches of `Dataset`."""

    def __init__(self) -> None:
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3))

    def forward(self, x: Any) -> Tensor:
        return self.layers(x)


def test_trainer_with_a_function_of_the_epoch_trains_on_its_batches(tmp_path: Path) -> None:
    """The batches are made from others, and their iterator has no length."""
    source = nn.Batches(X, Y, batch_size=5)

    def doubled(epoch: int) -> Iterator[Any]:
        return ((2 * x, y) for x, y in source.epoch(epoch))

    def made(**limits: int) -> nn.Trainer:
        mg.manual_seed(0)
        model = Model()
        loss = lambda model, batch: mg.cross_entropy(model(batch[0]), batch[1])
        sgd = optim.SGD(model.parameters(), lr=0.1)
        settings: dict[str, Any] = {"log_every": 1, "progress": False, **limits}
        return nn.Trainer(model, sgd, doubled, objective=loss, **settings)

    losses = []
    for limits in ({"max_epochs": 2}, {"max_steps": 10}):
        trainer = made(**limits)
        losses.append([entry["loss"] for entry in trainer.fit() if "loss" in entry])
        assert trainer.step == 10
    assert losses[0] == losses[1]

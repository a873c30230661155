"""Averages of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_equal

import nn
from minigrad.io import save_arrays
from minigrad.optim import SGD
from nn.runs.averaging import MovingAverage, average_weights


def test_average_weights_returns_mean_of_files(tmp_path: Path) -> None:
    """A sum in float32 would lose the 3."""
    paths = [tmp_path / name for name in "abc"]
    for i, (path, value) in enumerate(zip(paths, (1e8, 3, -1e8))):
        save_arrays(path, {"a": np.array([value, i], np.float32), "n": np.array([i])})
    average = average_weights(paths)
    assert average["a"].tolist() == [1, 1] and average["a"].dtype == np.float32
    assert average["n"].tolist() == [2]


@pytest.mark.parametrize(
    "second, message",
    [
        ({"w": np.zeros((3, 2))}, r"w must be float64 \(2, 3\), as in the other weights, got flo"),
        ({}, "w must be .*, got absent"),
        ({"w": np.zeros((2, 3)), "v": np.zeros(2)}, "v must be absent, .* got float64"),
        ({"w": np.full((2, 3), np.nan)}, "w: 6 of its 6 values are NaN or infinite"),
    ],
    ids=["shape", "missing", "additional", "NaN"],
)
def test_average_weights_of_other_arrays_raises(tmp_path: Path, second: Any, message: str) -> None:
    save_arrays(tmp_path / "a", {"w": np.zeros((2, 3))})
    save_arrays(tmp_path / "b", second)
    with pytest.raises(ValueError, match=f"b: {message}"):
        average_weights([tmp_path / "a", tmp_path / "b"])


def test_average_weights_of_no_file_raises() -> None:
    with pytest.raises(ValueError, match="paths must contain at least one file, got none"):
        average_weights([])


def test_moving_average_equals_definition() -> None:
    model = nn.Linear(3, 2, dtype=float)
    average, expected = MovingAverage(model, 0.5), model.weight.data.copy()
    for t in range(1, 20):
        model.weight.data[...] = np.random.default_rng(t).standard_normal((2, 3))
        average.update(model)
        d = min(0.5, (1 + t) / (10 + t))
        expected = d * expected + (1 - d) * model.weight.data
    np.testing.assert_allclose(average.average["weight"], expected, rtol=1e-12)


def test_moving_average_applied_replaces_weights_within_block() -> None:
    model = nn.Linear(3, 2)
    optimizer, average = SGD(model.parameters(), 0.1), MovingAverage(model)
    model(np.ones((1, 3), np.float32)).sum().backward()
    optimizer.step()
    before = {name: array.copy() for name, array in model.state_dict().items()}
    with pytest.raises(KeyError), average.applied(model):
        assert_equal(model.state_dict(), average.average)
        raise KeyError
    assert_equal(model.state_dict(), before)
    assert not np.array_equal(before["weight"], average.average["weight"])
    optimizer.step()  # the weights are still in the optimizer's memory


def test_moving_average_of_integers_is_the_last_value() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            self.register_buffer("count", np.array([1]))

    model = Counter()
    average = MovingAverage(model)
    model.load_state_dict({"count": [7]})
    average.update(model)
    assert average.average["count"].tolist() == [7]


def test_moving_average_with_other_state_raises() -> None:
    with pytest.raises(ValueError, match="MovingAverage: bias must be float32 .*, got absent"):
        MovingAverage(nn.Linear(3, 2)).load_state_dict({"weight": np.zeros(3)})

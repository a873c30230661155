"""Averages of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_equal

import nn
from minigrad.io import load_arrays, save_arrays
from minigrad.optim import SGD
from nn.train.averaging import MovingAverage, average_weights


def draw_weights(model: nn.Module, rng: np.random.Generator) -> None:
    """Set all weights of a model to random values."""
    state = model.state_dict().items()
    model.load_state_dict({name: rng.standard_normal(array.shape) for name, array in state})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_average_weights_returns_mean_of_files(tmp_path: Path, dtype: Any, count: int) -> None:
    """A sum in float32 would lose the 3."""
    arrays = np.random.default_rng(count).standard_normal((count, 3, 4)).astype(dtype)
    arrays[:3, 0, 0] = [1e8, 3, -1e8][:count]
    paths = [tmp_path / f"{i}.safetensors" for i in range(count)]
    for i, path in enumerate(paths):
        save_arrays(path, {"a": arrays[i], "n": np.array([i])})
    average = average_weights(paths)
    assert average["a"].dtype == dtype and average["n"].tolist() == [count - 1]
    assert_allclose(average["a"], arrays.astype(float).mean(0), rtol=1e-6)


@pytest.mark.parametrize(
    "second, message",
    [
        ({"w": np.zeros((3, 2))}, r"w must be float64 \(2, 3\), as in the other weights, got flo"),
        ({}, r"w must be float64 \(2, 3\), as in the other weights, got absent"),
        ({"w": np.zeros((2, 3)), "v": np.zeros(2)}, r"v must be absent, .* got float64 \(2,\)"),
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


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_moving_average_equals_definition(decay: float) -> None:
    rng = np.random.default_rng(0)
    model = nn.Linear(3, 2, dtype=float, generator=rng)
    average, expected = MovingAverage(model, decay), model.weight.data.copy()
    for t in range(1, 30):
        draw_weights(model, rng)
        average.update(model)
        d = min(decay, (1 + t) / (10 + t))
        expected = d * expected + (1 - d) * model.weight.data
    assert_allclose(average.average["weight"], expected, rtol=1e-12)


def test_moving_average_applied_replaces_weights_within_block() -> None:
    model = nn.Linear(3, 2, generator=np.random.default_rng(0))
    optimizer = SGD(model.parameters(), 0.1)
    average = MovingAverage(model, 0.9)
    (model(np.ones((1, 3), np.float32)) ** 2).sum().backward()
    optimizer.step()
    before = {name: array.copy() for name, array in model.state_dict().items()}
    with pytest.raises(KeyError), average.applied(model):
        assert_equal(model.state_dict(), average.average)
        assert not np.array_equal(model.weight.data, before["weight"])
        raise KeyError
    assert_equal(model.state_dict(), before)
    optimizer.step()  # the weights are still in the optimizer's memory


def test_moving_average_with_loaded_state_continues(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = nn.Linear(3, 2, generator=rng)
    first, second = MovingAverage(model, 0.9), MovingAverage(model, 0.9)
    for step in range(8):
        draw_weights(model, rng)
        first.update(model)
        if step < 4:
            save_arrays(tmp_path / "x", first.state_dict())
            second.load_state_dict(load_arrays(tmp_path / "x")[0])
        else:
            second.update(model)
    assert_equal(second.state_dict(), first.state_dict())


def test_moving_average_with_other_state_or_decay_raises() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="MovingAverage: bias must be float32 .*, got absent"):
        MovingAverage(model).load_state_dict({"weight": np.zeros(3)})
    with pytest.raises(ValueError, match="decay must be finite, at least 0, less than 1, got 1"):
        MovingAverage(model, 1)

"""Averages of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nn
from minigrad.io import load_arrays, save_arrays
from minigrad.optim import SGD
from nn.train.averaging import MovingAverage, average_weights


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_average_weights_is_the_mean_of_files(tmp_path: Path, dtype: type, count: int) -> None:
    rng = np.random.default_rng(count)
    states = [
        {"a": rng.standard_normal((3, 4)).astype(dtype), "n": np.array([i])} for i in range(count)
    ]
    paths = [tmp_path / f"{i}.safetensors" for i in range(count)]
    for path, state in zip(paths, states):
        save_arrays(path, state)
    found = average_weights(paths)
    assert found["a"].dtype == dtype and found["n"].tolist() == [count - 1]
    np.testing.assert_allclose(
        found["a"], np.mean([s["a"].astype(float) for s in states], 0), rtol=1e-6
    )


def test_average_weights_sums_in_float64(tmp_path: Path) -> None:
    values = [np.float32(1e8), np.float32(-1e8), np.float32(3)]  # in float32 the sum may lose the 3
    for i, value in enumerate([values[0], values[2], values[1]]):
        save_arrays(tmp_path / f"{i}.safetensors", {"a": np.array([value])})
    assert average_weights(sorted(tmp_path.iterdir()))["a"] == np.float32(1)


def test_average_weights_of_files_that_do_not_fit_raises(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a", "b", "c"))
    save_arrays(a, {"w": np.zeros((2, 3)), "v": np.zeros(2)})
    save_arrays(b, {"w": np.zeros((3, 2)), "v": np.zeros(2)})
    save_arrays(c, {"w": np.zeros((2, 3))})
    with pytest.raises(
        ValueError,
        match=r"b: w must be float64 \(2, 3\), as in the other weights, got float64 \(3, 2\)",
    ):
        average_weights([a, b])
    with pytest.raises(
        ValueError, match=r"c: v must be float64 \(2,\), as in the other weights, got absent"
    ):
        average_weights([a, c])
    with pytest.raises(
        ValueError, match=r"a: v must be absent, as in the other weights, got float64 \(2,\)"
    ):
        average_weights([c, a])
    with pytest.raises(ValueError, match="paths must contain at least one file, got none"):
        average_weights([])


def weights(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in model.state_dict().items()}


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_moving_average_equals_its_definition(decay: float) -> None:
    rng = np.random.default_rng(0)
    model = nn.Linear(3, 2, dtype=float, generator=rng)
    average, expected = MovingAverage(model, decay), weights(model)
    for t in range(1, 30):
        model.load_state_dict(
            {name: rng.standard_normal(a.shape) for name, a in model.state_dict().items()}
        )
        average.update(model)
        d = min(decay, (1 + t) / (10 + t))
        expected = {
            name: d * a + (1 - d) * model.state_dict()[name] for name, a in expected.items()
        }
    for name, array in average.average.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-12)


def test_moving_average_applied_replaces_the_weights_in_the_block() -> None:
    model = nn.Linear(3, 2, generator=np.random.default_rng(0))
    average = MovingAverage(model, 0.9)
    optimizer = SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (model(np.ones((1, 3), np.float32)) ** 2).sum().backward()
        optimizer.step()
        average.update(model)
    own = weights(model)
    with pytest.raises(KeyError), average.applied(model):
        for name, array in model.state_dict().items():
            np.testing.assert_array_equal(array, average.average[name])
            assert not np.array_equal(array, own[name])
        raise KeyError
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, own[name])
    optimizer.zero_grad()  # its memory is still the optimizer's
    (model(np.ones((1, 3), np.float32)) ** 2).sum().backward()
    optimizer.step()


def test_moving_average_with_loaded_state_continues(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = nn.Linear(3, 2, generator=rng)
    steps = [
        {name: rng.standard_normal(a.shape) for name, a in model.state_dict().items()}
        for _ in range(8)
    ]
    whole, first, second = (MovingAverage(model, 0.9) for _ in range(3))
    for i, step in enumerate(steps):
        model.load_state_dict(step)
        whole.update(model)
        if i < 4:
            first.update(model)
            continue
        if i == 4:
            save_arrays(tmp_path / "x", first.state_dict())
            second.load_state_dict(load_arrays(tmp_path / "x")[0])
        second.update(model)
    for name, array in whole.average.items():
        np.testing.assert_array_equal(second.average[name], array)
    with pytest.raises(ValueError, match="MovingAverage: bias must be float32 .*, got absent"):
        second.load_state_dict({"weight": np.zeros(3)})
    with pytest.raises(ValueError, match="decay must be finite, at least 0, less than 1, got 1"):
        MovingAverage(model, 1)

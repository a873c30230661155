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
def test_average_of_files_is_their_mean(tmp_path: Path, dtype: type, count: int) -> None:
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


def test_average_sums_in_float64(tmp_path: Path) -> None:
    values = [np.float32(1e8), np.float32(-1e8), np.float32(3)]  # in float32 the sum may lose the 3
    for i, value in enumerate([values[0], values[2], values[1]]):
        save_arrays(tmp_path / f"{i}.safetensors", {"a": np.array([value])})
    assert average_weights(sorted(tmp_path.iterdir()))["a"] == np.float32(1)


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a", "b", "c"))
    save_arrays(a, {"w": np.zeros((2, 3)), "v": np.zeros(2)})
    save_arrays(b, {"w": np.zeros((3, 2)), "v": np.zeros(2)})
    save_arrays(c, {"w": np.zeros((2, 3))})
    with pytest.raises(
        ValueError, match=r"b: w is float64 \(3, 2\), but float64 \(2, 3\) in the files before it"
    ):
        average_weights([a, b])
    with pytest.raises(
        ValueError, match=r"c: v is missing, but float64 \(2,\) in the files before it"
    ):
        average_weights([a, c])
    with pytest.raises(
        ValueError, match=r"a: v is float64 \(2,\), but no such array is in the files before it"
    ):
        average_weights([c, a])
    with pytest.raises(ValueError, match="expected at least one file, got none"):
        average_weights([])


def weights(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in model.state_dict().items()}


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_moving_average_by_its_definition(decay: float) -> None:
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


def test_applied_average_is_in_the_model_and_goes_again() -> None:
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


def test_moving_average_goes_on_from_its_state(tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match="MovingAverage: bias: expected float32 .*, got none"):
        second.load_state_dict({"weight": np.zeros(3)})
    with pytest.raises(ValueError, match="expected a finite decay >= 0 and < 1, got 1"):
        MovingAverage(model, 1)

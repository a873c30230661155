"""Averages of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minigrad.io import save_arrays
from nn.runs.averaging import average_weights


@pytest.mark.parametrize(("dtype", "large"), [("f2", 6e4), ("f4", 1e8), ("f8", 1e8)])
def test_average_weights_returns_mean_of_files(tmp_path: Path, dtype: str, large: float) -> None:
    """A sum in float16 or float32 would lose the 3."""
    paths = [tmp_path / name for name in "abc"]
    for i, (path, value) in enumerate(zip(paths, (large, 3, -large))):
        save_arrays(path, {"a": np.array([value, i], dtype), "n": np.array([i], "i4")})
    average = average_weights(paths)
    np.testing.assert_equal(average["a"], np.ones(2, dtype), strict=True)
    np.testing.assert_equal(average["n"], np.array([2], "i4"), strict=True)


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
    with pytest.raises(ValueError, match="a: w must be|a: v must be|b: w: 6 of its"):
        average_weights([tmp_path / "b", tmp_path / "a"])


def test_average_weights_of_no_file_raises() -> None:
    with pytest.raises(ValueError, match="paths must contain at least one file, got none"):
        average_weights([])

"""`minigrad.save` and `minigrad.load`: nested objects in one safetensors file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad.io import save_arrays
from minigrad.io.safetensors import SafetensorsFile


def test_load_returns_what_save_was_given(tmp_path: Path) -> None:
    x = mg.tensor([[1.0, 2.0]], requires_grad=True)
    saved = {
        "a": [x, {"b": np.arange(3)}, None],
        "c.d": (1, "x", True, math.inf),
        "e": np.float32(0.5),
        "f": {},
    }
    mg.save(saved, tmp_path / "x")
    loaded = mg.load(tmp_path / "x")
    assert np.array_equal(loaded["a"][0], x.data) and loaded["a"][0].dtype == x.dtype
    assert np.array_equal(loaded["a"][1]["b"], np.arange(3)) and loaded["a"][2] is None
    assert (loaded["c.d"], loaded["e"], loaded["f"]) == ([1, "x", True, math.inf], 0.5, {})
    assert "a.1.b" in SafetensorsFile(tmp_path / "x")
    for obj in (mg.get_rng_state(), np.arange(4.0), [], 3, [np.ones(()), 2.0]):
        mg.save(obj, tmp_path / "x")
        assert json.dumps(mg.load(tmp_path / "x"), default=np.ndarray.tolist) == json.dumps(
            obj, default=np.ndarray.tolist
        )


@pytest.mark.parametrize(
    "obj, message",
    [
        (
            {"model": nn.Linear(2, 2)},
            "save: 'model' must consist of .* got a Linear; save its state",
        ),
        ({"a": {1: 2}}, "save: keys must be strings, got 1 in 'a'"),
        ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, "same path, got 'a.b' twice"),
        ({"a": np.array([None])}, "a is object, which a safetensors file cannot"),
    ],
)
def test_save_refuses_objects_it_could_not_restore(tmp_path: Path, obj: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        mg.save(obj, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"minigrad.object": "{}", "minigrad.paths": {"a": ["b", "c"]}},
        {"minigrad.object": "[]", "minigrad.paths": {"a": [4]}},
        {"minigrad.object": "[", "minigrad.paths": {}},
        {"minigrad.object": "3", "minigrad.paths": {"a": [0]}},
        {"minigrad.object": "{}", "minigrad.paths": [["a"]]},
        {"minigrad.object": '{"a": null}', "minigrad.paths": {"other": ["a"]}},
        {"minigrad.object": '{"a": 1, "a": 2}', "minigrad.paths": {}},
    ],
)
def test_load_of_another_file_is_refused(tmp_path: Path, metadata: Any) -> None:
    save_arrays(tmp_path / "x", {"a": np.ones(2)}, metadata)
    with pytest.raises(ValueError, match="x: must be a file that minigrad.save wrote; read other"):
        mg.load(tmp_path / "x")

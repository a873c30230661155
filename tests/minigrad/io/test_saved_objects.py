"""`minigrad.save` and `minigrad.load`: nested objects in one safetensors file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_equal

import minigrad as mg
import nn
from minigrad.io import load_arrays, save_arrays
from minigrad.io.safetensors import SafetensorsFile, write_safetensors


def test_load_returns_saved_object(tmp_path: Path) -> None:
    x = mg.tensor([[1.0, 2.0]], requires_grad=True)
    saved = {
        "a": [x, {"b": np.arange(3)}, None],
        "c.d": (1, "x", True, math.inf),
        "e": np.float32(0.5),
        "f": {},
    }
    mg.save(saved, tmp_path / "x")
    expected = {**saved, "a": [x.data, *saved["a"][1:]], "c.d": [*saved["c.d"]]}
    assert_equal(mg.load(tmp_path / "x"), expected)
    assert "a.1.b" in SafetensorsFile(tmp_path / "x")


def test_load_returns_saved_object_of_any_depth(tmp_path: Path) -> None:
    """Return numbers of Python for those of NumPy, at any depth that JSON allows."""
    obj: Any = [np.arange(2), np.int64(3), np.bool_(True), np.str_("a")]
    for i in range(100):
        obj = {"a": obj} if i % 2 else [obj]
    mg.save(obj, tmp_path / "x")
    found = mg.load(tmp_path / "x")
    assert_equal(found, obj)
    for i in range(100):
        found = found["a" if i % 2 == 0 else 0]
    assert [type(x) for x in found[1:]] == [int, bool, str]


def test_load_arrays_returns_metadata_of_other_programs(tmp_path: Path) -> None:
    """Return plain data for values that are JSON, and other strings unchanged."""
    notes = {"format": "pt", "count": "3", "list": "[1, null]", "deep": "[" * 9999, "empty": ""}
    write_safetensors(tmp_path / "x", {"a": np.ones(1)}, notes)
    for mapped in (False, True):
        _, found = load_arrays(tmp_path / "x", mapped)
        assert found == notes | {"count": 3, "list": [1, None]}


@pytest.mark.parametrize(
    "obj", [mg.get_rng_state(), np.arange(4.0), 3, []], ids=["generator", "array", "number", "list"]
)
def test_load_returns_saved_object_of_other_type(tmp_path: Path, obj: Any) -> None:
    mg.save(obj, tmp_path / "x")
    assert_equal(mg.load(tmp_path / "x"), obj)


@pytest.mark.parametrize(
    "obj, message",
    [
        ({"m": nn.Linear(2, 2)}, "save: 'm' must consist of .* got a Linear; save its state"),
        ({"a": [np.complex64(1j)]}, "save: 'a.0' must consist of .* got a complex"),
        ({"a": {1: 2}}, "save: keys must be strings, got 1 in 'a'"),
        ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, "same path, got 'a.b' twice"),
    ],
)
def test_save_of_invalid_object_raises(tmp_path: Path, obj: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        mg.save(obj, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"minigrad.object": "{}", "minigrad.paths": {"a": ["b", "c"]}},
        {"minigrad.object": "{}", "minigrad.paths": [["a"]]},
        {"minigrad.object": '{"a": null}', "minigrad.paths": {"b": ["a"]}},
        {"minigrad.object": "[1]", "minigrad.paths": {"a": [0, "x"]}},
        {"minigrad.object": "[]", "minigrad.paths": {"a": [0]}},
        {"minigrad.object": "[", "minigrad.paths": {}},
        {"minigrad.object": "[" * 99_999, "minigrad.paths": {}},
    ],
)
def test_load_of_other_file_raises(tmp_path: Path, metadata: Any) -> None:
    save_arrays(tmp_path / "x", {"a": np.ones(2)}, metadata)
    with pytest.raises(ValueError, match="x: must be a file that minigrad.save wrote; read other"):
        mg.load(tmp_path / "x")

"""JSON files and their settings: errors name the file, the setting, the condition and the value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minigrad.io import save_arrays
from minigrad.io.json import Settings, dataclass_from, read_json, write_json


@pytest.mark.parametrize(
    "data, message",
    [
        (b"\xff", ": not JSON"),
        (b"[" * 10**5, ": not JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", ": not JSON"),
        (b'{"a": {"b": 1, "b": 2}}', r": not JSON \('b' is given twice\)"),
        (b"[1]", r":? must be an object, got \[1\]"),
    ],
    ids=["no UTF-8", "deep", "huge integer", "key twice", "list"],
)
def test_read_json_of_damaged_file_raises(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"c.json{message}"):
        read_json(path)


def test_read_json_returns_written_object_and_names_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    with pytest.raises(FileNotFoundError, match="c.json: no such file; a model folder has one"):
        read_json(path, "a model folder has one")
    write_json(path, {"ä": [1, None]})
    assert read_json(path) == {"ä": [1, None]} and "ä" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [np.nan, Path("x")])
def test_write_of_value_that_json_lacks_raises_with_file(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "file"
    for write in (write_json, lambda path, data: save_arrays(path, {}, data)):
        with pytest.raises((TypeError, ValueError), match=f"^{path}: .*JSON"):
            write(path, {"deep": [value]})
    assert not path.exists()


ENTRIES = {"a": 3, "b": 0.5, "f": ["x", "y"], "h": float("inf")}


@pytest.mark.parametrize(
    "take, message",
    [
        (lambda s: s.integer(["z", "y"]), "z or y is missing"),
        (lambda s: s.number("a", high=1), "a must be at most 1, got 3"),
        (lambda s: s.number("h"), "h must be a number, got Infinity"),
        (lambda s: s.list("f", int), "f must be a list of which each item is an integer"),
        (lambda s: s.take("a", str | list), "a must be a string or a list, got 3"),
        (lambda s: [s.integer("a"), s.expect_no_others()], "unknown settings: .*b.*expected some"),
    ],
)
def test_settings_with_invalid_entry_raise(take: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^c.json: {message}"):
        take(Settings(ENTRIES, "c.json"))


@dataclass(frozen=True)
class Example:
    """A dataclass with a default, a nested tuple and a check of its own."""

    width: int
    rate: float = 0.1
    pair: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.width > 9:
            raise ValueError(f"width must be at most 9, got {self.width}")


def test_dataclass_from_converts_lists_and_fills_defaults() -> None:
    data = {"width": 3, "pair": [1, 2]}
    assert dataclass_from(Example, data, "c.json") == Example(3, pair=(1, 2))


@pytest.mark.parametrize(
    "data, message",
    [
        ({}, "width is missing"),
        ({"width": 3, "pair": [1, 2.5]}, "pair must be a list of which each item is an integer"),
        ({"width": 10}, "width must be at most 9, got 10"),
        ({"width": 3, "wide": 1}, "unknown settings: wide; expected some of pair, rate, width"),
    ],
)
def test_dataclass_from_invalid_value_raises(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^c.json: {message}"):
        dataclass_from(Example, data, "c.json")

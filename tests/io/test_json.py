"""JSON files and their settings: errors name the file, the setting, the condition and the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
        (b"{", ": not JSON"),
        (b"[" * 10**5, ": not JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", ": not JSON"),
        (b'{"a": {"b": 1, "b": 2}}', r": not JSON \('b' is given twice\)"),
        (b"[1]", r":? must be an object, got \[1\]"),
    ],
    ids=["no UTF-8", "cut", "deep", "huge integer", "key twice", "list"],
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


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.float32(1), Path("x")])
def test_write_of_value_that_json_lacks_raises_with_file(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "file"
    with pytest.raises((TypeError, ValueError), match=f"^{path}: .*JSON"):
        write_json(path, {"deep": [value]})
    with pytest.raises((TypeError, ValueError), match=f"^{path}: .*JSON"):
        save_arrays(path, {}, {"deep": [value]})
    assert not path.exists()


ENTRIES = {
    "a": 3, "b": 0.5, "c": None, "d": {"e": True}, "f": ["x", "y"], "g": "gelu", "h": float("inf"),
}  # fmt: skip


@pytest.mark.parametrize(
    "take, expected",
    [
        (lambda s: s.integer("a"), 3),
        (lambda s: s.integer("c", 7), 7),
        (lambda s: s.integer(["z", "a"]), 3),
        (lambda s: s.number("a"), 3),
        (lambda s: s.object("d").flag("e"), True),
        (lambda s: s.list("f", str), ["x", "y"]),
        (lambda s: s.text("g", choices=["gelu"]), "gelu"),
    ],
)
def test_settings_return_entry_of_type(take: Any, expected: Any) -> None:
    assert take(Settings(ENTRIES, "c.json")) == expected


@pytest.mark.parametrize(
    "take, message",
    [
        (lambda s: s.integer("z"), "z is missing"),
        (lambda s: s.integer(["z", "y"]), "z or y is missing"),
        (lambda s: s.integer("b"), "b must be an integer, got 0.5"),
        (lambda s: s.integer("a", low=4), f"a must be 4 to {1 << 40}, got 3"),
        (lambda s: s.number("a", high=1), "a must be at most 1, got 3"),
        (lambda s: s.number("h"), "h must be a number, got Infinity"),
        (lambda s: s.object("d").integer("e"), "d: e must be an integer, got true"),
        (lambda s: s.list("f", int), "f must be a list of which each item is an integer"),
        (lambda s: s.text("g", choices=["relu", "silu"]), 'must be one of relu, silu, got "gelu"'),
        (lambda s: s.take("a", str | list), "a must be a string or a list, got 3"),
        (lambda s: [s.integer("a"), s.expect_no_others()], "unknown settings: .*b.*expected some"),
    ],
)
def test_settings_with_invalid_entry_raise(take: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^c.json: (g )?{message}"):
        take(Settings(ENTRIES, "c.json"))


@dataclass(frozen=True)
class Example:
    width: int
    rate: float = 0.1
    name: str = "x"
    bias: bool = True
    pad_id: int | None = None
    kinds: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    pair: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.width > 9:
            raise ValueError(f"width must be at most 9, got {self.width}")


DATA = {
    "width": 3, "rate": 1, "name": "n", "bias": False, "pad_id": None, "kinds": ["a"], "more": {"k": 1}, "pair": [1, 2],
}  # fmt: skip


def test_dataclass_from_converts_lists_and_fills_defaults() -> None:
    made = dataclass_from(Example, DATA, "c.json")
    assert made == Example(3, 1, "n", False, None, ["a"], {"k": 1}, (1, 2))
    assert dataclass_from(Example, {"width": 3}, "c.json") == Example(3)
    with pytest.raises(ValueError, match="c.json: width is missing"):
        dataclass_from(Example, {}, "c.json")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"width": "3"}, 'width must be an integer, got "3"'),
        ({"pad_id": 1.5}, "pad_id must be an integer or null, got 1.5"),
        ({"kinds": ["a", 1]}, "kinds must be a list of which each item is a string, got "),
        ({"pair": [1, 2.5]}, "pair must be a list of which each item is an integer, got "),
        ({"width": 10}, "width must be at most 9, got 10"),
        ({"wide": 1}, "unknown settings: wide; expected some of bias, kinds"),
    ],
)
def test_dataclass_from_invalid_value_raises(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^c.json: {message}"):
        dataclass_from(Example, {**DATA, **change}, "c.json")

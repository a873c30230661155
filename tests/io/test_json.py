"""JSON from disk: each message names the file, what came, and what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn
from minigrad.io.json import Settings, dataclass_from, read_json, write_json


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
            raise ValueError(f"width: expected at most 9, got {self.width}")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    with pytest.raises(FileNotFoundError, match="c.json: no such file; a model folder has one"):
        read_json(path, "a model folder has one")
    for data, message in (
        (b"\xff", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 10**5, "not JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
        (b'{"a": {"b": 1, "b": 2}}', r"not JSON \('b' is given twice\)"),
        (b"[1]", r"expected an object, got \[1\]"),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=f"c.json: {message}"):
            read_json(path)
    write_json(path, {"ä": [1, None]})
    assert read_json(path) == {"ä": [1, None]} and "ä" in path.read_text(encoding="utf-8")


def test_entries() -> None:
    s = Settings(
        {
            "a": 3,
            "b": 0.5,
            "c": None,
            "d": {"e": True},
            "f": ["x", "y"],
            "g": "gelu",
            "h": float("inf"),
        },
        "c.json",
    )
    assert (
        s.integer("a"),
        s.number("a"),
        s.number("b"),
        s.integer("c", 7),
        s.integer(["z", "a"]),
    ) == (3, 3, 0.5, 7, 3)
    assert (
        s.object("d").flag("e") is True
        and s.list("f", str) == ["x", "y"]
        and s.text("g", choices=["gelu"]) == "gelu"
    )
    for take, message in (
        (lambda: s.integer("z"), "c.json: z is missing"),
        (lambda: s.integer(["z", "y"]), "c.json: z or y is missing"),
        (lambda: s.integer("b"), "c.json: b: expected an integer, got 0.5"),
        (lambda: s.integer("a", low=4), f"c.json: a: expected 4 to {1 << 40}, got 3"),
        (lambda: s.number("a", high=1), "c.json: a: expected None to 1, got 3"),
        (lambda: s.number("h"), "c.json: h: expected a number, got Infinity"),
        (lambda: s.flag("a"), "c.json: a: expected true or false, got 3"),
        (lambda: s.object("d").integer("e"), "c.json: d: e: expected an integer, got true"),
        (lambda: s.list("f", int), "c.json: f: expected a list of which each item is an integer"),
        (
            lambda: s.text("g", choices=["relu", "silu"]),
            'c.json: g: expected one of relu, silu, got "gelu"',
        ),
        (lambda: s.take("a", str | list), "c.json: a: expected a text or a list, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            take()
    assert Settings({"a": 1}, "x").get("a") == 1
    with pytest.raises(ValueError, match="x: unknown settings: b; expected some of a"):
        t = Settings({"a": 1, "b": 2}, "x")
        t.integer("a")
        t.expect_no_others()


def test_dataclasses() -> None:
    data = {
        "width": 3,
        "rate": 1,
        "name": "n",
        "bias": False,
        "pad_id": None,
        "kinds": ["a"],
        "more": {"k": 1},
        "pair": [1, 2],
    }
    made = dataclass_from(Example, data, "c.json")
    assert made == Example(3, 1, "n", False, None, ["a"], {"k": 1}, (1, 2))
    assert dataclass_from(Example, {"width": 3}, "c.json") == Example(3)
    for change, message in (
        ({"width": "3"}, 'width: expected an integer, got "3"'),
        ({"width": True}, "width: expected an integer, got true"),
        ({"width": None}, "width: expected an integer, got null"),
        ({"rate": "x"}, "rate: expected a number"),
        ({"bias": 1}, "bias: expected true or false, got 1"),
        ({"pad_id": 1.5}, "pad_id: expected an integer or null, got 1.5"),
        ({"kinds": "abc"}, 'kinds: expected a list of which each item is a text, got "abc"'),
        ({"kinds": ["a", 1]}, "kinds: expected a list of which each item is a text, got "),
        ({"pair": [1, 2.5]}, "pair: expected a list of which each item is an integer, got "),
        ({"more": []}, "more: expected an object"),
        ({"width": 10}, "width: expected at most 9, got 10"),
        ({"wide": 1}, "unknown settings: wide; expected some of bias, kinds"),
    ):
        with pytest.raises(ValueError, match=f"^c.json: {message}"):
            dataclass_from(Example, {**data, **change}, "c.json")
    with pytest.raises(ValueError, match="c.json: width is missing"):
        dataclass_from(Example, {}, "c.json")


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.float32(1), Path("x")])
def test_a_value_that_json_cannot_hold_is_refused_with_the_file(tmp_path: Path, value: Any) -> None:
    model = nn.Linear(2, 1)
    path = tmp_path / "file"
    for write in (
        lambda: write_json(path, {"deep": [value]}),
        lambda: nn.save_weights(path, model, deep=[value]),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{path}: .*JSON"):
            write()
    assert not path.exists()

"""JSON files and their settings: errors name the file, the setting, the condition and the value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad.io import save_arrays
from minigrad.io.json import (
    Settings,
    matches,
    mistyped_fields,
    parse_json,
    read_if_any,
    read_json,
    read_list,
    write_json,
)


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


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_write_of_a_lone_surrogate_raises_with_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    for write in (write_json, lambda path, data: save_arrays(path, {}, data)):
        with pytest.raises(
            ValueError, match=rf"^{path}: strings must be Unicode.*\\ud.*; remove it"
        ):
            write(path, {"label": [text]})
    assert not path.exists()


@pytest.mark.parametrize("value", [np.nan, Path("x")])
def test_write_of_value_that_json_lacks_raises_with_file(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "file"
    for write in (write_json, lambda path, data: save_arrays(path, {}, data)):
        with pytest.raises((TypeError, ValueError), match=f"^{path}: .*JSON"):
            write(path, {"deep": [value]})
    assert not path.exists()


@pytest.mark.parametrize("entry", ["0", "[]", "{}"])
def test_json_of_too_many_entries_is_neither_written_nor_parsed(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty list takes 3 bytes in the file, and 64 in memory."""
    path, text = tmp_path / "file", f"[{','.join([entry] * 20_000)}]"
    path.write_text(text)
    parsed: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(json, "loads", lambda text, **_: parsed.append(text))
        patch.setattr("minigrad.io.json.MAX_ENTRIES", 20_000 * (1 + (entry != "0")))
        parse_json(text.encode(), path)
        patch.setattr("minigrad.io.json.MAX_ENTRIES", 19_999 * (1 + (entry != "0")))
        message = f"^{path}: .*must have at most .* entries, got about"
        for call in (read_json, read_list_of_anything):
            with pytest.raises(ValueError, match=message):
                call(path)
        for write in (write_json, lambda path, data: save_arrays(path, {}, {"a": data})):
            with pytest.raises(ValueError, match=message):
                write(path, json.JSONDecoder().decode(text))
    assert len(parsed) == 1


def read_list_of_anything(path: Path) -> Any:
    return read_list(path, Any)


ENTRIES = {"a": 3, "b": 0.5, "f": ["x", "y"], "h": float("inf")}


@pytest.mark.parametrize(
    "take, message",
    [
        (lambda s: s.integer(["z", "y"]), "z or y is missing"),
        (lambda s: s.number("a", high=1), "a must be at most 1, got 3"),
        (lambda s: s.number("h"), "h must be a number, got Infinity"),
        (lambda s: s.list("f", int), "f must be a list of which each item is an integer"),
        (lambda s: s.take("a", str | list), "a must be a string or a list, got 3"),
    ],
)
def test_settings_with_invalid_entry_raise(take: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^c.json: {message}"):
        take(Settings(ENTRIES, "c.json"))


def test_entries_that_are_null_count_as_missing() -> None:
    settings = Settings({"a": None, "b": 3}, "c.json")
    assert settings.integer(["a", "b"]) == settings.integer("a", 3) == 3
    with pytest.raises(ValueError, match="^c.json: a is missing"):
        settings.integer("a")


@dataclass
class Example:
    """A dataclass with values of several types."""

    width: int
    rate: float | None = None
    pair: tuple[int, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


def test_mistyped_fields_names_the_annotated_types() -> None:
    assert mistyped_fields(Example(3, 1, (1, 2), {"a": "b"})) == {}
    wrong: Any = Example("3", True, [1, 2.5], [])  # type: ignore[arg-type]
    assert mistyped_fields(wrong) == {
        "width": "an integer",
        "rate": "a number or null",
        "pair": "a list of which each item is an integer",
        "names": "an object",
    }


LARGE = 1 << 63
MATCHES: list[tuple[Any, list[Any], list[Any]]] = [
    (int, [0, LARGE - 1, 1 - LARGE], [LARGE, -LARGE, 10**400, True, 1.0, "1", None]),
    (float, [0, 1.5, -1, 9e307, LARGE], [True, False, float("nan"), float("inf"), 1e308, -1e308, 10**400, "1", None]),
    (bool, [True, False], [0, 1, None]),
    (str, ["", "a"], [1, None, ["a"]]),
    (int | None, [None, 3], ["3", True]),
    (list[int], [[], [1, 2]], [[1, True], [1.0, 2], (1, 2), 1, None]),
    (tuple[int, ...], [[], [1], (1, 2)], [["a", 1], [1, "a"], ("a",), {}]),
    (Sequence[str], [[], ["a"], ("a", "b")], ["a", ["a", 1], [1, "a"]]),
    (dict, [{}, {"a": 1}], [[], None]),
    (Any, [None, 1, "a"], []),
]  # fmt: skip
"""For each annotated type, values that have it, and others."""


@pytest.mark.parametrize(("hint", "values", "others"), MATCHES, ids=lambda x: str(x)[:20])
def test_value_has_an_annotated_type_up_to_its_limits(
    hint: Any, values: list[Any], others: list[Any]
) -> None:
    assert [x for x in values if not matches(x, hint)] == []
    assert [x for x in others if matches(x, hint)] == []


@given(st.integers(-3, 9), st.sampled_from([None, -1, 0, 2]), st.sampled_from([None, 2, 5]))
def test_numbers_are_within_both_limits(value: int, low: int | None, high: int | None) -> None:
    settings = Settings({"a": value}, "c.json")
    is_within = (low is None or value >= low) and (high is None or value <= high)
    default_low = 1 if low is None else low
    default_high = 1 << 40 if high is None else high
    for take, fits in (
        (lambda: settings.number("a", low=low, high=high), is_within),
        (lambda: settings.take("a", int, low=low, high=high), is_within),
        (lambda: settings.integer("a", low=default_low, high=default_high), default_low <= value <= default_high),
    ):  # fmt: skip
        if fits:
            assert take() == value
        else:
            with pytest.raises(ValueError, match=f"^c.json: a must be .*, got {value}$"):
                take()


def test_integers_of_settings_end_at_their_default_limits() -> None:
    for value in (1, 1 << 40):
        assert Settings({"a": value}, "c.json").integer("a") == value
    for value in (0, (1 << 40) + 1):
        with pytest.raises(ValueError, match=r"a must be 1 to 1099511627776, got"):
            Settings({"a": value}, "c.json").integer("a")


def test_first_name_that_is_present_counts_and_all_are_taken() -> None:
    settings = Settings({"a": None, "b": 2, "c": 3, "t": "x"}, "c.json")
    assert settings.integer(["c", "b"]) == 3 and settings.integer(["a", "b", "c"]) == 2
    assert (
        settings.take(["y", "z"], int, None) is None and settings.text("t", choices=("x",)) == "x"
    )
    assert settings.taken == {"a", "b", "c", "t", "y", "z"}
    for choices in (("y", "z"), ()):
        with pytest.raises(ValueError, match="c.json: t must be one of"):
            settings.text("t", choices=choices)


def test_objects_and_lists_in_settings_name_their_place(tmp_path: Path) -> None:
    inner = Settings({"a": {"b": "c"}}, "c.json").object("a")
    with pytest.raises(ValueError, match='^c.json: a: b must be an integer, got "c"$'):
        inner.integer("b")
    assert Settings({}, "c.json").object("a", None) is None
    path = tmp_path / "c.json"
    assert read_if_any(path) == {} and read_if_any(path).where == str(path)
    path.symlink_to("missing")
    with pytest.raises(FileNotFoundError, match="a link to a missing file"):
        read_if_any(path)
    path.unlink()
    for data, wrong in (([1, 2], False), ([1, "a"], True), ({"a": 1}, True), ("ab", True)):
        write_json(path, data)
        if wrong:
            with pytest.raises(ValueError, match="c.json"):
                read_list(path, int)
        else:
            assert read_list(path, int) == data
    write_json(path, {"a": [1]}, indent=3)
    assert path.read_text() == '{\n   "a": [\n      1\n   ]\n}\n'


def test_values_that_are_equal_to_defaults_may_have_other_types() -> None:
    """A default is not checked, as `tuple` for a list; any other object is."""

    @dataclass
    class Unlike:
        width: int = None  # type: ignore[assignment]

    assert mistyped_fields(Unlike()) == {} and mistyped_fields(Unlike(1)) == {}
    assert mistyped_fields(Unlike("1")) == {"width": "an integer"}  # type: ignore[arg-type]
    default: Any = Example(1)
    assert mistyped_fields(default) == {}
    default.names = None
    assert mistyped_fields(default) == {"names": "an object"}


@dataclass
class Equal:
    """Defaults that equal values of other types."""

    flag: bool = True
    count: int = 1
    empty: bool = False


def test_mistyped_fields_of_values_that_equal_their_defaults() -> None:
    found: Any = Equal(1, True, 0)  # type: ignore[arg-type]
    assert mistyped_fields(found) == {
        "flag": "true or false",
        "count": "an integer",
        "empty": "true or false",
    }
    assert mistyped_fields(Equal()) == mistyped_fields(Equal(True, 1, False)) == {}

"""JSON files, whose entries are checked when they are read.

Every error names the file, the entry, what was expected and the value.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from .atomic import write_atomically
from .reading import printable, read_bytes

# the marker of a dataclass is no type for Python 3.10
_type_hints: Any = cache(partial(get_type_hints, localns={"KW_ONLY": Any}))
REQUIRED: Any = object()
MAX_ENTRIES = 5_000_000
"""Largest number of commas and opening brackets in a file; an empty list takes 64 bytes.

The largest published tokenizers have 3,000,000.
"""
_WORDS = {
    int: "an integer", float: "a number", str: "a string", bool: "true or false",
    type(None): "null", list: "a list", tuple: "a list", Sequence: "a list", dict: "an object",
    Mapping: "an object",
}  # fmt: skip


def write_json(path: str | Path, data: Any, indent: int = 1) -> None:
    """Write plain data as a JSON file, atomically.

    Parameters
    ----------
    path : str or Path
        File to write.
    data : object
        Plain data: dicts, lists, strings, numbers, booleans and None.
    indent : int
        Number of spaces of a level; 1 by default.
    """
    text = as_json(data, path, indent=indent) + "\n"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def as_json(data: Any, where: str | Path, **options: Any) -> str:
    """Convert plain data by `json.dumps`, or raise an error that begins with `where`."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, **options)
        text.encode()
        _check_entries(text)
    except UnicodeEncodeError as error:
        value = printable(error.object[max(0, error.start - 20) : error.end])
        raise ValueError(
            f"{where}: strings must be Unicode, got a lone surrogate in {value!r}; remove it"
        ) from None
    except (TypeError, ValueError) as error:  # such as NaN and infinity
        raise type(error)(f"{where}: {error}") from None
    return text


def read_json(path: str | Path, expected: str = "") -> Settings:
    """Return the JSON object in a file.

    Parameters
    ----------
    path : str or Path
        File to read.
    expected : str
        End of the error for a missing file, such as the expected content of the directory.
    """
    data = parse_json(read_bytes(path, expected), path)
    if not isinstance(data, dict):
        raise ValueError(f"{path} must be an object, got {_show(data)}")
    return Settings(data, str(path))


def read_if_any(path: str | Path) -> Settings:
    """Return the JSON object in a file, or an empty one if there is no file."""
    return read_json(path) if os.path.lexists(path) else Settings({}, str(path))


def read_list(path: str | Path, kind: Any) -> list[Any]:
    """Return the JSON list in a file, whose items are all of one type."""
    return Settings({"": parse_json(read_bytes(path), path)}, str(path)).list("", kind)


def parse_json(data: bytes, where: str | Path) -> Any:
    """Return the value of JSON text, or raise a ValueError that begins with `where`."""
    try:
        return decode_json(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({printable(error, 200)})") from None


def decode_json(data: bytes | str) -> Any:
    """Return the value of JSON text of at most `MAX_ENTRIES`.

    A name that occurs twice in an object is an error.
    """
    text = data if isinstance(data, str) else data.decode("utf-8")
    _check_entries(text)
    return json.loads(text, object_pairs_hook=unique)


def _check_entries(text: str) -> None:
    """Raise a ValueError for JSON text that would take too much memory."""
    if (count := sum(map(text.count, ",[{"))) > MAX_ENTRIES:
        raise ValueError(
            f"JSON must have at most {MAX_ENTRIES:,} entries, got about {count:,}; store numbers "
            "as arrays"
        )


def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dict of pairs, or raise a ValueError if a name occurs twice."""
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"'{printable(counts.most_common(1)[0][0])}' is given twice")
    return result


def _show(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False, default=str), 57)


def matches(value: Any, hint: Any) -> bool:
    """Return whether a JSON value has an annotated type, such as `int | None` or `list[str]`.

    A bool is no int, an int is a float, a list is a tuple, and NaN and infinity are no floats.
    """
    parts = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(matches(value, part) for part in parts)
    kind = get_origin(hint) or hint
    if kind in (int, float) and isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int) and abs(value) < 1 << 63
    if kind is float:  # an int may be too large for isfinite
        return isinstance(value, (int, float)) and abs(value) < 1e308
    if kind in (list, tuple, Sequence):
        has_type = isinstance(value, list if kind is list else (list, tuple))
        return has_type and (not parts or all(matches(item, parts[0]) for item in value))
    return kind is Any or isinstance(value, kind)


def _describe(hint: Any) -> str:
    """Return an annotated type in words."""
    parts = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_describe, parts))
    kind = get_origin(hint) or hint
    items = (
        f" of which each item is {_describe(parts[0])}"
        if parts and "list" in _WORDS.get(kind, "")
        else ""
    )
    return _WORDS.get(kind, f"of class {getattr(kind, '__name__', kind)}") + items


def _between(low: float | None, high: float | None) -> str:
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if low is None else f"{low} to {high}"


class Settings(dict[str, Any]):
    """Entries of a JSON object; a method checks and returns each entry.

    The methods take the name of an entry, or a sequence of names with older spellings. The first
    name that is present counts. A method returns the default for a missing entry, and raises a
    ValueError if there is no default. Every message begins with `where`, the file.
    """

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        super().__init__(data)
        self.where = where
        self.taken: set[str] = set()

    def take(
        self,
        name: str | Sequence[str],
        hint: Any,
        default: Any = REQUIRED,
        low: float | None = None,
        high: float | None = None,
        choices: Sequence[Any] | None = None,
    ) -> Any:
        """Return an entry of an annotated type; null counts as missing.

        `low` and `high` are limits of a number, and `choices` the values that are allowed.
        """
        names = [name] if isinstance(name, str) else list(name)
        self.taken.update(names)
        present = next((n for n in names if self.get(n) is not None), None)
        if present is None:
            if default is REQUIRED:
                raise ValueError(f"{self.where}: {' or '.join(names)} is missing")
            return default
        value = self.checked(present, hint)
        if choices is not None and value not in choices:
            self.fail(present, f"one of {', '.join(map(str, choices))}")
        if (low is not None and value < low) or (high is not None and value > high):
            self.fail(present, _between(low, high))
        return value

    def checked(self, name: str, hint: Any) -> Any:
        """Return an entry that is present, or raise a ValueError if it has another type."""
        if not matches(self[name], hint):
            self.fail(name, _describe(hint))
        return self[name]

    def fail(self, name: str, expected: str) -> None:
        """Raise a ValueError: "`name` must be `expected`, got ..."."""
        value = _show(self.get(name))
        raise ValueError(f"{self.where}: {printable(name)} must be {expected}, got {value}")

    def integer(
        self, name: str | Sequence[str], default: Any = REQUIRED, low: int = 1, high: int = 1 << 40
    ) -> Any:
        """Return an integer, by default of at least 1."""
        return self.take(name, int, default, low, high)

    def number(
        self, name: str | Sequence[str], default: Any = REQUIRED, low: Any = None, high: Any = None
    ) -> Any:
        """Return a finite number."""
        return self.take(name, float, default, low, high)

    def flag(self, name: str | Sequence[str], default: Any = REQUIRED) -> Any:
        """Return a bool."""
        return self.take(name, bool, default)

    def text(
        self,
        name: str | Sequence[str],
        default: Any = REQUIRED,
        choices: Sequence[str] | None = None,
    ) -> Any:
        """Return a string, by default any string."""
        return self.take(name, str, default, choices=choices)

    def list(self, name: str | Sequence[str], kind: Any, default: Any = REQUIRED) -> Any:
        """Return a list whose items are all of one type."""
        return self.take(name, Sequence[kind], default)

    def object(self, name: str, default: Any = REQUIRED) -> Any:
        """Return a JSON object; a default is returned unchanged."""
        value = self.take(name, dict, default)
        if not isinstance(value, dict):
            return value
        return Settings(value, f"{self.where}: {printable(name)}")


def mistyped_fields(instance: Any) -> dict[str, str]:
    """Return the annotated types, in words, of fields of a dataclass that have other values."""
    hints, mistyped = _type_hints(type(instance)), {}
    for field in fields(instance):
        value = getattr(instance, field.name)
        if value is not field.default and not matches(value, hints[field.name]):
            mistyped[field.name] = _describe(hints[field.name])
    return mistyped

"""JSON from disk, checked where it is read: a message names the file, what is wrong in it, and what
was expected.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from .atomic import write_atomically
from .reading import listed, printable, read_bytes

__all__ = [
    "REQUIRED",
    "Settings",
    "as_json",
    "checksum",
    "dataclass_from",
    "kinds_of",
    "read_if_any",
    "read_json",
    "read_list",
    "unique",
    "write_json",
]

T = TypeVar("T")
REQUIRED: Any = object()
_WORDS = {
    int: "an integer", float: "a number", str: "a text", bool: "true or "
                                                               "false", list: "a list", dict: "an object",
    type(None): "null", Mapping: "an object", Sequence: "a list", tuple: "a list",
}  # fmt: skip


def write_json(path: str | Path, data: Any, indent: int = 1) -> None:
    """Write plain data as a JSON file, atomically."""
    text = as_json(data, path, indent=indent) + "\n"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def as_json(data: Any, where: str | Path, **options: Any) -> str:
    """Return plain data as JSON; an error that begins with `where` if JSON cannot contain it."""
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, **options)
    except (TypeError, ValueError) as error:  # NaN and infinity among them
        raise type(error)(f"{where}: {error}") from None


def checksum(data: Any) -> str:
    """Eight digits that tell plain data from changed data: the CRC-32 of its JSON."""
    plain = json.loads(
        json.dumps(data)
    )  # as it comes from a file: lists and texts for tuples and other keys
    return f"{zlib.crc32(json.dumps(plain, sort_keys=True).encode()):08x}"


def read_json(path: str | Path, expected: str = "") -> Settings:
    """The JSON object in a file. `expected` says, where there is no such file, what a folder should
    have.
    """
    data = _read(path, expected)
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected an object, got {_shown(data)}")
    return Settings(data, str(path))


def read_if_any(path: str | Path) -> Settings:
    """The JSON object in a file, or an empty one where nothing has this name."""
    return read_json(path) if os.path.lexists(path) else Settings({}, str(path))


def read_list(path: str | Path, kind: Any) -> list[Any]:
    """The JSON list in a file, whose items are all of one kind."""
    return Settings({"": _read(path, "")}, str(path)).list("", kind)


def _read(path: str | Path, expected: str) -> Any:
    data = read_bytes(path, expected)
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({printable(error, 200)})") from None


def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object from the pairs that JSON has for it; a ValueError if one name is given twice."""
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"'{printable(counts.most_common(1)[0][0])}' is given twice")
    return result


def _shown(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False, default=str), 57)


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind; true is no integer, and an integer is a number."""
    if kind in (int, float) and isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int) and abs(value) < 1 << 63
    if kind is float:
        return (isinstance(value, float) and math.isfinite(value)) or (
            isinstance(value, int) and abs(value) < 1e308
        )
    if kind is Sequence or kind is tuple:
        return isinstance(value, (list, tuple))
    return isinstance(value, kind)


class Settings(dict[str, Any]):
    """The entries of a JSON object, each taken by a method that checks it. `where` begins every
    message.

    A name is one key, or several of which the first that is there counts (older spellings). An
    entry that is missing is the default; without a default, an error.
    """

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        super().__init__(data)
        self.where = where
        self.taken: set[str] = set()

    def take(
        self,
        name: str | Sequence[str],
        kinds: Any,
        default: Any = REQUIRED,
        low: float | None = None,
        high: float | None = None,
        choices: Sequence[Any] | None = None,
    ) -> Any:
        """The entry, of one of `kinds`, within low ... high, among `choices`; null gives way to a
        default.
        """
        names = [name] if isinstance(name, str) else list(name)
        self.taken.update(names)
        found = next((n for n in names if self.get(n) is not None), None)
        if found is None:
            if default is REQUIRED:
                raise ValueError(f"{self.where}: {' or '.join(names)} is missing")
            return default
        value = self.checked(found, kinds if isinstance(kinds, tuple) else (kinds,))
        if choices is not None and value not in choices:
            self.fail(found, f"one of {', '.join(map(str, choices))}")
        if (low is not None and value < low) or (high is not None and value > high):
            self.fail(found, f"at least {low}" if high is None else f"{low} to {high}")
        return value

    def checked(self, name: str, kinds: tuple[Any, ...]) -> Any:
        """The entry, which is there, if it is of one of `kinds`."""
        if not any(_is(self[name], kind) for kind in kinds):
            self.fail(name, " or ".join(_WORDS.get(kind, str(kind)) for kind in kinds))
        return self[name]

    def fail(self, name: str, expected: str) -> None:
        """The error about an entry."""
        value = _shown(self.get(name))
        raise ValueError(f"{self.where}: {printable(name)}: expected {expected}, got {value}")

    def integer(
        self, name: str | Sequence[str], default: Any = REQUIRED, low: int = 1, high: int = 1 << 40
    ) -> Any:
        """A whole number, of at least 1 unless `low` says otherwise."""
        return self.take(name, int, default, low, high)

    def number(
        self, name: str | Sequence[str], default: Any = REQUIRED, low: Any = None, high: Any = None
    ) -> Any:
        """A finite number."""
        return self.take(name, float, default, low, high)

    def flag(self, name: str | Sequence[str], default: Any = REQUIRED) -> Any:
        """true or false."""
        return self.take(name, bool, default)

    def text(
        self,
        name: str | Sequence[str],
        default: Any = REQUIRED,
        choices: Sequence[str] | None = None,
    ) -> Any:
        """A text, one of `choices` if they are given."""
        return self.take(name, str, default, choices=choices)

    def list(self, name: str | Sequence[str], kind: Any, default: Any = REQUIRED) -> Any:
        """A list whose items are all of one kind."""
        value = self.take(name, list, default)
        if isinstance(value, list) and not all(_is(item, kind) for item in value):
            self.fail(
                name if isinstance(name, str) else name[0],
                f"a list of which each item is {_WORDS[kind]}",
            )
        return value

    def object(self, name: str, default: Any = REQUIRED) -> Any:
        """An object, as settings of its own; a default is given back as it is."""
        value = self.take(name, dict, default)
        return (
            Settings(value, f"{self.where}: {printable(name)}")
            if isinstance(value, dict)
            else value
        )

    def expect_unchanged(self, *names: str, **beside: Any) -> None:
        """An error for an entry that is not as it was when its `checksum` was put under
        "checksums".

        Of these names, or of all; `beside` are data from elsewhere whose checksums stand there too.
        """
        entries = {**self, **beside}
        for name, expected in self.object("checksums", {}).items():
            if (not names or name in names) and checksum(entries.get(name)) != expected:
                raise ValueError(
                    f"{self.where}: {printable(name)} was changed since it was written; put it "
                    f'back, or take {printable(name)} out of "checksums" if the change is meant'
                )

    def expect_no_others(self) -> None:
        """An error if there is an entry that nobody has taken."""
        if others := sorted(set(self) - self.taken):
            raise ValueError(
                f"{self.where}: unknown settings: {listed(others)}; expected some of "
                f"{listed(self.taken, 100)}"
            )


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """The kinds of JSON values that an annotation allows."""
    parts = getattr(hint, "__args__", ()) if "Union" in type(hint).__name__ else (hint,)
    return tuple(getattr(part, "__origin__", part) for part in parts)


def dataclass_from(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    """A dataclass from plain data: names, types (by the annotations) and what the class itself
    checks.

    Annotations are int, float, str, bool, None, list, tuple, Sequence, Mapping, dict, and unions of
    them.
    """
    settings = data if isinstance(data, Settings) else Settings(data, where)
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]
        settings.taken.add(field.name)
        if field.name not in settings:
            if field.default is MISSING and field.default_factory is MISSING:
                raise ValueError(f"{where}: {field.name} is missing")
            continue
        kinds = kinds_of(hints[field.name])
        value = settings.checked(field.name, kinds)
        values[field.name] = tuple(value) if isinstance(value, list) and tuple in kinds else value
    settings.expect_no_others()
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None

"""Settings, those of a config.json and ours: a table of names, walked in both directions.

An entry is `ours=theirs`, or `name` where both have it. `a|b`: the first that is there; `a,b`: both, which must
agree. Behind a colon is what holds where config.json does not tell: JSON, a word, or another of our settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_type_hints

from minigrad.files.json import REQUIRED, Settings, kinds_of

__all__ = ["ACTIVATIONS", "expect_only", "read_table", "renamed", "write_table"]

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu", "silu": "silu", "swish": "silu", "tanh": "tanh",
}  # fmt: skip
"""Ours by their names."""


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word


def _entries(table: str) -> Iterator[tuple[str, str, Any]]:
    """Ours, theirs, and the default."""
    for word in table.split():
        names, colon, default = word.partition(":")
        ours, _, theirs = names.partition("=")
        yield ours, theirs or ours, _value(default) if colon else REQUIRED


def read_table(kind: Any, table: str, s: Settings) -> dict[str, Any]:
    """Our settings, of the types that the configuration `kind` expects, from theirs."""
    hints, values = get_type_hints(kind), dict[str, Any]()
    for ours, theirs, default in _entries(table):
        default = values.get(default, default) if isinstance(default, str) else default
        first, *others = theirs.split(",")
        values[ours] = _taken(s, ours, first.split("|"), default, kinds_of(hints[ours]))
        for other in others:
            if s.get(other, s.get(first)) != s.get(first):
                s.fail(other, f"{s.get(first)}, as {first} (others are not supported)")
    return values


def _taken(s: Settings, ours: str, names: Sequence[str], default: Any, kinds: tuple[Any, ...]) -> Any:
    if ours == "activation":
        return ACTIVATIONS[s.text(names, default, choices=tuple(ACTIVATIONS))]
    if type(None) in kinds and any(n in s for n in names) and all(s.get(n) is None for n in names):
        return None  # null says that there is none
    value = s.take(names, tuple(kind for kind in kinds if kind is not type(None)), default)
    return tuple(s.list(names, int)) if isinstance(value, list) else value


def write_table(table: str, config: Any) -> dict[str, Any]:
    """Theirs from ours."""
    ends, activations = config.end_ids, {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    known = {
        **config.explicit(), "activation": activations.get(config.activation),
        "eos_id": ends[0] if len(ends) == 1 else list(ends) or None,
    }  # fmt: skip
    return {name: known[ours] for ours, theirs, _ in _entries(table) for name in theirs.partition("|")[0].split(",")}


def expect_only(s: Settings, table: str) -> None:
    """An error for what is not supported: `name=a|b` tells the values that are, first the one where there is none."""
    for word in table.split():
        name, _, text = word.partition("=")
        values = list(map(_value, text.split("|")))
        if s.get(name, values[0]) not in values:
            s.fail(name, f"{' or '.join(text.split('|'))} (others are not supported)")


def renamed(error: ValueError, table: str, where: str) -> ValueError:
    """The error of a configuration, with the settings by their names and the file before it."""
    text, theirs = str(error), {ours: re.split("[|,]", theirs)[0] for ours, theirs, _ in _entries(table)}
    if text.startswith(where):
        return error
    return ValueError(f"{where}: " + re.sub(r"\w+_\w+|^\w+(?=:)", lambda match: theirs.get(match[0], match[0]), text))

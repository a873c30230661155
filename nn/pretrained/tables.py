"""The two tables of a family, each for loading and for saving: names of weights, and settings.

Names. A line is `ours theirs [mark]`: names of modules, or of parameters. "#" is the number of a
layer, "@" what the names of a family begin with; `{a,b}` makes several lines of one, ours and
theirs in step. An array of theirs that several lines name holds ours one below the other, in the
order of the model; of several names of theirs for one of ours a file may have any, and a new one
has the first. "-" in place of ours: it is known, and not used. Marks: "T", theirs is stored (in,
out); "row", theirs has one more axis, of size 1, before ours; "buffer", a row that is not trained;
a number of heads: for each head its rows of each of ours; "zeros", a map (d_model, d_model) that is
not used, and of zeros in a new file of a bare model.

Settings. A word is `ours=theirs`, or `name` where both have it. Behind a colon is what holds where
config.json does not tell: JSON, a word, or what another of our settings has. `ours:=value` always
holds; `=theirs:a|b` has the only values that are supported, first that where there is none; where
it is what another of our settings has, config.json must tell. Of two words for one setting of ours
the last counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from minigrad.io.json import REQUIRED, Settings, kinds_of

from ..models.config import FLAT_NAMES, GROUPS

__all__ = [
    "ACTIVATIONS",
    "Place",
    "Rule",
    "check_supported",
    "explicit",
    "is_unused",
    "named",
    "new_name",
    "places",
    "read_table",
    "rules_of",
    "theirs_of",
    "write_table",
]

_OLDER = {".weight": ".gamma", ".bias": ".beta"}  # what the parameters of norms were once called


class Rule(NamedTuple):
    """A line of a table; `inside`: theirs begins with what the names of the family begin with."""

    ours: str
    theirs: str
    mark: str
    inside: bool


class Place(NamedTuple):
    """The parameters of ours that an array of theirs holds."""

    ours: tuple[str, ...]
    mark: str

    @property
    def rows(self) -> Place:
        """This place for arrays that are stored (out, in), whichever way this one is."""
        return self._replace(mark="" if self.mark == "T" else self.mark)

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of theirs, where ours are of these shapes."""
        shape = (sum(s[0] for s in shapes), *shapes[0][1:]) if len(shapes) > 1 else shapes[0]
        return {"T": shape[::-1], "row": (1, *shape), "buffer": (1, *shape)}.get(self.mark, shape)

    def split(self, theirs: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Ours from theirs, as views, but for those that lie head by head."""
        whole = (
            theirs.T
            if self.mark == "T"
            else theirs[0]
            if self.mark in ("row", "buffer")
            else theirs
        )
        if len(shapes) == 1:
            return [whole]
        heads = whole.reshape(self._heads, -1, *whole.shape[1:])
        ends = np.cumsum([shape[0] for shape in shapes]) // self._heads
        return [part.reshape(shape) for part, shape in zip(np.split(heads, ends[:-1], 1), shapes)]

    def join(self, ours: Sequence[np.ndarray]) -> np.ndarray:
        """Theirs from ours."""
        whole = ours[0]
        if len(ours) > 1:
            heads = [x.reshape(self._heads, -1, *x.shape[1:]) for x in ours]
            whole = np.concatenate(heads, 1).reshape(-1, *whole.shape[1:])
        return (
            whole.T
            if self.mark == "T"
            else whole[None]
            if self.mark in ("row", "buffer")
            else whole
        )

    @property
    def _heads(self) -> int:
        return int(self.mark) if self.mark.isdecimal() else 1


def _lines(text: str) -> list[str]:
    """A text with `{a,b}` in it as several: first those with a."""
    if not (match := re.search(r"\{(.*?)\}", text)):
        return [text]
    return [
        line
        for part in match[1].split(",")
        for line in _lines(text[: match.start()] + part + text[match.end() :])
    ]


def rules_of(table: str, prefix: str = "") -> list[Rule]:
    """The lines of a table, with `prefix` in place of "@"."""
    rules = []
    for words in filter(None, map(str.split, table.split("\n"))):
        ours, theirs = _lines(words[0]), _lines(words[1])
        count = max(len(ours), len(theirs))
        ours, theirs = (side * count if len(side) == 1 else side for side in (ours, theirs))
        for a, b in zip(ours, theirs, strict=True):
            rules.append(Rule(a, b.replace("@", prefix), "".join(words[2:]), "@" in b))
    return rules


@lru_cache(maxsize=4096)
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(
        re.escape(name).replace(r"\#", r"(\d+)") + r"(\.weight|\.bias|\.gamma|\.beta)?"
    )


def theirs_of(name: str, rules: Iterable[Rule]) -> Iterator[tuple[str, str]]:
    """What a parameter of ours is called by theirs, by each rule that fits, today and once; and its
    mark.
    """
    for rule in rules:
        if match := _pattern(rule.ours).fullmatch(name):
            *layers, leaf = match.groups("")
            # a bias is a row whichever way the weight beside it is stored
            mark = "" if rule.mark == "T" and leaf == ".bias" else rule.mark
            for end in (leaf, _OLDER.get(leaf, leaf)):
                yield rule.theirs.replace("#", "{}").format(*layers) + end, mark


def new_name(name: str, rules: Iterable[Rule]) -> tuple[str, str]:
    """What a parameter of ours is called in a new file, and its mark."""
    for found in theirs_of(name, rules):
        return found
    raise ValueError(f"{name}: a published model has no such parameter")


def is_unused(name: str, rules: Iterable[Rule]) -> bool:
    """Whether an array of theirs is known, and not used."""
    return any(rule.ours == "-" and _pattern(rule.theirs).fullmatch(name) for rule in rules)


def places(parts: Iterable[tuple[str, str, str]]) -> dict[str, Place]:
    """The arrays of theirs, from parameters of ours, each with its name there and the mark."""
    found: dict[str, Place] = {}
    for ours, theirs, mark in parts:
        before = found[theirs].ours if theirs in found else ()
        found[theirs] = Place(tuple(dict.fromkeys((*before, ours))), mark)
    return found


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


def _entries(table: str) -> dict[str, tuple[str, str]]:
    """Theirs, and what is behind the colon (":": no colon), by ours; "=theirs" by itself."""
    found = {}
    for word in table.split():
        names, colon, rest = word.partition(":")
        ours, _, theirs = names.partition("=")
        found[ours or names] = theirs or ours, rest if colon else ":"
    return found


def read_table(kind: Any, table: str, s: Settings) -> dict[str, Any]:
    """Our settings, of the types that the configuration `kind` expects, from theirs."""
    entries, values = _entries(table), dict[str, Any]()
    hints = {**get_type_hints(kind), "positions": str}
    for name, (group, option) in FLAT_NAMES.items():
        hints[name] = get_type_hints(GROUPS[group])[option]
    for ours, (theirs, rest) in entries.items():
        if ours.startswith("="):
            words = rest.split("|")
            supported = [values.get(word, _value(word)) for word in words]
            if s.get(theirs, None if words[0] in values else supported[0]) not in supported:
                expected = " or ".join(
                    f"{values[w]}, as {entries[w][0]}" if w in values else w for w in words
                )
                s.fail(theirs, f"{expected} (others are not supported)")
        elif rest.startswith("="):
            values[ours] = _value(rest[1:])
        else:
            default = REQUIRED if rest == ":" else values.get(rest, _value(rest))
            values[ours] = _taken(s, ours, theirs, default, kinds_of(hints[ours]))
    return values


def check_supported(table: str, s: Settings) -> None:
    """An error for a setting that has another value than those of a table of `=theirs:a|b`."""
    read_table(object, table, s)


def _taken(s: Settings, ours: str, name: str, default: Any, kinds: tuple[Any, ...]) -> Any:
    if ours == "activation":
        return ACTIVATIONS[s.text(name, default, choices=tuple(ACTIVATIONS))]
    if type(None) in kinds and s.get(name, default) is None:
        return None  # null says that there is none
    others = (
        (type(None), str) if bool in kinds else (type(None),)
    )  # the letters of attention_bias are ours alone
    value = s.take(name, tuple(kind for kind in kinds if kind not in others), default)
    return tuple(s.list(name, int)) if isinstance(value, list) else value


def explicit(config: Any) -> dict[str, Any]:
    """Return all settings by their flat names, with what takes effect in place of each None."""
    settings = {**asdict(config), "positions": config.positions.kind}
    for name, (group, option) in FLAT_NAMES.items():
        settings[name] = getattr(getattr(config, group), option)
    meant = {
        "attention_dropout": config.dropout, "activation_dropout": config.dropout, "attention_bias": config.bias,
        "num_kv_heads": config.num_heads, "head_dim": config.size_of_head, "embedding_size": config.d_model,
        "attention_scale": config.size_of_head**-0.5, "final_norm": config.has_final_norm,
        "rotary_dim": config.size_of_head, "head_dropout": config.dropout,
    }  # fmt: skip
    if isinstance(bias := settings["attention_bias"], str):
        letters = "".join(letter for letter in "qkvo" if letter in bias)
        settings["attention_bias"] = {"": False, "qkvo": True}.get(letters, letters)
    del settings["attention"], settings["embeddings"]
    return settings | {
        name: value for name, value in meant.items() if settings.get(name, value) is None
    }


def write_table(table: str, config: Any) -> dict[str, Any]:
    """Theirs from ours."""
    ends, activations = (
        config.end_ids,
        {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())},
    )
    values = {
        **explicit(config), "activation": activations.get(config.activation),
        "eos_id": ends[0] if len(ends) == 1 else list(ends) or None,
    }  # fmt: skip
    words = [
        (rest if ours.startswith("=") else ours, theirs, rest)
        for ours, (theirs, rest) in _entries(table).items()
    ]
    return {
        theirs: values[ours]
        for ours, theirs, rest in words
        if ours in values and not rest.startswith("=")
    }


@contextmanager
def named(table: str, s: Settings) -> Iterator[None]:
    """The errors of a configuration, with the settings by their names and the file before them."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(s.where):
            raise
        theirs = {ours: theirs for ours, (theirs, _) in _entries(table).items()}
        flat = {f"{group}.{option}": name for name, (group, option) in FLAT_NAMES.items()}
        text = re.sub(r"\w+\.\w+", lambda match: flat.get(match[0], match[0]), str(error))
        text = re.sub(
            r"\w+_\w+|^\w+(?=:| must)", lambda match: theirs.get(match[0], match[0]), text
        )
        raise ValueError(f"{s.where}: {text}") from None

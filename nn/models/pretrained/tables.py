"""Names of weights, ours and theirs: a table of patterns, walked in both directions.

A line of a table is `ours theirs [mark]`: names of modules, or of parameters. "#" is the number of a layer, "@"
what the names of a family begin with; `{a,b}` makes several lines of one, ours and theirs in step. An array of
theirs that several lines name holds ours one below the other, in the order of the model. Marks: "T", theirs is
stored (in, out); "row", theirs has one more axis, of size 1, before ours; "buffer", a row that is not trained.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

__all__ = ["Place", "Rule", "known", "places", "rules_of", "translated"]

_OLDER = {".gamma": ".weight", ".beta": ".bias"}  # what the parameters of norms were once called


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

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of theirs, where ours are of these shapes."""
        shape = (sum(s[0] for s in shapes), *shapes[0][1:]) if len(shapes) > 1 else shapes[0]
        return {"": shape, "T": shape[::-1]}.get(self.mark, (1, *shape))

    def split(self, theirs: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Ours from theirs, as views."""
        whole = {"": theirs, "T": theirs.T}[self.mark] if self.mark in ("", "T") else theirs[0]
        return np.split(whole, np.cumsum([s[0] for s in shapes])[:-1]) if len(shapes) > 1 else [whole]

    def join(self, ours: Sequence[np.ndarray]) -> np.ndarray:
        """Theirs from ours."""
        whole = np.concatenate(ours) if len(ours) > 1 else ours[0]
        return {"": whole, "T": whole.T}.get(self.mark, whole[None])


def _lines(text: str) -> list[str]:
    """A text with `{a,b}` in it as several: first those with a."""
    if not (match := re.search(r"\{(.*?)\}", text)):
        return [text]
    return [line for part in match[1].split(",") for line in _lines(text[: match.start()] + part + text[match.end() :])]


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
    return re.compile(re.escape(name).replace(r"\#", r"(\d+)") + r"(\.weight|\.bias|\.gamma|\.beta)?")


def translated(name: str, rules: Iterable[Rule], back: bool = False) -> Iterator[tuple[str, str]]:
    """What a parameter of ours is called by theirs (`back`: the other way), by each rule that fits, and its mark."""
    for ours, theirs, mark, _ in rules:
        here, there = (theirs, ours) if back else (ours, theirs)
        if match := _pattern(here).fullmatch(name):
            *layers, leaf = match.groups("")
            made = there.replace("#", "{}").format(*layers) + _OLDER.get(leaf, leaf)
            # a bias is a row whichever way the weight beside it is stored
            yield made, "" if mark == "T" and leaf == ".bias" else mark


def places(rules: Sequence[Rule], names: Iterable[str]) -> dict[str, Place]:
    """Where each of our parameters is in a file: by the names there."""
    found: dict[str, Place] = {}
    for name in names:
        theirs, mark = next(translated(name, rules), ("", ""))
        if not theirs:
            raise ValueError(f"{name}: a published model has no such parameter")
        found[theirs] = Place((*found[theirs].ours, name) if theirs in found else (name,), mark)
    return found


def known(patterns: Iterable[str], name: str) -> bool:
    """Whether a name fits one of the patterns, in which * stands for anything."""
    return any(re.fullmatch(re.escape(p).replace(r"\*", ".*"), name) for p in patterns)

"""Names of weights, ours and theirs: a table of patterns, walked in both directions.

A line of a table is `ours theirs [mark]`: names of modules, or of parameters where those of a module go to
different places; `{}` is the number of a layer. Where their one array holds several of ours one below the
other, ours are joined by "+". Marks: "T", theirs is stored (in, out); "row", theirs is (1, n).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Place", "Rule", "places", "rules_of"]


class Rule(NamedTuple):
    """A line of a table."""

    ours: tuple[str, ...]
    theirs: str
    mark: str


class Place(NamedTuple):
    """An array of theirs, and the parameters of ours that it holds."""

    ours: tuple[str, ...]
    mark: str

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of theirs, where ours are of these shapes."""
        shape = (sum(s[0] for s in shapes), *shapes[0][1:]) if len(shapes) > 1 else shapes[0]
        return {"": shape, "T": shape[::-1], "row": (1, *shape)}[self.mark]

    def split(self, theirs: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Ours from theirs, each in memory of its own."""
        whole = theirs.T if self.mark == "T" else theirs[0] if self.mark == "row" else theirs
        if len(shapes) == 1:
            return [np.array(whole, order="C", copy=None if self.mark == "" else True)]
        ends = np.cumsum([s[0] for s in shapes])
        return [np.array(whole[end - s[0] : end], order="C") for end, s in zip(ends, shapes)]

    def join(self, ours: Sequence[np.ndarray]) -> np.ndarray:
        """Theirs from ours."""
        whole = np.concatenate(ours) if len(ours) > 1 else ours[0]
        return {"": whole, "T": whole.T, "row": whole[None]}[self.mark]


def rules_of(table: str, prefix: str = "") -> list[Rule]:
    """The lines of a table; `prefix` is put where theirs begins with "@", and nothing otherwise."""
    rules = []
    for line in table.split("\n"):
        if words := line.split():
            ours, theirs, mark = (*words, "")[:3]
            rules.append(Rule(tuple(ours.split("+")), theirs.replace("@", prefix), mark))
    return rules


def places(rules: Iterable[Rule], names: Iterable[str]) -> dict[str, Place]:
    """Where each of our parameters is in a file: their names, and what each of those holds."""
    patterns = [
        (re.compile(re.escape(part).replace(r"\{\}", r"(\d+)") + r"(\.\w+)?"), i, rule)
        for rule in rules
        for i, part in enumerate(rule.ours)
    ]
    found: dict[str, tuple[str, dict[int, str]]] = {}
    for name in names:
        for pattern, i, rule in patterns:
            if match := pattern.fullmatch(name):
                *layers, leaf = match.groups()
                _, parts = found.setdefault(rule.theirs.format(*layers) + (leaf or ""), (rule.mark, {}))
                parts[i] = name
                break
        else:
            raise KeyError(name)
    # a bias is a row whichever way the weight beside it is stored
    return {
        theirs: Place(tuple(parts[i] for i in sorted(parts)), "" if mark == "T" and theirs.endswith(".bias") else mark)
        for theirs, (mark, parts) in found.items()
    }


def known(patterns: Iterable[str], name: str) -> bool:
    """Whether a name fits one of the patterns, in which * stands for anything."""
    return any(re.fullmatch(re.escape(p).replace(r"\*", ".*"), name) for p in patterns)


def renamed(names: Iterable[str]) -> Mapping[str, str]:
    """Names as they are written today, with those in the file: norms once had gamma and beta."""
    ends = {".gamma": ".weight", ".beta": ".bias"}
    return {next((n.removesuffix(old) + new for old, new in ends.items() if n.endswith(old)), n): n for n in names}

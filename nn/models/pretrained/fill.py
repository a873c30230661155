"""The arrays of a folder as the parameters of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from minigrad.runtime import in_parallel

from ...layers import init
from ..base import Model
from .families import Family
from .folder import Weights, listed
from .tables import Place, places, rules_of, translated

__all__ = ["Names", "fill"]


class Names:
    """The names of a folder's arrays, by `rules`, and of a model with a head; `native`: the folder has that head."""

    def __init__(self, family: Family, table: str, weights: Weights, head: str, native: str) -> None:
        self.family, self.weights, self.head, self.native = family, weights, head, head == native
        tables = [r.theirs for r in rules_of(table, "@") if "embedding." in r.ours]
        begin = {p: tuple(t.replace("@", p) for t in tables) for p in family.prefixes}
        found = [p for p in family.prefixes if any(name.startswith(begin[p]) for name in weights)]
        if not found:
            expected = " or ".join(names[0] for names in begin.values())
            raise ValueError(f"{weights.where}: expected {expected}, got {listed(weights, 4)}")
        self.prefix = found[0]
        self.head_rules = rules_of(family.heads.get(head, ""), self.prefix)
        self.rules = rules_of(table, self.prefix)

    def classes(self) -> int | None:
        """How many classes the head in the file has."""
        name = next(r.theirs for r in self.head_rules if r.ours == "output") + ".weight"
        return self.weights[name].shape[0] if name in self.weights and self.weights[name].shape else None

    def is_new(self, name: str) -> bool:
        """Whether a parameter of ours belongs to a head that the folder does not have."""
        return not self.native and any(True for _ in translated(name, self.head_rules))

    def is_unused(self, name: str) -> bool:
        """Whether an array of the file is known, and not used: of other heads, or of what we do not have."""
        others = "" if self.native else "\n".join(self.family.heads.values())
        patterns = [*self.family.ignored, *(rule.theirs + "*" for rule in rules_of(others, self.prefix))]
        return any(re.fullmatch(re.escape(p.replace("@", self.prefix)).replace(r"\*", ".*"), name) for p in patterns)

    def places(self, model: Model) -> dict[str, Place]:
        """Which parameters of the model each array of the file holds; of another head, those inside the model below."""
        rules = [rule for rule in self.head_rules if self.native or rule.inside] + self.rules
        own = {id(parameter): name for name, parameter in model.named_parameters()}

        def at(path: str) -> str:
            found: object = model
            for part in path.split("."):
                found = getattr(found, part, None)
            return own.get(id(found), "")

        found = {}
        for name in self.weights:
            if ours := {at(path): mark for path, mark in translated(name, rules, back=True) if at(path)}:
                found[name] = Place(tuple(ours), next(iter(ours.values())))
        return found


def fill(
    model: Model, names: Names, generator: np.random.Generator | None
) -> tuple[dict[str, Place], dict[str, np.ndarray]]:
    """Read the weights into the model; where each array went, and those that it does not use.

    An array that is missing, unknown or misshaped is a ValueError, before anything is read. A new head starts
    by BERT's rule.
    """
    weights, found, own = names.weights, names.places(model), dict(model.named_parameters())
    left = [name for name in own if not any(name in place.ours for place in found.values())]
    shapes = {name: place.shape([own[o].shape for o in place.ours]) for name, place in found.items()}
    unused = [name for name in weights if name not in found]
    kinds = {
        "missing": places(names.head_rules + names.rules, (n for n in left if not names.is_new(n))),
        "unknown": [name for name in unused if not names.is_unused(name)],
        "misshaped": [f"{name} (expected {shape}, got {weights[name].shape})"
                      for name, shape in shapes.items() if weights[name].shape != shape],
    }  # fmt: skip
    if any(kinds.values()):
        text = "; ".join(f"{kind}: {listed(wrong)}" for kind, wrong in kinds.items() if wrong)
        raise ValueError(f"{weights.where}: the weights do not fit config.json: {text}")
    for name in left:
        mean, std = float(name.endswith("norm.weight")), 0.02 if own[name].ndim > 1 else 0.0
        init.normal_(own[name], mean, std, generator)
    arrays = _arrays(weights, found, np.dtype(model.config.dtype))
    done: set[str] = set()
    for name, place in found.items():
        for ours, part in zip(place.ours, place.split(arrays[name], [own[o].shape for o in place.ours])):
            if ours not in done:
                own[ours].replace(part)
                own[ours].requires_grad = place.mark != "buffer"
            elif not np.array_equal(part, own[ours].data):
                raise ValueError(f"{weights.where}: {name} differs from the array that config.json ties it to")
        done.update(place.ours)
    return found, {name: weights.array(name) for name in unused}


def _arrays(weights: Weights, names: Iterable[str], dtype: np.dtype) -> dict[str, np.ndarray]:
    """Arrays of a dtype, of finite numbers; every number is looked at once, by all cores."""

    def checked(name: str) -> np.ndarray:
        array = weights.array(name, dtype)
        if wrong := weights.misfit(name, array, dtype):
            raise ValueError(f"{weights.files[name].path}: {wrong}")
        return array.astype(dtype, copy=False)

    largest = sorted(names, key=lambda name: weights[name].start - weights[name].end)  # first, for even shares
    return dict(zip(largest, in_parallel(checked, largest)))

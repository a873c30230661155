"""State of a run: what `last.safetensors` contains, and what resuming restores exactly."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.json import Settings, mistyped_fields
from minigrad.io.random_state import get_rng_state, set_rng_state
from minigrad.optim import Optimizer, ReduceLROnPlateau, Schedule

from ..module import Module
from ..published.weights import differing, fit_weights, settings_of


@dataclass
class Counters:
    """Position of a run, and its best validation."""

    step: int = 0  # steps done, those left out included
    epoch: int = 0  # whole epochs done
    batch: int = 0  # batches done of the current epoch
    best: float | None = None  # the best score, or the smallest validation loss
    best_step: int = 0
    worse: int = 0  # validations since the best one
    skipped: int = 0  # steps left out because a loss or gradient was not finite
    validated: int = -1  # step of the last validation
    loss_sum: float = 0.0  # since the last entry of the metrics
    loss_count: float = 0.0


@dataclass
class RunState:
    """State of a run: `arrays()` and `plain_data()`, which `restore` puts back."""

    model: Module
    optimizer: Optimizer
    schedule: Schedule | ReduceLROnPlateau | None
    lr: list[float]  # of each group, when the run began
    counters: Counters = field(default_factory=Counters)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return weights and the optimizer's arrays, named `part.name`."""
        parts = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict()["arrays"],
        }
        return {f"{part}.{name}": a for part, arrays in parts.items() for name, a in arrays.items()}

    def plain_data(self) -> dict[str, Any]:
        """Return everything else, as plain data."""
        states = [g if isinstance(g, int) else g.bit_generator.state for g in self._generators()]
        return {
            **asdict(self.counters),
            "model": settings_of(self.model),
            "optimizer": self.optimizer.state_dict()["groups"],
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "random": get_rng_state(),
            "generators": json.loads(json.dumps(states, default=lambda array: array.tolist())),
        }

    def settings(self) -> dict[str, Any]:
        """Return what must stay as it was when the run began."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        groups = self.optimizer.param_groups
        schedule = None if self.schedule is None else self.schedule.state_dict()
        return {
            "lr": self.lr,
            "clip_norm": self.optimizer.clip_norm,
            "parameters": [f"{names[id(p)]} {p.shape}" for g in groups for p in g["params"]],
            "optimizer": [
                {name: g[name] for name in g if name not in ("lr", "initial_lr", "params")}
                for g in groups
            ],
            "schedule": schedule and schedule.get("base"),
        }

    def restore(
        self,
        parts: Mapping[str, Mapping[str, np.ndarray]],
        data: Mapping[str, Any],
        path: Path,
        settings: Mapping[str, Any],
    ) -> None:
        """Put back the arrays (by part and name) and the plain data that were read from `path`.

        Anything that does not fit, such as other `settings` of the trainer, is a ValueError that
        begins with `path`.
        """
        if differ := differing(settings_of(self.model), data.get("model"), free=()):
            raise ValueError(f"{path}: the state of another model: this one has {differ}")
        compare_settings(data.get("settings", {}), {**self.settings(), **settings}, path)
        counters = Counters(**{f.name: data[f.name] for f in fields(Counters) if f.name in data})
        for name, expected in mistyped_fields(counters).items():
            Settings(data, str(path)).fail(name, expected)
        fit_weights(self.model, parts["model"], path)
        optimizer = {"groups": data.get("optimizer"), "arrays": parts["optimizer"]}
        _load(path, "optimizer", self.optimizer.load_state_dict, optimizer)
        if self.schedule is not None:
            _load(path, "schedule", self.schedule.load_state_dict, data.get("schedule"))
        _load(path, "generators", self._set_generators, data.get("generators"))
        _load(path, "random", set_rng_state, data.get("random"))
        self.counters = counters

    def _generators(self) -> list[np.random.Generator | int]:
        """Return the random generators of the modules; instead of one again, its first position."""
        generators = [getattr(module, "generator", None) for module in self.model.modules()]
        found = [g for g in generators if g is not None]
        firsts = map(found.index, found)
        return [g if i == first else first for i, (g, first) in enumerate(zip(found, firsts))]

    def _set_generators(self, states: Any) -> None:
        for generator, state in zip(self._generators(), states, strict=True):
            if not isinstance(generator, int):
                generator.bit_generator.state = state  # NumPy takes lists for arrays
            elif state != generator:
                raise ValueError("modules share other generators")


def _load(path: Path, name: str, load: Callable[[Any], None], value: Any) -> None:
    """Call `load(value)`; any error is a ValueError that begins with `path` and `name`."""
    try:
        load(value)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        text = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: {name} does not fit this run ({text:.300})") from None


_WARNINGS = {
    "training data": "the run goes on with the new batches",
    "validation data": "the run goes on with the new batches",
    "losses": "the run goes on with the new objective",
    "learning rates": "the run goes on with the rates of the new schedule",
    "ranks": "[ranks, processes of each] split the batches otherwise, so that sums round otherwise "
    "and dropout draws other masks: the result equals an uninterrupted run's to rounding at best",
}
"""Settings that may differ when a run is resumed, and what that means."""


def compare_settings(began: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Refuse settings that differ from those the run began with, or warn of them."""
    for name, value in json.loads(json.dumps(now)).items():
        before = began.get(name)
        if before == value:
            continue
        if name in _WARNINGS:
            warnings.warn(
                f"{path}: {name} differ from those the run began with ({before}, now {value}): "
                f"{_WARNINGS[name]}",
                stacklevel=5,
            )
            continue
        if isinstance(before, list) and isinstance(value, list):
            pairs = enumerate(zip_longest(before, value))
            i, (before, value) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
            name = f"{name}[{i}]"
        raise ValueError(
            f"{path}: {name} must be {before!r:.80}, as the run began with, got {value!r:.80}; to "
            "change a setting, call trainer.resume(), set it, then call trainer.fit()"
        )

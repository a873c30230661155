"""The state of a run: what `last.safetensors` contains, and what resuming restores exactly."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.core.random import get_rng_state, set_rng_state
from minigrad.io.json import dataclass_from
from minigrad.optim import Optimizer, ReduceLROnPlateau, Schedule

from ..layers.module import Module
from ..models.weights import differing, fit_weights, misfit, settings_of

__all__ = ["Counters", "RunState", "compare_settings", "generators_of", "parameters_of"]


@dataclass
class Counters:
    """The position of a run, and its best validation."""

    step: int = 0  # steps done, those left out included
    epoch: int = 0  # whole epochs done
    batch: int = 0  # batches done of the current epoch
    best: float | None = None  # the best score, or the smallest validation loss
    best_step: int = 0
    worse: int = 0  # validations since the best one
    skipped: int = 0  # steps left out because a number was not finite
    validated: int = -1  # step of the last validation
    loss_sum: float = 0.0  # since the last entry of the metrics
    loss_count: float = 0.0

    def __post_init__(self) -> None:
        for name in ("step", "epoch", "batch", "best_step", "worse", "skipped"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        begun = self.epoch + self.batch > 0 or self.step == 0
        if self.epoch > self.step or not begun or max(self.best_step, self.validated) > self.step:
            raise ValueError(
                f"epoch, best_step and validated must be reached by step {self.step}, "
                f"got {self.epoch}, {self.best_step} and {self.validated}"
            )


@dataclass
class RunState:
    """What a run goes on from: `arrays()` and `numbers()`, which `restore` puts back."""

    model: Module
    optimizer: Optimizer
    schedule: Schedule | ReduceLROnPlateau | None
    average: Any
    lr: list[float]  # of each group, when the run began
    counters: Counters = field(default_factory=Counters)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return weights, the optimizer's arrays and averages, named `part.name`."""
        parts = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict()["arrays"],
            "average": {} if self.average is None else self.average.state_dict(),
        }
        return {f"{part}.{name}": a for part, arrays in parts.items() for name, a in arrays.items()}

    def numbers(self) -> dict[str, Any]:
        """Return everything else, as plain data."""
        generators = [generator.bit_generator.state for generator in generators_of(self.model)]
        return {
            **asdict(self.counters),
            "model": settings_of(self.model),
            "optimizer": self.optimizer.state_dict()["groups"],
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "random": get_rng_state(),
            "generators": json.loads(json.dumps(generators, default=lambda array: array.tolist())),
        }

    def settings(self) -> dict[str, Any]:
        """Return what must stay as it was when the run began."""
        return {
            "lr": self.lr,
            "clip_norm": self.optimizer.clip_norm,
            "parameters": parameters_of(self.model, self.optimizer),
            "optimizer": _constant(self.optimizer.state_dict()["groups"]),
            "schedule": None if self.schedule is None else _base(self.schedule.state_dict()),
        }

    def restore(
        self, parts: Mapping[str, Mapping[str, np.ndarray]], numbers: Mapping[str, Any], path: Path
    ) -> None:
        """Put back the arrays (by part and name) and the numbers that were read from `path`.

        What does not fit is a ValueError that begins with `path`.
        """
        if differ := differing(settings_of(self.model), numbers.get("model"), free=()):
            raise ValueError(f"{path}: the state of another model: this one has {differ}")
        compare_settings(numbers, self.settings(), path)
        counters = self._checked_counters(numbers, path)
        own = self.optimizer.state_dict()["arrays"]
        for name, array in parts["optimizer"].items():
            if name in own and (wrong := misfit(f"optimizer.{name}", array, own[name].dtype)):
                raise ValueError(f"{path}: {wrong}")
        fit_weights(self.model, parts["model"], path)
        groups, schedule = numbers["optimizer"], numbers.get("schedule")
        load = self.optimizer.load_state_dict
        _load(path, "optimizer", load, {"groups": groups, "arrays": parts["optimizer"]})
        if self.average is not None:
            _load(path, "average", self.average.load_state_dict, parts["average"])
        if self.schedule is not None:
            rates = [group["lr"] for group in self.optimizer.param_groups]
            _load(path, "schedule", self.schedule.load_state_dict, schedule)
            now = [group["lr"] for group in self.optimizer.param_groups]
            if now != rates and "lr" in (schedule or {}):
                raise ValueError(f"{path}: lr must be that of the schedule, {now}, got {rates}")
        _load(path, "generators", self._set_generators, numbers.get("generators", []))
        _load(path, "random", _set_random, numbers.get("random"))
        self.counters = counters

    def _checked_counters(self, numbers: Mapping[str, Any], path: Path) -> Counters:
        if missing := [f.name for f in fields(Counters) if f.name not in numbers]:
            raise ValueError(f"{path}: {missing[0]} is missing")
        values = {f.name: numbers[f.name] for f in fields(Counters)}
        counters = dataclass_from(Counters, values, str(path))
        limits = {}
        for group in numbers["optimizer"]:
            steps = group.get("steps")
            limits["steps"] = (max(steps) if isinstance(steps, list) else steps, counters.step)
        if isinstance(self.schedule, Schedule):
            limits["count"] = (numbers["schedule"].get("count"), counters.step + 1)
        for name, (value, most) in limits.items():
            if type(value) is not int or value > most:
                raise ValueError(f"{path}: {name} must be at most {most}, got {value!r:.60}")
        return counters

    def _set_generators(self, states: Any) -> None:
        """Put back the states of the model's generators; versions before 0.2 wrote none."""
        for generator, state in zip(generators_of(self.model), states, strict=bool(states)):
            arrays = {
                name: np.array(value, np.uint64) if isinstance(value, list) else value
                for name, value in state["state"].items()
            }
            generator.bit_generator.state = {**state, "state": arrays}


def _set_random(state: Any) -> None:
    set_rng_state(state)
    if get_rng_state() != state:  # 1.5 was taken for 1
        raise ValueError("expected whole numbers")


def _load(path: Path, name: str, load: Callable[[Any], None], value: Any) -> None:
    """Call `load(value)`; any error is a ValueError that begins with `path` and `name`."""
    try:
        load(value)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        text = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: {name} does not fit this run ({text:.300})") from None


def _constant(groups: Any) -> Any:
    """Return an optimizer's groups without what changes from step to step."""
    if not isinstance(groups, list):
        return groups
    return [
        {k: v for k, v in group.items() if k not in ("steps", "lr")}
        for group in groups
        if isinstance(group, dict)
    ]


def _base(schedule: Any) -> Any:
    """Return the learning rates that a schedule begins with, from its state."""
    return {"base": schedule.get("base")} if isinstance(schedule, dict) else schedule


def parameters_of(model: Module, optimizer: Optimizer) -> list[str]:
    """Return the name and shape of each parameter, in the order of the optimizer's arrays."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        f"{names[id(parameter)]} {parameter.shape}"
        for group in optimizer._groups
        for parameter in group.parameters
    ]


def generators_of(model: Module) -> list[np.random.Generator]:
    """Return the random generators that modules of a model have, each once."""
    generators = (getattr(module, "generator", None) for module in model.modules())
    return list({id(g): g for g in generators if g is not None}.values())


_WARNINGS = {
    "training data": "the run goes on with the new batches",
    "validation data": "the run goes on with the new batches",
    "ranks": "[ranks, processes of each] split the batches otherwise, so that sums round otherwise "
    "and dropout draws other numbers: the result equals an uninterrupted run's to rounding at best",
}
"""Settings that may differ when a run is resumed, and what that means."""


def compare_settings(began: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Refuse settings that differ from those the run began with, or warn of them."""
    optimizer, schedule = _constant(began.get("optimizer")), _base(began.get("schedule"))
    began = {**began, "optimizer": optimizer, "schedule": schedule}
    for name, value in json.loads(json.dumps(now)).items():
        before = began.get(name, value)  # version 0.2 wrote fewer
        if before == value:
            continue
        if name in _WARNINGS:
            warnings.warn(
                f"{path}: {name} differ from those the run began with ({before}, now {value}): "
                f"{_WARNINGS[name]}",
                stacklevel=4,
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

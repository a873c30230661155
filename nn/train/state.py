"""The state of a run: all that a trainer goes on from, as it is saved, checked and put back."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.core.random import get_rng_state, set_rng_state
from minigrad.io.json import checksum
from minigrad.optim import Optimizer, Schedule

from ..layers.module import Module
from ..models.weights import differing, fit_weights, misfit, settings_of
from .checkpoint import RunDirectory
from .settings import is_count, is_number

__all__ = ["generators_of", "restore", "state_of"]

_COUNT = (is_count, "a whole number of at least 0")
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("step", "epoch", "batch", "best_step", "worse", "skipped"), _COUNT),
    "validated": (lambda value: is_count(value, -1), "a whole number of at least -1"),
    **dict.fromkeys(("loss_sum", "loss_count"), (is_number, "a number")),
    "best": (lambda value: value is None or is_number(value), "a number or null"),
}  # fmt: skip
"""Where a trainer stands: its attributes of these names, and what each is."""
_OTHERS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "entries": _COUNT,
    "random": (lambda value: _is_random(value), "the state of the random generator"),
    "ranks": (lambda value: _are_ranks(value), "how many ranks there were, and processes of each"),
}


def state_of(trainer: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the numbers that `restore` goes back to."""
    optimizer = trainer.optimizer.state_dict()
    generators = [generator.bit_generator.state for generator in generators_of(trainer.model)]
    parts = {"model": trainer.model.state_dict(), "optimizer": optimizer["arrays"]}
    if trainer.average is not None:
        parts["average"] = trainer.average.state_dict()
    arrays = {
        f"{part}.{name}": array for part, found in parts.items() for name, array in found.items()
    }
    return arrays, {
        **{name: getattr(trainer, name) for name in _KINDS},
        "accumulate": trainer.accumulate,
        "model": settings_of(trainer.model),
        "entries": len(trainer.history),
        "parameters": parameters_of(trainer.model, trainer.optimizer),
        "clip_norm": trainer.optimizer.clip_norm,
        "lr": trainer.initial_lr,
        "data": trainer.data,
        "optimizer": optimizer["groups"],
        "schedule": None if trainer.schedule is None else trainer.schedule.state_dict(),
        "random": get_rng_state(),
        "generators": json.loads(json.dumps(generators, default=lambda array: array.tolist())),
        "ranks": [trainer.parallel.size, trainer.parallel.parts],
    }


def restore(trainer: Any, run: RunDirectory) -> int:
    """Put the last state of a run into a trainer; how many entries its metrics had.

    A state that this trainer cannot go on from is a ValueError, which begins with the file.
    """
    parts, state = run.load_state()
    if differ := differing(settings_of(trainer.model), state.get("model"), free=()):
        raise ValueError(f"{run.last}: the state of another model: this one has {differ}")
    _check(state, trainer, run.last)
    _check_settings(state, trainer, run.last)
    own = trainer.optimizer.state_dict()["arrays"]
    for name, array in parts["optimizer"].items():
        if name in own and (wrong := misfit(f"optimizer.{name}", array, own[name].dtype)):
            raise ValueError(f"{run.last}: {wrong}")
    fit_weights(trainer.model, parts["model"], run.last)
    try:
        trainer.optimizer.load_state_dict(
            {"groups": state["optimizer"], "arrays": parts["optimizer"]}
        )
        if trainer.average is not None:
            trainer.average.load_state_dict(parts["average"])
        if trainer.schedule is not None:
            trainer.schedule.load_state_dict(state["schedule"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{run.last}: {error.args[0] if error.args else error}") from None
    _set_generators(trainer.model, state.get("generators", []), run.last)
    set_rng_state(state["random"])
    for name in _KINDS:
        setattr(trainer, name, state[name])
    before, now = state["ranks"], [trainer.parallel.size, trainer.parallel.parts]
    if trainer.parallel.rank == 0 and before != now:
        warnings.warn(
            f"{run.last}: begun on {before[0]} ranks of {before[1]} processes, goes on with "
            f"{now[0]} of {now[1]}: "
            "the batches stay, but are split otherwise, so that sums round otherwise and dropout "
            "draws other numbers; "
            "what follows is equal to a run that was never cut off to rounding at best",
            stacklevel=4,
        )
    return int(state["entries"])


def generators_of(model: Module) -> list[np.random.Generator]:
    """The generators that a model was made with, each once: its dropout draws from them."""
    found = (getattr(module, "generator", None) for module in model.modules())
    return list({id(generator): generator for generator in found if generator is not None}.values())


def _set_generators(model: Module, states: Any, path: Path) -> None:
    """Put back the states of its generators, with lists for arrays; older versions kept none."""
    own = generators_of(model)
    try:
        for generator, state in zip(own, states, strict=bool(states)):
            arrays = {
                k: np.array(v, np.uint64) if isinstance(v, list) else v
                for k, v in state["state"].items()
            }
            generator.bit_generator.state = {**state, "state": arrays}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{path}: generators: expected the states of the model's {len(own)} ({error})"
        ) from None


def parameters_of(model: Module, optimizer: Optimizer) -> list[str]:
    """Return the name and shape of each parameter, in the order of the optimizer's arrays."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        f"{names[id(parameter)]} {parameter.shape}"
        for group in optimizer._groups
        for parameter in group.parameters
    ]


def _check_settings(state: dict[str, Any], trainer: Any, path: Path) -> None:
    """Refuse settings that differ from those the run began with; warn of other batches."""
    now = parameters_of(trainer.model, trainer.optimizer)
    before = state.get("parameters", now)  # version 0.2 wrote none of these settings
    if not isinstance(before, list):
        raise ValueError(f"{path}: parameters: expected a list of names, got {before!r:.60}")
    for i, (was, name) in enumerate(zip_longest(before, now, fillvalue="none")):
        if was != name:
            raise ValueError(
                f"{path}: parameter {i} of the optimizer must be {was}, as the run began with, "
                f"got {name}; give the optimizer the same parameters in the same order"
            )
    for name, value in (("clip_norm", trainer.optimizer.clip_norm), ("lr", trainer.initial_lr)):
        if (was := state.get(name, value)) != value:
            raise ValueError(
                f"{path}: {name} must be {was}, as the run began with, got {value}; to change it, "
                "call trainer.resume(), set it, then call trainer.fit()"
            )
    data = state.get("data")
    for kind, value in trainer.data.items():
        if isinstance(data, dict) and data.get(kind, value) != value:
            warnings.warn(
                f"{path}: the {kind} batches differ from those the run began with; it goes on with "
                "the new ones",
                stacklevel=5,
            )


def _check(state: dict[str, Any], trainer: Any, path: Path) -> None:
    """An error, which begins with the path, for a state that this trainer cannot go on from."""
    state.setdefault("ranks", [1, 1])  # older versions had no others
    for name, fits, expected in _demands(state, trainer):
        if not fits:
            raise ValueError(f"{path}: {name}: expected {expected}, got {state.get(name)!r:.60}")


def _demands(state: dict[str, Any], trainer: Any) -> Iterator[tuple[str, bool, str]]:
    """A name, whether what the state has there fits, and what is expected; each takes those before
    it for granted.
    """
    for name, (fits, expected) in {**_KINDS, **_OTHERS}.items():
        yield name, name in state and fits(state[name]), expected
    step, epoch, batch, most = (
        state["step"],
        state["epoch"],
        state["batch"],
        state["step"] * trainer.accumulate,
    )
    yield (
        "accumulate",
        state.get("accumulate") == trainer.accumulate,
        f"{trainer.accumulate}, as this trainer has",
    )
    yield (
        "epoch",
        epoch <= step and (epoch + batch > 0 or step == 0),
        f"one that is reached by step {step}",
    )
    yield "batch", batch <= most, f"at most {most} by step {step}"
    yield "best_step", state["best_step"] <= step, f"at most {step}, the last step"
    found, own = (
        state.get("schedule"),
        None if trainer.schedule is None else trainer.schedule.state_dict(),
    )
    if own is None:
        yield "schedule", found is None, "null, as this trainer has no schedule"
    else:
        yield (
            "schedule",
            isinstance(found, dict) and set(own) - {"lr"} <= set(found) <= set(own),
            f"{', '.join(own)} of a schedule",  # version 0.2 wrote no lr
        )
    if own is not None and isinstance(trainer.schedule, Schedule):
        own = {"base": own["base"], "count": step + 1}
        yield (
            "schedule",
            checksum({name: found[name] for name in own}) == checksum(own),  # type: ignore[index]
            f"{own}, as this trainer's after step {step}",
        )
    groups, ours = (
        state.get("optimizer"),
        json.loads(json.dumps(trainer.optimizer.state_dict()["groups"])),
    )
    yield (
        "optimizer",
        isinstance(groups, list) and all(isinstance(g, dict) for g in groups),
        "a list of settings",
    )
    for group, mine in zip(groups, ours):  # type: ignore[arg-type]
        taken, steps = step - state["skipped"], group.get("steps")
        yield (
            "optimizer",
            all(
                is_count(n) and n <= taken for n in (steps if isinstance(steps, list) else [steps])
            ),
            f"steps of at most {taken}, as this trainer's has",
        )
        for name, value in mine.items():
            if name not in ("steps", "lr"):
                fits = group.get(name) == value
                yield "optimizer", fits, f"{name}={value}, as this trainer's has"


def _are_ranks(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(is_count(n, 1) and n < 1 << 24 for n in value)
    )


def _is_random(value: Any) -> bool:
    """Whether this is a state of the random generator; by itself it would take 1.5, true or "1" for
    an integer.
    """
    before = get_rng_state()
    try:
        set_rng_state(value)
        return all(type(word) is int for word in value["state"]["state"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False
    finally:
        set_rng_state(before)

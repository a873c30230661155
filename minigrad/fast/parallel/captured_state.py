"""State of a model that a forked process copies: settings, modes, buffers and hooks."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import copy_context
from functools import cache
from typing import Any

import numpy as np

from ...changes import entry_of
from ...modes import MODE
from ...random import default_generator
from ...tensor import Tensor

_PLAIN = (int, float, str, tuple)


def last_change(array: np.ndarray) -> int:
    """Return the time of the last change to the memory of an array, or 0."""
    return max(entry_of(array)[0].values(), default=0)


def check_rows_are_independent(name: str, model: Any) -> None:
    """Raise a ValueError for a module whose results depend on which rows are in a batch."""
    for module in model.modules() if hasattr(model, "modules") else []:
        if getattr(module, "uses_batch_statistics", False) and module.training:
            raise ValueError(
                f"{name}: model must not contain {type(module).__name__} in training mode, got "
                f"{module!r:.60}; each process would use the statistics of its own part of the "
                "batch. Use LayerNorm, module.eval(), or one process"
            )


def captured_state(model: Any) -> list[Any]:
    """Return the modes of this context, the modules of a model, and their attributes.

    Each array is followed by the time of its last change, and hooks are included. Of a dictionary,
    only functions are. Lists, and tensors with a graph, which a module may keep as results, are
    left out.
    """
    modes = {variable.name: value for variable, value in copy_context().items()}
    packages = ("minigrad", "nn")
    captured = [modes[n] for n in sorted(modes) if n != MODE.name and n.split(".")[0] in packages]
    waiting = [] if model is None else [model]
    seen = set(map(id, waiting))
    while waiting:  # faster than model.modules(), which makes names; called before every step
        module = waiting.pop()
        captured.append(module)
        for value in vars(module).values():
            kind = _kind(type(value))  # type: ignore[arg-type]  # a class is hashable
            if kind == "setting" or (kind == "tensor" and value.is_leaf):
                captured.append(value)
            elif kind == "module" and id(value) not in seen:
                seen.add(id(value))
                waiting.append(value)
            elif kind == "array":
                captured += (value, last_change(value))
            elif kind == "hooks":
                captured += (value, *value.before.values(), *value.after.values())
            elif kind == "dict":
                captured += filter(callable, value.values())
    return captured


@cache
def _kind(cls: type) -> str:
    kinds = {np.ndarray: "array", Tensor: "tensor", dict: "dict", list: "list"}
    if {"before", "after"} <= {*getattr(cls, "__dataclass_fields__", ())}:
        return "hooks"
    if hasattr(cls, "named_parameters") and hasattr(cls, "modules"):
        return "module"
    return next((kinds[k] for k in kinds if issubclass(cls, k)), "setting")


def is_same(before: list[Any], now: list[Any]) -> bool:
    """Return whether two states are equal: plain values by `==`, other objects by identity."""
    return len(before) == len(now) and all(
        a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and a == b)
        for a, b in zip(before, now)
    )


def generators(state: list[Any]) -> list[np.random.Generator]:
    """Return the default generator and the generators of a captured state, each once."""
    captured = (value for value in state if isinstance(value, np.random.Generator))
    return list({id(g): g for g in (default_generator(), *captured)}.values())


def reseed(rngs: Sequence[np.random.Generator], seeds: Sequence[int]) -> None:
    """Restart each generator from its seed."""
    for rng, seed in zip(rngs, seeds, strict=True):
        rng.bit_generator.state = type(rng.bit_generator)(seed).state

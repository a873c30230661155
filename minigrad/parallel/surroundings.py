"""What a forked copy of a process takes along, and would not see changing: settings of modules, and
modes.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from operator import is_
from typing import Any

import numpy as np

from ..core.changes import last_change
from ..core.modes import MODE
from ..core.random import default_generator
from ..core.tensor import Tensor

__all__ = ["generators", "reseed", "surroundings", "unchanged"]

_DEPTH = 3  # from a function to what it closes over, to the attributes of that
_OWN = ("minigrad", "nn")
_PLAIN = (int, float, str, tuple)


def surroundings(loss: Any) -> list[Any]:
    """The modes of this context, and for the modules that a function reaches their attributes.

    Of tensors and arrays which ones they are, and when an array last changed; of dictionaries the
    functions, such as hooks. Results that a module keeps (tensors with a graph) and lists are
    passed over.
    """
    modes = [
        (variable.name, value) for variable, value in copy_context().items() if variable is not MODE
    ]
    found: list[Any] = [value for name, value in sorted(modes) if name.partition(".")[0] in _OWN]
    modules = {id(module): module for module in _modules(loss, _DEPTH)}
    waiting = [*modules.values()]
    while waiting:  # one plain loop: it is taken before every step
        for value in vars(waiting.pop()).values():
            kind = _kind(type(value))  # type: ignore[arg-type]  # a class is hashable
            if kind == "setting" or (kind == "tensor" and value.is_leaf) or id(value) in modules:
                found.append(value)
            elif kind == "module":
                modules[id(value)] = value
                waiting.append(value)
            elif kind == "array":
                found += (value, last_change(value))
            elif kind == "dict":
                found += filter(callable, value.values())
    return [*modules.values(), *found]


def generators(found: list[Any]) -> list[np.random.Generator]:
    """What random numbers come from: the default generator, and others among `surroundings`, each
    once.
    """
    every = [
        default_generator(),
        *(value for value in found if isinstance(value, np.random.Generator)),
    ]
    return list({id(generator): generator for generator in every}.values())


def reseed(every: Sequence[np.random.Generator], seeds: Sequence[int]) -> None:
    """Start each generator anew, from a seed of its own."""
    for generator, seed in zip(every, seeds, strict=True):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state


@functools.lru_cache
def _kind(cls: type) -> str:
    """What the values of a class are here."""
    kinds = {np.ndarray: "array", Tensor: "tensor", dict: "dict", list: "list"}
    return (
        "module"
        if _is_module(cls)
        else next((kinds[k] for k in kinds if issubclass(cls, k)), "setting")
    )


def _is_module(cls: type) -> bool:
    return hasattr(cls, "named_parameters") and hasattr(cls, "modules")


def unchanged(before: list[Any], now: list[Any]) -> bool:
    """Whether two `surroundings` are the same: plain values by what they are, others by which they
    are.
    """
    return len(before) == len(now) and (
        all(map(is_, before, now))
        or all(
            a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and a == b)
            for a, b in zip(before, now)
        )
    )


def _modules(reached: Any, depth: int) -> Iterator[Any]:
    """The modules that a function, a method or an object holds; not those inside others."""
    if _is_module(type(reached)):
        yield reached
        return
    if depth > 0:
        for inner in _held(reached):
            yield from _modules(inner, depth - 1)


def _held(reached: Any) -> Iterator[Any]:
    """What is directly inside a function, a method or an object."""
    if isinstance(reached, types.FunctionType):
        for cell in reached.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # it is not assigned yet
                continue
        yield from reached.__defaults__ or ()
        yield from (
            reached.__globals__[name]
            for name in reached.__code__.co_names
            if name in reached.__globals__
        )
    elif isinstance(reached, types.MethodType):
        yield from (reached.__self__, reached.__func__)
    elif isinstance(reached, functools.partial):
        yield from (reached.func, *reached.args, *reached.keywords.values())
    elif not isinstance(reached, (type, types.ModuleType, Tensor, np.ndarray)):
        yield from getattr(reached, "__dict__", {}).values()

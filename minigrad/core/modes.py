"""What the current context asks of every operation: to record itself, to be watched, or neither.

The mode is a context variable, so each thread and each asyncio task has its own. On a first
reading: `Mode`, `set_grad_enabled` and `no_grad`. What watches is for the tools in
`minigrad.debug`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, TypeVar

from .errors import GradientError

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled"]

_F = TypeVar("_F", bound=Callable[..., Any])


class Mode:
    """What holds now, and `outer`, what held before: a block is left by going back to that.

    `record`: whether operations leave nodes in the graph. `watch`: who sees them, or None.
    `traced`: whether a function runs for its derivative (as in `grad`), so that a number taken out
    of a tensor would be lost.
    """

    __slots__ = ("record", "watch", "traced", "outer")

    def __init__(self, record: bool, watch: Any, traced: bool, outer: Mode | None) -> None:
        self.record = record
        self.watch = watch
        self.traced = traced
        self.outer = outer


def leave() -> None:
    """Go back to the mode outside the block that ends."""
    MODE.set(MODE.get().outer or _PLAIN)


_PLAIN = Mode(True, None, False, None)
MODE: ContextVar[Mode] = ContextVar("minigrad.mode", default=_PLAIN)


DEFINITIONS: ContextVar[frozenset[str]] = ContextVar("minigrad.definitions", default=frozenset())
"""Names of the kernels that give way to their definitions: see `minigrad.use_definitions`."""


class set_grad_enabled(ContextDecorator):
    """Record operations, or not, within a `with` block or in the function that this decorates."""

    def __init__(self, mode: bool) -> None:
        self._record = bool(mode)

    def __enter__(self) -> None:
        mode = MODE.get()
        MODE.set(Mode(self._record, mode.watch, mode.traced, mode))

    def __exit__(self, *exc: object) -> None:
        leave()

    def __call__(self, function: _F) -> _F:
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{type(self).__name__}: cannot decorate {function.__name__}, a generator or "
                "coroutine; "
                "use a with block inside it"
            )
        return super().__call__(function)


class no_grad(set_grad_enabled):
    """Record nothing within this block, or in the function that this decorates."""

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(set_grad_enabled):
    """Record operations within this block (the default), also inside a `no_grad()`."""

    def __init__(self) -> None:
        super().__init__(True)


class traced:
    """Within this block a function runs for its derivative: everything is recorded, and no number
    leaves.
    """

    def __enter__(self) -> None:
        mode = MODE.get()
        MODE.set(Mode(True, mode.watch, True, mode))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        leave()
        if isinstance(error, ValueError) and isinstance(error.__cause__, GradientError):
            # NumPy's own error hides it where `array[i] = tensor` asks for a number
            raise error.__cause__ from None


def is_grad_enabled() -> bool:
    """Whether operations are recorded in this thread or task."""
    return MODE.get().record

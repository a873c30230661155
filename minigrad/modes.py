"""Context-local modes: gradient recording and operation tracing.

The mode is a context variable, so each thread and each asyncio task has its own. On a first
reading: `Mode`, `set_grad_enabled` and `no_grad`. Tools that see every operation use `watch`.
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
    """Mode of the current context.

    Attributes
    ----------
    record : bool
        Whether operations leave nodes in the graph.
    watch : Watch or None
        A tool that sees every operation.
    traced : bool
        Whether a function runs for its derivative (as in `grad`), so that a number taken out of a
        tensor would lose its gradient.
    outer : Mode or None
        The mode outside the current block.
    """

    __slots__ = ("record", "watch", "traced", "outer")

    def __init__(self, record: bool, watch: Any, traced: bool, outer: Mode | None) -> None:
        self.record = record
        self.watch = watch
        self.traced = traced
        self.outer = outer


def leave() -> None:
    """Restore the mode outside the block that ends."""
    MODE.set(MODE.get().outer or _PLAIN)


_PLAIN = Mode(True, None, False, None)
MODE: ContextVar[Mode] = ContextVar("minigrad.mode", default=_PLAIN)

VMAPPED: ContextVar[bool] = ContextVar("minigrad.vmapped", default=False)
"""True while a function runs inside `minigrad.vmap`."""


class set_grad_enabled(ContextDecorator):
    """Context manager and decorator that turns the recording of operations on or off.

    A call alone, `set_grad_enabled(False)`, changes nothing: write a `with` block or decorate a
    function.

    Parameters
    ----------
    mode : bool
        True = record.
    """

    def __init__(self, mode: bool) -> None:
        self._record = bool(mode)

    def __enter__(self) -> None:
        mode = MODE.get()
        MODE.set(Mode(self._record, mode.watch, mode.traced, mode))

    def __exit__(self, *exc: object) -> None:
        leave()

    def __call__(self, function: _F) -> _F:
        """Return `function` so that it runs in this mode."""
        if not callable(function):
            raise TypeError(
                f"{type(self).__name__}: function must be callable, got {function!r:.60}"
            )
        if (
            inspect.isgeneratorfunction(function)
            or inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise TypeError(
                f"{type(self).__name__}: cannot decorate {function.__name__}, a generator or "
                "coroutine; use a with block inside it"
            )
        return super().__call__(function)


class no_grad(set_grad_enabled):
    """Context manager and decorator that turns the recording of operations off.

    Parameters
    ----------
    function : callable, optional
        Function to decorate, as in `@no_grad`.
    """

    def __new__(cls, function: Any = None) -> Any:
        """Return a context manager, or `function` in this mode."""
        return object.__new__(cls) if function is None else cls()(function)

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(set_grad_enabled):
    """Context manager and decorator that records operations, also inside a `no_grad()`.

    Parameters
    ----------
    function : callable, optional
        Function to decorate, as in `@enable_grad`.
    """

    def __new__(cls, function: Any = None) -> Any:
        """Return a context manager, or `function` in this mode."""
        return object.__new__(cls) if function is None else cls()(function)

    def __init__(self) -> None:
        super().__init__(True)


class traced:
    """Context in which a function runs for its derivative.

    Operations are recorded, and a number taken out of a tensor raises an error.
    """

    def __enter__(self) -> None:
        mode = MODE.get()
        MODE.set(Mode(True, mode.watch, True, mode))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        leave()
        if isinstance(error, ValueError) and isinstance(error.__cause__, GradientError):
            # NumPy replaces the error if `array[i] = tensor` converts the tensor to a number
            raise error.__cause__ from None


def is_grad_enabled() -> bool:
    """Return whether operations are recorded in this thread or task."""
    return MODE.get().record

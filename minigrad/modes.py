"""Context-local modes: gradient recording and operation tracing.

The mode is a context variable, so each thread and each asyncio task has its own. On a first
reading: `Mode`, `set_grad_enabled` and `no_grad`. Tools that see every operation are the `watch` of
a mode, one of the extension points that `registry.py` lists, as are the checks in `ENTERING`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, TypeVar

from .arrays import Function
from .errors import GradientError

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled"]

_F = TypeVar("_F", bound=Function)


class Mode:
    """Mode of the current context.

    Attributes
    ----------
    record : bool
        Whether operations leave nodes in the graph.
    watch : object or None
        A tool that sees every operation. `forward(op, function, args, options)` returns
        `function(*args, **options)`, and `backward(node, rule, g, args)` returns `rule(g, *args)`.
        `recorded(node)` is called for each new node, `drawn()` before random numbers are drawn.
    traced : bool
        Whether a function runs for its derivative (as in `grad`), so that a number taken out of a
        tensor would lose its gradient.
    outer : Mode or None
        The mode outside the current block.
    block : object
        The context manager of the current block.
    """

    __slots__ = ("record", "watch", "traced", "outer", "block")

    def __init__(
        self, record: bool, watch: Any, traced: bool, outer: Mode | None, block: object
    ) -> None:
        self.record = record
        self.watch = watch
        self.traced = traced
        self.outer = outer
        self.block = block


def leave(block: object) -> None:
    """Restore the mode outside the block that ends."""
    mode = MODE.get()
    if mode.block is not block:
        raise RuntimeError(
            f"{type(block).__name__}: a block must end in the thread or task where it began, and "
            "after the blocks inside it; decorate a generator instead of a block around its yield"
        )
    MODE.set(mode.outer or _DEFAULT)


_DEFAULT = Mode(True, None, False, None, None)
MODE: ContextVar[Mode] = ContextVar("minigrad.mode", default=_DEFAULT)

ENTERING: list[Function] = []
"""Checks of a block in a generator: `check(block, frame)`, for the frame of the generator."""

_OF_GENERATORS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


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
        frame = sys._getframe(1)
        if frame.f_code.co_flags & _OF_GENERATORS:
            for check in ENTERING:
                check(self, frame)
        mode = MODE.get()
        MODE.set(Mode(self._record, mode.watch, mode.traced, mode, self))

    def __exit__(self, *exc: object) -> None:
        leave(self)

    def _in_generator(self, function: Function) -> Function:
        """Return a generator function that runs in this mode, and its caller in its own.

        A block around a `yield` would also be the mode of the caller. A first reader can skip this.
        """

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            resume, value = generator.send, None
            while True:
                try:
                    with self:
                        y = resume(value)
                except StopIteration as end:
                    return end.value
                try:
                    resume, value = generator.send, (yield y)
                except GeneratorExit:
                    with self:
                        generator.close()
                    raise
                except BaseException as error:
                    resume, value = generator.throw, error

        return generate

    def __call__(self, function: _F) -> _F:
        """Return `function` so that it runs in this mode; a generator, while it computes."""
        if not callable(function):
            raise TypeError(
                f"{type(self).__name__}: function must be callable, got {function!r:.60}"
            )
        if inspect.isgeneratorfunction(function):
            return self._in_generator(function)  # type: ignore[return-value]
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{type(self).__name__}: cannot decorate {function.__name__}, a coroutine or "
                "asynchronous generator; decorate the functions that it calls"
            )
        return super().__call__(function)


class no_grad(set_grad_enabled):
    """Context manager and decorator that turns the recording of operations off.

    Parameters
    ----------
    function : callable, optional
        Function to decorate, as in `@no_grad`.
    """

    def __new__(cls, function: Function | None = None) -> Any:
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

    def __new__(cls, function: Function | None = None) -> Any:
        """Return a context manager, or `function` in this mode."""
        return object.__new__(cls) if function is None else cls()(function)

    def __init__(self) -> None:
        super().__init__(True)


class traced:
    """Context in which a function runs for its derivative.

    Operations are recorded, and the conversion of a tensor to a number raises an error.
    """

    def __enter__(self) -> None:
        mode = MODE.get()
        MODE.set(Mode(True, mode.watch, True, mode, self))

    def __exit__(self, kind: object, error: BaseException | None, trace: Any) -> None:
        leave(self)
        replaced = isinstance(error, (ValueError, SystemError))
        if error is not None and replaced and isinstance(error.__cause__, GradientError):
            # NumPy replaces the error if `array[i] = tensor` converts the tensor to a number, and
            # Python if a function in C, such as SciPy's bisect, goes on after it
            raise error.__cause__.with_traceback(trace) from None


def is_grad_enabled() -> bool:
    """Return whether operations are recorded in this thread or task."""
    return MODE.get().record

"""Signals that end a process: SIGTERM (batch systems, `kill`) and SIGHUP (a closed terminal)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(SystemExit):
    """End of a process by a signal, with the exit code 143 after SIGTERM and 129 after SIGHUP."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(128 + number)
        self.text = text or f"ended by {signal.Signals(number).name}"


def terminate(number: int, frame: Any) -> None:
    """Handle a signal by raising `Terminated`, so that `finally` blocks run."""
    raise Terminated(number)


class SignalHandlers:
    """Context in which signals have another handler.

    Only the main thread receives signals. In other threads nothing changes. This is not a generator
    function, because a generator would lose a signal that arrives while it is finalized.
    """

    def __init__(
        self, numbers: Iterable[int], handler: Callable[[int, Any], Any], others: Sequence[Any]
    ) -> None:
        self.numbers, self.handler, self.others = numbers, handler, others
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in self.numbers}
            self.before = {n: handler for n, handler in handlers.items() if handler in self.others}
        for number in self.before:
            signal.signal(number, self.handler)

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

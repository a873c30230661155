"""Signals that end a process: SIGTERM (batch systems, `kill`) and SIGHUP (a closed terminal)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["ENDING", "Terminated", "handled", "terminate"]

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(SystemExit):
    """The end of a process by a signal; its exit code is 143 after SIGTERM, 129 after SIGHUP."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(128 + number)
        self.text = text or f"ended by {signal.Signals(number).name}"


def terminate(number: int, frame: Any) -> None:
    """Handle a signal by an exception, so that what is half done is cleaned up."""
    raise Terminated(number)


class handled:
    """Context in which signals have this handler if theirs was one of `others` before.

    Only the main thread receives signals; in other threads nothing is changed. It is a class since
    a generator would lose a signal that comes while it is finalized.
    """

    def __init__(
        self, numbers: Iterable[int], handler: Callable[[int, Any], Any], others: Sequence[Any]
    ) -> None:
        self.numbers, self.handler, self.others = numbers, handler, others
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self.before = {
                n: found for n in self.numbers if (found := signal.getsignal(n)) in self.others
            }
        for number in self.before:
            signal.signal(number, self.handler)

    def __exit__(self, *error: object) -> None:
        for number, found in self.before.items():
            signal.signal(number, found)
        self.before = {}

"""Signals that ask a process to end: SIGTERM of batch systems and `kill`, SIGHUP of a terminal that
is closed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["ENDING", "Terminated", "handled", "terminate"]

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(SystemExit):
    """A signal asked the process to end. The exit code is that of a shell: 143 after SIGTERM, 129
    after SIGHUP.
    """

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(128 + number)
        self.text = text or f"ended by {signal.Signals(number).name}"


def terminate(number: int, frame: Any) -> None:
    """The handler that ends a process as an exception does: what is half done is cleared away."""
    raise Terminated(number)


class handled:
    """Within it signals have this handler, where they had one of `others` before; only the main
    thread gets any.
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

"""Ctrl-C between two steps, never within one."""

from __future__ import annotations

import signal
import threading
from typing import Any

__all__ = ["Interrupts", "Stopped"]


class Stopped(KeyboardInterrupt):
    """Training was stopped by Ctrl-C where nothing was half done."""


class Interrupts:
    """Within this context Ctrl-C is noted, to be answered at the next safe place; a second one is answered at once.

    Only the main thread gets signals, and a handler of the user's own is left as it is: there, and
    outside the context, nothing is changed.
    """

    def __init__(self) -> None:
        self.noted = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        self.noted = False
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is signal.default_int_handler:
                self._before = before
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
        noted, self.noted = self.noted, False  # from here on Ctrl-C is answered at once
        if noted and kind is None:  # it came after the last safe place
            raise Stopped

    def _note(self, number: int, frame: Any) -> None:
        if self.noted:
            signal.default_int_handler(number, frame)
        self.noted = True

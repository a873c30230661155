"""Signals that end a run, answered between two steps, never within one."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import Any

from minigrad.io.signals import ENDING, SignalHandlers, Terminated, terminate


class Stopped(KeyboardInterrupt):
    """End of training by Ctrl-C between two steps, with nothing half done."""


class Interrupts:
    """Context in which Ctrl-C, SIGTERM and SIGHUP are noted, to be answered between two steps.

    A second signal is answered at once. Only the main thread receives signals, and a signal with a
    handler of the user's keeps it.
    """

    noted = False
    number: int

    def __init__(self) -> None:
        self._handlers = ExitStack()

    def __enter__(self) -> Interrupts:
        self.number = signal.SIGINT
        ctrl_c = SignalHandlers((signal.SIGINT,), self._note, (signal.default_int_handler,))
        self._handlers.enter_context(ctrl_c)
        endings = SignalHandlers(ENDING, self._note, (signal.SIG_DFL, terminate))
        self._handlers.enter_context(endings)
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        self._handlers.close()
        noted, self.noted = self.noted, False  # from here on a signal is answered at once
        if noted and kind is None:  # it came after the last check
            raise Stopped

    def ended(self, text: str) -> BaseException:
        """Return the exception that ends the run: `Stopped`, or `Terminated` after SIGTERM."""
        return Stopped(text) if self.number == signal.SIGINT else Terminated(self.number, text)

    def _note(self, number: int, frame: Any) -> None:
        if self.noted:
            (signal.default_int_handler if number == signal.SIGINT else terminate)(number, frame)
        self.noted = True
        self.number = number

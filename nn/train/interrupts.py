"""Signals that end a run, answered between two steps, never within one."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import Any

from minigrad.signals import ENDING, Terminated, handled, terminate

__all__ = ["Interrupts", "Stopped"]


class Stopped(KeyboardInterrupt):
    """Training was stopped by Ctrl-C where nothing was half done."""


class Interrupts:
    """Within this context Ctrl-C, SIGTERM and SIGHUP are noted, to be answered at the next safe
    place.

    A second one is answered at once. Only the main thread gets signals, and a handler of the user's
    own is left as it is: there, and outside the context, nothing is changed.
    """

    def __init__(self) -> None:
        self.noted = False
        self.number: int = signal.SIGINT  # of the signal that came
        self._handlers = ExitStack()

    def __enter__(self) -> Interrupts:
        self.noted, self.number = False, signal.SIGINT
        self._handlers.enter_context(
            handled((signal.SIGINT,), self._note, (signal.default_int_handler,))
        )
        self._handlers.enter_context(handled(ENDING, self._note, (signal.SIG_DFL, terminate)))
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        self._handlers.close()
        noted, self.noted = self.noted, False  # from here on a signal is answered at once
        if noted and kind is None:  # it came after the last safe place
            raise Stopped

    def ended(self, text: str) -> BaseException:
        """What a run ends with that has come to a safe place: KeyboardInterrupt, or SystemExit with
        143 or 129.
        """
        return Stopped(text) if self.number == signal.SIGINT else Terminated(self.number, text)

    def _note(self, number: int, frame: Any) -> None:
        if self.noted:
            (signal.default_int_handler if number == signal.SIGINT else terminate)(number, frame)
        self.noted, self.number = True, number

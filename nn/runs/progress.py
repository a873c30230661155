"""Progress on standard error: a bar of tqdm in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from typing import Any

from minigrad.check.extras import require

__all__ = ["ProgressLine"]


class ProgressLine:
    """Progress of a run on standard error.

    In a terminal, if tqdm is installed, `update` moves a bar. Elsewhere lines of at most 80
    characters are written: by `milestone`, and by `update` after 2 seconds, then at intervals that
    grow with the time that has passed.

    Parameters
    ----------
    total : int, optional
        Number of steps, if it is known.
    shown : bool
        False = write nothing.
    unit : str
        Noun for what is counted.
    initial : int
        Number of steps done before.
    """

    def __init__(
        self,
        total: int | None = None,
        shown: bool = True,
        unit: str = "step",
        initial: int = 0,
    ) -> None:
        self.total, self.unit, self.initial = total, unit, initial
        self.stream = sys.stderr if shown else None
        self._bar: Any = None
        self._began = time.monotonic()
        self._next = self._began + 2

    def update(self, step: int, **figures: Any) -> None:
        """Show that `step` steps are done, with these figures.

        Parameters
        ----------
        step : int
            Number of steps done.
        **figures : any
            Values to show, by name.
        """
        if self._bar is not None:
            with suppress(OSError, ValueError):  # a closed terminal does not end a run
                self._bar.set_postfix(figures, refresh=False)
                self._bar.update(step - self._bar.n)
        elif step != self.total and time.monotonic() >= self._next:
            self.milestone(step, **figures)

    def milestone(self, step: int, **figures: Any) -> None:
        """Write a line that stays, with the time that is left if it is 10 seconds or more.

        Parameters: as `ProgressLine.update`.
        """
        now = time.monotonic()
        self._next = now + max(2, (now - self._began) / 2)
        of = f"/{self.total:,}" if self.total else ""
        line = f"{self.unit} {step:,}{of}" + "".join(f"  {k} {v}" for k, v in figures.items())
        if self.total and step > self.initial:
            pace = (now - self._began) / (step - self.initial)
            if (left := round(pace * (self.total - step))) >= 10:
                line += f"  {left // 60}:{left % 60:02} left"
        with suppress(OSError, ValueError):
            if self._bar is not None:
                self._bar.write(line, file=self.stream)
            elif self.stream is not None:
                print(line[:80], file=self.stream, flush=True)

    def __enter__(self) -> ProgressLine:
        if self.stream is not None and self.stream.isatty():
            with suppress(ImportError):
                tqdm = require("tqdm", "a progress bar").tqdm
                tqdm.monitor_interval = 0  # no thread, and
                tqdm.set_lock(threading.RLock())  # no lock between processes, since a run may fork
                self._bar = tqdm(
                    total=self.total,
                    initial=self.initial,
                    unit=f" {self.unit}",
                    file=self.stream,
                    dynamic_ncols=True,
                )
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            with suppress(OSError, ValueError):
                self._bar.close()
            self._bar = None

"""How far a run is, on standard error: one line that is rewritten in a terminal, a line a
validation elsewhere.
"""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from typing import Any

__all__ = ["ProgressLine"]


class ProgressLine:
    """Tells of the steps of a run, `total` of them where that is known.

    In a terminal one line is rewritten ten times a second at most, cut to the terminal's width.
    Where standard error is a file or a pipe, `milestone` writes lines of at most 80 columns, and
    `update` none.
    """

    def __init__(self, total: int | None = None, shown: bool = True, unit: str = "step") -> None:
        self.total, self.unit = total, unit
        self.shown = shown
        self.stream = sys.stderr
        self.live = shown and self.stream is not None and self.stream.isatty()
        self._first: tuple[float, int] | None = None
        self._drawn = 0.0

    def update(self, step: int, **figures: Any) -> None:
        """Show the step and these figures, if a tenth of a second has passed."""
        now = time.perf_counter()
        if self._first is None:
            self._first = now, step
        if self.live and now - self._drawn >= 0.1:
            self._drawn = now
            self._write("\r" + self._fitted(self.line(step, now, figures)))

    def milestone(self, step: int, **figures: Any) -> None:
        """Leave a line that stays."""
        if self.shown and self.stream is not None:
            line = self.line(step, time.perf_counter(), figures)
            self._write("\r" + self._fitted(line) + "\n" if self.live else line[:80] + "\n")

    def line(self, step: int, now: float, figures: dict[str, Any]) -> str:
        """The step, the figures, and the time that is left."""
        text = f"{self.unit} {step:,}" + (f"/{self.total:,}" if self.total else "")
        text += "".join(f"  {name} {value}" for name, value in figures.items())
        if self._first is not None and self.total and step > self._first[1]:
            left = (now - self._first[0]) / (step - self._first[1]) * max(0, self.total - step)
            text += f"  {_clock(left)} left"
        return text

    @staticmethod
    def _fitted(line: str) -> str:
        width = min(shutil.get_terminal_size((80, 24)).columns, 120) - 1
        return line[:width].ljust(width)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *error: object) -> None:
        if self.live and self._drawn:
            self._write("\n")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a closed terminal does not end a run
            self.stream.write(text)
            self.stream.flush()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

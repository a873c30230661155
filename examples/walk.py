"""A guided walk through a text: what it says, what was computed, and whether they agree.

Each numbered script of this folder is such a walk. It ends with the count of statements that were
checked; one that does not agree makes it fail.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad import MissingExtraError

__all__ = ["Walk", "fastest"]

WIDTH = 100


class Walk:
    """Prints a walk as it goes, and counts.

    `section` and `say` tell; `numbers` and `fact` check a statement of the text; `erratum` one where
    the text rounds or errs; `picture` draws; `end` closes.
    """

    def __init__(self, name: str, about: str, argv: Sequence[str] | None = None) -> None:
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--out", type=Path, default=Path("runs") / name, metavar="DIR", help="where pictures go")
        parser.add_argument("--no-pictures", action="store_true", help="draw nothing")
        args = parser.parse_args(argv)
        self.out: Path = args.out
        self.draws = not args.no_pictures
        self.checked = 0
        self.corrected = 0
        self.failed: list[str] = []
        print(textwrap.dedent(about).strip())

    def section(self, title: str) -> None:
        print(f"\n── {title} {'─' * max(0, WIDTH - len(title) - 4)}")

    def say(self, text: str) -> None:
        """A paragraph of our own."""
        print(textwrap.fill(" ".join(text.split()), WIDTH))

    def show(self, name: str, value: Any, digits: int = 4) -> None:
        """A value that was computed, with its shape."""
        array = np.asarray(getattr(value, "data", value))
        with np.printoptions(precision=digits, suppress=True, linewidth=WIDTH, threshold=60):
            lines = str(array).split("\n")
        print(f"  {name}  {array.shape}" if len(lines) > 1 else f"  {name} = {lines[0]}")
        if len(lines) > 1:
            print(textwrap.indent("\n".join(lines), "    "))

    def numbers(self, statement: str, computed: Any, printed: Any, digits: int = 4) -> None:
        """The text prints these numbers, rounded to so many digits after the point."""
        found, expected = (np.asarray(getattr(v, "data", v), float) for v in (computed, printed))
        gap = float(np.abs(found - expected).max()) if found.shape == expected.shape else np.inf
        same = gap <= 0.5 * 10.0**-digits * (1 + 1e-6) + 1e-12
        detail = f"to {digits} digits" if same else f"largest gap {gap:.3g}: here {found}, there {expected}"
        self._note(statement, same, detail)

    def fact(self, statement: str, true: Any, found: str = "") -> None:
        """The text claims this; `found` is what was seen."""
        self._note(statement, bool(true), found)

    def erratum(self, statement: str, printed: str, exact: str, true: Any, why: str) -> None:
        """The text prints one thing and the exact value is another; `true` if `why` explains it."""
        self.corrected += 1
        self._note(f"{statement}: the text has {printed}, exactly it is {exact}", bool(true), why)

    def _note(self, statement: str, true: bool, detail: str) -> None:
        self.checked += 1
        if not true:
            self.failed.append(statement)
        text = f"{statement}{f' — {detail}' if detail else ''}"
        indent = "    "
        print(textwrap.fill(text, WIDTH, initial_indent="  ✓ " if true else "  ✗ ", subsequent_indent=indent))

    def picture(self, name: str, draw: Callable[[Path], Any]) -> None:
        """`draw(path)` saves a picture; without matplotlib, or with --no-pictures, that is said."""
        if not self.draws:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / name
        try:
            draw(path)
            print(f"  picture: {path}")
        except MissingExtraError as error:
            print(f"  no picture: {error}")

    def end(self) -> int:
        """The last line, and the exit status: 0 if all agree."""
        for statement in self.failed:
            print(f"does not agree: {statement}", file=sys.stderr)
        corrected = f" ({self.corrected} with a correction that is noted)" if self.corrected else ""
        verdict = "all agree" if not self.failed else f"{len(self.failed)} DO NOT AGREE"
        print(f"\n{self.checked} statements of the text checked{corrected}: {verdict}.")
        return 1 if self.failed else 0


def fastest(*runs: Callable[[], Any], rounds: int = 15) -> list[float]:
    """The shortest time of each, in seconds; they take turns, so that whatever else runs disturbs all alike."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, taken in zip(runs, times):
            began = time.perf_counter()
            run()
            taken.append(time.perf_counter() - began)
    return [min(taken) for taken in times]

"""Statements of the texts of the course, each held against a computation, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigrad import Tensor

__all__ = ["Statement", "Statements", "gap", "refusal", "same"]


def values_of(x: Any) -> np.ndarray:
    """Return an array or the values of a tensor."""
    return np.asarray(x.data if isinstance(x, Tensor) else x)


def gap(a: Any, b: Any) -> float:
    """Return the largest difference between two arrays or tensors."""
    return float(np.abs(values_of(a) - values_of(b)).max())


def same(a: Any, b: Any, atol: float = 1e-12) -> bool:
    """Return whether the gap is at most `atol`, or `atol` times the largest value."""
    return gap(a, b) <= atol * max(1.0, np.abs(values_of(b)).max())


def refusal(function: Callable[[], Any]) -> str:
    """Return the message of the ValueError that a call raises, or an empty string."""
    try:
        function()
    except ValueError as error:
        return str(error)
    return ""


@dataclass
class Statement:
    """Statement of a text, whether it holds, and what was computed."""

    section: str
    text: str
    holds: bool
    computed: str = ""
    printed: str = ""  # what the text prints, if it is wrong
    exact: str = ""  # what it should print


@dataclass
class Statements:
    """Statements of one text, in their order."""

    source: dict[str, str] = field(default_factory=dict)
    all: list[Statement] = field(default_factory=list)
    _section: str = ""

    def about(self, title: str, author: str, file: str, url: str = "", note: str = "") -> None:
        """Name the text: its title, author, file, and the original if it is known."""
        self.source = {"title": title, "author": author, "file": file, "url": url, "note": note}

    def section(self, title: str) -> None:
        """Begin a section of the table."""
        self._section = title

    def fact(
        self, text: str, holds: Any, computed: str = "", printed: str = "", exact: str = ""
    ) -> None:
        """Record a statement of the text and what was computed."""
        text, *others = (" ".join(part.split()) for part in (text, computed, printed, exact))
        self.all.append(Statement(self._section, text, bool(holds), *others))

    def equal(self, text: str, found: Any, expected: Any, atol: float = 1e-12) -> None:
        """Record that two values are the same, and their largest gap."""
        self.fact(text, same(found, expected, atol), f"largest gap {gap(found, expected):.0e}")

    def numbers(self, text: str, computed: Any, printed: Any, digits: int = 8) -> None:
        """Record values that the text prints, rounded to `digits` digits."""
        holds = np.shape(computed) == np.shape(printed) and gap(computed, printed) <= (
            0.5 * 10.0**-digits * (1 + 1e-6) + 1e-12
        )
        self.fact(text, holds, f"to {digits} digits")

    def erratum(self, text: str, printed: str, exact: str, holds: Any, why: str) -> None:
        """Record a place where the text is wrong: what it prints, what is right, and why."""
        self.fact(text, holds, why, printed, exact)

    @property
    def failed(self) -> Sequence[str]:
        """Return the statements that do not hold."""
        return [statement.text for statement in self.all if not statement.holds]

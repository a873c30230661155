"""The summary of the comparison with PyTorch, printed at the end of every run that made one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest


class Tally:
    """What the comparison has found so far."""

    def __init__(self) -> None:
        self.ops = 0
        self.agree = 0  # samples
        self.gradients = 0  # samples that have some
        self.left_out: Counter[str] = Counter()  # samples, by reason
        self.reached: set[str] = set()  # ops of minigrad, by a backward pass

    def __str__(self) -> str:
        reasons = "; ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common())
        left_out = f"; {self.left_out.total():,} left out ({reasons})" if reasons else ""
        return f"op_db: {self.ops} ops, {self.agree:,} samples agree ({self.gradients:,} with gradients){left_out}"


TALLY = Tally()


@pytest.fixture(scope="session")
def tally() -> Tally:
    return TALLY


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TALLY.ops:
        terminalreporter.write_line(str(TALLY))

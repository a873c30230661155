"""Progress: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from support.commands import Terminal, hide_packages
from support.environment import needs

from nn.runs.progress import ProgressLine

LINES = ["step 8/20  valid_loss 0.25", "step 16/20  valid_loss 0.25"]


def shown(monkeypatch: pytest.MonkeyPatch, stream: Any, seconds: float = 0, **options: Any) -> str:
    """Return what a progress line writes to `stream` in 16 steps with two milestones."""
    now = 0.0
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("time.monotonic", lambda: now)
    with ProgressLine(20, initial=4, **options) as line:
        for step in range(5, 21):
            now += seconds
            line.update(step, loss="0.5")
            if step % 8 == 0:
                line.milestone(step, valid_loss="0.25")
    return stream.getvalue()


def test_progress_in_terminal_is_bar_with_lines_above(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("tqdm")
    text = shown(monkeypatch, Terminal())
    assert all(part in text for part in ["20/20", "loss=0.5", f"{LINES[0]}\n", LINES[1]])


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_progress_in_file_or_without_tqdm_is_lines(
    monkeypatch: pytest.MonkeyPatch, stream: Any
) -> None:
    hide_packages(monkeypatch, "tqdm")
    assert shown(monkeypatch, stream).splitlines() == LINES


def test_progress_shows_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_packages(monkeypatch, "tqdm")
    lines = shown(monkeypatch, io.StringIO(), seconds=10).splitlines()
    assert [line for line in lines if "valid" in line] == [
        f"{LINES[0]}  2:00 left", f"{LINES[1]}  0:40 left"
    ]  # fmt: skip
    other = {5: "2:30", 6: "2:20", 7: "2:10", 10: "1:40", 13: "1:10"}
    expected = [f"step {step}/20  loss 0.5  {left} left" for step, left in other.items()]
    assert [line for line in lines if "valid" not in line] == expected


def test_progress_of_the_last_step_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_packages(monkeypatch, "tqdm")
    stream, now = io.StringIO(), 0.0
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("time.monotonic", lambda: now)
    with ProgressLine(3) as line:
        for step in (1, 2, 3):
            now = 10.0**step  # faster than the intervals of lines grow
            line.update(step)
    assert [text.split("/")[0] for text in stream.getvalue().splitlines()] == ["step 1", "step 2"]


def test_progress_not_shown_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), shown=False) == ""


class ClosedTerminal(Terminal):
    """A terminal that is closed after it has shown the empty bar."""

    def write(self, text: str) -> int:
        if "loss" in text:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_progress_in_closed_terminal_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for hidden in ([], ["tqdm"]):
        hide_packages(monkeypatch, *hidden)
        assert "valid_loss" not in shown(monkeypatch, ClosedTerminal())

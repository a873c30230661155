"""Progress: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any, ClassVar

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


def test_progress_shows_the_time_that_is_left_from_ten_seconds_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, now = io.StringIO(), 0.0
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("time.monotonic", lambda: now)
    line = ProgressLine(20)
    for now in (9.0, 10.0, 11.0):
        line.milestone(int(now))
    assert stream.getvalue() == "step 9/20  0:11 left\nstep 10/20  0:10 left\nstep 11/20\n"


def test_progress_in_terminal_is_bar_with_lines_above(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("tqdm")
    text = shown(monkeypatch, Terminal())
    assert all(part in text for part in ["20/20", "loss=0.5", f"{LINES[0]}\n", LINES[1]])


class Bar:
    """A bar of tqdm that records its calls."""

    made: ClassVar[list[Bar]] = []

    def __init__(self, initial: int, **options: Any) -> None:
        self.n, self.options, self.is_closed = initial, {"initial": initial, **options}, False
        self.shown: list[Any] = []
        self.made.append(self)

    @classmethod
    def set_lock(cls, lock: Any) -> None:
        pass

    def set_postfix(self, figures: dict[str, Any], refresh: bool) -> None:
        assert not refresh
        self.shown.append((self.n, figures))

    def update(self, steps: int) -> None:
        self.n += steps

    def write(self, line: str, file: Any) -> None:
        self.shown.append((line, file))

    def close(self) -> None:
        self.is_closed = True


def test_progress_moves_a_bar_and_writes_lines_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    Bar.made.clear()
    stream = Terminal()
    assert shown(monkeypatch, stream, unit="line") == ""
    (bar,) = Bar.made
    assert bar.options == {"total": 20, "initial": 4, "unit": " line", "file": stream, "dynamic_ncols": True}  # fmt: skip
    expected: list[Any] = [(n, {"loss": "0.5"}) for n in range(4, 20)]
    for at, step in ((4, 8), (13, 16)):
        expected.insert(at, (f"line {step}/20  valid_loss 0.25", stream))
    assert bar.shown == expected and bar.n == 20 and bar.is_closed
    assert Bar.monitor_interval == 0  # type: ignore[attr-defined]
    assert shown(monkeypatch, io.StringIO()).splitlines() == LINES and len(Bar.made) == 1


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


def test_progress_lines_have_at_most_80_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    ProgressLine(3).milestone(1, figure="x" * 99)
    assert stream.getvalue() == f"step 1/3  figure {'x' * 63}\n"


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

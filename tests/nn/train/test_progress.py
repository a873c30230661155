"""Progress: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from nn.train.progress import ProgressLine


class Terminal(io.StringIO):
    """A terminal that fails like a closed one after `closed_after` writes."""

    def __init__(self, closed_after: int = 10**9) -> None:
        super().__init__()
        self.left = closed_after

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "Input/output error")
        return super().write(text)


def shown(monkeypatch: pytest.MonkeyPatch, stream: Any, **options: Any) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressLine(20, initial=4, **options) as line:
        for step in range(5, 21):
            line.update(step, loss="0.5")
            if step % 8 == 0:
                line.milestone(step, valid_loss="0.25")
    return "" if stream is None else stream.getvalue()


def test_progress_in_terminal_is_bar_with_lines_above(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    text = shown(monkeypatch, Terminal())
    assert "20/20" in text and "loss=0.5" in text
    assert "step 8/20  valid_loss 0.25\n" in text
    assert "step 16/20  valid_loss 0.25" in text


def test_progress_in_file_is_line_for_each_milestone(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, io.StringIO()).splitlines()
    assert lines == ["step 8/20  valid_loss 0.25", "step 16/20  valid_loss 0.25"]


def test_progress_in_terminal_without_tqdm_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert len(shown(monkeypatch, Terminal()).splitlines()) == 2


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO(), None])
def test_progress_not_shown_writes_nothing(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    assert shown(monkeypatch, stream, shown=False) == ""


@pytest.mark.parametrize("writes", [0, 1, 5])
def test_progress_in_closed_terminal_raises_nothing(
    monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    shown(monkeypatch, Terminal(writes))
    shown(monkeypatch, None)

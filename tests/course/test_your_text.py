"""Lesson 8 on a text of the learner."""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path

import pytest
from support.scripts import EXAMPLES

from nn.fit import TrainingLoop

LESSON = EXAMPLES / "course" / "08_your_text.py"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Return a function that runs the lesson on a text, with 25 steps of each training."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "course"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(LESSON)])
    monkeypatch.setattr(TrainingLoop, "is_done", lambda loop: loop.step >= 25)

    def run(text: str) -> str:
        monkeypatch.setenv("YOUR_TEXT", text)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(LESSON))
        return printed.getvalue()

    return run


@pytest.mark.slow
def test_lesson_runs_on_a_file_without_spaces(run, tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("春眠不觉晓，处处闻啼鸟。\n" * 800, encoding="utf-8")
    printed = run("poem.txt")
    assert "10,400 letters, 12 different" in printed
    assert "✓ equal probabilities for 12 letters: log₂ 12 = 3.58 bits" in printed


def test_lesson_with_a_short_text_raises(run) -> None:
    with pytest.raises(ValueError, match=r"must have at least 10,000 characters, got 2,000"):
        run("ab" * 1000)

"""Each lesson is run once: what it returns and prints is looked at by the tests, and all that it says is there in Chinese."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts import load


@pytest.fixture
def lesson(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[int, str, Path]]:
    """Run a script in this process: the statements that it checked, what it printed, where its pictures are."""

    def run(name: str) -> tuple[int, str, Path]:
        script = load(name)
        ended, end = [], script.Lesson.end
        monkeypatch.setattr(script.Lesson, "end", lambda self: ended.append(self) or end(self))
        status = script.main(["--out", str(tmp_path), "--lang", "en"])
        text = capsys.readouterr().out
        last = text.rstrip().splitlines()[-1]
        assert status == 0, [line for line in text.splitlines() if "✗" in line]
        found = re.fullmatch(r"(\d+) statements checked( \(\d+ with .*\))?: all agree\.", last)
        assert found, last
        blocks = ended[0].blocks
        drawn = "No picture: " not in text
        gaps = (
            importlib.import_module("languages").catalogue(name, "zh").gaps(blocks, complete=drawn)
        )
        assert not gaps, "\n".join(gaps)
        return int(found[1]), text, tmp_path

    return run

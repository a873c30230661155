"""Each numbered script of examples/ is run once, and what it returns and prints is looked at by the tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts import load


@pytest.fixture
def lesson(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[[str], tuple[int, str, Path]]:
    """Run a script in this process: the statements that it checked, what it printed, where its pictures are."""

    def run(name: str) -> tuple[int, str, Path]:
        status = load(name).main(["--out", str(tmp_path)])
        text = capsys.readouterr().out
        last = text.rstrip().splitlines()[-1]
        assert status == 0, [line for line in text.splitlines() if "✗" in line]
        found = re.fullmatch(r"(\d+) statements of the text checked( \(\d+ with .*\))?: all agree\.", last)
        assert found, last
        return int(found[1]), text, tmp_path

    return run

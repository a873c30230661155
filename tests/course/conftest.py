"""Each numbered script of examples/ is run once, and what it returns and prints is looked at by the tests."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """The module of a numbered script."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec = importlib.util.spec_from_file_location(f"course_{name}", EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(EXAMPLES))
    return module


@pytest.fixture
def walk(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[[str], tuple[int, str, Path]]:
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

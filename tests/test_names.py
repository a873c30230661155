"""Another package that is called minigrad or nn is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code with `paths` first in sys.path."""
    start = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}; {code}"
    return subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=60)


def test_nn_with_another_minigrad_raises(tmp_path: Path) -> None:
    (tmp_path / "minigrad.py").write_text("class Tensor: pass")
    answer = run("import nn", tmp_path, ROOT)
    assert answer.returncode == 1
    assert f"got another package at {tmp_path / 'minigrad.py'}; run: pip uninstall" in answer.stderr


def test_minigrad_with_another_nn_warns(tmp_path: Path) -> None:
    (tmp_path / "nn.py").write_text("")
    answer = run("import minigrad", tmp_path, ROOT)
    assert f"`import nn` imports another package, {tmp_path / 'nn.py'}" in answer.stderr
    answer = run("import minigrad, nn; nn.Linear", ROOT)
    assert (answer.returncode, answer.stderr) == (0, "")

"""A scientist's notebook in NumPy and SciPy gets gradients by at most five changed lines."""

from __future__ import annotations

import difflib
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg

PORTS = Path(__file__).parent / "ports"
NAMES = ("notebook_numpy.py", "notebook_minigrad.py")


def test_notebook_changes_at_most_five_lines() -> None:
    programs = [
        list(filter(None, (PORTS / name).read_text(encoding="utf-8").splitlines()))
        for name in NAMES
    ]
    assert len(programs[0]) >= 30
    codes = difflib.SequenceMatcher(None, *programs, autojunk=False).get_opcodes()
    assert 0 < sum(max(b - a, d - c) for kind, a, b, c, d in codes if kind != "equal") <= 5


def test_notebook_has_the_results_of_finite_differences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "agg")
    original, port = (runpy.run_path(str(PORTS / name)) for name in NAMES)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[:4] == lines[4:]
    fit: Any = port["fit"]
    np.testing.assert_allclose(fit.x, original["fit"].x, rtol=1e-5)
    for name in ("errors", "spread"):
        np.testing.assert_allclose(port[name], original[name], rtol=1e-3)
    assert np.abs(np.asarray(port["gradient"](fit.x))).max() < 1e-3
    assert mg.gradcheck(port["loss"], mg.Tensor(fit.x, requires_grad=True))

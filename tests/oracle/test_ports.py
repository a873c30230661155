"""Programs for PyTorch and for NumPy that run here with a few lines changed, and compute the same."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")


def run_both(file: str, changes: dict[str, str]) -> list[Any]:
    """Return the modules of a program of ports/ and of its copy with changed lines."""
    source = (Path(__file__).parent / "ports" / file).read_text(encoding="utf-8")
    assert changes.keys() <= {*source.splitlines()}
    ported = "\n".join(changes.get(line, line) for line in source.splitlines())
    programs = []
    for code in (source, ported):
        programs.append(types.ModuleType(file))
        exec(compile(code, file, "exec"), programs[-1].__dict__)
    return programs


def test_vision_transformer_for_pytorch_with_two_lines_changed_trains_to_its_losses() -> None:
    torch.set_num_threads(1)
    changes = {"import torch": "import minigrad as torch", "import torch.nn as nn": "import nn"}
    theirs, ours = run_both("vit.py", changes)
    torch.manual_seed(1)
    their_model, model = theirs.ViT().double(), ours.ViT().double()
    assert [*model.state_dict()] == [*their_model.state_dict()]
    model.load_state_dict(their_model.state_dict())
    x, y = torch.randn(12, 3, 8, 8, dtype=torch.float64), torch.arange(12) % 4
    expected = theirs.train(their_model, x, y, 10)
    data = [ours.torch.from_numpy(part.numpy()) for part in (x, y)]
    np.testing.assert_allclose(ours.train(model, *data, 10), expected, rtol=0, atol=1e-6)
    assert expected[-1] < expected[0] - 0.1
    assert ours.predict(model, data[0]) == theirs.predict(their_model, x)


def test_notebook_for_scipy_with_four_lines_changed_has_its_results(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "agg")
    theirs, ours = run_both("notebook.py", {
        "import numpy as np": "import numpy as np\nimport minigrad as mg",
        "gradient = lambda p: approx_fprime(p, loss, 1e-7)": "gradient = mg.grad(loss)",
        "hessian = lambda p: approx_fprime(p, gradient, 1e-5)": "hessian = mg.hessian(loss)",
        "slopes = approx_fprime(fit.x, model, 1e-7, future)":
            "slopes = mg.jacobian(lambda p: model(p, future))(fit.x)",
    })  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[:4] == lines[4:]
    np.testing.assert_allclose(ours.fit.x, theirs.fit.x, rtol=1e-5)
    for name in ("errors", "spread"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-3)

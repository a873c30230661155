"""Programs for PyTorch and for NumPy that run here with a few lines changed."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.environment import needs


def run(name: str, changes: dict[str, str] | None = None) -> Any:
    """Return the module of a program in which some lines are changed."""
    lines = (Path(__file__).parent / "ports" / name).read_text(encoding="utf-8").splitlines()
    code = "\n".join((changes or {}).get(line, line) for line in lines)
    assert set(changes or ()) <= {*lines}
    module = types.ModuleType(name)
    exec(compile(code, name, "exec"), module.__dict__)
    return module


def test_vision_transformer_for_pytorch_with_two_lines_changed_trains_to_its_losses() -> None:
    torch = needs("torch")
    torch.set_num_threads(1)
    changes = {
        "import torch": "import minigrad.torch as torch",
        "import torch.nn as nn": "import minigrad.torch.nn as nn",
    }
    theirs, ours = run("vit.py"), run("vit.py", changes)
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


def test_notebook_with_four_lines_changed_has_the_results_of_finite_differences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("scipy", "matplotlib")
    monkeypatch.setenv("MPLBACKEND", "agg")
    changes = {
        "import numpy as np": "import minigrad as mg, numpy as np",
        "gradient = lambda p: approx_fprime(p, loss, 1e-7)": "gradient = mg.grad(loss)",
        "hessian = lambda p: approx_fprime(p, gradient, 1e-5)": "hessian = mg.hessian(loss)",
        "slopes = approx_fprime(fit.x, model, 1e-7, future)":
            "slopes = mg.jacobian(lambda p: model(p, future))(fit.x)",
    }  # fmt: skip
    original, port = run("notebook.py"), run("notebook.py", changes)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[:4] == lines[4:]
    for name in ("errors", "spread"):
        found, expected = getattr(port, name), getattr(original, name)
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert np.abs(port.gradient(port.fit.x).data).max() < 1e-3

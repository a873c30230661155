"""A program written for PyTorch runs here with two lines changed, and trains to the same losses."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")

PROGRAM = Path(__file__).parent / "ports" / "vit.py"
CHANGED = {"import torch": "import minigrad as torch", "import torch.nn as nn": "import nn"}
"""Lines of a program for PyTorch, and the lines that replace them."""


def run(lines: list[str]) -> Any:
    """Return the module of a program."""
    module = types.ModuleType("vit")
    exec(compile("\n".join(lines), "vit.py", "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def programs() -> tuple[Any, Any]:
    """Return the program for PyTorch, and the program with two lines changed."""
    torch.set_num_threads(1)
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    changed = [CHANGED.get(line, line) for line in lines]
    assert sum(a != b for a, b in zip(lines, changed)) == 2
    return run(lines), run(changed)


def test_ported_vision_transformer_trains_as_in_pytorch(programs: tuple[Any, Any]) -> None:
    theirs, ours = programs
    torch.manual_seed(1)
    their_model, model = theirs.ViT().double(), ours.ViT().double()
    shapes = [
        [(key, tuple(p.shape)) for key, p in m.named_parameters()] for m in (model, their_model)
    ]
    assert shapes[0] == shapes[1]
    model.load_state_dict(their_model.state_dict())
    x, y = torch.randn(12, 3, 8, 8, dtype=torch.float64), torch.arange(12) % 4
    expected = theirs.train(their_model, x, y, 10)
    data = [ours.torch.from_numpy(part.numpy()) for part in (x, y)]
    np.testing.assert_allclose(ours.train(model, *data, 10), expected, rtol=0, atol=1e-6)
    assert expected[-1] < expected[0] - 0.1
    assert ours.predict(model, data[0]) == theirs.predict(their_model, x)


def test_main_of_ported_program_prints_one_loss(
    programs: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for program in programs:
        program.main(3)
        assert capsys.readouterr().out.count("loss") == 1

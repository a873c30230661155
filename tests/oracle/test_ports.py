"""A program for PyTorch that runs here with two lines changed, and trains to the same losses."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")


CHANGES = {"import torch": "import minigrad as torch", "import torch.nn as nn": "import nn"}
"""Lines of a program for PyTorch, and the lines that replace them."""


def run(code: str) -> Any:
    """Return the module of a program."""
    module = types.ModuleType("vit")
    exec(compile(code, "vit.py", "exec"), module.__dict__)
    return module


def test_vision_transformer_for_pytorch_with_two_lines_changed_trains_to_its_losses() -> None:
    torch.set_num_threads(1)
    source = (Path(__file__).parent / "ports" / "vit.py").read_text(encoding="utf-8")
    ported = "\n".join(CHANGES.get(line, line) for line in source.splitlines())
    theirs, ours = run(source), run(ported)
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

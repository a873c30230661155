"""Programs written for PyTorch run here with two lines changed, and train alike: the same losses from the same weights."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")

PORTS = Path(__file__).parent / "ports"
CHANGED = {
    "import torch": "import minigrad as torch",
    "from torch import nn": "import nn",
    "import torch.nn as nn": "import nn",
}
"""The lines of a program for PyTorch that change, and what they become."""


def ported(source: str) -> tuple[str, int]:
    """The program for minigrad, and how many of its lines were changed."""
    lines = source.splitlines()
    changed = [CHANGED.get(line, line) for line in lines]
    return "\n".join(changed), sum(a != b for a, b in zip(lines, changed))


def run(name: str, source: str) -> Any:
    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return module


def both(name: str) -> tuple[Any, Any]:
    """The program as it was written, and as it is here."""
    source = (PORTS / f"{name}.py").read_text(encoding="utf-8")
    text, count = ported(source)
    assert 0 < count <= 2
    return run(name, source), run(f"{name}_ported", text)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_a_multilayer_perceptron() -> None:
    theirs, ours = both("mlp")
    torch.manual_seed(1)
    their_model, model = theirs.MLP(2, 16, 3).double(), ours.MLP(2, 16, 3).double()
    model.load_state_dict(their_model.state_dict())
    (their_x, their_y), (x, y) = theirs.spirals(20), ours.spirals(20)
    np.testing.assert_allclose(
        x.data, their_x.numpy(), atol=1e-5
    )  # linspace there is in single precision
    np.testing.assert_array_equal(y.data, their_y.numpy())
    data = their_x.double(), their_y
    expected = theirs.train(their_model, *data, 20)
    same = [ours.torch.tensor(part.numpy()) for part in data]
    found = ours.train(model, *same, 20)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert expected[-1] < expected[0] - 0.1
    assert ours.accuracy(model, *same) == pytest.approx(theirs.accuracy(their_model, *data))


def test_a_small_vision_transformer() -> None:
    theirs, ours = both("vit")
    torch.manual_seed(1)
    their_model, model = theirs.ViT().double(), ours.ViT().double()
    shapes = [
        {name: tuple(p.shape) for name, p in m.named_parameters()} for m in (model, their_model)
    ]
    assert shapes[0] == shapes[1]
    model.load_state_dict(their_model.state_dict())
    x, y = torch.randn(12, 3, 8, 8, dtype=torch.float64), torch.arange(12) % 4
    expected = theirs.train(their_model, x, y, 10)
    same = [ours.torch.from_numpy(part.numpy()) for part in (x, y)]
    found = ours.train(model, *same, 10)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert expected[-1] < expected[0] - 0.1
    assert ours.predict(model, same[0]) == theirs.predict(their_model, x)


@pytest.mark.parametrize("name", ["mlp", "vit"])
def test_the_whole_program_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for program in both(name):
        program.main(3)
        assert capsys.readouterr().out.count("loss") == 1

"""Type stub of Tensor: equal to the registry, and sufficient for a script of a user."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.environment import needs
from support.forms import BEFORE_2_4

import minigrad as mg
from minigrad import Tensor
from minigrad.methods import Methods
from tools import stubs

PAGE = """
import minigrad as mg
from minigrad import Tensor

w = mg.randn(3, 4, requires_grad=True)
hidden: Tensor = (mg.ones(5, 3) @ w).tanh().clip(-1.0, 1.0).reshape(-1, 1).T * 2 + 1
loss: Tensor = (hidden**2).mean() + w.norm() + w.max(dim=0).sum() - w.softmax(axis=0)[0].sum()
loss.backward()
assert w.grad is not None
with mg.no_grad():
    w -= 0.1 * w.grad
values, places = w.top_k(2)
w.tanhh()
w.clip(lower=1)
wrong: int = w.exp()
"""


needs_signatures = pytest.mark.skipif(
    BEFORE_2_4, reason="needs signatures of functions in C, which NumPy 2.4 has"
)


@needs_signatures
def test_stub_is_up_to_date() -> None:
    assert stubs.PATH.read_text(encoding="utf-8") == stubs.stubs(), "run python -m tools.stubs"
    assert issubclass(Tensor, Methods) and not hasattr(Tensor(1.0), "__dict__")


def test_signature_of_ufunc_has_its_operands_only() -> None:
    assert (
        str(inspect.signature(mg.add)) == "(a, b, /)"
        and str(inspect.signature(Tensor.exp)) == "(x, /)"
    )


@pytest.mark.slow
def test_mypy_with_the_stub_finds_the_errors_of_a_script_alone(tmp_path: Path) -> None:
    needs("mypy")
    (tmp_path / "page.py").write_text(PAGE, encoding="utf-8")
    options = ["--strict", "--follow-imports=silent", "--cache-dir=/dev/null"]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "page.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(mg.__file__).parent.parent), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in run.stdout.splitlines() if "error:" in line]
    assert len(lines) == 3, run.stdout + run.stderr
    assert '"Tensor" has no attribute "tanhh"' in lines[0]
    assert 'Unexpected keyword argument "lower"' in lines[1]
    assert "Incompatible types in assignment" in lines[2]


USER = """
import minigrad as mg
import minigrad.torch as torch
import nn

x = mg.tensor([1.0, 2.0], requires_grad=True)
model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
reveal_type(x)
reveal_type((x**2).sum().grad)
reveal_type(mg.grad(lambda v: (v**3).sum())(x))
reveal_type(mg.jacobian(lambda v: v * v)(x))
reveal_type(model(x))
reveal_type(nn.CrossEntropyLoss()(model(x), [1]))
reveal_type(nn.LayerNorm(3)(x))
reveal_type(torch.zeros(3))
reveal_type(mg.relu(x))
loaded = nn.load("directory")
reveal_type(loaded)
assert isinstance(loaded, nn.LanguageModel)
reveal_type(nn.decode(loaded, [[1]], max_len=3))
"""


@pytest.mark.slow
def test_pyright_and_mypy_know_the_types_of_a_script(tmp_path: Path) -> None:
    needs("mypy", "pyright")
    root = Path(mg.__file__).parent.parent
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(root)]}))
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "user.py"]
    run = subprocess.run(command, **options)
    assert "0 errors" in run.stdout, run.stdout + run.stderr
    types = re.findall(r'Type of ".*" is "(.*)"', run.stdout)
    expected = ["Tensor", "Tensor | None", *["Tensor"] * 7, "Model", "list[list[int]]"]
    assert types == expected, run.stdout
    command = [sys.executable, "-m", "mypy", "--cache-dir=/dev/null", "--follow-imports=silent"]
    env = {"MYPYPATH": str(root), "PATH": ""}
    run = subprocess.run([*command, "user.py"], env=env, **options)
    types = re.findall(r'Revealed type is "(.*)"', run.stdout)
    assert [re.sub(r"(minigrad|nn)\.\w+\.", "", name) for name in types] == expected, run.stdout

"""Compare the paths in docs/reading.md, with the calls, and run its commands."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from support.properties import normal

import minigrad as mg
import nn
from minigrad import optim
from minigrad.graph import topological, unbroadcast
from minigrad.optimizer import Stepper

ROOT = Path(__file__).parents[1]
CONFIG = nn.LanguageModelConfig(50, 32, 4, 1, 64, pad_id=0)


def listed_functions(title: str) -> list[tuple[str, str]]:
    """Return (file, qualified name) of each entry of a numbered list of docs/reading.md."""
    text = (ROOT / "docs/reading.md").read_text(encoding="utf-8")
    section = text.split(f"### {title}")[1].split("\n#")[0]
    entry = r"^\d+\. \[?`([\w/]+\.py)`(?:\]\(\.\./\1\))?: `([\w.]+)`"
    return re.findall(entry, section, re.MULTILINE)


def code_of(file: str, name: str) -> CodeType:
    """Return the code of the function `name` that `file` defines."""
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    code: CodeType = inspect.unwrap(attrgetter(name)(module)).__code__
    assert Path(code.co_filename).resolve() == ROOT / file, f"{name} is not defined in {file}"
    return code


def called_codes(function: Callable[[], Any]) -> list[CodeType]:
    """Return the code of every Python function that is called, in order."""
    codes: list[CodeType] = []

    def see(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            codes.append(frame.f_code)

    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
    return codes


class PlainAdam(optim.Adam):
    stepper_type = Stepper


def training(folder: Path) -> Callable[[], Any]:
    """Return a call that takes a step of training by the definitions of the book."""
    model, source = translator(), np.array([[4, 5, 6], [7, 0, 0]])
    optimizer = PlainAdam(model.parameters(), clip_norm=1.0)
    loop = nn.TrainingLoop(model, optimizer, lambda epoch: [(source, source)], max_epochs=1)
    return mg.use_definitions()(loop.fit)


def translation(folder: Path) -> Callable[[], Any]:
    """Return a call that translates greedily."""
    model = translator()
    return lambda: nn.decode(model, np.array([[1]]), np.array([[4, 5]]), max_len=3)


def translator() -> nn.Transformer:
    return nn.Transformer(nn.TransformerConfig(9, 9, 32, 4, 1, 1, 64), np.random.default_rng(0))


def next_token(folder: Path) -> Callable[[], Any]:
    """Return a call that generates one token with a copy for inference."""
    model = nn.for_inference(nn.LanguageModel(CONFIG, np.random.default_rng(0)))
    return lambda: nn.generate(model, [4, 5, 6], max_len=1)


def directory(folder: Path) -> Callable[[], Any]:
    """Return a call that loads a saved model."""
    nn.save(folder, nn.LanguageModel(nn.LanguageModelConfig(50, 32, 4, 1, 64)))
    return lambda: nn.load(folder)


@pytest.mark.parametrize(
    "title,prepare",
    [
        ("A batch becomes a loss", training),
        ("The loss becomes gradients", training),
        ("Gradients become a step", training),
        ("Three tokens", translation),
        ("A token: ", next_token),
        ("A directory: ", directory),
    ],
)
def test_calls_visit_the_listed_functions_in_order(
    tmp_path: Path, title: str, prepare: Callable[[Path], Callable[[], Any]]
) -> None:
    entries = listed_functions(title)
    assert 4 <= len(entries) <= 16
    calls = iter(called_codes(prepare(tmp_path)))
    for file, name in entries:
        code = code_of(file, name)
        assert any(called is code for called in calls), f"{name} of {file} is not called there"


def test_short_loop_of_the_page_computes_the_gradients_of_backward() -> None:
    page = (ROOT / "docs/reading.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    x, w, b = (mg.Tensor(normal(0, *n), requires_grad=True) for n in ((2, 3), (3, 4), (4,)))
    y = (mg.softmax(mg.tanh(x @ w + b) * x.mean()) ** 2).sum()
    expected = mg.gradients(y, [x, w, b], retain_graph=True)
    grads = {y._node: np.ones(())}
    exec(code, {"order": topological([y._node]), "grads": grads, "unbroadcast": unbroadcast})
    for t, g in zip((x, w, b), expected, strict=True):
        np.testing.assert_allclose(t.grad.data, g.data, rtol=1e-12)


def commands_of_page() -> list[list[str]]:
    page = (ROOT / "docs/reading.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = "".join(blocks).replace("$PWD", ROOT.as_posix()).splitlines()
    return [shlex.split(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("command", commands_of_page(), ids=lambda command: command[-3])
def test_commands_of_the_page_run_and_the_debugger_stops_where_q_exists(command: list[str]) -> None:
    assert command[0] == "python"
    run = subprocess.run(
        [sys.executable, *command[1:]],
        input="p q.shape\nstep\nq\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONUTF8": "1"},
        cwd=ROOT,
    )
    expected = (
        r"attention.py\(\d+\)forward[^*]*\(64, 4, \d+, 32\)" if "pdb" in command else "right,"
    )
    assert re.search(expected, run.stdout), run.stdout + run.stderr

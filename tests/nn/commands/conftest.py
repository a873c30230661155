"""Runs of `minigrad train` that the tests of several commands read."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from support.chat_templates import use_without_jinja2
from support.commands import call

import nn
from nn.commands import train

LEARNS = (
    "--pair en-es --sentences 1200 --valid-size 40 --test-size 60 --layers 1 --d-model 32 --num-heads 2 --d-ff 64"
    " --epochs 9 --lr 1e-2 --warmup 40 --batch-tokens 256 --dropout 0 --processes 1"
)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return a run that learns: its output, directory, translator and held-out pairs."""
    directory = tmp_path_factory.mktemp("runs") / "en-es"
    run = call(train.main, f"{LEARNS} --out {directory}")
    run.directory, run.translator = directory, nn.Translator.load(directory)
    run.test = train.load_pairs(train.parse([*LEARNS.split(), "--out", f"{directory}-2"]))[2]
    return run


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no pictures, which takes longer than tiny runs, and warn of no missing package."""
    monkeypatch.setattr(train, "draw", lambda *_: None)
    monkeypatch.setattr(train, "name_missing_extras", lambda: None)


@pytest.fixture(scope="module", autouse=True)
def templates() -> Iterator[None]:
    """Render simple chat templates also without `jinja2`."""
    with pytest.MonkeyPatch.context() as patch:
        use_without_jinja2(patch)
        yield

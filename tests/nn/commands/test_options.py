"""Odd values of every numeric option of the commands: an error of one line, or a run that succeeds."""

from __future__ import annotations

import argparse
import importlib
import io
import shlex
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import INTENSE
from scripts import load
from tiny_folders import encoder_folder, language_model_folder, translator_folder

from minigrad.console import run_script

pytestmark = pytest.mark.slow
pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")
ODD = ["nan", "inf", "-1", "0", "1e308", "1e-320", "2.5", "x", "", "9" * 30, "9" * 5000, "٣"]
TINY = "--layers 1 --d-model 8 --d-ff 8 --num-heads 2 --quiet --processes 1 --steps 2 --out out"
CALLS = {
    "examples/char_gpt": "a.txt --steps 1 --context 8 --d-model 8 --layers 1 --length 2 --processes 1 --out out",
    "examples/classify": "--data p.tsv --epochs 1 --d-model 8 --layers 1 --out out",
    "train": f"--data p.tsv --valid-size 5 --test-size 5 --warmup 2 {TINY}",
    "translate": "whole 'a 1' --max-len 3",
    "generate": "lm 'the cat' --max-len 3",
    "search": "encoder a.txt 'the cat' --index a.index",
    "fine_tune": "encoder p.tsv --epochs 1 --out out",
}  # fmt: skip


def module_of(name: str) -> Any:
    directory, _, script = name.rpartition("/")
    return load(script) if directory else importlib.import_module(f"nn.commands.{name}")


def call(module: Any, line: list[str]) -> tuple[object, str]:
    """Return the exit code, and standard error without the progress."""
    err = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(err):
        try:
            code: object = run_script(lambda: module.main(line))
        except SystemExit as stop:
            code = stop.code
    progress = ("step ", "usage", " ", "left out")
    lines = [line for line in err.getvalue().splitlines() if not line.startswith(progress)]
    return code, "\n".join(lines)


def numeric_options(module: Any) -> list[str]:
    parsers: list[argparse.ArgumentParser] = []

    def keep(parser: argparse.ArgumentParser, *_: Any) -> None:
        parsers.append(parser)
        raise SystemExit(0)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(argparse.ArgumentParser, "parse_known_args", keep)
        module.main([])
    actions = parsers[0]._actions
    return [
        a.option_strings[-1] for a in actions if a.type not in (None, Path) and a.option_strings
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Work in a directory with the files of all calls; draw no pictures."""
    path = tmp_path_factory.mktemp("files")
    (path / "p.tsv").write_text("".join(f"a {i} b\t{'xy'[i % 2]}\n" for i in range(30)))
    (path / "a.txt").write_text("".join(f"the cat sat {i}\n" for i in range(20)))
    encoder_folder(path / "encoder")
    language_model_folder(path / "lm")
    translator_folder(path / "marian")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nn.commands.train.draw", lambda *_: None)
        patch.chdir(path)
        assert call(module_of("train"), shlex.split(CALLS["train"])) == (0, "")
        (path / "out").rename(path / "whole")
        yield path


@pytest.mark.parametrize("name", CALLS)
def test_command_option_with_an_odd_value_is_one_line_or_works(files: Path, name: str) -> None:
    module = module_of(name)
    cases = [f"{option}={value}" for option in numeric_options(module) for value in ODD]
    count = len(cases) if INTENSE else 15
    for i in np.random.default_rng(0).permutation(len(cases))[:count].tolist():
        shutil.rmtree("out", ignore_errors=True)
        code, err = call(module, [*shlex.split(CALLS[name]), cases[i]])
        is_line = code in (1, 2) and "error: " in err and err.isprintable() and len(err) < 2000
        assert code == 0 or is_line, f"{name} {CALLS[name]} {cases[i]:.60}: {code}, {err:.500}"


@pytest.mark.parametrize("line", ["generate lm \udcff", "search encoder a.txt \udcff", "translate marian \udcff"])  # fmt: skip
def test_command_argument_of_another_encoding_is_one_line(files: Path, line: str) -> None:
    """A terminal of another encoding gives lone surrogates."""
    name, *arguments = line.split()
    code, err = call(module_of(name), arguments)
    assert code == 1 and err.startswith("error: ") and err.count("\n") == 0 and "udcff" in err

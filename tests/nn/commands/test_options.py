"""Odd values of every numeric option of the commands: an error of one line, or a run that succeeds."""

from __future__ import annotations

import importlib
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import call
from support.environment import THOROUGH
from support.scripts import load
from support.tiny_folders import encoder_folder, language_model_folder, translator_folder

from nn.commands.console import run_script

pytestmark = pytest.mark.slow
ODD = ["nan", "inf", "-1", "0", "1e308", "1e-320", "2.5", "x", "", "9" * 30, "9" * 5000, "٣"]
TINY = "--layers 1 --d-model 8 --d-ff 8 --num-heads 2 --quiet --processes 1 --epochs 1 --out out"
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
    """Return the module of a command, or of a script if the name has a directory."""
    directory, _, script = name.rpartition("/")
    return load(script) if directory else importlib.import_module(f"nn.commands.{name}")


def run(module: Any, line: list[str]) -> tuple[object, str]:
    """Return the exit code, and standard error without the progress."""

    def main(argv: list[str]) -> object:
        try:
            return run_script(lambda: module.main(argv))
        except SystemExit as stop:
            return stop.code

    done = call(main, line)
    progress = ("step ", "usage", " ", "left out")
    return done.result, "\n".join(text for text in done.err if not text.startswith(progress))


def options_of(module: Any) -> list[str]:
    """Return the options with a value that is no path, from the help."""
    with redirect_stdout(io.StringIO()) as text, pytest.raises(SystemExit):
        module.main(["--help"])
    return re.findall(r"^  (--(?!out|data)[\w-]+) (?!FILE|DIR)\w", text.getvalue(), re.MULTILINE)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Work in a directory with the files of all calls; draw no pictures."""
    path = tmp_path_factory.mktemp("files")
    (path / "p.tsv").write_text(
        "".join(f"a {'bcdefg'[i % 6]} {i}\t{'xy'[i % 2]}\n" for i in range(30))
    )
    (path / "a.txt").write_text("".join(f"the cat sat {i}\n" for i in range(20)))
    encoder_folder(path / "encoder")
    language_model_folder(path / "lm")
    translator_folder(path / "marian")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nn.commands.train.draw", lambda *_: None)
        patch.chdir(path)
        code, printed = run(module_of("train"), shlex.split(CALLS["train"]))
        assert code == 0 and "of the source tokens in the validation pairs are unknown" in printed
        (path / "out").rename(path / "whole")
        yield path


@pytest.mark.parametrize("name", CALLS)
def test_command_option_with_an_odd_value_is_one_line_or_works(files: Path, name: str) -> None:
    module = module_of(name)
    cases = [f"{option}={value}" for option in options_of(module) for value in ODD]
    count = len(cases) if THOROUGH else 15
    for case in np.random.default_rng(0).permutation(cases)[:count].tolist():
        shutil.rmtree("out", ignore_errors=True)
        code, err = run(module, [*shlex.split(CALLS[name]), case])
        *others, last = err.splitlines() or [""]
        is_line = code in (1, 2) and "error: " in last and last.isprintable() and len(err) < 2000
        is_line &= not any("error" in line or "Traceback" in line for line in others)
        assert code == 0 or is_line, f"{name} {CALLS[name]} {case:.60}: {code}, {err:.500}"


@pytest.mark.parametrize("line", ["generate lm \udcff", "search encoder a.txt \udcff", "translate marian \udcff"])  # fmt: skip
def test_command_argument_of_another_encoding_is_one_line(files: Path, line: str) -> None:
    """A terminal of another encoding gives lone surrogates."""
    name, *arguments = line.split()
    code, err = run(module_of(name), arguments)
    *others, error = err.splitlines()  # warnings, and what is done
    assert code == 1 and error.startswith("error: ") and "udcff" in error
    assert all(line.isprintable() for line in others)

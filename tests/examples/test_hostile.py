"""What can be done to the scripts: odd numbers for every option, damage to every file. One line each, or no harm."""

from __future__ import annotations

import argparse
import io
import shlex
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import INTENSE, Judge, file_damage
from scripts import load
from tiny_folders import encoder_folder, language_model_folder, translator_folder

from minigrad.console import run_script

pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")
Tell = Callable[[str], None]
NUMBERS = ["nan", "inf", "-1", "0", "1e308", "1e-320", "2.5", "x", "", "9" * 30, "9" * 5000, "٣"]
GPT = "a.txt --steps 1 --context 8 --d-model 8 --layers 1 --length 2 --processes 1 --out out"
TINY = "--layers 1 --d-model 8 --d-ff 8 --num-heads 2 --quiet --processes 1 --steps 2 --out out"
CALLS = {
    "char_gpt": GPT,
    "classify": "--data p.tsv --epochs 1 --d-model 8 --layers 1 --out out",
    "multi30k": f"--data . --kind '' --merges 10 --validate-every 2 --save-every 1 {TINY} --translate a.txt",
    "train_toy_translation": f"--data p.tsv --valid-size 5 --test-size 5 --warmup 2 {TINY}",
    "translate": "whole 'a 1' --max-len 3",
    "generate": "lm 'the cat' --max-len 3",
    "translate_with": "marian 'the cat' --max-len 3",
    "semantic_search": "encoder a.txt 'the cat'",
    "fine_tune": "encoder p.tsv --epochs 1 --out out",
}
FILES = {
    "char_gpt": ["a.txt"], "classify": ["p.tsv"], "train_toy_translation": ["p.tsv"], "fine_tune": ["p.tsv"],
    "multi30k": ["train.en", "val.de", "a.txt"], "semantic_search": ["a.txt"],
    "translate": ["whole/config.json", "whole/vocab.json", "whole/best.safetensors"],
    "generate": ["lm/config.json", "lm/model.safetensors", "lm/tokenizer.json", "lm/tokenizer_config.json"],
    "translate_with": ["marian/config.json", "marian/model.safetensors", "marian/tokenizer.json"],
}  # fmt: skip


@pytest.fixture(scope="module")
def scripts() -> dict[str, Any]:
    found = {name: load(name) for name in CALLS}
    found["train_toy_translation"].draw = lambda *_: ""
    return found


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory, scripts: dict[str, Any]) -> Path:
    """All files that the calls need."""
    path = tmp_path_factory.mktemp("room")
    pairs = [(f"a {i} b", f"{'xy'[i % 2]}") for i in range(30)]
    (path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    (path / "a.txt").write_text("".join(f"the cat sat {i}\n" for i in range(20)))
    for part in ("train", "val"):
        for language, side in zip(("en", "de"), zip(*pairs)):
            (path / f"{part}.{language}").write_text("\n".join(side) + "\n")
    encoder_folder(path / "encoder")
    language_model_folder(path / "lm")
    translator_folder(path / "marian")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert called(scripts["train_toy_translation"], CALLS["train_toy_translation"]) == "0: "
    (path / "out").rename(path / "whole")
    return path


def called(script: Any, line: str | list[str]) -> str:
    """The code, and what was said on standard error but for the progress."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run_script(
                lambda: script.main(shlex.split(line) if isinstance(line, str) else line)
            )
        except SystemExit as stop:
            code = stop.code
    said = [
        text
        for text in err.getvalue().splitlines()
        if not text.startswith(("step ", "usage", " ", "left out"))
    ]
    return f"{code}: " + "\n".join(said)


def ended(script: Any, line: list[str], named: str = "") -> bool:
    """Call it: an error of its own is raised as one; whether all was well otherwise."""
    said = called(script, line)
    code, _, text = said.partition(": ")
    if code in ("1", "2"):
        raise ValueError(text)
    return code == "0"


def numbers_of(script: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options that take a number."""
    found: list[argparse.ArgumentParser] = []

    def kept(parser: argparse.ArgumentParser, *_: Any) -> None:
        found.append(parser)
        raise SystemExit(0)

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", kept)
        patch.setattr(argparse.ArgumentParser, "parse_intermixed_args", kept)
        with pytest.raises(SystemExit):
            script.parse([])
    return [
        a.option_strings[-1]
        for a in found[0]._actions
        if a.type not in (None, Path) and a.option_strings
    ]


def test_odd_numbers_for_every_option(
    room: Path, scripts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    judge = Judge()
    cases = [(name, option, value) for name, script in scripts.items()
             for option in numbers_of(script, monkeypatch) for value in NUMBERS]  # fmt: skip
    draw = np.random.default_rng(0)
    for i in range(len(cases)) if INTENSE else sorted(draw.permutation(len(cases))[:100].tolist()):
        name, option, value = cases[i]
        monkeypatch.chdir(room)
        shutil.rmtree("out", ignore_errors=True)
        line = [*shlex.split(CALLS[name]), f"{option}={value}"]
        judge.case(
            f"{name} {option}={value:.20}", lambda s=scripts[name], a=line: ended(s, a), bool, None
        )
    judge.report("odd numbers for options of scripts", 90, tell)


def test_damaged_files_of_every_script(
    room: Path, scripts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    judge, draw = Judge(), np.random.default_rng(0)
    cases = [
        (name, file, case)
        for name, files in FILES.items()
        for file in files
        for case in file_damage(file, draw)
    ]
    for i in range(len(cases)) if INTENSE else sorted(draw.permutation(len(cases))[:60].tolist()):
        name, file, (what, damage) = cases[i]
        shutil.rmtree(tmp_path / "room", ignore_errors=True)
        directory = shutil.copytree(room, tmp_path / "room", ignore=shutil.ignore_patterns("out"))
        monkeypatch.chdir(directory)
        damage(directory)
        line = shlex.split(CALLS[name])
        judge.case(
            f"{name}: {what}", lambda s=scripts[name], a=line: ended(s, a), bool, Path(file).name
        )
    judge.report("damaged files of scripts", 50, tell)


@pytest.mark.parametrize("name", ["generate", "semantic_search", "translate_with"])
def test_arguments_that_are_no_text(
    room: Path, scripts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As they come from a terminal of another encoding."""
    monkeypatch.chdir(room)
    line = [word.replace("the cat", "\udcff") for word in shlex.split(CALLS[name])]
    said = called(scripts[name], line)
    assert said.startswith("1: error: ") and said.count("\n") == 0 and "udcff" in said

"""The short examples: each does what it says, and is short."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import EXAMPLES, load
from tiny_folders import WORDS, encoder_folder, language_model_folder, translator_folder

import nn
from minigrad import MissingExtraError
from minigrad.console import run_script
from minigrad.io import load_arrays

CORPORA = ("texts.py",)
TINY = "--sentences 240 --epochs 2 --processes 1 --quiet"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_is_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    limit = {"train_toy_translation.py": 130, **dict.fromkeys(CORPORA, 200)}.get(path.name, 100)
    assert lines <= limit


def call(name: str, line: str | list[str]) -> tuple[Any, str, str]:
    """Return what an example returns, prints, and writes on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        result = load(name).main(shlex.split(line) if isinstance(line, str) else line)
    return result, out.getvalue(), err.getvalue()


def toy(run_dir: Path, options: str = TINY) -> tuple[Any, str, str]:
    return call("train_toy_translation", f"{options} --out {run_dir}")


@pytest.mark.slow
def test_toy_translation_learns_and_prints_its_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("sacrebleu")
    run_dir = tmp_path / "run"
    _, out, _ = toy(run_dir, "--pair en-es --sentences 600 --epochs 12 --processes 1")
    lines = out.splitlines()
    assert lines[0] == "561 pairs to learn, 15 to validate, 45 held out"
    pattern = r"45 held-out sentences: loss ([\d.]+), exact match ([\d.]+)%, BLEU ([\d.]+); \d+ steps in \d+ s, \d+ s in all; run directory (.*)"
    loss, exact, bleu, directory = re.fullmatch(pattern, lines[-1]).groups()
    assert float(loss) < 3 and float(exact) >= 0 and float(bleu) > 1 and directory == str(run_dir)
    files = {"config.json", "vocab.json", "best.safetensors", "last.safetensors", "metrics.jsonl"}
    files |= {"loss.png", "attention.png", ".lock"}
    assert {path.name for path in run_dir.iterdir()} == files
    translator = nn.Translator.load(run_dir)
    assert translator.translate(["hello world"], beam_size=4)[0].text == "hola mundo"
    samples = re.findall(r"^  (\S.*)\n    → (.*)\n    ([=≠]) (.*)$", out, re.MULTILINE)
    assert len(samples) == 10
    for source, translation, mark, reference in samples:
        assert translator.translate([source], beam_size=4)[0].text == translation
        assert (mark == "=") == (translation == reference)
    _, out, _ = call("translate", [str(run_dir), "hello world", "the world"])
    assert out == "hola mundo\nel mundo\n"


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no pictures, which takes longer than these tiny runs."""
    pytest.importorskip("sacrebleu")
    monkeypatch.setattr(nn.plots, "loss_curve", lambda *_: None)
    monkeypatch.setattr(nn.plots, "attention_grid", lambda *_: None)


def test_toy_translation_resumed_equals_an_uninterrupted_run(
    tmp_path: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy(tmp_path / "whole")
    step = nn.Trainer._step

    def stopped(self: nn.Trainer, batches: list[Any]) -> Any:
        if self.step == 3:
            raise KeyboardInterrupt
        return step(self, batches)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(nn.Trainer, "_step", stopped)
        toy(tmp_path / "parts")
    _, out, _ = toy(tmp_path / "parts", f"{TINY} --resume")
    assert out.count("\n") == 1  # with --quiet
    for name in ("best.safetensors", "last.safetensors"):
        whole, parts = (load_arrays(tmp_path / part / name)[0] for part in ("whole", "parts"))
        assert set(whole) == set(parts)
        for key, array in whole.items():
            np.testing.assert_array_equal(parts[key], array, err_msg=key)
    with pytest.raises(FileExistsError, match="holds a run already"):
        toy(tmp_path / "parts")


def test_toy_translation_without_extras_stops_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu", None)
    with pytest.raises(MissingExtraError, match="needs sacrebleu: pip install sacrebleu"):
        toy(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_translate_generate_and_search_with_published_models(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    translator_folder(tmp_path / "translator")
    language_model_folder(tmp_path / "gpt")
    encoder_folder(tmp_path / "encoder")
    model, text = nn.load(tmp_path / "translator"), nn.text.load(tmp_path / "translator")
    expected = nn.generate_text(model, text, ["the cat", "why"])
    _, out, _ = call("translate", [str(tmp_path / "translator"), "the cat", "why"])
    assert out.splitlines() == expected
    _, out, _ = call("generate", [str(tmp_path / "gpt"), "the cat"])
    assert out.startswith("the cat") and set(out[7:].split()) <= set(WORDS)
    (tmp_path / "notes.txt").write_text("the cat sat\n\nwhy is it\nthe dog ran\na\n")
    files = [str(tmp_path / "encoder"), str(tmp_path / "notes.txt")]
    _, out, _ = call("semantic_search", [*files, "why is it"])
    assert out.count("\n") == 3 and out.startswith("1.00  why is it\n")


def test_fine_tune_writes_an_adapter(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    encoder = encoder_folder(tmp_path / "encoder")
    rng = np.random.default_rng(0)
    words = {"question": ["why", "where", "who"], "fact": ["the", "cat", "dog"]}
    texts = [(" ".join(rng.choice(words[label], 3)), label) for _ in range(400) for label in words]
    lines = [f"{text} {i}\t{label}\n" for i, (text, label) in enumerate(texts)]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    files = [str(encoder), str(tmp_path / "pairs.tsv"), str(tmp_path / "adapter")]
    _, out, _ = call("fine_tune", files)
    assert re.match(r"[\d,]+ of [\d,]+ parameters are trained\naccuracy 1.000 on 80 held-out", out)
    model = nn.load(encoder, head="classes", num_classes=2)
    nn.load_adapter(tmp_path / "adapter", model)
    ids, mask, _ = nn.text.load(encoder).batch(["the dog 1", "why who why 2"])
    assert model.eval()(ids, mask).data.argmax(-1).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["translate", "generate", "semantic_search", "fine_tune"])
def test_example_without_arguments_prints_its_usage(name: str) -> None:
    with pytest.raises(SystemExit, match=f"python examples/{name}.py DIR"):
        load(name).main([])


@pytest.mark.parametrize("name", ["translate", "generate", "semantic_search", "fine_tune"])
def test_example_with_a_missing_directory_prints_one_line(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "a.tsv").write_text("a\tb\nc\td\n")
    more = {"semantic_search": ["a.tsv", "x"], "fine_tune": ["a.tsv", "out"]}.get(name, ["x"])
    arguments = [str(tmp_path / word) if word.endswith("tsv") else word for word in more]
    assert run_script(lambda: load(name).main([str(tmp_path / "none"), *arguments])) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ") and "none" in err and err.count("\n") == 1

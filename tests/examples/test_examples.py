"""Run the short examples."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.commands import call, hide_packages
from support.environment import needs
from support.scripts import load
from support.tiny_folders import encoder_folder, language_model_folder, translator_folder

import nn
from nn.commands.console import run_script

TINY = "--sentences 240 --epochs 2 --processes 1 --quiet"


def run(name: str, line: str) -> SimpleNamespace:
    return call(load(name).main, line)


# -- the toy translation ---------------------------------------------------------------------------


@pytest.mark.slow
def test_toy_translation_learns_and_prints_its_figures(tmp_path: Path) -> None:
    needs("matplotlib")
    needs("sacrebleu")
    options = "--pair en-es --sentences 600 --epochs 12 --processes 1"
    out = run("train_toy_translation", f"{options} --out {tmp_path}").out
    assert out[0] == "561 pairs to learn, 15 to validate, 45 held out"
    figures = r"45 held-out sentences: loss [0-2]\.\d+, exact match [\d.]+%, BLEU [1-9][\d.]+; .*"
    assert re.fullmatch(figures, out[-1]) and out[-1].endswith(f"run directory {tmp_path}")
    assert (tmp_path / "loss.png").exists() and (tmp_path / "attention.png").exists()
    samples = re.findall(r"^  (\S.*)\n    → (.*)\n    ([=≠]) (.*)$", "\n".join(out), re.MULTILINE)
    assert len(samples) == 10
    for _, translation, mark, reference in samples:
        assert (mark == "=") == (translation == reference)
    out = run("translate", f"{tmp_path} 'hello world' 'the world'").out
    assert [line.split()[0] for line in out] == ["hola", "el"]  # after 12 epochs, not always more


@pytest.mark.slow
def test_toy_translation_resumes_a_run_and_refuses_to_overwrite_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for picture in ("loss_curve", "attention_grid"):  # which take longer than tiny runs
        monkeypatch.setattr(nn.plots, picture, lambda *_: None)
    line = f"{TINY} --out {tmp_path}"
    outputs = [run("train_toy_translation", f"{line} {more}").out for more in ("", "--resume")]
    [first], [resumed] = ([re.sub(r"\d+ s\b", "", text) for text in out] for out in outputs)
    assert first == resumed  # nothing is left to learn
    with pytest.raises(FileExistsError, match="holds a run already"):
        run("train_toy_translation", line)


def test_toy_translation_without_extras_names_them_and_prints_exact_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_packages(monkeypatch, "matplotlib", "sacrebleu", "tqdm")
    line = TINY.removesuffix("--quiet")
    *_, extras, figures = run("train_toy_translation", f"{line} --out {tmp_path}").out
    assert extras == 'pip install -e ".[all]" adds BLEU, and pictures of the loss and of attention'
    pattern = r"18 held-out sentences: loss \d+\.\d+, exact match [\d.]+%; \d+ steps .*"
    assert re.fullmatch(pattern, figures)
    assert not [*tmp_path.glob("*.png")]


# -- published models ------------------------------------------------------------------------------


def test_translate_generate_and_search_with_published_models(tmp_path: Path) -> None:
    needs("tokenizers")
    marian, gpt, encoder, notes = (tmp_path / name for name in "abcd")
    translator_folder(marian)
    expected = nn.generate_text(nn.load(marian), nn.text.load(marian), ["the cat", "why"])
    assert run("translate", f"{marian} 'the cat' why").out == expected
    language_model_folder(gpt)
    [line] = run("generate", f"{gpt} 'the cat'").out
    assert line.startswith("the cat")
    encoder_folder(encoder)
    notes.write_text("the cat sat\n\nwhy is it\nthe dog ran\na\n")
    out = run("semantic_search", f"{encoder} {notes} 'why is it'").out
    assert len(out) == 3 and out[0] == "1.00  why is it"


def test_fine_tune_writes_an_adapter(tmp_path: Path) -> None:
    needs("tokenizers")
    encoder, rng = encoder_folder(tmp_path / "encoder"), np.random.default_rng(0)
    words = {"question": ["why", "where", "who"], "fact": ["the", "cat", "dog"]}
    lines = [
        f"{' '.join(rng.choice(words[label], 3))} {i}\t{label}\n"
        for i in range(400)
        for label in words
    ]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    out = run("fine_tune", f"{encoder} {tmp_path}/pairs.tsv {tmp_path}/adapter").out
    assert re.fullmatch(r"[\d,]+ of [\d,]+ parameters are trained", out[0])
    assert out[1].startswith("accuracy 1.000 on 80 held-out")
    model = nn.load(encoder, head="classes", num_classes=2)
    nn.load_adapter(tmp_path / "adapter", model)
    ids, mask, _ = nn.text.load(encoder).batch(["the dog 1", "why who why 2"])
    assert model.eval()(ids, mask).data.argmax(-1).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["translate", "generate", "semantic_search", "fine_tune"])
def test_example_without_arguments_or_directory_prints_one_line(name: str, tmp_path: Path) -> None:
    needs("tokenizers")
    main = load(name).main
    with pytest.raises(SystemExit, match=f"python examples/{name}.py DIR"):
        main([])
    data = tmp_path / "a.tsv"
    data.write_text("a\tb\nc\td\n")
    more = {"semantic_search": f"{data} x", "fine_tune": f"{data} out"}.get(name, "x")
    done = call(lambda argv: run_script(lambda: main(argv)), f"{tmp_path}/none {more}")
    assert done.result == 1 and re.fullmatch("error: .*none.*", "\n".join(done.err))

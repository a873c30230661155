"""The Multi30k recipe, on a handful of sentences and a tiny model."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scripts import load

from minigrad.io import load_arrays
from nn.commands import train, translate
from nn.train import average_weights

pytest.importorskip("tokenizers")
pytest.importorskip("sacrebleu")

TINY = [
    "--vocab-size",
    "300",
    "--layers",
    "1",
    "--d-model",
    "16",
    "--d-ff",
    "32",
    "--num-heads",
    "2",
    "--warmup",
    "4",
    "--batch-tokens",
    "120",
    "--validate-every",
    "3",
    "--save-every",
    "2",
    "--quiet",
]


@pytest.fixture(scope="module")
def multi30k() -> ModuleType:
    return load("multi30k")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no pictures, which takes longer than these tiny runs."""
    monkeypatch.setattr(train, "draw", lambda *_: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    words = [
        ("man", "mann"),
        ("dog", "hund"),
        ("child", "kind"),
        ("house", "haus"),
        ("car", "auto"),
    ]
    pairs = [(f"a {a} and a {c} .", f"ein {b} und ein {d} .") for a, b in words for c, d in words]
    for part, some in (("train", pairs[:20]), ("val", pairs[20:])):
        for language, lines in zip(("en", "de"), zip(*some)):
            (path / f"{part}.lc.norm.tok.{language}").write_text("\n".join(lines) + "\n")
    return path


def weights(out: Path) -> dict[str, np.ndarray]:
    return load_arrays(out / "last.safetensors")[0]


def test_multi30k_resumed_equals_an_uninterrupted_run(
    multi30k: ModuleType, data: Path, tmp_path: Path
) -> None:
    options = [
        "--bpe-dropout",
        "0.2",
        "--r-drop",
        "2",
        "--ema",
        "0.9",
        "--accumulate",
        "2",
        "--norm-first",
    ]
    r_drop = options[2:4]  # an option of the recipe, not of the run
    run = lambda name, *more: multi30k.main(
        ["--data", str(data), "--out", str(tmp_path / name), *more]
    )
    summary = run("whole", "--steps", "7", *TINY, *options)
    run("parts", "--steps", "4", *TINY, *options)
    run("parts", "--resume", "--steps", "7", "--quiet", *r_drop)
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert set(whole) == set(parts) and "average.updates" in whole
    for name, array in whole.items():
        np.testing.assert_array_equal(parts[name], array)
    assert summary["steps"] == 7 and "tok:none" in summary["bleu_signature"]
    assert json.loads((tmp_path / "whole" / "summary.json").read_text()) == summary


def test_translate_average_equals_average_weights(
    multi30k: ModuleType,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "run"
    multi30k.main(["--data", str(data), "--out", str(out), "--steps", "9", *TINY])
    kept = sorted(out.glob("weights-*.safetensors"))
    assert [file.name for file in kept] == [f"weights-000000{n}.safetensors" for n in (3, 6, 9)]
    for name, array in average_weights(kept).items():
        np.testing.assert_array_equal(load_arrays(out / "best.safetensors")[0][name], array)
    average = translate.load_run(translate.parse([str(out), "--average", "2"])).model.state_dict()
    for name, array in average_weights(kept[-2:]).items():
        np.testing.assert_array_equal(average[name], array)
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.StringIO("a man .\n\na dog and 未见过 🙂 .\n"))
    references = ["--references", str(data / "val.lc.norm.tok.de"), "--bleu-tokenize", "none"]
    assert translate.main([str(out), "--average", "10"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4 and lines[1] == lines[3] == ""
    sources = (data / "val.lc.norm.tok.en").read_text().splitlines()
    assert translate.main([str(out), *sources, *references]) == 0
    assert capsys.readouterr().err.startswith("BLEU ")
    for file in kept:
        file.unlink()
    with pytest.raises(ValueError, match="no weights were kept; train with --average"):
        translate.main([str(out), "a man .", "--average", "10"])


def test_multi30k_model_shares_one_table(
    multi30k: ModuleType, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = recipe(multi30k, ["--data", str(data), *TINY], monkeypatch)
    translator = train.make_translator(args, train.load_pairs(args)[0])
    model = translator.model
    assert translator.source_vocab is translator.target_vocab and translator.source_eos
    tables = (
        model.source_embedding.tokens.weight,
        model.target_embedding.tokens.weight,
        model.output.weight,
    )
    assert len({id(table) for table in tables}) == 1 and model.output.bias is None
    assert translator.unknown(translator.translate(["ñandú 未见过 🙂 &apos;"], max_len=2)[0]) == []


def recipe(
    multi30k: ModuleType, argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> argparse.Namespace:
    """Return the settings with which the recipe trains."""
    with monkeypatch.context() as patch:
        patch.setattr(train, "main", lambda argv, settings, objective: train.parse(argv, settings))
        return multi30k.main(argv)


def test_multi30k_settings_are_the_published_ones(
    multi30k: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = vars(recipe(multi30k, ["--data", "x"], monkeypatch))
    published = {
        "vocab_size": 10_256, "layers": 4, "d_model": 128, "d_ff": 256, "num_heads": 4, "dropout": 0.3, "steps": 8000,
        "label_smoothing": 0.1, "lr": 0.005, "warmup": 2000, "average": 10, "beam": 5, "norm_first": False,
        "bpe_dropout": 0.0, "ema": None, "clip": 1.0, "patience": None,
    }  # fmt: skip
    assert {name: settings[name] for name in published} == published
    assert settings["data"] == ["x/train.lc.norm.tok.en", "x/train.lc.norm.tok.de"]


def test_multi30k_r_drop_is_its_objective(
    multi30k: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objectives = []
    monkeypatch.setattr(
        train, "main", lambda argv, settings, objective: objectives.append(objective)
    )
    for options in ([], ["--r-drop", "5"]):
        multi30k.main(["--data", str(data), *options])
    assert objectives[0] is None
    assert (objectives[1].alpha, objectives[1].options) == (5.0, {"label_smoothing": 0.1})


def test_multi30k_changed_data_is_refused(multi30k: ModuleType, data: Path, tmp_path: Path) -> None:
    args = ["--data", str(data), "--out", str(tmp_path / "run"), "--steps", "3", *TINY]
    multi30k.main(args)
    with pytest.raises(SystemExit):
        multi30k.main(args)
    (tmp_path / "other").mkdir()
    for file in data.iterdir():
        (tmp_path / "other" / file.name).write_text(file.read_text().replace("house", "tree"))
    other = ["--data", str(tmp_path / "other"), "--out", str(tmp_path / "run"), "--resume"]
    with pytest.raises(ValueError, match="its vocabulary is not that of this data"):
        multi30k.main(other)
    with pytest.raises(FileNotFoundError, match=r"train.lc.norm.tok.en: no such file"):
        multi30k.main(["--data", str(tmp_path / "nothing"), "--out", str(tmp_path / "new")])

"""The Multi30k recipe, on a handful of sentences and a tiny model."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scripts import EXAMPLES, load

from minigrad.io import load_arrays
from nn.train import average_weights

pytest.importorskip("tokenizers")
pytest.importorskip("sacrebleu")

TINY = ["--merges", "40", "--layers", "1", "--d-model", "16", "--d-ff", "32", "--num-heads", "2", "--warmup", "4",
        "--batch-tokens", "120", "--validate-every", "3", "--save-every", "2", "--quiet"]  # fmt: skip


@pytest.fixture(scope="module")
def multi30k() -> ModuleType:
    return load("multi30k")


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


@pytest.mark.parametrize(
    "options",
    [
        [],
        [
            "--bpe-dropout",
            "0.2",
            "--r-drop",
            "2",
            "--ema",
            "0.9",
            "--accumulate",
            "2",
            "--norm-first",
        ],
    ],
)
def test_a_run_that_was_cut_off_ends_as_one_that_was_not(
    multi30k: ModuleType, data: Path, tmp_path: Path, options: list[str]
) -> None:
    run = lambda name, *more: multi30k.main(
        ["--data", str(data), "--out", str(tmp_path / name), *more]
    )
    summary = run("whole", "--steps", "7", *TINY, *options)
    run("parts", "--steps", "4", *TINY, *options)
    run("parts", "--resume", "--steps", "7")  # all other settings are those it began with
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert set(whole) == set(parts) and ("average.updates" in whole) == bool(options)
    for name, array in whole.items():
        np.testing.assert_array_equal(parts[name], array)
    assert summary["steps"] == 7 and set(summary["scores"]) == {
        "last, greedy",
        "averaged, greedy",
        "averaged, beam",
    }
    found = summary["scores"]["averaged, beam"]
    assert "tok:none" in found["bleu_signature"] and "case:lc" in found["bleu_signature"]
    assert (
        json.loads((tmp_path / "whole" / "summary.json").read_text())["scores"] == summary["scores"]
    )


def test_a_run_begins_with_what_another_has_learnt(
    multi30k: ModuleType, data: Path, tmp_path: Path
) -> None:
    run = lambda name, *more: multi30k.main(
        ["--data", str(data), "--out", str(tmp_path / name), *more]
    )
    args = multi30k.parse(["--data", str(data), *TINY])
    pairs = multi30k.pairs_of(args, "train")
    batches, _ = multi30k.batches_of(args, multi30k.untrained(args, pairs), pairs, pairs[:2])
    epoch = len(batches)
    run("first", "--steps", str(epoch), *TINY)
    shutil.copytree(tmp_path / "first", tmp_path / "goes_on")
    run("goes_on", "--resume", "--steps", str(epoch + 3))
    begin = ["--begin-with", str(tmp_path / "first"), "--steps", str(epoch + 3), *TINY]
    run("same", *begin)
    expected, found = weights(tmp_path / "goes_on"), weights(tmp_path / "same")
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    with pytest.raises(FileExistsError, match="holds a run already"):
        run("same", *begin)
    run("others", *begin, "--r-drop", "2", "--ema", "0.5")
    others, first = weights(tmp_path / "others"), weights(tmp_path / "first")
    assert others["average.updates"] == [epoch + 3]
    for name in (name for name in first if name.startswith("model.") and name.endswith("weight")):
        average = others[name.replace("model", "average", 1)]  # half-way behind the weights
        assert 0 < np.abs(average - first[name]).max() < np.abs(others[name] - first[name]).max()
    (tmp_path / "first" / "vocab.json").write_text(
        (tmp_path / "first" / "vocab.json").read_text().replace("hund", "huhn")
    )
    with pytest.raises(ValueError, match="first: its vocabulary is not that of this data"):
        run("third", *begin)
    with pytest.raises(FileNotFoundError, match="none"):
        run("fourth", *begin[2:], "--begin-with", str(tmp_path / "none"))
    assert not (tmp_path / "fourth" / "config.json").exists()


def test_weights_are_averaged_and_files_translated_line_by_line(
    multi30k: ModuleType, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    common = ["--data", str(data), "--out", str(out)]
    multi30k.main([*common, "--steps", "9", *TINY])
    kept = sorted(out.glob("weights-*.safetensors"))
    assert [file.name for file in kept] == [f"weights-000000{n}.safetensors" for n in (3, 6, 9)]
    for count, files in ((2, kept[-2:]), (10, kept)):
        multi30k.main([*common, "--evaluate", "--average", str(count)])
        for name, array in average_weights(files).items():
            np.testing.assert_array_equal(load_arrays(out / "averaged.safetensors")[0][name], array)
    source = tmp_path / "new.lc.norm.tok.en"
    source.write_text("a man .\n\na dog and 未见过 🙂 .\n")
    capsys.readouterr()
    multi30k.main([*common, "--evaluate", "--translate", str(source)])
    lines = (out / "new.de").read_text().split("\n")
    assert len(lines) == 4 and lines[1] == lines[3] == ""
    assert "3 lines" in capsys.readouterr().out


def test_one_vocabulary_knows_every_text(multi30k: ModuleType, data: Path) -> None:
    args = multi30k.parse(["--data", str(data), *TINY])
    translator = multi30k.untrained(args, multi30k.pairs_of(args, "train"))
    model = translator.model
    assert translator.source_vocab is translator.target_vocab and translator.source_eos
    tables = (
        model.source_embedding.tokens.weight,
        model.target_embedding.tokens.weight,
        model.output.weight,
    )
    assert len({id(table) for table in tables}) == 1 and model.output.bias is None
    assert translator.unknown(translator.translate(["ñandú 未见过 🙂 &apos;"], max_len=2)[0]) == []


def test_the_published_settings_are_the_defaults(multi30k: ModuleType) -> None:
    args = multi30k.parse(["--data", "x"])
    published = {
        "merges": 10_000, "layers": 4, "d_model": 128, "d_ff": 256, "num_heads": 4, "dropout": 0.3, "steps": 8000,
        "attention_dropout": 0.0, "activation_dropout": 0.0, "label_smoothing": 0.1, "lr": 0.005, "warmup": 2000,
        "average": 10, "beam": 5, "norm_first": False, "bpe_dropout": 0.0, "r_drop": 0.0, "ema": None,
    }  # fmt: skip
    assert {name: getattr(args, name) for name in published} == published


@pytest.mark.parametrize(
    "more, message",
    [
        (["--evaluate"], "holds no run"),
        (["--steps", "0"], "must be at least 1, got 0"),
    ],
)
def test_errors_in_one_line(
    multi30k: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    message: str,
) -> None:
    with pytest.raises(SystemExit):
        multi30k.main(["--data", str(tmp_path), "--out", str(tmp_path / "none"), *more])
    assert message in capsys.readouterr().err


def test_data_that_has_changed_is_refused(multi30k: ModuleType, data: Path, tmp_path: Path) -> None:
    args: list[Any] = ["--data", str(data), "--out", str(tmp_path / "run"), "--steps", "3", *TINY]
    multi30k.main(args)
    with pytest.raises(FileExistsError, match="holds a run already"):
        multi30k.main(args)
    (tmp_path / "other").mkdir()
    for file in data.iterdir():
        (tmp_path / "other" / file.name).write_text(file.read_text().replace("house", "tree"))
    with pytest.raises(ValueError, match="its vocabulary is not that of this data"):
        multi30k.main(
            ["--data", str(tmp_path / "other"), "--out", str(tmp_path / "run"), "--resume"]
        )
    with pytest.raises(FileNotFoundError, match=r"val.lc.norm.tok.en.gz: no such file"):
        multi30k.main(["--data", str(tmp_path / "nothing"), "--out", str(tmp_path / "new")])


def test_functions_are_short() -> None:
    tree = ast.parse((EXAMPLES / "multi30k.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno <= 105, node.name

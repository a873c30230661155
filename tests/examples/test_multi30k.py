"""The Multi30k recipe, on a handful of sentences and a tiny model."""

from __future__ import annotations

import argparse
import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.commands import call, error_of, read_json
from support.environment import needs
from support.scripts import load

from minigrad.io import load_arrays
from nn.commands import train, translate
from nn.runs.averaging import average_weights

needs("tokenizers")
needs("sacrebleu")
multi30k = load("multi30k")
BPEDropout = multi30k.BPEDropout

TINY = (
    "--vocab-size 300 --layers 1 --d-model 16 --d-ff 32 --num-heads 2 --warmup 4 --batch-tokens 120"
    " --validate-every 3 --save-every 2 --quiet"
)


@pytest.fixture(autouse=True, scope="module")
def undrawn() -> Iterator[None]:
    """Draw no pictures, which takes longer than these tiny runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "draw", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 25 sentence pairs in files named as those of Multi30k."""
    path = tmp_path_factory.mktemp("data")
    words = {"man": "mann", "dog": "hund", "child": "kind", "house": "haus", "car": "auto"}
    english = [f"a {a} and a {b} .\n" for a in words for b in words]
    german = [f"ein {a} und ein {b} .\n" for a in words.values() for b in words.values()]
    for language, lines in (("en", english), ("de", german)):
        (path / f"train.lc.norm.tok.{language}").write_text("".join(lines[:20]))
        (path / f"val.lc.norm.tok.{language}").write_text("".join(lines[20:]))
    return path


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_multi30k_resumed_equals_an_uninterrupted_run(data: Path, tmp_path: Path) -> None:
    recipe = f"--data {data} --r-drop 2 --bpe-dropout 0.2"
    options = f"{TINY} --ema 0.9 --accumulate 2 --norm-first"
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    summary = call(multi30k.main, f"{recipe} --out {whole} --steps 7 {options}").result
    call(multi30k.main, f"{recipe} --out {parts} --steps 4 {options}")
    call(multi30k.main, f"{recipe} --out {parts} --resume --steps 7 --quiet")
    expected, resumed = (load_arrays(path / "last.safetensors")[0] for path in (whole, parts))
    assert "average.updates" in expected
    assert_equal(resumed, expected)
    assert summary["steps"] == 7 and "tok:none" in summary["bleu_signature"]
    assert read_json(whole / "summary.json") == summary


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run of nine steps."""
    out = tmp_path_factory.mktemp("runs") / "run"
    call(multi30k.main, f"--data {data} --out {out} --steps 9 {TINY}")
    return out


def test_translate_average_equals_average_weights(run: Path, tmp_path: Path) -> None:
    kept = sorted(run.glob("weights-*.safetensors"))
    assert [file.name for file in kept] == [f"weights-000000{n}.safetensors" for n in (3, 6, 9)]
    assert_equal(load_arrays(run / "best.safetensors")[0], average_weights(kept))
    args = translate.parse([str(run), "--average", "2"])
    assert_equal(translate.load_run(args).model.state_dict(), average_weights(kept[-2:]))
    copy = shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("weights-*"))
    with pytest.raises(ValueError, match="no weights were kept; train with --average"):
        translate.main([str(copy), "a man .", "--average", "10"])


def test_translate_with_run_scores_references(
    run: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (data / "val.lc.norm.tok.en").read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    references = data / "val.lc.norm.tok.de"
    done = call(translate.main, f"{run} --references {references} --bleu-tokenize none")
    assert len(done.out) == 5 and done.err[0].startswith("BLEU ")


def settings_of(line: str) -> argparse.Namespace:
    """Return the settings with which the recipe trains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "main", lambda argv, settings, *_: train.parse(argv, settings))
        return call(multi30k.main, line).result


def test_multi30k_model_shares_one_table(data: Path) -> None:
    args = settings_of(f"--data {data} {TINY}")
    translator = train.make_translator(args, train.load_pairs(args)[0])
    assert translator.source_vocab is translator.target_vocab and translator.source_eos
    model = translator.model
    table = model.output.weight
    assert model.source_embedding.tokens.weight is table is model.target_embedding.tokens.weight
    assert model.output.bias is None
    assert translator.unknown(translator.translate(["ñandú 未见过 🙂 &apos;"], max_len=2)[0]) == []


def test_multi30k_drops_after_sublayers_and_embeddings_only(data: Path) -> None:
    args = settings_of(f"--data {data} {TINY}")
    model = train.make_translator(args, train.load_pairs(args)[0]).model
    layers = [*model.encoder.layers, *model.decoder.layers]
    attentions = [layer.self_attention for layer in layers]
    attentions += [layer.cross_attention for layer in model.decoder.layers]
    assert {part.dropout.p for part in (model.source_embedding, *layers)} == {0.3}
    assert (
        {a.dropout for a in attentions} == {layer.feed_forward.dropout for layer in layers} == {0}
    )


def test_bpe_dropout_draws_new_pieces_in_training_only(data: Path) -> None:
    args = settings_of(f"--data {data} {TINY}")
    drawn = lambda bpe: BPEDropout(bpe, 0.5)
    pairs, _, _ = train.load_pairs(args)
    translator = train.make_translator(args, pairs)
    for learn in (True, False):
        batches = train.make_batches(translator, pairs, args, learn, drawn)
        first, second = (sum((y > 0).sum() for _, y in batches.epoch(i)) for i in range(2))
        assert (first != second) == learn


def test_multi30k_settings_are_the_published_ones() -> None:
    settings = vars(settings_of("--data x"))
    published = {
        "vocab_size": 10_256, "layers": 4, "d_model": 128, "d_ff": 256, "num_heads": 4, "dropout": 0.3, "steps": 8000,
        "label_smoothing": 0.1, "lr": 0.005, "warmup": 2000, "average": 10, "beam": 5, "norm_first": False,
        "ema": None, "clip": 1.0, "patience": None,
        "data": ["x/train.lc.norm.tok.en", "x/train.lc.norm.tok.de"],
    }  # fmt: skip
    assert published.items() <= settings.items()


def test_multi30k_r_drop_is_its_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "main", lambda argv, settings, objective, drawn: objective)
    assert multi30k.main(["--data", "x"]) is None
    objective = multi30k.main(["--data", "x", "--r-drop", "5"])
    assert (objective.alpha, objective.options) == (5.0, {"label_smoothing": 0.1})


def test_multi30k_changed_data_is_refused(data: Path, run: Path, tmp_path: Path) -> None:
    assert "holds a run already" in error_of(multi30k.main, f"--data {data} --out {run}")
    for file in data.iterdir():
        (tmp_path / file.name).write_text(file.read_text().replace("house", "tree"))
    error = error_of(multi30k.main, f"--data {tmp_path} --out {run} --resume")
    assert "its vocabulary is not that of this data" in error

"""The Multi30k recipe, on a handful of sentences and a tiny model."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.commands import call
from support.environment import needs
from support.scripts import load

from minigrad.io import load_arrays
from nn.commands import translate
from nn.runs.averaging import average_weights

needs("tokenizers")
needs("sacrebleu")
multi30k = load("multi30k")
BPEDropout = multi30k.BPEDropout

TINY = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 32}


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        values = {"PIECES": 300, "WARMUP": 4, "BATCH_TOKENS": 120, "VALIDATE_EVERY": 3}
        for name, value in {**values, "SIZES": {**multi30k.SIZES, **TINY}}.items():
            patch.setattr(multi30k, name, value)
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
    recipe = f"--data {data} --r-drop 2 --bpe-dropout 0.2 --quiet"
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    done = call(multi30k.main, f"{recipe} --out {whole} --steps 7")
    call(multi30k.main, f"{recipe} --out {parts} --steps 4")
    call(multi30k.main, f"{recipe} --out {parts} --resume --steps 7")
    expected, resumed = (load_arrays(path / "last.safetensors")[0] for path in (whole, parts))
    assert_equal(resumed, expected)
    assert done.out[-1].startswith("mean of the last 10 weights: BLEU ")


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run of nine steps."""
    out = tmp_path_factory.mktemp("runs") / "run"
    call(multi30k.main, f"--data {data} --out {out} --steps 9 --quiet")
    return out


def test_translate_average_equals_average_weights(run: Path, tmp_path: Path) -> None:
    kept = sorted(run.glob("weights-*.safetensors"))
    assert [file.name for file in kept] == [f"weights-000000{n}.safetensors" for n in (3, 6, 9)]
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


def test_multi30k_model_shares_one_table(data: Path) -> None:
    translator = multi30k.make_translator(multi30k.read(data, "train"))
    assert translator.source_vocab is translator.target_vocab and translator.source_eos
    model = translator.model
    table = model.output.weight
    assert model.source_embedding.tokens.weight is table is model.target_embedding.tokens.weight
    assert model.output.bias is None
    assert translator.unknown(translator.translate(["ñandú 未见过 🙂 &apos;"], max_len=2)[0]) == []


def test_multi30k_drops_after_sublayers_and_embeddings_only(data: Path) -> None:
    model = multi30k.make_translator(multi30k.read(data, "train")).model
    layers = [*model.encoder.layers, *model.decoder.layers]
    attentions = [layer.self_attention for layer in layers]
    attentions += [layer.cross_attention for layer in model.decoder.layers]
    assert {part.dropout.p for part in (model.source_embedding, *layers)} == {0.3}
    assert (
        {a.dropout for a in attentions} == {layer.feed_forward.dropout for layer in layers} == {0}
    )


def test_bpe_dropout_draws_new_pieces_in_training_only(data: Path) -> None:
    pairs = multi30k.read(data, "train")
    translator = multi30k.make_translator(pairs)
    for p in (0.5, 0.0):
        batches = multi30k.make_batches(translator, pairs, shuffle=p > 0, bpe_dropout=p)
        first, second = (sum((y > 0).sum() for _, y in batches.epoch(i)) for i in range(2))
        assert (first != second) == (p > 0)

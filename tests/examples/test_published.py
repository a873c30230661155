"""The scripts for published models, with tiny folders made here."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import load
from tiny_folders import WORDS, encoder_folder, language_model_folder, translator_folder

import nn
from minigrad.io.safetensors import write_safetensors

pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return encoder_folder(tmp_path / "encoder")


def sentence_folder(
    path: Path, pooling: str = "pooling_mode_mean_tokens", kinds: tuple[str, ...] = ("Normalize",)
) -> None:
    parts = [
        ("", "Transformer"),
        ("1_Pooling", "Pooling"),
        *((f"2_{kind}", kind) for kind in kinds),
    ]
    (path / "modules.json").write_text(
        json.dumps(
            [
                {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{k}"}
                for i, (p, k) in enumerate(parts)
            ]
        )
    )
    (path / "1_Pooling").mkdir(exist_ok=True)
    (path / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 16, pooling: True})
    )
    (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6}))


def test_vectors_of_sentences(encoder: Path) -> None:
    """By definition: each alone, then pooled; and however they are batched."""
    sentences = ["the cat sat", "the dog", "why is it the cat on the mat", "a"]
    model, text = nn.load(encoder, head="none"), nn.text.load(encoder)
    alone = [model.hidden(np.array([text.encode(s, max_len=6)])).data[0] for s in sentences]
    for pooling, pool in (
        ("pooling_mode_mean_tokens", lambda x: x.mean(0)),
        ("pooling_mode_cls_token", lambda x: x[0]),
        ("pooling_mode_lasttoken", lambda x: x[-1]),
        ("pooling_mode_max_tokens", lambda x: x.max(0)),
    ):
        sentence_folder(encoder, pooling)
        vectors = nn.sentence_encoder(encoder).encode(sentences, batch_size=2)
        expected = np.stack([pool(x) for x in alone])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            nn.sentence_encoder(encoder).encode(sentences[1]), expected[1], rtol=1e-4, atol=1e-6
        )
    assert nn.sentence_encoder(encoder).encode([]).shape[0] == 0
    sentence_folder(encoder, kinds=())
    plain = nn.sentence_encoder(encoder).encode(sentences)
    np.testing.assert_allclose(plain, np.stack([x.mean(0) for x in alone]), rtol=1e-4, atol=1e-6)
    sentence_folder(encoder, "pooling_mode_weightedmean_tokens")
    with pytest.raises(
        ValueError, match="1_Pooling/config.json: pooling_mode: expected one of cls, mean"
    ):
        nn.sentence_encoder(encoder)
    for kinds in (("WordWeights",), ("Normalize", "Dense"), ("Pooling",)):
        sentence_folder(encoder, kinds=kinds)
        with pytest.raises(
            ValueError,
            match="modules.json: expected Transformer, Pooling, Dense .*got .*, Pooling, ",
        ):
            nn.sentence_encoder(encoder)


@pytest.mark.parametrize("function", ["Tanh", "Identity", "ReLU"])
def test_a_map_behind_the_pooling(encoder: Path, function: str) -> None:
    """2_Dense of sentence-transformers: a linear map and its activation, by definition."""
    sentence_folder(encoder, kinds=("Dense",))
    rng = np.random.default_rng(0)
    weight, bias = (
        rng.standard_normal((5, 16)).astype(np.float32),
        rng.standard_normal(5).astype(np.float32),
    )
    settings: dict[str, Any] = {"in_features": 16, "out_features": 5}
    settings["activation_function"] = f"torch.nn.modules.activation.{function}"
    (encoder / "2_Dense").mkdir()
    pooled = nn.SentenceEncoder(
        nn.load(encoder, head="none"), nn.text.load(encoder), normalize=False, max_len=6
    )
    sentences = ["the cat sat", "the dog"]
    for arrays in ({"linear.weight": weight, "linear.bias": bias}, {"linear.weight": weight}):
        settings["bias"] = "linear.bias" in arrays
        (encoder / "2_Dense/config.json").write_text(json.dumps(settings))
        write_safetensors(encoder / "2_Dense/model.safetensors", arrays)
        mapped = pooled.encode(sentences) @ weight.T + arrays.get("linear.bias", 0)
        expected = {"Tanh": np.tanh(mapped), "Identity": mapped, "ReLU": np.maximum(mapped, 0)}[
            function
        ]
        np.testing.assert_allclose(
            nn.sentence_encoder(encoder).encode(sentences), expected, rtol=1e-4, atol=1e-5
        )
    (encoder / "2_Dense/config.json").write_text(
        json.dumps({"activation_function": "torch.nn.Mish"})
    )
    with pytest.raises(
        ValueError, match="2_Dense/config.json: activation_function: expected one of Tanh"
    ):
        nn.sentence_encoder(encoder)


def test_semantic_search(
    encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = load("semantic_search")
    (tmp_path / "lines").write_text("the cat sat on the mat\n\nwhy is it\nthe dog ran\nwhy is it\n")
    found = search.main(
        [str(encoder), str(tmp_path / "lines"), "why is it", "the dog ran", "--top", "2"]
    )
    assert [best[0] for best in found] == ["why is it", "the dog ran"] and len(found[0]) == 2
    assert "3 lines in" in capsys.readouterr().out
    sentence_folder(encoder, kinds=())  # of any length: cosines all the same
    search.main([str(encoder), str(tmp_path / "lines"), "the dog ran", "--top", "1"])
    assert "  1.00  the dog ran" in capsys.readouterr().out
    answers = iter(["the dog ran", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert search.main([str(encoder), str(tmp_path / "lines"), "--top", "1"]) == [["the dog ran"]]
    (tmp_path / "lines").write_text("\n \n")
    with pytest.raises(
        ValueError,
        match="config.json: model_type: expected an encoder or a language model, got .marian",
    ):
        nn.sentence_encoder(translator_folder(tmp_path / "t"))
    with pytest.raises(ValueError, match="lines: no text"):
        search.main([str(encoder), str(tmp_path / "lines"), "x"])


def test_generate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    language_model_folder(tmp_path)
    generate, model, text = load("generate"), nn.load(tmp_path), nn.text.load(tmp_path)
    expected = text.decode(nn.generate(model, text.encode("the cat"), max_len=5))
    assert generate.main([str(tmp_path), "the cat", "--max-len", "5"]) == [expected]
    assert capsys.readouterr().out == expected + "\n"
    drawn = [
        generate.main(
            [str(tmp_path), "the cat", "--max-len", "8", "--temperature", "1", "--seed", s]
        )
        for s in "112"
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    answers = iter(["the cat", "the dog", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    pytest.importorskip("jinja2", reason="chat templates need it")
    first, second = generate.main([str(tmp_path), "--chat", "--max-len", "4"])
    prompt = text.encode(f"the cat {first} the dog")
    assert second == text.decode(
        nn.generate(model, prompt, max_len=4)
    )  # it remembers what was said
    assert generate.main([str(tmp_path), "--chat", "the cat", "--max-len", "4"]) == [
        first
    ]  # as the help has it


def test_models_that_do_not_go_on_from_a_text(tmp_path: Path, encoder: Path) -> None:
    translator_folder(tmp_path / "m")
    for folder, message in (
        (encoder, "got EncoderModel, which does neither"),
        (tmp_path / "m", "one that translates"),
    ):
        with pytest.raises(ValueError, match=message):
            load("generate").main([str(folder), "the cat"])


def test_translate_with(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    encoder: Path,
) -> None:
    translator_folder(tmp_path / "m")
    translate, model, text = (
        load("translate_with"),
        nn.load(tmp_path / "m"),
        nn.text.load(tmp_path / "m"),
    )
    expected = nn.generate_text(model, text, ["the cat", "why"], num_beams=2, max_len=6)
    assert (
        translate.main([str(tmp_path / "m"), "the cat", "why", "--beams", "2", "--max-len", "6"])
        == expected
    )
    assert capsys.readouterr().out.splitlines() == expected
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\nwhy\n"))
    assert translate.main([str(tmp_path / "m"), "--beams", "2", "--max-len", "6"]) == expected
    with pytest.raises(ValueError, match="not a model that translates"):
        translate.main([str(encoder), "the cat"])


def test_fine_tune_with_hardly_any_text(encoder: Path, tmp_path: Path) -> None:
    """One step: of it there is nothing to rise in."""
    (tmp_path / "pairs.tsv").write_text("the cat\ta\nthe dog\tb\n")
    line = [
        str(encoder),
        str(tmp_path / "pairs.tsv"),
        "--out",
        str(tmp_path / "out"),
        "--epochs",
        "1",
    ]
    assert load("fine_tune").main(line) in (0, 1)


@pytest.mark.parametrize("part", ["all", "lora", "head"])
def test_fine_tune(encoder: Path, tmp_path: Path, part: str) -> None:
    rng = np.random.default_rng(0)
    lines = [(" ".join(rng.choice(WORDS[4:12], 3)), "fact") for _ in range(60)]
    lines += [(f"{rng.choice(['why', 'where', 'who'])} {line}", "question") for line, _ in lines]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in lines))
    rate = "0.02" if part == "head" else "0.01"
    accuracy = load("fine_tune").main(
        [
            str(encoder),
            str(tmp_path / "pairs.tsv"),
            "--out",
            str(tmp_path / "out"),
            "--train",
            part,
            "--epochs",
            "8",
            "--lr",
            rate,
        ]
    )
    assert accuracy > (
        0.3 if part == "head" else 0.7
    )  # a head alone, on an encoder that knows nothing, learns little
    model, text = nn.load(tmp_path / "out"), nn.text.load(tmp_path / "out")
    settings = json.loads((tmp_path / "out/config.json").read_text())
    assert settings["id2label"] == {"0": "fact", "1": "question"}
    ids, real, _ = text.batch([a for a, _ in lines])
    right = model(ids, real).data.argmax(-1) == [b == "question" for _, b in lines]
    assert right.mean() > (0.3 if part == "head" else 0.7)
    same = [np.array_equal(p.data, q.data) for (n, p), (_, q) in zip(
        nn.load(encoder, head="none").named_parameters(), nn.load(tmp_path / "out", head="none").named_parameters())]  # fmt: skip
    assert all(same) if part == "head" else not all(same)

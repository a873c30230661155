"""Commands for published models, with tiny directories."""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import type_lines
from tiny_folders import WORDS, encoder_folder, language_model_folder, translator_folder

import minigrad as mg
import nn
from minigrad import MissingExtraError
from minigrad.io import load_arrays
from minigrad.io.safetensors import write_safetensors
from nn.commands import explore, fine_tune, generate, search, translate

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


def test_sentence_encoder_equals_pooled_hidden_states(encoder: Path) -> None:
    """Vectors of batches equal pooled states of each sentence alone."""
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
        ValueError, match="1_Pooling/config.json: pooling_mode must be one of cls, mean"
    ):
        nn.sentence_encoder(encoder)


@pytest.mark.parametrize("function", ["Tanh", "Identity", "ReLU"])
def test_sentence_encoder_applies_dense_layer(encoder: Path, function: str) -> None:
    """2_Dense of sentence-transformers is a linear layer and its activation."""
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
        ValueError, match="2_Dense/config.json: activation_function must be one of Tanh"
    ):
        nn.sentence_encoder(encoder)


def test_search(
    encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "lines").write_text("the cat sat on the mat\n\nwhy is it\nthe dog ran\nwhy is it\n")
    files = [str(encoder), str(tmp_path / "lines")]
    results = search.main([*files, "why is it", "the dog ran", "--top", "2"])
    assert [best[0] for best in results] == ["why is it", "the dog ran"] and len(results[0]) == 2
    assert "3 lines in" in capsys.readouterr().out
    sentence_folder(encoder, kinds=())  # vectors of any length: cosines all the same
    search.main([*files, "the dog ran", "--top", "1"])
    assert "  1.00  the dog ran" in capsys.readouterr().out
    type_lines(monkeypatch, "the dog ran", "")
    assert search.main([*files, "--top", "1"]) == [["the dog ran"]]
    (tmp_path / "lines").write_text("\n \n")
    with pytest.raises(ValueError, match="lines: no text"):
        search.main([*files, "x"])


def test_search_with_an_index_encodes_lines_once(
    encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, index = tmp_path / "lines", tmp_path / "new" / "index"
    lines.write_text("the cat sat\nwhy is it\nthe dog ran\n")
    encode, encoded = nn.SentenceEncoder.encode, []
    monkeypatch.setattr(
        nn.SentenceEncoder, "encode", lambda self, x, **k: encoded.append(x) or encode(self, x, **k)
    )
    call = lambda: search.main([str(encoder), str(lines), "the dog", "--index", str(index)])
    first = call()
    expected = encode(nn.sentence_encoder(encoder), ["the cat sat", "why is it", "the dog ran"])
    np.testing.assert_array_equal(load_arrays(index)[0]["vectors"], expected)
    encoded.clear()
    assert call() == first and encoded == [["the cat sat"], "the dog", ["the dog"]]
    assert f"3 lines in {index}" in capsys.readouterr().out
    lines.write_text("the cat sat\nwhy is it\nthe dog sat\n")
    assert "the dog sat" in call()[0]  # other lines
    again = f"{index}: made with another encoder or other lines; encoding them again"
    assert again in capsys.readouterr().out
    encoder_folder(encoder, seed=1)
    call()  # another encoder
    assert again in capsys.readouterr().out
    expected = encode(nn.sentence_encoder(encoder), ["the cat sat", "why is it", "the dog sat"])
    np.testing.assert_array_equal(load_arrays(index)[0]["vectors"], expected)
    nn.save_weights(index, nn.Linear(2, 2))
    before = index.read_bytes()
    with pytest.raises(ValueError, match="index: not an index of minigrad search; choose another"):
        call()
    assert index.read_bytes() == before


def test_generate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    language_model_folder(tmp_path)
    model, text = nn.load(tmp_path), nn.text.load(tmp_path)
    expected = text.decode(nn.generate(model, text.encode("the cat"), max_len=5))
    assert generate.main([str(tmp_path), "the cat", "--max-len", "5"]) == [expected]
    assert capsys.readouterr().out == expected + "\n"
    sampled = [str(tmp_path), "the cat", "--max-len", "8", "--temperature", "1"]
    drawn = [generate.main([*sampled, "--seed", seed]) for seed in "112"]
    assert drawn[0] == drawn[1] != drawn[2]
    type_lines(monkeypatch, "the cat", "the dog", "")
    pytest.importorskip("jinja2", reason="chat templates need it")
    first, second = generate.main([str(tmp_path), "--chat", "--max-len", "4"])
    prompt = text.encode(f"the cat {first} the dog")  # it contains the first reply
    assert second == text.decode(nn.generate(model, prompt, max_len=4))
    assert generate.main([str(tmp_path), "--chat", "the cat", "--max-len", "4"]) == [first]
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\nwhy\n"))
    assert len(generate.main([str(tmp_path), "--max-len", "4"])) == 2


@pytest.mark.parametrize(
    "options, settings",
    [
        ("--top-k 2 --temperature 3", {"do_sample": True, "temperature": 3.0, "top_k": 2}),
        ("--top-p 0.5 --temperature 3", {"do_sample": True, "temperature": 3.0, "top_p": 0.5}),
        ("--min-p 0.5 --temperature 3", {"do_sample": True, "temperature": 3.0, "min_p": 0.5}),
        ("--repetition-penalty 3", {"repetition_penalty": 3.0}),
        ("--temperature 0 --stop dog --stop cat", {"do_sample": False, "stop": ["dog", "cat"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_generate_options_are_those_of_stream_text(
    tmp_path: Path, options: str, settings: dict[str, Any]
) -> None:
    language_model_folder(tmp_path)
    model, text = nn.load(tmp_path), nn.text.load(tmp_path)
    mg.manual_seed(3)
    expected = "".join(nn.stream_text(model, text, "the cat", max_len=12, **settings))
    line = [str(tmp_path), "the cat", "--max-len", "12", "--seed", "3", *options.split()]
    assert generate.main(line) == [expected]


def test_generate_chat_without_jinja2_fails_before_it_loads_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match="generate --chat needs jinja2: pip install jinja2"):
        generate.main([str(tmp_path / "nothing"), "--chat", "why"])


@pytest.mark.parametrize("command", ["generate", "search", "translate", "explore", "fine-tune"])
def test_commands_without_tokenizers_fail_before_they_load_the_weights(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for path in encoder.glob("*.safetensors"):
        path.unlink()
    (tmp_path / "lines").write_text("a\tb\nc\td\n")
    files = [str(tmp_path / "lines")] if command in ("search", "fine-tune") else []
    more = ["--out", str(tmp_path / "out")] if command == "fine-tune" else ["why"]
    module = importlib.import_module(f"nn.commands.{command.replace('-', '_')}")
    with pytest.raises(MissingExtraError, match="needs tokenizers: pip install tokenizers"):
        module.main([str(encoder), *files, *more])


@pytest.mark.parametrize("kind", ["encoder", "language model", "translator"])
def test_explore_writes_a_page_of_a_published_model(tmp_path: Path, kind: str) -> None:
    makers = {"encoder": encoder_folder, "translator": translator_folder}
    makers.get(kind, language_model_folder)(tmp_path / "model")
    out = explore.main([str(tmp_path / "model"), "the cat sat", "--out", str(tmp_path / "a.html")])
    data = re.search(r'"maps": (\[.*?\]), "steps"', out.read_text(encoding="utf-8"))
    assert data is not None and '"cat"' in data[1]
    with pytest.raises(ValueError, match=r"--out must end in .html for a published model"):
        explore.main([str(tmp_path / "model"), "the cat", "--out", str(tmp_path / "a.png")])


def test_generate_with_other_models_raises(tmp_path: Path, encoder: Path) -> None:
    translator_folder(tmp_path / "m")
    for folder, message in (
        (encoder, "got EncoderModel, which does neither"),
        (tmp_path / "m", "a model that translates"),
    ):
        with pytest.raises(ValueError, match=message):
            generate.main([str(folder), "the cat"])


def test_translate(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    encoder: Path,
) -> None:
    translator_folder(tmp_path / "m")
    model, text = nn.load(tmp_path / "m"), nn.text.load(tmp_path / "m")
    expected = nn.generate_text(model, text, ["the cat", "why"], num_beams=2, max_len=6)
    line = [str(tmp_path / "m"), "--beam", "2", "--max-len", "6"]
    assert translate.main([*line, "the cat", "why"]) == 0
    assert capsys.readouterr().out.splitlines() == expected
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\nwhy\n"))
    assert translate.main(line) == 0
    assert capsys.readouterr().out.splitlines() == [expected[0], "", expected[1]]
    with pytest.raises(ValueError, match="not a model that translates"):
        translate.main([str(encoder), "the cat"])


def test_translate_with_references_prints_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sacrebleu")
    translator_folder(tmp_path / "m")
    model, text = nn.load(tmp_path / "m"), nn.text.load(tmp_path / "m")
    translations = nn.generate_text(model, text, ["the cat", "why"], max_len=9)
    references = [translations[0], "who"]
    (tmp_path / "b.txt").write_text("\n".join(references) + "\n")
    line = [str(tmp_path / "m"), "the cat", "why", "--max-len", "9", "--bleu-tokenize", "none"]
    translate.main([*line, "--references", str(tmp_path / "b.txt")])
    scores = nn.text.translation_scores(translations, references, tokenize="none")
    err = capsys.readouterr().err
    assert err == f"BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}; {scores.bleu_signature}\n"
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingExtraError, match="--references needs sacrebleu"):
        translate.main([str(tmp_path / "nothing"), "--references", "b.txt"])


def test_fine_tune_with_two_texts_takes_one_step(encoder: Path, tmp_path: Path) -> None:
    """A schedule of one step has no warmup."""
    (tmp_path / "pairs.tsv").write_text("the cat\ta\nthe dog\tb\n")
    line = [
        str(encoder),
        str(tmp_path / "pairs.tsv"),
        "--out",
        str(tmp_path / "out"),
        "--epochs",
        "1",
    ]
    assert fine_tune.main(line) in (0, 1)


@pytest.mark.parametrize("part", ["all", "lora", "head"])
def test_fine_tune(encoder: Path, tmp_path: Path, part: str) -> None:
    rng = np.random.default_rng(0)
    lines = [(" ".join(rng.choice(WORDS[4:12], 3)), "fact") for _ in range(60)]
    lines += [(f"{rng.choice(['why', 'where', 'who'])} {line}", "question") for line, _ in lines]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in lines))
    rate = "0.02" if part == "head" else "0.01"
    accuracy = fine_tune.main(
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


def test_fine_tune_saves_an_adapter_that_gives_the_same_model(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"the cat {w}\t{w}\n" for w in WORDS[6:18]))
    line = [str(encoder), str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "out")]
    adapter = ["--save-adapter", str(tmp_path / "adapter")]
    fine_tune.main([*line, *adapter, "--train", "lora", "--epochs", "2", "--lr", "0.05"])
    merged, text = nn.load(tmp_path / "out"), nn.text.load(encoder)
    adapted = nn.load(encoder, head="classes", num_classes=12)
    nn.load_adapter(tmp_path / "adapter", adapted)
    ids, mask, _ = text.batch(["the cat sat", "why is it"])
    expected = merged.eval()(ids, mask).data
    np.testing.assert_allclose(adapted.eval()(ids, mask).data, expected, rtol=1e-4, atol=1e-5)
    plain = nn.load(encoder, head="none").hidden(ids, mask).data
    assert np.abs(merged.hidden(ids, mask).data - plain).max() > 1e-3
    with pytest.raises(SystemExit):
        fine_tune.main([*line, *adapter])
    assert "--save-adapter needs --train lora" in capsys.readouterr().err

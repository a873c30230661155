"""Commands for published models, with tiny directories."""

from __future__ import annotations

import importlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import call, error_of, hide_packages, type_lines
from tiny_folders import WORDS, encoder_folder, language_model_folder, translator_folder

import minigrad as mg
import nn
from minigrad.io import load_arrays
from minigrad.io.safetensors import write_safetensors
from nn.commands import explore, fine_tune, generate, search, translate

pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return encoder_folder(tmp_path / "encoder")


@pytest.fixture
def gpt(tmp_path: Path) -> Path:
    return language_model_folder(tmp_path / "gpt")


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    return translator_folder(tmp_path / "marian")


def opened(directory: Path) -> tuple[Any, Any]:
    """Return the model of a directory, and its tokenizer."""
    return nn.load(directory), nn.text.load(directory)


# -- sentence encoders and search ------------------------------------------------------------------

SENTENCES = ["the cat sat", "the dog", "why is it the cat on the mat", "a"]


def write_modules(path: Path, mode: str, *kinds: str) -> None:
    """Write the settings of sentence-transformers: a pooling, and modules after it."""
    parts = [
        ("", "Transformer"),
        ("1_Pooling", "Pooling"),
        *((f"2_{kind}", kind) for kind in kinds),
    ]
    modules = [{"path": p, "type": f"sentence_transformers.models.{kind}"} for p, kind in parts]
    pooling = {"word_embedding_dimension": 16, f"pooling_mode_{mode}": True}
    (path / "1_Pooling").mkdir()
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling/config.json").write_text(json.dumps(pooling))
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 6}')


def hidden_states(path: Path, sentence: str) -> np.ndarray:
    model, text = nn.load(path, head="none"), nn.text.load(path)
    return model.hidden(np.array([text.encode(sentence, max_len=6)])).data[0]


@pytest.mark.parametrize(
    ("mode", "pool"),
    [
        ("mean_tokens", lambda x: x.mean(0)),
        ("cls_token", lambda x: x[0]),
        ("lasttoken", lambda x: x[-1]),
        ("max_tokens", lambda x: x.max(0)),
    ],
)
def test_sentence_encoder_equals_pooled_hidden_states(
    encoder: Path, mode: str, pool: Callable[[np.ndarray], np.ndarray]
) -> None:
    write_modules(encoder, mode, "Normalize")
    expected = np.stack([pool(hidden_states(encoder, sentence)) for sentence in SENTENCES])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    vectors = nn.sentence_encoder(encoder)
    found = vectors.encode(SENTENCES, batch_size=2)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(vectors.encode(SENTENCES[1]), found[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "apply"), [("Identity", lambda x: x), ("ReLU", lambda x: np.maximum(x, 0))]
)
def test_sentence_encoder_applies_dense_layer_without_bias(
    encoder: Path, function: str, apply: Callable[[np.ndarray], np.ndarray]
) -> None:
    """2_Dense of sentence-transformers is a linear layer and its activation."""
    write_modules(encoder, "cls_token", "Dense")
    weight = np.random.default_rng(0).standard_normal((5, 16)).astype("f4")
    settings = {"in_features": 16, "out_features": 5, "bias": False}
    settings["activation_function"] = f"torch.nn.modules.activation.{function}"
    (encoder / "2_Dense").mkdir()
    (encoder / "2_Dense/config.json").write_text(json.dumps(settings))
    write_safetensors(encoder / "2_Dense/model.safetensors", {"linear.weight": weight})
    expected = apply(np.stack([hidden_states(encoder, s)[0] for s in SENTENCES]) @ weight.T)
    found = nn.sentence_encoder(encoder).encode(SENTENCES)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_sentence_encoder_with_another_activation_raises(encoder: Path) -> None:
    write_modules(encoder, "mean_tokens", "Dense")
    (encoder / "2_Dense").mkdir()
    (encoder / "2_Dense/config.json").write_text('{"activation_function": "torch.nn.Mish"}')
    message = "2_Dense/config.json: activation_function must be one of Tanh"
    with pytest.raises(ValueError, match=message):
        nn.sentence_encoder(encoder)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "lines").write_text("the cat sat\n\nwhy is it\nthe dog ran\nwhy is it\n")
    return tmp_path / "lines"


def test_search_prints_the_most_similar_lines(
    encoder: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = call(search.main, f"{encoder} {lines} 'why is it' 'the dog ran' --top 2")
    assert [best[0] for best in done.result] == ["why is it", "the dog ran"]
    assert [len(best) for best in done.result] == [2, 2]
    assert done.out[0].startswith("3 lines in ")
    type_lines(monkeypatch, "the dog ran", "")
    assert call(search.main, f"{encoder} {lines} --top 1").result == [["the dog ran"]]
    write_modules(encoder, "mean_tokens")  # vectors of any length: cosines all the same
    assert "  1.00  the dog ran" in call(search.main, f"{encoder} {lines} 'the dog ran'").out
    lines.write_text("\n \n")
    error = f"error: {lines} must have at least one line of text, got none"
    assert error_of(search.main, f"{encoder} {lines} x") == error


def test_search_with_an_index_encodes_lines_once(
    encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, encode, encoded = tmp_path / "new" / "index", nn.SentenceEncoder.encode, []
    monkeypatch.setattr(
        nn.SentenceEncoder, "encode", lambda self, x, **k: encoded.append(x) or encode(self, x, **k)
    )
    line = f"{encoder} {lines} 'the dog' --index {index}"

    def is_index_of(*sentences: str) -> bool:
        expected = encode(nn.sentence_encoder(encoder), list(sentences))
        return np.array_equal(load_arrays(index)[0]["vectors"], expected)

    first = call(search.main, line).result
    assert is_index_of("the cat sat", "why is it", "the dog ran")
    encoded.clear()
    done = call(search.main, line)
    assert done.result == first and encoded == [["the cat sat"], "the dog", ["the dog"]]
    assert done.out[0] == f"3 lines in {index}"
    again = f"{index}: made with another encoder or other lines; encoding them again"
    lines.write_text("the cat sat\nwhy is it\nthe dog sat\n")
    assert call(search.main, line).out[0] == again
    encoder_folder(encoder, seed=1)
    assert call(search.main, line).out[0] == again
    assert is_index_of("the cat sat", "why is it", "the dog sat")


def test_search_with_another_file_as_index_keeps_it(encoder: Path, lines: Path) -> None:
    index = encoder / "model.safetensors"
    before = index.read_bytes()
    error = error_of(search.main, f"{encoder} {lines} x --index {index}")
    assert error.endswith("not an index of minigrad search; choose another file")
    assert index.read_bytes() == before


# -- generate, translate, explore ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("", {}),
        ("--top-k 2 --temperature 3", {"do_sample": True, "temperature": 3.0, "top_k": 2}),
        ("--top-p 0.5 --temperature 3", {"do_sample": True, "temperature": 3.0, "top_p": 0.5}),
        ("--min-p 0.5 --temperature 3", {"do_sample": True, "temperature": 3.0, "min_p": 0.5}),
        ("--repetition-penalty 3", {"repetition_penalty": 3.0}),
        ("--temperature 0 --stop dog --stop cat", {"do_sample": False, "stop": ["dog", "cat"]}),
    ],
)
def test_generate_options_are_those_of_stream_text(
    gpt: Path, options: str, settings: dict[str, Any]
) -> None:
    mg.manual_seed(3)
    expected = "".join(nn.stream_text(*opened(gpt), "the cat", max_len=12, **settings))
    done = call(generate.main, f"{gpt} 'the cat' --max-len 12 --seed 3 {options}")
    assert done.result == [expected] and "\n".join(done.out) == expected


def test_generate_chat_continues_the_conversation(
    gpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jinja2", reason="chat templates need it")
    type_lines(monkeypatch, "the cat", "the dog", "")
    first, second = call(generate.main, f"{gpt} --chat --max-len 4").result
    model, text = opened(gpt)
    prompt = text.encode(f"the cat {first} the dog")
    assert second == text.decode(nn.generate(model, prompt, max_len=4))


def test_generate_reads_lines_of_standard_input(gpt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\nwhy\n"))
    assert len(call(generate.main, f"{gpt} --max-len 4").result) == 2


def test_generate_with_other_models_raises(encoder: Path, marian: Path) -> None:
    assert "got EncoderModel, which does neither" in error_of(generate.main, f"{encoder} why")
    assert "a model that translates" in error_of(generate.main, f"{marian} why")


def test_generate_chat_without_jinja2_fails_before_it_loads_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide_packages(monkeypatch, "jinja2")
    error = error_of(generate.main, "nothing --chat why")
    assert error.endswith("generate --chat needs jinja2: pip install jinja2")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("generate", "why"), ("search", "{lines} why"), ("translate", "why"), ("explore", "why"),
        ("fine_tune", "{lines} --out out"),
    ],
)  # fmt: skip
def test_commands_without_tokenizers_fail_before_they_load_the_weights(
    encoder: Path, lines: Path, monkeypatch: pytest.MonkeyPatch, command: str, arguments: str
) -> None:
    hide_packages(monkeypatch, "tokenizers")
    (encoder / "model.safetensors").unlink()
    lines.write_text("a\tb\nc\td\n")
    module = importlib.import_module(f"nn.commands.{command}")
    error = error_of(module.main, f"{encoder} {arguments.format(lines=lines)}")
    assert error.endswith("needs tokenizers: pip install tokenizers")


@pytest.mark.parametrize("model", ["encoder", "gpt", "marian"])
def test_explore_writes_a_page_of_a_published_model(
    tmp_path: Path, model: str, request: pytest.FixtureRequest
) -> None:
    directory = request.getfixturevalue(model)
    call(explore.main, f"{directory} 'the cat sat' --out {tmp_path}/a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    data = re.search(r'"maps": (\[.*?\]), "steps"', page)
    assert data is not None and '"cat"' in data[1]
    error = error_of(explore.main, f"{directory} 'the cat' --out {tmp_path}/a.png")
    assert "--out must end in .html for a published model" in error


def test_translate_arguments_or_standard_input_prints_translations(
    marian: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = nn.generate_text(*opened(marian), ["the cat", "why"], num_beams=2, max_len=6)
    line = f"{marian} --beam 2 --max-len 6"
    assert call(translate.main, f"{line} 'the cat' why").out == expected
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\nwhy\n"))
    done = call(translate.main, line)
    assert (done.result, done.out) == (0, [expected[0], "", expected[1]])
    assert "not a model that translates" in error_of(translate.main, f"{encoder} why")


def test_translate_with_references_prints_scores(
    marian: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sacrebleu")
    translations = nn.generate_text(*opened(marian), ["the cat", "why"], max_len=9)
    references = [translations[0], "who"]
    lines.write_text("\n".join(references) + "\n")
    line = f"{marian} 'the cat' why --max-len 9 --bleu-tokenize none --references {lines}"
    scores = nn.text.translation_scores(translations, references, tokenize="none")
    expected = f"BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}; {scores.bleu_signature}"
    assert call(translate.main, line).err == [expected]
    hide_packages(monkeypatch, "sacrebleu")
    assert "--references needs sacrebleu" in error_of(translate.main, "nothing --references b")


# -- fine-tune -------------------------------------------------------------------------------------


def test_fine_tune_with_two_texts_takes_one_step(encoder: Path, lines: Path) -> None:
    """A schedule of one step has no warmup."""
    lines.write_text("the cat\ta\nthe dog\tb\n")
    assert call(fine_tune.main, f"{encoder} {lines} --out {encoder}/out --epochs 1").result in (
        0,
        1,
    )


@pytest.mark.parametrize(
    ("part", "rate", "accuracy"), [("all", 0.01, 0.7), ("lora", 0.01, 0.7), ("head", 0.02, 0.3)]
)  # the encoder is random, so a head alone learns little
def test_fine_tune_learns_and_saves_a_classifier(
    encoder: Path, lines: Path, tmp_path: Path, part: str, rate: float, accuracy: float
) -> None:
    rng = np.random.default_rng(0)
    facts = [" ".join(rng.choice(WORDS[4:12], 3)) for _ in range(60)]
    questions = [f"{rng.choice(['why', 'where', 'who'])} {fact}" for fact in facts]
    rows = [f"{text}\tfact\n" for text in facts] + [f"{text}\tquestion\n" for text in questions]
    lines.write_text("".join(rows))
    line = f"{encoder} {lines} --out {tmp_path}/out --train {part} --epochs 8 --lr {rate}"
    assert call(fine_tune.main, line).result > accuracy
    model, text = opened(tmp_path / "out")
    settings = json.loads((tmp_path / "out/config.json").read_text())
    assert settings["id2label"] == {"0": "fact", "1": "question"}
    ids, real, _ = text.batch([*facts, *questions])
    predicted = model(ids, real).data.argmax(-1)
    assert (predicted == np.repeat([0, 1], 60)).mean() > accuracy
    before, after = (
        nn.load(path, head="none").state_dict() for path in (encoder, tmp_path / "out")
    )
    is_same = [np.array_equal(array, after[name]) for name, array in before.items()]
    assert all(is_same) == (part == "head")


def test_fine_tune_saves_an_adapter_that_gives_the_same_model(
    encoder: Path, lines: Path, tmp_path: Path
) -> None:
    lines.write_text("".join(f"the cat {word}\t{word}\n" for word in WORDS[6:18]))
    line = f"{encoder} {lines} --out {tmp_path}/out --save-adapter {tmp_path}/adapter"
    call(fine_tune.main, f"{line} --train lora --epochs 2 --lr 0.05")
    merged, text = opened(tmp_path / "out")
    plain, adapted = (nn.load(encoder, head="classes", num_classes=12).eval() for _ in range(2))
    nn.load_adapter(tmp_path / "adapter", adapted)
    ids, mask, _ = text.batch(["the cat sat", "why is it"])
    expected = merged.eval()(ids, mask).data
    np.testing.assert_allclose(adapted(ids, mask).data, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(plain.hidden(ids, mask).data, merged.hidden(ids, mask).data, atol=1e-3)


def test_fine_tune_save_adapter_of_all_weights_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        fine_tune.main(["encoder", "lines", "--out", "out", "--save-adapter", "adapter"])
    assert "--save-adapter needs --train lora" in capsys.readouterr().err

"""Commands for published models, with tiny directories."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import math
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.commands import call, error_of, hide_packages, type_lines
from support.environment import needs
from support.tiny_folders import (
    WORDS,
    encoder_folder,
    language_model_folder,
    sentence_encoder_folder,
    translator_folder,
)

import minigrad as mg
import nn
from minigrad.io import load_arrays, save_arrays
from nn.commands import classify, explore, fine_tune, generate, inputs, search, translate
from nn.inference.int8 import Int8Matrix


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


def test_translate_in_a_batch_without_pad_token_equals_each_alone(
    marian: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The padding token of config.json is not 0, and the tokenizer names none."""
    (marian / "tokenizer_config.json").write_text("{}")
    settings = json.loads((marian / "config.json").read_text())
    settings |= {"pad_token_id": 6, "eos_token_id": 8, "decoder_start_token_id": 6}
    (marian / "config.json").write_text(json.dumps(settings))
    texts = ["the", "the cat sat on the mat", "a dog", "why is it where"]
    arguments = f"{marian} --max-len 6"
    alone = [call(translate.main, [*arguments.split(), text]).out[0] for text in texts]
    assert call(translate.main, [*arguments.split(), *texts]).out == alone


# -- sentence encoders and search ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "pool", "function", "activation"),
    [
        ("mean_tokens", lambda x: x.mean(0), "Tanh", np.tanh),
        ("cls_token", lambda x: x[0], "Identity", lambda x: x),
        ("lasttoken", lambda x: x[-1], "ReLU", lambda x: np.maximum(x, 0)),
        ("max_tokens", lambda x: x.max(0), "Identity", lambda x: x),
    ],
)
def test_sentence_encoder_equals_pooled_projected_hidden_states(
    tmp_path: Path, mode: str, pool: Any, function: str, activation: Any
) -> None:
    sentence_encoder_folder(tmp_path)
    pooling = {"word_embedding_dimension": 16, f"pooling_mode_{mode}": True}
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(pooling))
    sizes = {"in_features": 16, "out_features": 4, "bias": False}
    settings = {"activation_function": f"torch.nn.modules.activation.{function}", **sizes}
    (tmp_path / "2_Dense/config.json").write_text(json.dumps(settings))
    weight = load_arrays(tmp_path / "2_Dense/model.safetensors")[0]["linear.weight"]
    model, text = nn.load(tmp_path, head="none"), nn.text.load(tmp_path)
    sentences = ["the cat sat", "why is it the cat on the mat", "a"]
    found = nn.sentence_encoder(tmp_path).encode(sentences, prompt="")
    for sentence, vector in zip(sentences, found):
        expected = activation(weight @ pool(model.hidden([text.encode(sentence)]).data[0]))
        expected /= np.linalg.norm(expected)
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-6)


def test_sentence_encoder_with_another_activation_raises(tmp_path: Path) -> None:
    sentence_encoder_folder(tmp_path)
    (tmp_path / "2_Dense/config.json").write_text('{"activation_function": "torch.nn.Mish"}')
    message = "2_Dense/config.json: activation_function must be one of Tanh"
    with pytest.raises(ValueError, match=message):
        nn.sentence_encoder(tmp_path)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Return a file with an empty and a repeated line."""
    (tmp_path / "lines").write_text("the cat sat\n\nwhy is it\nthe dog ran\nwhy is it\n")
    return tmp_path / "lines"


def test_search_prints_the_most_similar_lines(
    encoder: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = call(search.main, f"{encoder} {lines} 'why is it' 'the dog ran' --top 2")
    assert [best[0] for best in done.result] == ["why is it", "the dog ran"]
    assert [len(best) for best in done.result] == [2, 2]
    assert done.out[1] == "why is it" and "  1.00  the dog ran" in done.out
    warning = f"warning: {encoder} has no modules.json, so the model was not trained to compare "
    assert len(done.err) == 2 and done.err[0].startswith(warning)
    assert done.err[1].startswith("3 lines in ")
    type_lines(monkeypatch, "the dog ran", "")
    assert call(search.main, f"{encoder} {lines} --top 1").result == [["the dog ran"]]
    lines.write_text("\n \n")
    error = f"error: {lines} must have at least one line of text, got none"
    assert error_of(search.main, f"{encoder} {lines} x") == error


def test_search_with_rerank_orders_lines_by_a_cross_encoder(
    encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "CANDIDATES", 3)
    lines.write_text("".join(f"the {word} sat\n" for word in WORDS[5:12]))
    rng = np.random.default_rng(1)
    model = nn.load(encoder, "classes", num_classes=1, generator=rng)
    model.output.weight.data[...] = rng.standard_normal((1, 16))
    nn.save(tmp_path / "cross", model, nn.text.load(encoder))
    rerank = nn.reranker(tmp_path / "cross")
    for wrong in ("the dog", None, {"the dog": 1}):
        with pytest.raises(TypeError, match="texts must be a list of strings, got"):
            rerank("the dog", wrong)
    line = f"{encoder} {lines} 'the dog'"
    (candidates,) = call(search.main, f"{line} --top 3").result
    scores = rerank("the dog", candidates)
    expected = [candidates[i] for i in np.argsort(-scores)][:2]
    done = call(search.main, f"{line} --top 2 --rerank {tmp_path}/cross")
    assert done.result == [expected] and expected != candidates[:2]
    assert done.out[-2:] == [f"  {x:.2f}  {text}" for x, text in zip(-np.sort(-scores), expected)]
    done = call(search.main, f"{line} --top 1 --rerank {tmp_path}/cross --json")
    assert json.loads(done.out[0])["lines"][0]["score"] == pytest.approx(scores.max(), abs=1e-5)
    for top in (3, 4, 7):
        (found,) = call(search.main, f"{line} --top {top} --rerank {tmp_path}/cross").result
        (candidates,) = call(search.main, f"{line} --top {top}").result
        scores = rerank("the dog", candidates)
        assert found == [candidates[i] for i in np.argsort(-scores, kind="stable")]
    error = error_of(search.main, f"{line} --rerank {encoder}")
    assert "the model must score pairs of texts, got EncoderModel; take a cross-encoder" in error


def test_search_with_a_sentence_encoder_does_not_warn(lines: Path, tmp_path: Path) -> None:
    directory = sentence_encoder_folder(tmp_path / "minilm")
    (line,) = call(search.main, f"{directory} {lines} 'the dog ran'").err
    assert line.startswith("3 lines in ")


def test_search_with_an_index_encodes_lines_once(
    encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, encode, encoded = tmp_path / "new" / "index", nn.SentenceEncoder.encode, []
    monkeypatch.setattr(
        nn.SentenceEncoder, "encode", lambda self, x, **k: encoded.append(x) or encode(self, x, **k)
    )
    line = f"{encoder} {lines} 'the dog' --index {index}"
    again = f"{index}: made with another encoder or other lines; encoding them again"
    first = call(search.main, line).result
    encoded.clear()
    assert call(search.main, line).result == first
    assert encoded == ["the dog", ["the dog"]]
    lines.write_text("the cat sat\nwhy is it\nthe dog sat\n")
    assert again in call(search.main, line).err
    encoder_folder(encoder, seed=1)
    assert again in call(search.main, line).err
    for name, changes in (
        ("config", {"hidden_act": "relu"}),
        ("tokenizer_config", {"model_max_length": 4}),
    ):
        settings = json.loads((encoder / f"{name}.json").read_text())
        (encoder / f"{name}.json").write_text(json.dumps(settings | changes))
        assert again in call(search.main, line).err
    inside = f"{encoder} {lines} 'the dog' --index {encoder}/lines.safetensors"
    call(search.main, inside)  # the index is no part of the encoder
    assert call(search.main, inside).err[-1] == f"3 lines in {encoder}/lines.safetensors"
    arrays, metadata = load_arrays(index)
    save_arrays(index, {"vectors": arrays["vectors"][1:]}, metadata)
    assert again in call(search.main, line).err
    assert call(search.main, line).err[-1] == f"3 lines in {index}"
    assert again in call(search.main, f"{line} --int8").err
    assert call(search.main, f"{line} --int8").err[-1] == f"3 lines in {index}"


def test_search_with_an_index_that_cannot_be_written_finds_lines(
    encoder: Path, lines: Path
) -> None:
    expected = call(search.main, f"{encoder} {lines} 'the dog'").result
    done = call(search.main, f"{encoder} {lines} 'the dog' --index {lines}/index")
    assert done.result == expected and f"{lines}/index is not kept: " in done.err[-1]


def test_search_with_another_file_as_index_keeps_it(encoder: Path, lines: Path) -> None:
    index = encoder / "model.safetensors"
    before = index.read_bytes()
    error = error_of(search.main, f"{encoder} {lines} x --index {index}")
    assert error.endswith("not an index of minigrad search; choose another file")
    assert index.read_bytes() == before
    other = lines.with_name("other.safetensors")
    for arrays, metadata in (("vectors", {}), ("weights", {"lines": 3})):
        save_arrays(other, {arrays: np.ones((3, 2))}, metadata)
        error = error_of(search.main, f"{encoder} {lines} x --index {other}")
        assert error.endswith("not an index of minigrad search; choose another file")


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
        ("--top-k 3", {"do_sample": True, "top_k": 3}),
    ],
)
def test_generate_options_are_those_of_stream_text(
    gpt: Path, options: str, settings: dict[str, Any]
) -> None:
    mg.manual_seed(3)
    expected = "".join(nn.stream_text(*opened(gpt), "the cat", max_len=12, **settings))
    done = call(generate.main, f"{gpt} 'the cat' --max-len 12 --seed 3 {options}")
    assert done.result == done.out == [expected]


def test_generate_chat_continues_the_conversation(
    gpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "the cat", "the dog", "")
    first, second = call(generate.main, f"{gpt} --chat --max-len 4").result
    model, text = opened(gpt)
    prompt = text.encode(f"the cat {first} the dog")
    assert second == text.decode(nn.generate(model, prompt, max_len=4))


def test_generate_chat_has_the_room_that_is_left(
    gpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms: list[int] = []
    monkeypatch.setattr(nn, "stream_text", lambda *_, max_len, **__: rooms.append(max_len) or ["a"])
    type_lines(monkeypatch, "the cat", "the dog", "why", "")
    call(generate.main, f"{gpt} --chat")
    assert rooms == [38, 35, 33]


def test_generate_chat_ends_at_the_end_of_the_context(gpt: Path) -> None:
    """Neither at 20 tokens, nor at the number of a setting."""
    model, text = opened(gpt)
    (gpt / "generation_config.json").write_text('{"max_new_tokens": 3}')
    done = call(generate.main, f"{gpt} --chat 'the cat'")
    ids = text.encode("the cat ", special=False)
    tokens = nn.generate(model, ids, max_len=40 - len(ids))
    assert done.result == [text.decode(tokens)]
    is_cut = tokens[-1] not in model.config.end_ids
    assert is_cut == any("by the context of the model" in line for line in done.err)
    done = call(generate.main, f"{gpt} --chat 'the cat' --max-len 2 --system 'the dog'")
    prompt = text.encode("the dog the cat ", special=False)
    assert done.result == [text.decode(nn.generate(model, prompt, max_len=2))]
    assert done.err[-1] == "(cut after 2 tokens by --max-len)"
    for count in (40, 50):
        error = error_of(generate.main, f"{gpt} --chat '{'the ' * count}'")
        assert f"must have fewer tokens than the context of the model (40), got {count}" in error
    assert len(call(generate.main, f"{gpt} --chat '{'the ' * 39}'").result[0].split()) <= 1
    error = error_of(generate.main, f"{gpt} why --system 'the dog'")
    assert error.endswith("--system needs --chat")


@pytest.mark.parametrize(
    ("tokens", "options", "note"),
    [
        ([5, 6, 7], "--max-len 3", "(cut after 3 tokens by --max-len)"),
        ([5, 6], "--max-len 3", ""),
        ([5, 6, 18], "--max-len 3", ""),  # the end
        ([5] * 38, "--chat", "(cut after 38 tokens by the context of the model)"),
        ([5] * 37, "--chat", ""),
        ([5] * 1200, "--max-len 1200", "(cut after 1,200 tokens by --max-len)"),
    ],
)
def test_generate_says_that_a_text_was_cut(
    gpt: Path, monkeypatch: pytest.MonkeyPatch, tokens: list[int], options: str, note: str
) -> None:
    def stream(*_: Any, tokens: list[int], **__: Any) -> Any:
        tokens += generated
        yield "x"

    generated = tokens
    settings = json.loads((gpt / "config.json").read_text()) | {"eos_token_id": 18}
    (gpt / "config.json").write_text(json.dumps(settings))
    monkeypatch.setattr(nn, "stream_text", stream)
    done = call(generate.main, f"{gpt} 'the cat' {options}")
    assert done.out == ["x"] and done.err == ([note] if note else [])


def test_generate_reads_lines_of_standard_input(gpt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\nwhy\n"))
    assert len(call(generate.main, f"{gpt} --max-len 4").result) == 2


@pytest.mark.parametrize("top", [2, 3])
def test_generate_with_top_prints_the_likeliest_texts(gpt: Path, top: int) -> None:
    model, text = opened(gpt)
    options: Any = {"beam_size": top, "n_best": top, "max_len": 4}
    best = nn.beam_search(model, prompt=[text.encode("the cat")], **options)
    expected = [text.decode(h.tokens) for h in best[0]]
    line = f"{gpt} 'the cat' --top {top} --max-len 4"
    done = call(generate.main, line)
    assert done.out == expected and done.result == expected[:1]
    done = call(generate.main, f"{line} --json")
    assert json.loads(done.out[0])["continuations"] == expected
    word = max(expected, key=len).split()[-1]
    done = call(generate.main, f"{line} --stop {word}")
    assert done.out == [reply.partition(word)[0] for reply in expected]
    for option in ("--temperature 2", "--top-k 3", "--min-p 0.1"):
        assert "--top above 1 takes" in error_of(generate.main, f"{gpt} why --top 2 {option}")


def test_generate_chat_with_top_continues_after_the_first(
    gpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "the cat", "the dog", "")
    first, second = call(generate.main, f"{gpt} --chat --top 2 --max-len 3").result
    model, text = opened(gpt)
    prompt = text.encode(f"the cat {first} the dog")
    assert second == text.decode(nn.generate(model, prompt, max_len=3, num_beams=2))


def test_generate_options_that_exclude_each_other_are_refused(gpt: Path) -> None:
    error = error_of(generate.main, f"{gpt} why --temperature 0 --top-p 0.5")
    assert error.endswith("--top-p needs a --temperature above 0")


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


@pytest.mark.parametrize("command", ["generate", "search", "fine_tune"])
def test_commands_for_published_models_refuse_a_run(
    tmp_path: Path, command: str, lines: Path
) -> None:
    (tmp_path / "config.json").write_text('{"tokenizers": ["char", "char"]}')
    options = {"fine_tune": f"--out {tmp_path}/out"}.get(command, "x")
    lines.write_text("a\tb\nc\td\n")
    file = "" if command == "generate" else lines
    error = error_of(
        importlib.import_module(f"nn.commands.{command}").main, f"{tmp_path} {file} {options}"
    )
    assert error == f"error: {tmp_path} must be a published model, got a run of minigrad train"
    with pytest.raises(ValueError, match="got a run of minigrad train; call nn.Translator.load"):
        nn.load(tmp_path)


@pytest.mark.parametrize("model", ["encoder", "gpt", "marian"])
def test_explore_writes_a_page_of_a_published_model(
    tmp_path: Path, model: str, request: pytest.FixtureRequest
) -> None:
    line = f"{request.getfixturevalue(model)} 'the cat sat' --out {tmp_path}/a"
    call(explore.main, f"{line}.html")
    assert '"cat"' in (tmp_path / "a.html").read_text(encoding="utf-8")
    error = error_of(explore.main, f"{line}.png")
    assert "--out must end in .html for a published model" in error
    if model == "gpt":  # the others add special tokens
        call(explore.main, f"{line}.html --backward")
        assert '"backward": [{"token": ' in (tmp_path / "a.html").read_text(encoding="utf-8")
        error = error_of(explore.main, line.replace("the cat sat", "") + ".html")
        assert error == "error: text must have at least one token, got none"
    else:
        error = error_of(explore.main, f"{line}.html --backward")
        messages = {"encoder": "a model without logits of tokens", "marian": "33,554,432 gradients"}
        assert messages[model] in error  # the translation by random weights is long


@pytest.mark.parametrize("name", ["encoder", "gpt", "marian"])
def test_explore_passes_what_a_published_model_reads_and_writes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(nn, "explore", lambda model, *args, **options: made.append((args, options)))
    folder = request.getfixturevalue(name)
    call(explore.main, f"{folder} 'the cat' --out {tmp_path}/a.html")
    model, text = opened(folder)
    ids = text.encode("the cat")
    target = nn.generate(model, source=[ids])[0] if name == "marian" else None
    words, out = text.tokens(ids), tmp_path / "a.html"
    [(args, options)] = made
    assert args == (ids, words, target, text.tokens(target or []), out, "the cat")
    vocabulary = text.tokens(range(text.vocab_size or len(text)))
    assert options == {"vocabulary": vocabulary, "backward": False}


def test_checksum_of_an_encoder_depends_on_names_and_contents(tmp_path: Path) -> None:
    found = set()
    for name, content in (("a/x.json", "1"), ("b/x.json", "1"), ("a/y.json", "1"), ("a/x.json", "2"), ("a/x.json", "")):  # fmt: skip
        directory = tmp_path / str(len(found))
        (directory / name).parent.mkdir(parents=True)
        (directory / name).write_text(content)
        (directory / "a.py").write_text(str(len(found)))  # no file of the encoder
        found.add(search.checksum(directory, directory / "index"))
        assert search.checksum(directory, directory / name) == 0
    assert len(found) == 5


def test_translate_arguments_or_standard_input_prints_translations(
    marian: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = nn.generate_text(*opened(marian), ["the cat", "why"], num_beams=2, max_len=6)
    line = f"{marian} --beam 2 --max-len 6"
    assert call(translate.main, f"{line} 'the cat' why").out == expected
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\nwhy\n"))
    assert call(translate.main, line).out == [expected[0], "", expected[1]]
    assert "not a model that translates" in error_of(translate.main, f"{encoder} why")


@pytest.mark.parametrize(("top", "beam", "beams"), [(2, "", 4), (2, "--beam 3", 3), (5, "", 5)])
def test_translate_with_top_prints_the_best_of_a_beam(
    marian: Path, monkeypatch: pytest.MonkeyPatch, top: int, beam: str, beams: int
) -> None:
    model, text = opened(marian)
    options = {"num_beams": beams, "n_best": top, "max_len": 6}
    expected = nn.generate_text(model, text, ["the cat", "why"], **options)
    assert all(len(set(best)) == top for best in expected)
    line = f"{marian} 'the cat' why --top {top} --max-len 6 {beam}"
    searched: list[int] = []

    def record(*args: Any, num_beams: int, **options: Any) -> Any:
        searched.append(num_beams)
        return generate_text(*args, num_beams=num_beams, **options)

    generate_text = nn.generate_text
    monkeypatch.setattr(translate.nn, "generate_text", record)
    for settings in ("{}", '{"do_sample": true}'):  # no beam search draws
        (marian / "generation_config.json").write_text(settings)
        done = call(translate.main, line)
        assert done.out == [*expected[0], *expected[1]] and done.err == []
    objects = [json.loads(line) for line in call(translate.main, f"{line} --json").out]
    assert objects == [
        {"text": source, "translation": best[0], "translations": best}
        for source, best in zip(["the cat", "why"], expected)
    ]
    assert {*searched} == {beams}
    error = error_of(translate.main, f"{marian} why --top 3 --beam 2")
    assert error.endswith("--beam must be at least --top (3), got 2")


def test_commands_print_lines_of_files_and_texts_without_control_characters(
    marian: Path, gpt: Path, encoder: Path, mine: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A title of the terminal, a colour, and a line break, which only generated texts keep."""
    hostile = "\x1b]0;title\x07 the\x9b31m\u2028cat"
    (tmp_path / "lines").write_text(f"{hostile}\tdog\n", encoding="utf-8")
    shown = r"\x1b]0;title\x07 the\x9b31m\u2028cat"
    done = call(search.main, [str(encoder), f"{tmp_path}/lines", hostile])
    assert shown in done.out and f"{shown}\\tdog" in done.out[-1]
    assert call(classify.main, [str(mine), hostile]).out[0].split("\t")[2] == shown
    monkeypatch.setattr(nn, "generate_text", lambda *_, **__: [f"{hostile}\n"])
    assert call(translate.main, f"{marian} why").out == [f"{shown}\\n"]
    monkeypatch.setattr(nn, "stream_text", lambda *_, **__: iter([*hostile, "\n", "\r", "\t."]))
    assert call(generate.main, f"{gpt} why").out == [shown, "\\r\t."]
    for command, line in ((search, f"{encoder} {tmp_path}/lines"), (generate, str(gpt))):
        done = call(command.main, [*line.split(), "--json", hostile])
        assert len(done.out) == 1 and hostile in json.loads(done.out[0]).values()
        assert done.out[0].isprintable()


def test_commands_print_the_name_of_a_large_file_before_they_read_it(
    encoder: Path, mine: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "LARGE_FILE", 10)
    expected = f"reading {lines}, 0 MB"
    assert call(search.main, f"{encoder} {lines} why").err[0] == expected
    lines.write_text("the cat\tfact\nthe dog\tquestion\nwhy\tfact\n")
    assert call(classify.main, f"{mine} --labels {lines}").err[0] == expected
    assert call(fine_tune.main, f"{encoder} {lines} --out {tmp_path}/out").err[0] == expected


def test_translate_of_many_lines_prints_parts(
    marian: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(inputs, "LINES_AT_ONCE", 3)
    monkeypatch.setattr("sys.stdin", io.StringIO("why\n" * 8))
    monkeypatch.setattr(
        nn, "generate_text", lambda model, text, part, **_: sizes.append(len(part)) or part
    )
    assert call(translate.main, str(marian)).out == ["why"] * 8 and sizes == [3, 3, 2]


def test_translate_too_long_line_is_left_empty(
    marian: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"the cat\n{'cat ' * 600}\nwhy\n"))
    done = call(translate.main, f"{marian} --max-len 6")
    assert done.result == 1 and len(done.out) == 3 and done.out[1] == ""
    error = "error: texts must have at most 512 tokens each, got 602 in 'cat cat"
    assert len(done.err) == 1 and done.err[0].startswith(error)
    wrong = "error: language must be a token of the vocabulary, got 'xx'"
    assert error_of(translate.main, f"{marian} the cat --from xx") == wrong


@pytest.mark.parametrize(
    "option",
    [
        "--weights last.safetensors",
        "--average 2",
        "--scores",
        "--length-penalty 2",
        "--length-penalty 0.5",
    ],
)
def test_translate_with_an_option_of_runs_is_refused(marian: Path, option: str) -> None:
    error = error_of(translate.main, f"{marian} why {option}")
    assert error == f"error: {option.split()[0]} is for runs of minigrad train, got {marian}"


def test_translate_with_references_prints_scores(
    marian: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("sacrebleu")
    translations = nn.generate_text(*opened(marian), ["the cat", "why"], max_len=9)
    lines.write_text(f"{translations[0]}\nwho\n")
    line = f"{marian} 'the cat' why --max-len 9 --bleu-tokenize none --references {lines}"
    s = nn.text.translation_scores(translations, [translations[0], "who"], tokenize="none")
    assert call(translate.main, line).err == [
        f"BLEU {s.bleu:.2f}, chrF {s.chrf:.2f}; {s.bleu_signature}"
    ]
    error = error_of(translate.main, "nothing why --references no.txt")
    assert error == "error: no.txt: no such file"  # before the model is loaded
    hide_packages(monkeypatch, "sacrebleu")
    assert "--references needs sacrebleu" in error_of(translate.main, "nothing --references b")


# -- fine-tune -------------------------------------------------------------------------------------


def test_fine_tune_with_two_texts_takes_one_step(encoder: Path, lines: Path) -> None:
    """A schedule of one step has no warmup. A longer text is cut to the positions of the model."""
    lines.write_text(f"text\tlabel\nthe cat\ta\nthe{' dog' * 40}\tb\n")
    done = call(fine_tune.main, f"{encoder} {lines} --out {encoder}/out --epochs 1")
    assert done.result in (0, 1) and done.err[0] == f"{lines}: left out 1 row: a row of headings"
    assert done.err[1] == f"{lines}: 2 labels have a single text, such as 'a', 'b'"
    assert done.err[2] == "2 texts, 2 labels: a 1, b 1"
    assert done.err[3].startswith("for example: the cat  →  ")
    assert done.err[4].endswith("43 at most; texts that are cut at 20 tokens: 1")
    assert len(done.out) == 5 and done.out[-1] == f"1 held-out texts; saved in {encoder}/out"


@pytest.mark.parametrize("heading", ["review\tsentiment", "Text\tCategory", "content\tclass"])
def test_fine_tune_leaves_out_a_heading_of_other_words(
    encoder: Path, lines: Path, heading: str
) -> None:
    rows = "".join(f"the {word} {i}\t{i % 2}\n" for i, word in enumerate(WORDS[4:16]))
    lines.write_text(f"{heading}\n{rows}")
    done = call(fine_tune.main, f"{encoder} {lines} --out {encoder}/out --epochs 1")
    assert "left out 1 row: a row of headings" in done.err[0] and heading.split()[1] in done.err[0]
    settings = json.loads((encoder / "out/config.json").read_text())
    assert settings["id2label"] == {"0": "0", "1": "1"}


def test_fine_tune_with_max_len_saves_it_for_the_classifier(encoder: Path, lines: Path) -> None:
    lines.write_text("".join(f"the cat {i}\t{i % 2}\n" for i in range(30)))
    line = f"{encoder} {lines} --out {encoder}/out --epochs 1 --max-len 4"
    done = call(fine_tune.main, line)
    assert "texts that are cut at 4 tokens: 30" in done.err[2]
    assert done.out[-1] == f"3 test texts; saved in {encoder}/out"
    assert nn.classifier(encoder / "out").max_len == 4
    assert nn.classifier(encoder / "out").labels == ("0", "1")


def test_fine_tune_with_files_and_columns_reads_them(encoder: Path, tmp_path: Path) -> None:
    rows = [f'{i % 2},"the cat, {i}"' for i in range(12)]
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["label,review", *rows]))
    files = " ".join(f"--{name} {tmp_path}/{name}.csv" for name in ("valid", "test"))
    line = f"{encoder} {tmp_path}/train.csv {files} --columns review,label --out {encoder}/out"
    done = call(fine_tune.main, f"{line} --epochs 1")
    assert done.out[-1] == f"12 test texts; saved in {encoder}/out"
    (tmp_path / "test.csv").write_text("label,review\n2,the cat")
    error = error_of(fine_tune.main, f"{line}2 --epochs 1")
    assert error.endswith("test.csv must have labels of the training texts, got '2'")


def test_fine_tune_on_texts_of_one_label_is_refused(encoder: Path, lines: Path) -> None:
    lines.write_text("".join(f"the cat {i}\tfact\n" for i in range(40)))
    error = error_of(fine_tune.main, f"{encoder} {lines} --out {encoder}/out --epochs 1")
    assert error == f"error: {lines} must have texts of at least 2 labels, got 1: 'fact'"


@pytest.mark.parametrize(
    ("texts", "labels", "is_refused"),
    [(38, 20, False), (38, 21, True), (40, 30, True), (60, 30, False), (60, 31, True)],
)
def test_fine_tune_on_texts_that_each_have_a_label_is_refused(
    encoder: Path, lines: Path, texts: int, labels: int, is_refused: bool
) -> None:
    """A column of numbers before the text makes the text a label."""
    lines.write_text("".join(f"{i}\tthe cat {min(i, labels - 1)}\tfact\n" for i in range(texts)))
    line = f"{encoder} {lines} --out {encoder}/out --epochs 1"
    if not is_refused:
        assert call(fine_tune.main, line).out[-1].endswith(f"saved in {encoder}/out")
        return
    error = error_of(fine_tune.main, line)
    assert f"got {texts} texts of {labels} labels; choose the columns with --columns" in error


def test_fine_tune_ends_after_patience_and_says_so(encoder: Path, lines: Path) -> None:
    """Validations during the warmup, a tenth of all steps, do not count."""
    lines.write_text("".join(f"the cat {i}\t{i % 2}\n" for i in range(40)))
    line = f"{encoder} {lines} --epochs 10 --lr 0.1 --patience 1"
    done = call(fine_tune.main, f"{line} --out {encoder}/out")
    saved, best = (nn.load(encoder / "out", head="classes") for _ in range(2))
    nn.load_weights(encoder / "out/run/best.safetensors", best)
    np.testing.assert_equal(saved.state_dict(), best.state_dict())
    said = [x for x in done.err if "validations were not better" in x]
    assert said and int(said[0].split()[3]) >= 2
    done = call(fine_tune.main, f"{line} --out {encoder}/out --resume --patience 0")
    assert not any("validations were not better" in x for x in done.err)
    assert any("step 20/20" in x for x in done.err)
    done = call(fine_tune.main, f"{line} --out {encoder}/all --patience 0")
    assert not any("validations were not better" in x for x in done.err)


def test_commands_with_json_print_an_object_for_each_text(
    mine: Path, gpt: Path, encoder: Path, tmp_path: Path
) -> None:
    classify_text = nn.classifier(mine)
    done = call(classify.main, f"{mine} --json --top 2 'the cat' 'why is it'")
    for line, text in zip(done.out, ["the cat", "why is it"], strict=True):
        _, row = classify_text(text)
        best = np.argsort(-row)[:2]
        assert json.loads(line) == {"text": text, "labels": [
            {"label": classify_text.labels[i], "probability": round(float(row[i]), 6)} for i in best
        ]}  # fmt: skip
    done = call(classify.main, f"{mine} --top 2 'the cat'")
    assert len(done.out[0].split("\t")) == 5
    done = call(generate.main, f"{gpt} --json --max-len 3 'the cat'")
    assert [json.loads(line) for line in done.out] == [
        {"text": "the cat", "continuation": done.result[0]}
    ]
    (tmp_path / "lines").write_text("the cat\nwhy is it\n")
    done = call(search.main, f"{encoder} {tmp_path}/lines --json --top 1 'the cat'")
    (line,) = done.out  # the time is on standard error
    assert json.loads(line)["lines"][0]["line"] == done.result[0][0] == "the cat"


@pytest.mark.parametrize(
    ("command", "line"), [("generate", "x"), ("classify", "x"), ("translate", "x")]
)
def test_command_with_missing_gguf_file_says_so(command: str, line: str, tmp_path: Path) -> None:
    main = importlib.import_module(f"nn.commands.{command}").main
    error = error_of(main, f"{tmp_path}/none.gguf {line}")
    assert error == f"error: {tmp_path}/none.gguf: no such file"


def test_command_with_the_name_of_a_file_as_text_says_so(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat")
    done = call(classify.main, f"{mine} {tmp_path}/in.txt")
    assert len(done.result) == 1 and f"... < {tmp_path}/in.txt" in done.err[-1]
    done = call(classify.main, [str(mine), f"{tmp_path}/in.txt", "the cat"])
    assert len(done.result) == 2 and not done.err
    assert [*inputs.read_batches(["a" * 5000])] == [["a" * 5000]]  # longer than a name may be


def test_classify_with_columns_scores_the_rows_that_are_good(mine: Path, tmp_path: Path) -> None:
    name = nn.classifier(mine).labels[0]
    (tmp_path / "a.csv").write_text(
        f'id,"text, raw",label\n1,the cat,{name}\n2,cut\n3,a dog,{name}\n'
    )
    line = f"{mine} --labels {tmp_path}/a.csv"
    assert "choose two by their names (--columns A,B)" in error_of(classify.main, line)
    line += """ --columns '"text, raw",label'"""
    assert "line 3 must have 3 columns, got 2" in error_of(classify.main, line)
    done = call(classify.main, f"{line} --skip-bad")
    expected = nn.classifier(mine)(["the cat", "a dog"])[0]
    assert done.result == expected


def test_first_row_of_chosen_columns_is_no_heading(tmp_path: Path) -> None:
    rows = [("review", "sentiment"), *[("good film", "pos"), ("bad film", "neg")] * 3]
    for first in (("text", "label"), rows[0]):
        (tmp_path / "a.csv").write_text(
            "a,b\n" + "".join(f"{a},{b}\n" for a, b in [first, *rows[1:]])
        )
        args = SimpleNamespace(columns=["a", "b"], skip_bad=False)
        assert inputs.read_labelled(tmp_path / "a.csv", args)[0] == first
    (tmp_path / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    for name, columns, expected in (("a.csv", ["a", "b"], rows), ("a.tsv", None, rows[1:])):
        args = SimpleNamespace(columns=columns, skip_bad=False)
        assert inputs.read_labelled(tmp_path / name, args, keep_repeated=True) == expected


def test_classify_with_labels_prints_scores(mine: Path, tmp_path: Path) -> None:
    names = nn.classifier(mine).labels
    found, _ = nn.classifier(mine)(["the cat", "why is it"])
    path = tmp_path / "labelled.tsv"
    path.write_text(f"the cat\t{found[0]}\nwhy is it\tnone of them\n" * 2)
    done = call(classify.main, f"{mine} --labels {path}")
    assert done.result == [*found, *found] and len(done.out) == len(names) + 3
    assert done.out[-1].startswith("accuracy 0.500") and "'none of them'" in done.err[-1]


def test_fine_tune_into_a_directory_of_a_model_keeps_it(encoder: Path, lines: Path) -> None:
    before = (encoder / "config.json").read_bytes()
    for more in ("", "--resume"):  # of which there is no run
        error = error_of(fine_tune.main, f"{encoder} {lines} --out {encoder} {more}")
        assert error.endswith(f"--out must be a directory without a model, got {encoder}")
    line = f"{encoder} {lines} --out {encoder}/out --train lora --save-adapter"
    error = error_of(fine_tune.main, f"{line} {encoder}")
    assert error.endswith(f"--save-adapter must be a directory without a model, got {encoder}")
    error = error_of(fine_tune.main, f"{line} {encoder}/out")
    assert error.endswith("--save-adapter must be another directory than --out")
    error = error_of(fine_tune.main, f"{line} {lines}")
    assert error == f"error: --save-adapter must be a directory, got the file {lines}"
    assert (encoder / "config.json").read_bytes() == before and not (encoder / "run").exists()


def test_fine_tune_into_a_directory_of_an_interrupted_run_is_refused(
    encoder: Path, lines: Path, tmp_path: Path
) -> None:
    run = tmp_path / "out/run"
    run.mkdir(parents=True)
    (run / "last.safetensors").write_bytes(b"")
    error = error_of(fine_tune.main, f"{encoder} {lines} --out {tmp_path}/out")
    assert f"--out must be a directory without a run, got {tmp_path}/out; pass --resume" in error


@pytest.mark.parametrize("part", ["all", "lora", "head"])
def test_fine_tune_resumed_after_an_interrupt_equals_one_run_bit_for_bit(
    encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    pairs = list(itertools.product(WORDS[4:9], repeat=2))
    lines.write_text("".join(f"the {a} {b}\tfact\nwhy {a} {b}\tquestion\n" for a, b in pairs))
    line = f"{encoder} {lines} --train {part} --batch-size 8 --lr 0.02 --epochs 2"
    call(fine_tune.main, f"{line} --out {tmp_path}/whole")
    step, resumed = nn.Trainer._step, f"{encoder} {lines} --out {tmp_path}/cut --resume"

    def interrupted(trainer: Any, batches: Any) -> Any:
        if trainer.step == 7:
            signal.raise_signal(signal.SIGINT)
        return step(trainer, batches)

    with monkeypatch.context() as patch:
        patch.setattr(nn.Trainer, "_step", interrupted)
        with pytest.raises(KeyboardInterrupt, match="stopped at step 8; continue .* --resume"):
            call(fine_tune.main, f"{line} --out {tmp_path}/cut")
    error = error_of(fine_tune.main, f"{resumed} --lr 0.03")
    assert error.endswith("--lr must be 0.02, as the run began; leave it out")
    call(fine_tune.main, resumed)
    for name in ("config.json", "model.safetensors"):
        files = [tmp_path / run / name for run in ("whole", "cut")]
        assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.filterwarnings("ignore:.* data differ")
def test_fine_tune_resumed_with_other_labels_is_refused(
    encoder: Path, lines: Path, tmp_path: Path
) -> None:
    line = f"{encoder} {lines} --out {tmp_path}/out --epochs 1"
    lines.write_text("the cat\ta\nthe dog\tb\nwhy\ta\n")
    done = call(fine_tune.main, f"{line} --resume")
    assert done.err[0] == f"nothing in {tmp_path}/out to continue: beginning"
    (tmp_path / "out/config.json").unlink()  # as if it had been killed before the end
    lines.write_text("the cat\tb\nthe dog\tc\nwhy\tb\n")
    with pytest.raises(ValueError, match="last.safetensors: labels must be"):
        fine_tune.main([*line.split(), "--resume"])


@pytest.mark.parametrize("bad", [None, 0, -1, 1.5, math.nan, "x", True, [], {}], ids=str)
def test_fine_tune_resumed_with_a_damaged_setting_names_the_file(
    encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: Any
) -> None:
    """Damage each setting in turn."""

    def reached(*_: Any) -> None:
        sys.exit(0)

    file, refused = tmp_path / "run" / "settings.json", 0
    file.parent.mkdir()
    lines.write_text("the cat\ta\nthe dog\tb\nwhy\ta\n")
    settings = vars(fine_tune.parse([str(encoder), str(lines), "--out", str(tmp_path)]))
    settings = {key: x for key, x in settings.items() if key not in fine_tune.CALL_OPTIONS}
    monkeypatch.setattr(nn.Trainer, "fit", lambda self, resume: reached())  # the run goes on
    for name in (*settings, "out"):
        file.write_text(json.dumps(settings | {name: bad}))
        line = f"{encoder} {lines} --out {tmp_path} --resume"
        try:
            call(fine_tune.main, line)
        except (ValueError, OSError, SystemExit) as error:
            if getattr(error, "code", 1) == 0:
                continue
            is_usage = isinstance(error, SystemExit)
            text = error_of(fine_tune.main, line) if is_usage else str(error)
            text = text.removeprefix("minigrad fine-tune: error: ")
            assert text.startswith(str(file)), (name, text)
            refused += 1
    assert refused > 5


def test_classify_prints_a_label_in_one_line_without_escape_sequences(
    encoder: Path, tmp_path: Path
) -> None:
    model = nn.load(encoder, head="classes", num_classes=2)
    labels = ["\x1b[31m\t\n", "\ud800"]
    model.origin.settings |= {"id2label": {"0": labels[0], "1": labels[1]}}
    with pytest.raises(ValueError, match=f"^{tmp_path}/.*config.json: strings must be Unicode"):
        nn.save(tmp_path, model)
    settings = json.loads(json.dumps(model.origin.settings))
    model.origin.settings |= {"id2label": {"0": "a", "1": "b"}}
    nn.save(tmp_path, model, nn.text.load(encoder))
    (tmp_path / "config.json").write_text(json.dumps(settings))
    for line in call(classify.main, f"{tmp_path} 'the cat' 'why'").out:
        label, probability, text = line.split("\t")
        assert label in (r"\x1b[31m\t\n", r"\ud800") and float(probability) <= 1
    for line in call(classify.main, f"{tmp_path} 'the cat' 'why' --json --top 2").out:
        assert {entry["label"] for entry in json.loads(line)["labels"]} == set(labels)
        assert "\x1b" not in line and line.encode()


@pytest.mark.parametrize("part", ["all", "lora", "head"])
def test_fine_tune_learns_and_saves_a_classifier(
    encoder: Path, lines: Path, tmp_path: Path, part: str
) -> None:
    pairs = list(itertools.product(WORDS[4:12], repeat=2))
    lines.write_text("".join(f"the {a} {b}\tfact\nwhy {a} {b}\tquestion\n" for a, b in pairs))
    line = f"{encoder} {lines} --out {tmp_path}/out --train {part} --epochs 4 --lr 0.03"
    assert call(fine_tune.main, line).result > 0.9
    settings = json.loads((tmp_path / "out/config.json").read_text())
    assert settings["id2label"] == {"0": "fact", "1": "question"}
    model, text = opened(tmp_path / "out")
    ids, real, _ = text.batch(["the cat dog", "why dog cat"])
    assert model(ids, real).data.argmax(-1).tolist() == [0, 1]
    before, after = (nn.load(x, head="none").state_dict() for x in (encoder, tmp_path / "out"))
    assert all(np.array_equal(before[x], after[x]) for x in before) == (part == "head")


def test_fine_tune_saves_an_adapter_that_gives_the_same_model(
    encoder: Path, lines: Path, tmp_path: Path
) -> None:
    lines.write_text("".join(f"the cat {word}\t{word}\n" for word in WORDS[6:18]))
    line = f"{encoder} {lines} --out {tmp_path}/out --save-adapter {tmp_path}/adapter"
    call(fine_tune.main, f"{line} --train lora --epochs 2 --lr 0.05")
    merged, text = opened(tmp_path / "out")
    adapted = nn.load(encoder, head="classes", num_classes=12).eval()
    ids, mask, _ = text.batch(["the cat sat", "why is it"])
    plain = adapted.hidden(ids, mask).data
    nn.load_adapter(tmp_path / "adapter", adapted)
    expected = merged.eval()(ids, mask).data
    np.testing.assert_allclose(adapted(ids, mask).data, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(plain, merged.hidden(ids, mask).data, atol=1e-3)


def test_fine_tune_save_adapter_of_all_weights_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        fine_tune.main(
            ["encoder", "lines", "--out", "out", "--train", "all", "--save-adapter", "adapter"]
        )
    assert "--save-adapter needs --train lora" in capsys.readouterr().err


# -- classifiers -------------------------------------------------------------------------------------


@pytest.fixture
def mine(encoder: Path, tmp_path: Path) -> Path:
    """Return the directory of a classifier with the labels "fact" and "question"."""
    model = nn.load(encoder, head="classes", num_classes=2)
    model.output.weight.data[...] = np.random.default_rng(5).standard_normal((2, 16)) * 3
    model.origin.settings |= {"id2label": {"0": "fact", "1": "question"}}
    nn.save(tmp_path / "mine", model, nn.text.load(encoder))
    return tmp_path / "mine"


CLASSIFIED = ["the cat sat", "why is it", "a dog", "the cat sat on the mat"]


def test_classifier_returns_labels_and_probabilities(mine: Path) -> None:
    """In batches of different lengths, alone, and as a string."""
    model, text = opened(mine)
    classify = nn.classifier(mine)
    labels, probabilities = classify(CLASSIFIED, batch_size=2)
    for string, label, row in zip(CLASSIFIED, labels, probabilities):
        ids, mask, _ = text.batch([string])
        logits = model(ids, mask).data[0].astype(float)
        expected = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(row, expected, rtol=1e-4)
        assert label == ("fact", "question")[int(logits.argmax())]
        alone, row_alone = classify(string)
        assert alone == label
        np.testing.assert_allclose(row_alone, row, rtol=1e-5)
    labels, probabilities = classify([])
    assert labels == [] and probabilities.shape == (0, 2)


def test_classify_prints_label_probability_and_text(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, probabilities = nn.classifier(mine)(CLASSIFIED)
    rows = zip(labels, probabilities.max(1), CLASSIFIED)
    expected = [f"{label}\t{p:.3f}\t{string}" for label, p, string in rows]
    line = f"{mine} --batch 2"
    done = call(classify.main, [*line.split(), *CLASSIFIED])
    assert done.out == expected and done.result == labels
    monkeypatch.setattr("sys.stdin", io.StringIO("\n \n".join(CLASSIFIED) + "\n\n"))
    found = call(classify.main, line).out  # an empty line for each empty line
    assert found[::2] == expected and not any(found[1::2]) and len(found) == 2 * len(expected)


def test_classify_orders_equal_probabilities_by_their_labels(encoder: Path, tmp_path: Path) -> None:
    model = nn.load(encoder, head="classes", num_classes=40)
    for p in (model.output.weight, model.output.bias):
        p.data[...] = 0
    names = [f"label {i}" for i in range(40)]
    model.origin.settings |= {"id2label": {str(i): name for i, name in enumerate(names)}}
    nn.save(tmp_path / "equal", model, nn.text.load(encoder))
    for top in (1, 17, 40, 99):
        (line,) = call(classify.main, f"{tmp_path}/equal why --top {top}").out
        assert line.split("\t") == [*(x for name in names[:top] for x in (name, "0.025")), "why"]


def test_classifier_with_an_adapter_equals_the_merged_model(
    encoder: Path, lines: Path, tmp_path: Path
) -> None:
    lines.write_text("".join(f"the cat {word}\t{word}\n" for word in WORDS[6:18]))
    line = f"{encoder} {lines} --out {tmp_path}/out --save-adapter {tmp_path}/adapter"
    call(fine_tune.main, f"{line} --train lora --epochs 1 --lr 0.05")
    names, expected = nn.classifier(tmp_path / "out")(CLASSIFIED)
    labels, found = nn.classifier(encoder, adapter=tmp_path / "adapter")(CLASSIFIED)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert labels == names
    assert (
        call(classify.main, f"{encoder} --adapter {tmp_path}/adapter 'a dog'").result == labels[2:3]
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"problem_type": "multi_label_classification"},
            "problem_type must be null or single_label",
        ),
        ({"id2label": {"0": 5, "1": "x"}}, "0 must be a string, got 5"),
    ],
)
def test_classifier_refuses_other_models(
    mine: Path, settings: dict[str, Any], message: str
) -> None:
    data = json.loads((mine / "config.json").read_text())
    (mine / "config.json").write_text(json.dumps(data | settings))
    assert message in error_of(classify.main, f"{mine} x")


def test_labels_of_equal_probability_are_in_the_order_of_the_model(
    encoder: Path, tmp_path: Path
) -> None:
    model = nn.load(encoder, head="classes", num_classes=40)
    model.output.weight.data[...] = 0
    model.output.bias.data[...] = np.arange(40) % 2
    labels = [f"label {i}" for i in range(40)]
    model.origin.settings |= {"id2label": {str(i): label for i, label in enumerate(labels)}}
    nn.save(tmp_path / "equal", model, nn.text.load(encoder))
    done = call(classify.main, f"{tmp_path}/equal 'the cat' --top 40")
    assert done.out[0].split("\t")[:-1:2] == labels[1::2] + labels[::2]


def test_classifier_refuses_an_encoder_without_head(encoder: Path) -> None:
    message = f"{encoder / 'config.json'}: the model must classify texts, got EncoderModel; train a"
    assert message in error_of(classify.main, f"{encoder} x")


# -- weights in 8 bits, and adapters -------------------------------------------------------------------


def test_commands_with_int8_use_rounded_weights(
    gpt: Path, encoder: Path, marian: Path, mine: Path, lines: Path
) -> None:
    model, text = nn.load(gpt, weights="int8"), nn.text.load(gpt)
    expected = "".join(nn.stream_text(model, text, "the cat", max_len=6))
    assert call(generate.main, f"{gpt} 'the cat' --max-len 6 --int8").out == [expected]
    model, text = nn.load(marian, weights="int8"), nn.text.load(marian)
    expected = nn.generate_text(model, text, ["the cat"], max_len=6)
    assert call(translate.main, f"{marian} 'the cat' --max-len 6 --int8").out == expected
    labels, _ = nn.classifier(mine, weights="int8")(["the cat"])
    assert call(classify.main, f"{mine} 'the cat' --int8").result == labels
    assert len(call(search.main, f"{encoder} {lines} why --int8 --top 1").result[0]) == 1


@pytest.mark.parametrize(("option", "weights"), [("", "float"), ("--int8", "int8")])
def test_search_with_int8_rounds_the_weights_of_the_cross_encoder(
    encoder: Path, lines: Path, monkeypatch: pytest.MonkeyPatch, option: str, weights: str
) -> None:
    given: dict[str, Any] = {}

    def reranker(directory: str, **options: Any) -> Any:
        given.update(options)
        raise ZeroDivisionError

    monkeypatch.setattr(search.nn, "reranker", reranker)
    with pytest.raises(ZeroDivisionError):
        call(search.main, f"{encoder} {lines} why --rerank x {option}")
    assert given == {"weights": weights}


def test_generate_with_an_adapter_equals_the_merged_model(gpt: Path, tmp_path: Path) -> None:
    model, text = nn.lora(nn.load(gpt), 2, 4), nn.text.load(gpt)
    for p in model.parameters():
        p.data[...] += np.random.default_rng(p.size).standard_normal(p.shape) * p.requires_grad
    nn.save_adapter(tmp_path / "adapter", model)
    expected = "".join(nn.stream_text(nn.merge_lora(model), text, "the cat", max_len=6))
    line = f"{gpt} 'the cat' --max-len 6 --adapter {tmp_path}/adapter"
    assert call(generate.main, line).out == [expected]
    assert call(generate.main, f"{gpt} 'the cat' --max-len 6").out != [expected]
    assert call(generate.main, f"{line} --int8").result


@pytest.mark.parametrize("options", ["", "--int8", "--adapter", "--adapter --int8"])
def test_int8_rounds_the_weights_of_models_with_and_without_adapters(
    gpt: Path, tmp_path: Path, options: str
) -> None:
    nn.save_adapter(tmp_path / "adapter", nn.lora(nn.load(gpt), 2, 4))
    line = options.replace("--adapter", f"--adapter {tmp_path}/adapter")
    model = inputs.load_model(generate.parse([str(gpt), "the cat", *line.split()]))
    weight = model.layers.layers[0].feed_forward.linear1.weight
    assert isinstance(weight, Int8Matrix) == ("--int8" in options)


def test_generate_chat_continues_after_ctrl_c(gpt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, calls = nn.stream_text, []

    def interrupted(model: Any, text: Any, messages: Any, **options: Any) -> Any:
        calls.append([dict(message) for message in messages])
        yield from itertools.islice(stream(model, text, messages, **options), 1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(nn, "stream_text", interrupted)
    type_lines(monkeypatch, "the cat", "the dog", "")
    first, _ = call(generate.main, f"{gpt} --chat --max-len 4 --system a").result
    roles = ["system", "user", "assistant", "user"]
    said = [*zip(roles, ["a", "the cat", first, "the dog"])]
    assert calls[1] == [{"role": role, "content": content} for role, content in said]
    for line in (f"{gpt} --chat 'the cat' --max-len 4", f"{gpt} --chat --max-len 4"):
        calls.clear()
        monkeypatch.setattr("sys.stdin", io.StringIO("the cat\nthe dog\n"))
        with pytest.raises(KeyboardInterrupt):  # arguments and files are no talk
            call(generate.main, line)


def test_search_shows_progress_of_parts(
    encoder: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = call(search.main, f"{encoder} {lines} why --top 3").result
    shown: list[int] = []
    monkeypatch.setattr(search, "LINES_AT_ONCE", 2)
    monkeypatch.setattr(search.ProgressLine, "update", lambda self, step: shown.append(step))
    assert call(search.main, f"{encoder} {lines} why --top 3").result == expected
    assert shown == [2, 3]


# -- models of another kind ------------------------------------------------------------------------


def test_commands_refuse_models_of_another_kind(
    encoder: Path, gpt: Path, marian: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.tsv").write_text("the cat\ta\nthe dog\tb\n")
    for directory, name, fix in (
        (encoder, "EncoderModel", "search"),
        (marian, "Transformer", "translate"),
    ):
        message = f"{directory} must be a language model, got {name}; use minigrad {fix}"
        assert error_of(generate.main, f"{directory} x") == f"error: {message}"
    message = f"{marian} must be an encoder, such as BERT, to classify text, or a language model to answer, got 'marian'"
    line = f"{marian} {tmp_path}/texts.tsv --out {tmp_path}/out"
    assert error_of(fine_tune.main, line) == f"error: {message}"
    assert not (tmp_path / "out").exists()

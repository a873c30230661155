"""Texts of models with a tokenizer of words, without other libraries: ids, batches, vectors, labels."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.edges import beside
from support.environment import max_examples
from support.properties import perturb
from support.word_tokenizer import SPECIAL, WORDS, word_text

import nn
from minigrad.io.json import Settings
from minigrad.io.reading import FileCopies
from nn.commands import search
from nn.decoding.text_generation import _language_token, options_of_directory, until_stop
from nn.published.classifier import Classifier, Reranker
from nn.published.generation_config import UNSUPPORTED
from nn.published.sentence_encoder import SIMILARITIES, SentenceEncoder
from nn.text import huggingface, templates

PLAIN = WORDS[len(SPECIAL) :]
BOS, EOS = WORDS.index("<s>"), WORDS.index("</s>")
LIMIT = 9
rows = st.lists(st.integers(len(SPECIAL), len(WORDS) - 1), min_size=1, max_size=12)
batches = st.lists(rows, min_size=1, max_size=5)


def text_of(row: list[int]) -> str:
    return " ".join(WORDS[i] for i in row)


def encoder(kind: Any, **options: Any) -> Any:
    sizes = {
        "vocab_size": len(WORDS),
        "d_model": 8,
        "num_heads": 2,
        "num_layers": 1,
        "d_ff": 8,
        "max_len": LIMIT,
    }
    return perturb(kind(nn.EncoderConfig(**{**sizes, **options}), np.random.default_rng(0)), 1).eval()  # fmt: skip


ENCODER = encoder(nn.EncoderModel)
CLASSIFIER = encoder(nn.EncoderClassifier, num_classes=3, num_types=2)
LM = perturb(nn.LanguageModel(nn.DecoderOnlyConfig(len(WORDS), 8, 2, 1, 8, max_len=40, eos_id=EOS)), 0).eval()  # fmt: skip
LM.embedding.tokens.weight.data *= 9


@given(batches, st.none() | batches, st.booleans(), st.none() | beside(2, 3, 4, 9), st.booleans())
@example([[8], [9, 10, 8]], [[9, 9]], True, None, True)
def test_batch_of_texts_has_the_ids_of_each(
    first: list[list[int]], second: Any, left: bool, most: int | None, pads: bool
) -> None:
    text = word_text(pad_token="<pad>" if pads else None)
    pairs = None if second is None else [second[i % len(second)] for i in range(len(first))]
    around = 2 if pairs is None else 3
    arguments = [[text_of(row) for row in part] for part in (first, pairs) if part is not None]
    for too_small in (around - 1, around):
        with pytest.raises(ValueError, match=rf"greater than .* special tokens \({around}\), got"):
            text.batch(*arguments, max_len=too_small)
    most = None if most is None else max(most, around + 1)
    ids, mask, types = text.batch(*arguments, max_len=most, pad_left=left)
    for i, row in enumerate(first):
        parts = [[*row], *([] if pairs is None else [[*pairs[i]]])]
        while most is not None and sum(map(len, parts)) + around > most:
            max(parts, key=len).pop()
        expected = [BOS, *parts[0], EOS, *(x for part in parts[1:] for x in (*part, EOS))]
        kinds = [0] * (len(parts[0]) + 2) + [1] * (len(expected) - len(parts[0]) - 2)
        is_real = np.arange(ids.shape[1]) < len(expected)
        is_real = is_real[::-1] if left else is_real
        np.testing.assert_array_equal(mask[i], is_real)
        assert ids[i][is_real].tolist() == expected and types[i][is_real].tolist() == kinds
        assert not ids[i][~is_real].any() and not types[i][~is_real].any()


def test_empty_second_text_is_one_and_no_second_texts_are_none() -> None:
    text, word = word_text(), WORDS[4]
    single, empty = text.encode(word), [BOS, 4, EOS, EOS]
    assert single == [BOS, 4, EOS] and text.encode(word, "") == empty
    assert text.encode([word], [""]) == [empty] and text.encode([], []) == []
    assert text.batch([word], [""])[0].tolist() == [empty]
    for pair in ([], [word, word]):
        with pytest.raises(ValueError, match=r"pair must have as many texts as text \(1\), got"):
            text.encode([word], pair)


@given(rows)
def test_text_is_decoded_whole_and_in_pieces(row: list[int]) -> None:
    text, ids = word_text(), [BOS, *row, EOS]
    assert text.encode(text_of(row)) == ids and text.encode(text_of(row), special=False) == row
    assert text.decode(ids) == text_of(row) == "".join(text.stream(ids))
    assert text.decode([ids, row], special=True) == [f"<s> {text_of(row)} </s>", text_of(row)]
    for rows_of in (np.array, tuple, lambda x: np.array(x, np.int32)):
        assert text.decode(rows_of([ids, ids])) == 2 * [text_of(row)]
        assert text.decode(rows_of(ids)) == text_of(row)
    assert text.tokens([0, len(WORDS), *row]) == ["<pad>", "", *text_of(row).split()]


def test_stream_of_bytes_waits_for_whole_characters() -> None:
    """Bytes that do not begin and end with characters are no characters at all, as in `tokenizers`."""

    def decode(ids: list[int], skip_special_tokens: bool) -> str:
        try:
            return bytes(ids).decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(ids)

    library = SimpleNamespace(decode=decode, no_padding=lambda: None, get_vocab_size=lambda: 256)
    text = huggingface.ModelText(library, Settings({}, "x"), FileCopies(Path()))
    said = "a漢字中文é漢字🙂🙂🙂中文 b"
    assert [*text.stream(said.encode())] == [*said]


def test_ids_of_special_tokens_and_limits_are_those_of_the_settings() -> None:
    text = word_text(model_max_length=7)
    assert (text.bos_id, text.eos_id, text.pad_id, text.max_len) == (BOS, EOS, 0, 7)
    for longest in (1 << 30, 1e30, 0, None):  # no limit
        assert word_text(model_max_length=longest).max_len is None
    assert word_text(model_max_length=(1 << 30) - 1).max_len == (1 << 30) - 1
    for pad_id in (2, len(WORDS) - 1, len(WORDS), -1, None):
        expected = pad_id if pad_id in (2, len(WORDS) - 1) else None
        assert word_text(pad_token=None, pad_token_id=pad_id).pad_id == expected
    with pytest.raises(ValueError, match="eos_token must be a token of the vocabulary"):
        word_text(eos_token="<end>")
    for size in (7, 8, 9):
        text = word_text(vocab_size=size)
        if size <= 7:
            with pytest.raises(
                ValueError, match="ids must be less than 7, the vocab_size .* got 7"
            ):
                text.encode(WORDS[7])
        else:
            assert text.encode(WORDS[7]) == [BOS, 7, EOS]


def test_tokens_with_the_id_of_padding_are_no_padding() -> None:
    text = word_text()
    ids, mask, _ = text.batch(["<pad> the", "a"])
    assert ids.tolist() == [[BOS, 0, WORDS.index("the"), EOS], [BOS, WORDS.index("a"), EOS, 0]]
    assert mask.tolist() == [[True] * 4, [True] * 3 + [False]]
    assert text.encode("the cat a", special=False, max_len=1) == [WORDS.index("the")]
    assert [*text.stream([BOS, EOS])] == [] and all(text.stream([BOS, 5, EOS, 6]))


def test_id_of_padding_beyond_the_vocabulary_of_the_model_is_not_used() -> None:
    text = word_text(pad_token="and", vocab_size=len(WORDS) - 1)
    assert text.pad_id == len(WORDS) - 1
    assert text.batch(["the", "the cat"])[0][0, -1] == 0
    assert word_text(pad_token="and").batch(["the", "the cat"])[0][0, -1] == len(WORDS) - 1


def test_scores_of_a_model_with_one_type_of_tokens_have_no_types() -> None:
    model = encoder(nn.EncoderClassifier, num_classes=1, num_types=1)
    ids = np.array([[BOS, 5, EOS, 6, EOS]])
    found = Reranker(model, word_text())(WORDS[5], [WORDS[6]])
    np.testing.assert_allclose(found, model(ids).data[0], rtol=1e-5)
    assert Reranker(model, word_text(model_max_length=99)).max_len == LIMIT


def test_language_takes_the_place_of_another_one() -> None:
    text = word_text("fr_XX")
    assert text.tokens(text.encode("the cat", language="en_XX")) == ["en_XX", "the", "cat", "</s>"]
    with pytest.raises(ValueError, match="language must be a token of the vocabulary, got 'xx_XX'"):
        text.encode("the cat", language="xx_XX")
    with pytest.raises(ValueError, match="language must be a token that the model puts around"):
        word_text().encode("the cat", language="en_XX")


MESSAGES = [{"role": "user", "content": "the cat"}]
TEMPLATES = {"default": ("a/file", "plain"), "tool_use": ("b/file", "tools")}


def test_chat_renders_the_template_with_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools choose their template, if there is one. Arguments replace special tokens."""
    rendered: list[Any] = []
    monkeypatch.setattr(huggingface, "render", lambda *arguments: rendered.append(arguments))
    text = word_text(pad_token=None, chat_templates=TEMPLATES)
    variables = {
        "messages": MESSAGES, "tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>",
        "eos_token": "</s>",
    }  # fmt: skip
    for options, template, changes in (
        ({}, "default", {}),
        ({"reply": False}, "default", {"add_generation_prompt": False}),
        ({"tools": [{}], "bos_token": "x"}, "tool_use", {"tools": [{}], "bos_token": "x"}),
        ({"tools": []}, "tool_use", {"tools": []}),
        ({"tools": None, "more": 1, "tokenize": False}, "default", {"more": 1, "tokenize": False}),
    ):
        text.chat(MESSAGES, **options)
        where, source = TEMPLATES[template]
        assert rendered.pop() == (source, where, variables | changes)
    text = word_text(pad_token=None, chat_templates={"default": TEMPLATES["default"]})
    text.chat((MESSAGES[0],), tools=[{}])
    assert rendered.pop() == ("plain", "a/file", variables | {"tools": [{}]})


@pytest.mark.parametrize(
    "name",
    ["chat_template", "continue_final_message", "max_length", "padding", "return_assistant_tokens_mask", "return_dict",
     "return_tensors", "sanitize_control_tokens", "tokenize", "truncation"],
)  # fmt: skip
def test_chat_refuses_arguments_that_are_no_variables(name: str) -> None:
    with pytest.raises(TypeError, match=f"chat: {name} must not be given, since chat returns"):
        word_text(chat_templates=TEMPLATES).chat(MESSAGES, **{name: True})


@pytest.mark.parametrize(
    ("templates", "messages", "options", "message"),
    [
        (TEMPLATES, "the cat", {}, "messages must be dicts such as"),
        (TEMPLATES, [MESSAGES[0], "x"], {}, "messages must be dicts such as"),
        ({}, MESSAGES, {}, "no chat_template: not a model for chats"),
        ({}, MESSAGES, {"tools": [{}]}, "no chat_template: not a model for chats"),
        ({"rag": ("", "")}, MESSAGES, {}, "no chat_template: no default among rag"),
    ],
)
def test_chat_without_a_template_or_messages_raises(
    templates: Any, messages: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        word_text(chat_templates=templates).chat(messages, **options)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ((1,), "x"), ({1: 2}, "x"), (b"x", "x"), (np.int64(1), "x"), ([[0, {"a": (1,)}]], r"x\[0\]\[1\].a"), ({"a": {"b": {1}}}, "x.a.b"),
    ],
)  # fmt: skip
def test_values_that_json_changes_are_named(value: Any, where: str) -> None:
    with pytest.raises(TypeError, match=f"^{where} must be a string, a number, None, a list or a"):
        templates._plain(value, "x")


def test_values_of_json_are_kept() -> None:
    value = {"a": ["b", 1, 2.5, None, True, {"c": []}], "d": MappingProxyType({"e": np.float64(1)})}
    assert templates._plain(value, "x") == {**value, "d": {"e": 1.0}}
    assert type(templates._plain(value, "x")["d"]) is dict


def test_functions_of_templates_are_those_of_transformers() -> None:
    """Names sort and characters stay as they are, unless an argument says otherwise."""
    value = {"b": "\u00e9<", "a": [1]}
    assert templates.tojson(value) == '{"b": "\u00e9<", "a": [1]}'
    assert templates.tojson(value, ensure_ascii=True) == '{"b": "\\u00e9<", "a": [1]}'
    assert templates.tojson(value, sort_keys=True) == '{"a": [1], "b": "\u00e9<"}'
    assert templates.tojson([1, 2], separators=(",", ":")) == "[1,2]"
    assert templates.tojson([1], indent=2) == "[\n  1\n]"
    assert templates.Dict()([("a", 1)], b=2) == {"a": 1, "b": 2}
    assert templates.Dict().fromkeys("ab", 3) == {"a": 3, "b": 3}
    assert re.fullmatch(r"\d{4}-\d\d", templates.strftime_now("%Y-%m"))


@given(beside(templates.LONGEST))
def test_templates_have_at_most_a_hundred_thousand_characters(length: int) -> None:
    assert templates.LONGEST == 100_000
    if length > templates.LONGEST:
        with pytest.raises(ValueError, match="a/file: .* at most 100,000 characters, got 100,001"):
            templates.render("x" * length, "a/file", {})
    else:
        rendered = SimpleNamespace(render=lambda values: "rendered")
        environment = SimpleNamespace(from_string=lambda source: rendered)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(templates, "require", lambda *_: None)
            patch.setattr(templates, "_environment", lambda: environment)
            assert templates.render("x" * length, "a/file", {}) == "rendered"


POOLS = {
    "mean": lambda x: x.mean(0),
    "first": lambda x: x[0],
    "last": lambda x: x[-1],
    "max": lambda x: x.max(0),
}


@max_examples(8)
@given(batches, st.booleans(), st.integers(1, 5), st.sampled_from(["", "a big"]))
def test_vectors_of_sentences_are_pooled_hidden_states(
    sentences: list[list[int]], normalize: bool, batch_size: int, prompt: str
) -> None:
    before = [WORDS.index(word) for word in prompt.split()]
    ids = [[BOS, *[*before, *row][: LIMIT - 2], EOS] for row in sentences]
    hidden = [ENCODER.hidden(np.array([row])).data[0] for row in ids]
    for pool, function in POOLS.items():
        encode = SentenceEncoder(ENCODER, word_text(), pool, normalize)
        found = encode.encode([f" {text_of(row)}" for row in sentences], batch_size, prompt=prompt)
        expected = np.stack([function(x) for x in hidden])
        if normalize:
            expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@given(st.sampled_from(SIMILARITIES), st.integers(0, 3), st.integers(0, 3))
def test_similarity_of_vectors_equals_its_definition(name: str, n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((n, 4)), rng.standard_normal((m, 4))
    found = SentenceEncoder(ENCODER, word_text(), similarity_fn_name=name).similarity(a, b)
    assert found.shape == (n, m)
    for i, j in np.ndindex(n, m):
        x, y = a[i], b[j]
        expected = {
            "cosine": x @ y / np.linalg.norm(x) / np.linalg.norm(y), "dot": x @ y,
            "euclidean": -np.linalg.norm(x - y), "manhattan": -np.abs(x - y).sum(),
        }[name]  # fmt: skip
        np.testing.assert_allclose(found[i, j], expected, rtol=1e-12)


def test_similarity_to_a_vector_of_zeros_is_zero() -> None:
    encode = SentenceEncoder(ENCODER, word_text())
    assert not encode.similarity(np.zeros((2, 4)), np.ones(4)).any()


@pytest.mark.parametrize("vectors", [np.ones((1, 2, 4)), np.array([["a"]])])
def test_similarity_of_other_than_vectors_of_numbers_raises(vectors: np.ndarray) -> None:
    encode = SentenceEncoder(ENCODER, word_text())
    for pair in ((vectors, np.ones(4)), (np.ones(4), vectors)):
        with pytest.raises(ValueError, match=r"^similarity: vectors must be numbers \(n, d\), got"):
            encode.similarity(*pair)


def test_sentence_encoder_keeps_its_prompts_and_layers_and_checks_the_default() -> None:
    """Evaluate also in training mode."""
    model = encoder(nn.EncoderModel, dropout=0.5).train()
    prompts, maps, text = {"q": "a "}, [(nn.Linear(8, 2), lambda x: x)], word_text()
    encode = SentenceEncoder(model, text, maps=maps, prompts=prompts, default_prompt_name="q")
    expected = encode.encode(["the cat", "a"])
    prompts["q"] = "big "
    maps.clear()
    np.testing.assert_array_equal(encode.encode(["the cat", "a"]), expected)
    assert model.training and expected.shape == (2, 2) and encode.encode([]).shape == (0, 2)
    assert SentenceEncoder(model, text, max_len=99).max_len == LIMIT
    assert SentenceEncoder(model, word_text(model_max_length=7)).max_len == 7
    with pytest.raises(ValueError, match="prompt_name must be 'q', got 'x'"):
        SentenceEncoder(model, text, prompts={"q": ""}, default_prompt_name="x")
    with pytest.raises(ValueError, match="prompt_name must be 'None', got 'x'"):
        SentenceEncoder(model, text, default_prompt_name="x")
    with pytest.raises(ValueError, match="pooling without the prompt's tokens is not supported"):
        SentenceEncoder(model, text, prompts=prompts, default_prompt_name="q", include_prompt=False)


@max_examples(8)
@given(batches, rows, st.integers(1, 3))
def test_labels_and_scores_are_those_of_each_text(
    texts: list[list[int]], question: list[int], batch_size: int
) -> None:
    found, probabilities = Classifier(CLASSIFIER, word_text(), "abc")(
        [text_of(row) for row in texts], batch_size
    )
    scores = Reranker(CLASSIFIER, word_text())(
        text_of(question), [text_of(row) for row in texts], batch_size
    )
    for i, row in enumerate(texts):
        logits = CLASSIFIER(np.array([[BOS, *row[: LIMIT - 2], EOS]])).data[0]
        expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        np.testing.assert_allclose(probabilities[i], expected, rtol=1e-4, atol=1e-6)
        assert found[i] == "abc"[logits.argmax()]
        first, second = [*question], [*row]
        while len(first) + len(second) + 3 > LIMIT:
            max((first, second), key=len).pop()
        ids = [BOS, *first, EOS, *second, EOS]
        types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        logits = CLASSIFIER(np.array([ids]), None, np.array([types])).data[0]
        np.testing.assert_allclose(scores[i], logits[0], rtol=1e-4, atol=1e-5)


@given(
    st.lists(st.text("ab", max_size=3), max_size=6),
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_until_stop_ends_before_the_string_that_is_complete_first(
    pieces: list[str], stop: list[str]
) -> None:
    """And keeps back no more than what may be the beginning of such a string."""
    whole, found = "".join(pieces), ""
    ends = [n for n in range(len(whole) + 1) if any(whole[:n].endswith(s) for s in stop)]
    expected = whole
    if ends:
        expected = whole[: ends[0] - max(len(s) for s in stop if whole[: ends[0]].endswith(s))]
    read: list[str] = []
    for piece in until_stop((read.append(p) or p for p in pieces), stop):  # type: ignore[func-returns-value]
        found += piece
        kept = "".join(read)[len(found) :]
        is_open = not ends or len(found + kept) < ends[0]
        assert not is_open or not kept or any(s.startswith(kept) for s in stop)
    assert found == expected


@max_examples(4)
@given(rows, st.integers(1, 5))
def test_generated_text_is_that_of_the_tokens(row: list[int], most: int) -> None:
    """A token that ends texts is left out behind a prompt."""
    text, prompt = word_text(), text_of(row)
    tokens = nn.generate(LM, [BOS, *row], max_len=most)
    recorded: list[int] = []
    stream = nn.stream_text(LM, text, prompt, max_len=most, tokens=recorded)
    expected = text.decode(tokens)
    assert "".join(stream) == expected == nn.generate_text(LM, text, prompt, max_len=most)
    assert [i for i in recorded if i != EOS] == [i for i in tokens if i != EOS]
    for stop in (["zzz", *expected.split()[-1:]], [*expected.split()[:1], "zzz"]):
        pieces = nn.stream_text(LM, text, prompt, max_len=most, stop=stop)
        assert "".join(pieces) == "".join(until_stop([expected], stop))
    for options in ({"temperature": 0}, {"do_sample": False}, {"top_k": None, "top_p": None}):
        assert nn.generate_text(LM, text, [prompt], max_len=most, **options) == [expected]
    for options in ({"temperature": 1.0}, {"top_k": 4}, {"top_p": 0.9}, {"min_p": 0.1}):
        drawn = nn.generate(
            LM,
            [BOS, *row],
            max_len=most,
            do_sample=True,
            **options,
            generator=np.random.default_rng(0),
        )
        again = nn.generate_text(
            LM, text, prompt, max_len=most, **options, generator=np.random.default_rng(0)
        )
        assert again == text.decode(drawn)


def test_options_of_a_directory_are_those_of_its_generation_config() -> None:
    settings = {
        "num_beams": 2, "length_penalty": 0.5, "early_stopping": True, "repetition_penalty": 1.5, "no_repeat_ngram_size": 3,
        "max_new_tokens": 7, "min_new_tokens": 2, "eos_token_id": [2, 4], "bad_words_ids": [[7, 8]], "suppress_tokens": [9],
        "begin_suppress_tokens": [10], "forced_bos_token_id": 5, "forced_eos_token_id": 2,
    }  # fmt: skip
    expected = {
        "num_beams": 2, "length_penalty": 0.5, "early_stopping": True, "repetition_penalty": 1.5, "no_repeat_ngram_size": 3,
        "max_len": 7, "min_len": 2, "eos": [2, 4], "bad_words": [[7, 8]], "suppress": [9], "begin_suppress": [10],
        "last": 2,
    }  # fmt: skip
    model = SimpleNamespace(config=LM.config)
    model.origin = SimpleNamespace(generation=Settings(settings, "generation_config.json"))
    assert options_of_directory(model, {}, 3) == expected
    assert options_of_directory(model, {}, 1) == expected | {"first": 5}
    given = {"num_beams": 3, "max_len": 4}
    assert options_of_directory(model, given, 3) == expected | given
    model.origin.generation = Settings(
        {"do_sample": True, "temperature": 0.5, "max_length": 9}, "x"
    )
    sampled = {
        "do_sample": True,
        "temperature": 0.5,
        "top_k": 50,
        "max_len": 6,
        "min_len": 0,
        "eos": None,
        "bad_words": [],
    }
    assert options_of_directory(model, {}, 3) == sampled
    for top_k, expected in ((0, None), (None, None), (7, 7)):
        model.origin.generation = Settings({"do_sample": True, "top_k": top_k}, "x")
        assert options_of_directory(model, {}, 3)["top_k"] == expected
    for least, expected in ((0, 0), (4, 4)):
        model.origin.generation = Settings({"min_new_tokens": least, "min_length": 9}, "x")
        assert options_of_directory(model, {}, 3)["min_len"] == expected
    model.origin.generation = Settings({"min_length": 9}, "x")
    assert [options_of_directory(model, {}, n)["min_len"] for n in (3, 8, 9, 12)] == [6, 1, 0, 0]
    for value in (None, [], {}):  # what has no effect
        model.origin.generation = Settings(dict.fromkeys(UNSUPPORTED, value), "x")
        options_of_directory(model, {}, 3)
    model.origin.generation = Settings({"num_beams": 1, "max_new_tokens": 3}, "x")
    assert "num_beams" not in options_of_directory(model, {}, 3, streams=True)
    model.origin.generation = Settings({"max_length": 9}, "x")
    with pytest.raises(ValueError, match="max_length must be above the 9 tokens of the prompt"):
        options_of_directory(model, {}, 9)


@given(n=st.integers(1, 9), at_once=st.integers(1, 4))
def test_lines_of_a_search_are_encoded_in_parts(n: int, at_once: int) -> None:
    encode, lines = SentenceEncoder(ENCODER, word_text()), [f"{WORDS[5 + i]} cat" for i in range(n)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "LINES_AT_ONCE", at_once)
        found = search.encode_lines(encode, lines, Namespace(index=None, int8=False))
    np.testing.assert_allclose(found, encode.encode(lines), rtol=1e-5, atol=1e-6)


def test_language_of_a_translation_may_be_the_first_token() -> None:
    assert [_language_token(word_text(), token) for token in WORDS] == [*range(len(WORDS))]
    with pytest.raises(ValueError, match="to must be a token of the vocabulary, got 'xx_XX'"):
        _language_token(word_text(), "xx_XX")

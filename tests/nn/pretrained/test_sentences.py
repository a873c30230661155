"""Sentence encoders: supported settings of sentence-transformers, and errors for the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_folders import language_model_folder, sentence_encoder_folder

import nn
from minigrad.io import load_arrays
from minigrad.io.safetensors import write_safetensors

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")

SENTENCES = ["why is it", "the cat sat on the mat", "a"]
BERT, OURS = "sentence_bert_config.json", "config_sentence_transformers.json"


def change(path: Path, **settings: Any) -> None:
    """Add settings to a JSON file."""
    found = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**found, **settings}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sentence_encoder_folder(tmp_path)


def test_encode_with_a_prompt_prepends_it(folder: Path) -> None:
    encoder = nn.sentence_encoder(folder)
    plain = encoder.encode(SENTENCES, prompt="")
    asked = encoder.encode(["the " + s for s in SENTENCES], prompt="")
    assert np.abs(plain - asked).max() > 0.01
    np.testing.assert_array_equal(encoder.encode(SENTENCES), asked)
    np.testing.assert_array_equal(encoder.encode(SENTENCES, prompt="the "), asked)
    np.testing.assert_array_equal(encoder.encode(SENTENCES, prompt_name="document"), plain)


def test_encode_in_small_batches_keeps_the_order(folder: Path) -> None:
    encoder = nn.sentence_encoder(folder)
    alone = [encoder.encode(sentence) for sentence in SENTENCES]
    np.testing.assert_allclose(encoder.encode(SENTENCES, batch_size=2), alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        ("a", {"prompt": "x", "prompt_name": "query"}, "prompt must be None with a prompt_name"),
        ("a", {"prompt_name": "answer"}, "prompt_name must be 'query', got 'answer'"),
        (["a", 3], {}, "a text must be a string, got 3"),
        ("a", {"prompt": "why "}, "a pooling without the prompt's tokens is not supported, got 'why '"),
    ],
)  # fmt: skip
def test_encode_with_bad_arguments_raises(
    folder: Path, sentences: Any, options: dict[str, Any], message: str
) -> None:
    change(folder / "1_Pooling/config.json", include_prompt=False)
    change(folder / OURS, prompts={"query": "why "}, default_prompt_name=None)
    with pytest.raises((TypeError, ValueError), match=message):
        nn.sentence_encoder(folder).encode(sentences, **options)


def test_encode_of_no_sentences_is_empty(folder: Path) -> None:
    encoder = nn.sentence_encoder(folder)
    assert encoder.encode([]).shape == (0, 4) and encoder.encode([]).dtype == np.float32
    assert encoder.similarity(encoder.encode([]), encoder.encode("why")).shape == (0, 1)


@pytest.mark.parametrize("sentences", [[""], ["the cat", " "]])
def test_encode_of_a_sentence_without_tokens_raises(tmp_path: Path, sentences: list[str]) -> None:
    """The encoder adds no special tokens."""
    encoder = nn.sentence_encoder(language_model_folder(tmp_path))
    with pytest.raises(ValueError, match="sentences must have at least one token each, got ' ?'"):
        encoder.encode(sentences)


RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((4, 3)), RNG.standard_normal((2, 3))
SMALL = np.array([[3, 200, 7], [250, 1, 9]], np.uint8)  # their differences have more than 8 bits


@pytest.mark.parametrize(
    ("name", "of_pair"),
    [
        ("cosine", lambda x, y: x @ y / np.sqrt((x @ x) * (y @ y))),
        ("dot", lambda x, y: x @ y),
        ("euclidean", lambda x, y: -np.sqrt(((x - y) ** 2).sum())),
        ("manhattan", lambda x, y: -np.abs(x - y).sum()),
    ],
)
def test_similarity_equals_its_definition(name: str, of_pair: Any) -> None:
    encoder = nn.SentenceEncoder.__new__(nn.SentenceEncoder)
    encoder.similarity_fn_name = name
    for a, b in ((A, B), (SMALL, SMALL)):
        expected = [[of_pair(x, y) for y in b.astype(float)] for x in a.astype(float)]
        np.testing.assert_allclose(encoder.similarity(a, b), expected, rtol=1e-6, atol=1e-4)
    np.testing.assert_array_equal(encoder.similarity(A, B[0]), encoder.similarity(A, B[:1]))
    assert encoder.similarity(A[:0], B).shape == (0, 2)
    assert encoder.similarity(A, B[:0]).shape == (4, 0)


@pytest.mark.parametrize("wrong", [B[:, :1], B[None], ["the cat"]], ids=["width", "axes", "text"])
def test_similarity_of_other_vectors_raises(folder: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match="similarity: .* must"):
        nn.sentence_encoder(folder).similarity(A, wrong)


def test_sentence_encoder_max_len_is_the_first_setting(folder: Path) -> None:
    """Older files have other names. The tokenizer's setting comes last, and the model's length limits all."""
    (folder / BERT).unlink()
    change(folder / "tokenizer_config.json", model_max_length=8)
    assert nn.sentence_encoder(folder).max_len == 8
    change(folder / "sentence_roberta_config.json", max_seq_length=12)
    assert nn.sentence_encoder(folder).max_len == 12
    change(folder / BERT, max_seq_length=512)
    assert nn.sentence_encoder(folder).max_len == 20


def test_sentence_encoder_with_do_lower_case_of_the_tokenizer_loads(folder: Path) -> None:
    change(folder / BERT, do_lower_case=True)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    encoder = nn.sentence_encoder(folder)
    np.testing.assert_array_equal(encoder.encode(["THE Cat"]), encoder.encode(["the cat"]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sentence_encoder_widens_narrow_weights(folder: Path, dtype: str) -> None:
    expected = nn.sentence_encoder(folder).encode(SENTENCES)
    path = folder / "2_Dense/model.safetensors"
    write_safetensors(path, load_arrays(path)[0], dtype=dtype)
    np.testing.assert_allclose(nn.sentence_encoder(folder).encode(SENTENCES), expected, atol=0.02)

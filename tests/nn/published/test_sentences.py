"""Sentence encoders: supported settings of sentence-transformers, and errors for the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_folders import language_model_folder, sentence_encoder_folder
from support.tokenizer_library import tokenizers

import nn
from minigrad.io import load_arrays
from minigrad.io.safetensors import write_safetensors

BERT, OURS = "sentence_bert_config.json", "config_sentence_transformers.json"


def change(path: Path, **settings: Any) -> None:
    """Add settings to a JSON file."""
    stored = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(stored | settings))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sentence_encoder_folder(tmp_path)


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


def test_encode_in_batches_with_an_empty_prompt_equals_each_alone(folder: Path) -> None:
    """Keep the order of the sentences, and leave out the default prompt."""
    encoder, sentences = nn.sentence_encoder(folder), ["why is it", "the cat sat on the mat", "a"]
    alone = [encoder.encode(sentence, prompt_name="document") for sentence in sentences]
    found = encoder.encode(sentences, batch_size=2, prompt="")
    np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-6)
    assert not np.allclose(encoder.encode(sentences), alone, atol=0.01)


def test_encode_of_no_sentences_is_empty(folder: Path) -> None:
    vectors = nn.sentence_encoder(folder).encode([])
    assert vectors.shape == (0, 4) and vectors.dtype == np.float32


def test_encode_of_a_sentence_without_tokens_raises(tmp_path: Path) -> None:
    """Use an encoder that adds no special tokens."""
    encoder = nn.sentence_encoder(language_model_folder(tmp_path))
    with pytest.raises(ValueError, match="sentences must have at least one token each, got ' '"):
        encoder.encode(["the cat", " "])


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
    assert encoder.similarity(A[0], B[:0]).shape == (1, 0)


@pytest.mark.parametrize("wrong", [B[:, :1], B[None], ["the cat"]], ids=["width", "axes", "text"])
def test_similarity_of_other_vectors_raises(folder: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match="similarity: .* must"):
        nn.sentence_encoder(folder).similarity(A, wrong)


def test_sentence_encoder_max_len_is_the_first_setting(folder: Path) -> None:
    """Read the tokenizer's setting last, after files of older names, and limit all by the model's."""
    (folder / BERT).unlink()
    change(folder / "tokenizer_config.json", model_max_length=8)
    for name, length, expected in (
        ("other.json", 9, 8), ("sentence_roberta_config.json", 12, 12), (BERT, 512, 20),
    ):  # fmt: skip
        change(folder / name, max_seq_length=length)
        assert nn.sentence_encoder(folder).max_len == expected


def test_sentence_encoder_with_do_lower_case_of_the_tokenizer_loads(folder: Path) -> None:
    change(folder / BERT, do_lower_case=True)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    nn.sentence_encoder(folder)


def test_sentence_encoder_widens_narrow_weights(folder: Path) -> None:
    expected = nn.sentence_encoder(folder).encode("the cat")
    path = folder / "2_Dense/model.safetensors"
    write_safetensors(path, load_arrays(path)[0], dtype="bfloat16")
    np.testing.assert_allclose(nn.sentence_encoder(folder).encode("the cat"), expected, atol=0.02)

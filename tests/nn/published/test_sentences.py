"""Sentence encoders: supported settings of sentence-transformers, and errors for the others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_folders import (
    language_model_folder,
    modules,
    sentence_encoder_folder,
    translator_folder,
)
from support.tokenizer_library import tokenizers

import nn
from minigrad.io import load_arrays
from minigrad.io.safetensors import write_safetensors
from nn.published.sentence_transformers import _modules

BERT, OURS = "sentence_bert_config.json", "config_sentence_transformers.json"


def change(path: Path, **settings: Any) -> None:
    """Add settings to a JSON file."""
    stored = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(stored | settings))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sentence_encoder_folder(tmp_path)


SENTENCES = ["why is it the cat", "a", "the dog ran on the grass"]
OLDER_FLAGS = {f"pooling_mode_{mode}": False for mode in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")}  # fmt: skip
POOLINGS: list[tuple[dict[str, Any], Any]] = [
    ({"pooling_mode": "cls"}, lambda x: x[0]),
    ({"pooling_mode": ["max"], "embedding_dimension": 16}, lambda x: x.max(0)),
    ({"pooling_mode": "lasttoken", "pooling_mode_mean_tokens": True}, lambda x: x[-1]),
    (OLDER_FLAGS | {"pooling_mode_mean_tokens": True, "word_embedding_dimension": 16}, lambda x: x.mean(0)),
    (OLDER_FLAGS | {"pooling_mode_cls_token": True, "pooling_mode": None}, lambda x: x[0]),
]  # fmt: skip
KINDS = [("Pooling",), ("Pooling", "Dense"), ("Pooling", "Dense", "Dense", "Normalize")]


@pytest.mark.parametrize("kinds", KINDS)
def test_vectors_are_those_of_the_modules_in_turn(folder: Path, kinds: tuple[str, ...]) -> None:
    """A linear layer has a bias and tanh by default, and its inputs are the outputs before it."""
    change(folder / OURS, default_prompt_name=None)
    (folder / "modules.json").write_text(json.dumps(modules("Transformer", *kinds)))
    (folder / BERT).unlink()
    model, text, rng = nn.load(folder, head="none"), nn.text.load(folder), np.random.default_rng(1)
    layers = []
    for i, (rows, columns) in enumerate([(4, 16), (3, 4)][: kinds.count("Dense")]):
        arrays = {"linear.weight": rng.standard_normal((rows, columns)), "linear.bias": rng.standard_normal(rows)}  # fmt: skip
        layers.append(arrays)
        path = folder / f"{i + 2}_Dense"
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(
            json.dumps({"in_features": columns, "out_features": rows})
        )
        write_safetensors(path / "model.safetensors", arrays, dtype="float32")
    for settings, pool in POOLINGS:
        (folder / "1_Pooling/config.json").write_text(json.dumps(settings))
        for sentence, vector in zip(SENTENCES, nn.sentence_encoder(folder).encode(SENTENCES, 2)):
            x = pool(model.hidden([text.encode(sentence)]).data[0])
            for arrays in layers:
                x = np.tanh(arrays["linear.weight"] @ x + arrays["linear.bias"])
            x = x / np.linalg.norm(x) if "Normalize" in kinds else x
            np.testing.assert_allclose(vector, x, rtol=1e-4, atol=1e-5)


def test_vectors_without_modules_are_normalized_means(folder: Path) -> None:
    expected = nn.sentence_encoder(folder)
    (folder / "modules.json").unlink()
    with pytest.raises(FileNotFoundError, match="modules.json: no such file, though there is 1_P"):
        nn.sentence_encoder(folder)
    shutil.rmtree(folder / "1_Pooling")
    encoder = nn.sentence_encoder(folder)
    x = encoder.model.hidden([encoder.text.encode("the dog")]).data[0].mean(0)
    found = encoder.encode("dog")  # after the default prompt
    np.testing.assert_allclose(found, x / np.linalg.norm(x), rtol=1e-4, atol=1e-6)
    assert encoder.prompts == expected.prompts and encoder.max_len == expected.max_len


def test_sentence_encoder_of_a_translator_raises(tmp_path: Path) -> None:
    translator_folder(tmp_path)
    with pytest.raises(ValueError, match="model_type must be an encoder or a language model"):
        nn.sentence_encoder(tmp_path)


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        ("1_Pooling", {"word_embedding_dimension": 15}, "word_embedding_dimension must be 16 or null"),
        ("1_Pooling", {"embedding_dimension": 17}, "embedding_dimension must be 16 or null"),
        ("1_Pooling", {"pooling_mode_cls_token": True}, r"pooling_mode must be one of .*, got \['mean', 'cls'\]"),
        ("1_Pooling", {"pooling_mode_mean_tokens": False}, r"pooling_mode must be one of .*, got \[\]"),
        ("1_Pooling", {"pooling_mode": ["mean", "cls"]}, "pooling_mode must be one of .*, got"),
        ("1_Pooling", {"pooling_mode": {}}, "pooling_mode must be one of .*, got"),
        ("1_Pooling", {"include_prompt": 1}, "include_prompt must be true or false"),
        ("2_Dense", {"in_features": 15}, "in_features must be 16 or null"),
        ("2_Dense", {"out_features": 0}, "out_features must be 1 to"),
        ("2_Dense", {"use_residual": True}, "use_residual must be false"),
    ],
)  # fmt: skip
def test_sentence_encoder_with_other_settings_of_modules_raises(
    folder: Path, file: str, settings: dict[str, Any], message: str
) -> None:
    change(folder / file / "config.json", **settings)
    with pytest.raises(ValueError, match=f"{file}/config.json: {message}"):
        nn.sentence_encoder(folder)


ORDER = "must contain Transformer, Pooling, Dense .*, got "
MODULES: list[tuple[list[dict[str, str]], str]] = [
    (modules("Transformer", "Pooling", "Normalize", "Normalize"), f"{ORDER}Transformer, Pooling, Normalize, Normalize"),
    (modules("Transformer", "Pooling", "Normalize", "Dense"), ORDER),
    (modules("Transformer", "Normalize"), ORDER),
    (modules("Transformer"), ORDER),
    (modules("Transformer", "pooling"), ORDER),
    (modules("Pooling", "Transformer"), ORDER),
    (modules("Transformer", "Pooling", "WordWeights"), ORDER),
    ([], ORDER),
    *(([{"path": path, "type": "a.Transformer"}, *modules("", "Pooling")[1:]], "path must be an empty one")
      for path in ("0_Transformer", "x")),
    *((modules("Transformer", "Pooling")[:1] + [{"path": path, "type": "Pooling"}], "path must be a directory in this one")
      for path in ("..", "a/../b", "1_Pooling/..", "a\n", "a:b", "a" * 201)),
]  # fmt: skip
"""Contents of modules.json that are refused."""


def test_sentence_encoder_refuses_other_orders_and_paths_of_modules(folder: Path) -> None:
    for content, message in MODULES:
        (folder / "modules.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=f"^{folder / 'modules.json'}.*{message}"):
            _modules(folder / "modules.json", 16)


def test_sentence_encoder_keeps_copies_of_its_arguments(folder: Path) -> None:
    loaded = nn.sentence_encoder(folder)
    maps, prompts = [*loaded.maps], {"query": "the "}
    encoder = nn.SentenceEncoder(loaded.model, loaded.text, maps=maps, prompts=prompts)
    expected = encoder.encode("cat", prompt_name="query")
    maps.clear()
    prompts["query"] = "why is "
    np.testing.assert_array_equal(encoder.encode("cat", prompt_name="query"), expected)
    assert expected.shape == (4,)


def test_last_token_is_that_of_each_sentence_and_shorter_vectors_are_divided_too(
    folder: Path,
) -> None:
    """Vectors of any length become 1, but for zeros."""
    loaded = nn.sentence_encoder(folder)
    for scale, length in ((1e-3, 1.0), (0.0, 0.0)):
        maps = [(nn.Linear(16, 4, bias=False), lambda y, scale=scale: y * scale)]
        encoder = nn.SentenceEncoder(loaded.model, loaded.text, "last", maps=maps)
        found = encoder.encode(SENTENCES)
        np.testing.assert_allclose(np.linalg.norm(found, axis=-1), length, rtol=1e-5)
        np.testing.assert_allclose(found, [encoder.encode(s) for s in SENTENCES], atol=1e-5)


def test_sentence_encoder_without_output_projection_computes_hidden_states_alone(
    tmp_path: Path,
) -> None:
    """A language model of vectors may lack its projection, even where none is tied."""
    language_model_folder(tmp_path)
    config = nn.DecoderOnlyConfig(19, 16, 4, 2, 32, max_len=40, norm="rms", gated=True, activation="silu",
                                  bias=False, positions="rotary", tie=False, eos_id=2)  # fmt: skip
    whole = nn.LanguageModel(config, np.random.default_rng(0)).eval()
    nn.save(tmp_path, whole)
    path = tmp_path / "model.safetensors"
    arrays = {name: x for name, x in load_arrays(path)[0].items() if name != "lm_head.weight"}
    write_safetensors(path, arrays, {"format": "pt"})
    model, ids = nn.sentence_encoder(tmp_path).model, np.array([[4, 5, 6]])
    np.testing.assert_allclose(model.hidden(ids).data, whole.hidden(ids).data, rtol=1e-5)
    with pytest.raises(ValueError, match="model must have an output projection to compute logits"):
        model(ids)
    with pytest.raises(ValueError, match="missing: lm_head.weight"):
        nn.load(tmp_path)
    change(tmp_path / "config.json", tie_word_embeddings=True)
    logits = nn.sentence_encoder(tmp_path).model(ids).data
    np.testing.assert_array_equal(logits, nn.load(tmp_path)(ids).data)


def test_similarity_of_a_directory_is_that_of_its_settings(folder: Path) -> None:
    for name in (None, "dot", "euclidean"):
        change(folder / OURS, similarity_fn_name=name)
        assert nn.sentence_encoder(folder).similarity_fn_name == (name or "cosine")
    change(folder / OURS, similarity_fn_name="odd")
    with pytest.raises(ValueError, match="similarity_fn_name must be one of cosine, dot"):
        nn.sentence_encoder(folder)


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
    encoder = nn.sentence_encoder(folder)
    with pytest.raises((TypeError, ValueError), match=message):
        encoder.encode(sentences, **options)
    np.testing.assert_array_equal(encoder.encode("a", prompt=""), encoder.encode("a"))


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
    dtypes = {"float16": "float32", "float32": "float32", "int8": "float32", "float64": "float64"}
    assert {x: encoder.similarity(A.astype(x), B.astype(x)).dtype.name for x in dtypes} == dtypes


@pytest.mark.parametrize(
    "wrong", [B[:, :1], B[None], ["the cat"], B > 0], ids=["width", "axes", "text", "bool"]
)
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

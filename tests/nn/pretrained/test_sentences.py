"""Sentence encoders: supported settings of sentence-transformers, and errors for the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_folders import encoder_folder, language_model_folder

import nn
from minigrad.io.safetensors import write_safetensors

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")

SENTENCES = ["the cat sat on the mat", "why is it the dog", "a"]
BERT, OURS = "sentence_bert_config.json", "config_sentence_transformers.json"


def change(path: Path, **settings: Any) -> None:
    """Add settings to a JSON file."""
    path.parent.mkdir(exist_ok=True)
    found = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**found, **settings}))


def modules(path: Path, *kinds: str, model: str = "") -> None:
    places = [model if kind == "Transformer" else f"{i}_{kind}" for i, kind in enumerate(kinds)]
    entries = [
        {"path": place, "type": f"sentence_transformers.models.{kind}"}
        for place, kind in zip(places, kinds)
    ]
    (path / "modules.json").write_text(json.dumps(entries))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with a linear layer after the pooling."""
    path = encoder_folder(tmp_path / "encoder")
    modules(path, "Transformer", "Pooling", "Dense", "Normalize")
    change(path / "1_Pooling/config.json", embedding_dimension=16, pooling_mode="mean")
    change(path / "2_Dense/config.json", in_features=16, out_features=16, bias=False)
    arrays = {"linear.weight": np.random.default_rng(0).standard_normal((16, 16)).astype("f4")}
    write_safetensors(path / "2_Dense/model.safetensors", arrays)
    return path


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "length 1 before a map": (lambda p: modules(p, "Transformer", "Pooling", "Normalize", "Dense"),
                              r"modules.json must contain Transformer, .* order, got Transformer, Pooling, Normalize, Dense"),
    "no pooling": (lambda p: modules(p, "Transformer"), "modules.json must contain Transformer, Pooling"),
    "nothing": (lambda p: modules(p), "modules.json must contain Transformer, Pooling"),
    "a map before the pooling": (lambda p: modules(p, "Transformer", "Dense"), "in this order, got Transformer, Dense"),
    "two poolings": (lambda p: modules(p, "Transformer", "Pooling", "Pooling"), "got Transformer, Pooling, Pooling"),
    "a model elsewhere": (lambda p: modules(p, "Transformer", "Pooling", model="0_Transformer"),
                          'modules.json: path must be an empty one: .*, got "0_Transformer"'),
    "two ways": (lambda p: change(p / "1_Pooling/config.json", pooling_mode=["cls", "mean"]),
                 r"1_Pooling/config.json: pooling_mode must be one of cls, .*, got \['cls', 'mean'\]"),
    "another way": (lambda p: change(p / "1_Pooling/config.json", pooling_mode="weightedmean"), "must be one of cls, mean"),
    "another width": (lambda p: change(p / "1_Pooling/config.json", embedding_dimension=8), "embedding_dimension must be 16"),
    "without the prompt": (lambda p: (change(p / "1_Pooling/config.json", include_prompt=False),
                                      change(p / OURS, prompts={"a": "the "}, default_prompt_name="a")),
                           "encode: a pooling without the prompt's tokens is not supported, got 'the '"),
    "a prompt that is not there": (lambda p: change(p / OURS, prompts={"a": "x"}, default_prompt_name="b"),
                                   f'{OURS}: default_prompt_name must be one of a, got "b"'),
    "prompts that are no texts": (lambda p: change(p / OURS, prompts={"a": 1}), "prompts: a must be a string, got 1"),
    "a similarity of many vectors": (lambda p: change(p / OURS, similarity_fn_name="maxsim"), "must be one of cosine, dot"),
    "sparse vectors": (lambda p: change(p / OURS, model_type="SparseEncoder"), "model_type must be SentenceTransformer"),
    "the vocabulary's logits": (lambda p: change(p / BERT, transformer_task="fill-mask"), "must be feature-extraction"),
    "shorter questions": (lambda p: change(p / BERT, query_length=32), f"{BERT}: query_length must be null .others"),
    "other processing": (lambda p: change(p / BERT, processing_kwargs={"text": {"max_length": 3}}), "processing_kwargs must be"),
    "chats": (lambda p: change(p / BERT, modality_config={"message": {}}), "modality_config must be null or"),
    "small letters": (lambda p: change(p / BERT, do_lower_case=True), "do_lower_case must be false, since the tokenizer"),
    "a map of tokens": (lambda p: change(p / "2_Dense/config.json", module_input_name="token_embeddings"),
                        "2_Dense/config.json: module_input_name must be sentence_embedding"),
    "a residual": (lambda p: change(p / "2_Dense/config.json", use_residual=True), "use_residual must be false"),
    "tokens of length 1": (lambda p: change(p / "3_Normalize/config.json", module_input_name="token_embeddings"),
                           "3_Normalize/config.json: module_input_name must be sentence_embedding"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_sentence_encoder_refuses_unsupported_settings(folder: Path, name: str) -> None:
    assert nn.sentence_encoder(folder).encode(SENTENCES).shape == (3, 16)
    damage, message = REFUSED[name]
    damage(folder)
    with pytest.raises(ValueError, match=message):
        nn.sentence_encoder(folder)


def test_load_of_a_bidirectional_language_model_is_refused(tmp_path: Path) -> None:
    path = language_model_folder(tmp_path)
    for name, value, expected in (
        ("is_causal", False, "true"),
        ("use_bidirectional_attention", True, "false"),
    ):
        change(path / "config.json", **{name: value})
        with pytest.raises(
            ValueError,
            match=f"config.json: {name} must be {expected} or null .others are not supported",
        ):
            nn.load(path)
        change(path / "config.json", **{name: None})
    nn.load(path)


def test_encode_with_a_prompt_prepends_it(folder: Path) -> None:
    change(folder / OURS, prompts={"query": "why ", "document": ""}, default_prompt_name="query")
    encoder = nn.sentence_encoder(folder)
    plain, asked = (
        encoder.encode(SENTENCES, prompt=""),
        encoder.encode(["why " + s for s in SENTENCES], prompt=""),
    )
    for found, expected in (
        (encoder.encode(SENTENCES), asked),
        (encoder.encode(SENTENCES, prompt="why "), asked),
        (encoder.encode(SENTENCES, prompt_name="document"), plain),
    ):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        encoder.encode(SENTENCES[0], prompt_name="query"), encoder.encode(SENTENCES[:1])[0]
    )
    assert np.abs(plain - asked).max() > 0.01
    with pytest.raises(ValueError, match="prompt must be None with a prompt_name"):
        encoder.encode("a", prompt="x", prompt_name="query")
    with pytest.raises(ValueError, match="prompt_name must be 'query' or 'document', got 'answer'"):
        encoder.encode("a", prompt_name="answer")
    for sentences, prompt in ((["a", 3], None), (["a"], 3)):
        with pytest.raises(TypeError, match="a text must be a string, got 3"):
            encoder.encode(sentences, prompt=prompt)  # type: ignore[arg-type]
    change(folder / "1_Pooling/config.json", include_prompt=False)
    change(folder / OURS, default_prompt_name=None)
    encoder = nn.sentence_encoder(folder)
    np.testing.assert_array_equal(encoder.encode(SENTENCES), plain)
    with pytest.raises(
        ValueError, match="a pooling without the prompt's tokens is not supported, got 'why '"
    ):
        encoder.encode(SENTENCES, prompt_name="query")


def test_encode_of_no_sentences_is_empty(folder: Path) -> None:
    encoder = nn.sentence_encoder(folder)
    assert encoder.encode([]).shape == (0, 16) and encoder.encode([]).dtype == np.float32
    assert encoder.similarity(encoder.encode([]), encoder.encode("why")).shape == (0, 1)


def test_encode_of_a_sentence_without_tokens_raises(tmp_path: Path) -> None:
    """The encoder adds no special tokens."""
    encoder = nn.sentence_encoder(language_model_folder(tmp_path))
    for sentences in ([""], ["the cat", " "]):
        with pytest.raises(
            ValueError, match="encode: sentences must have at least one token each, got ' ?'"
        ):
            encoder.encode(sentences)


def test_similarity_equals_its_definition() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 3)), rng.standard_normal((2, 3))
    pairs = {
        "cosine": lambda x, y: x @ y / np.sqrt((x @ x) * (y @ y)), "dot": lambda x, y: x @ y,
        "euclidean": lambda x, y: -np.sqrt(((x - y) ** 2).sum()), "manhattan": lambda x, y: -np.abs(x - y).sum(),
    }  # fmt: skip
    for name, of in pairs.items():
        encoder = nn.SentenceEncoder.__new__(nn.SentenceEncoder)
        encoder.similarity_fn_name = name
        np.testing.assert_allclose(
            encoder.similarity(a, b), [[of(x, y) for y in b] for x in a], rtol=1e-12
        )
        np.testing.assert_allclose(
            encoder.similarity(a, b[0]), encoder.similarity(a, b)[:, :1], rtol=1e-12
        )
        assert encoder.similarity(a, b[:0]).shape == (4, 0) and encoder.similarity(
            a[:0], b
        ).shape == (0, 2)
        small = np.array(
            [[3, 200, 7], [250, 1, 9]], np.uint8
        )  # whose differences and products are none of 8 bits
        found = encoder.similarity(small, small.tolist())
        np.testing.assert_allclose(
            found, encoder.similarity(small / 1.0, small / 1.0), rtol=1e-6, atol=1e-6
        )
        for odd in (b[:, :1], b[None], ["the cat"]):
            with pytest.raises(ValueError, match="similarity: .* must"):
                encoder.similarity(a, odd)


def test_sentence_encoder_max_len_is_the_first_setting(folder: Path) -> None:
    """Older files have other names. The tokenizer's setting comes last, and the model's length limits all."""
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
    arrays = {"linear.weight": np.random.default_rng(0).standard_normal((16, 16)).astype("f4")}
    write_safetensors(folder / "2_Dense/model.safetensors", arrays, dtype=dtype)
    np.testing.assert_allclose(nn.sentence_encoder(folder).encode(SENTENCES), expected, atol=0.02)

"""Directories in the format of sentence-transformers: vectors by their definition, computed with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.environment import needs
from support.published import make, torch
from support.tiny_folders import WORDS, modules, text_files

import nn
from minigrad.io.safetensors import write_safetensors

needs("tokenizers")

SENTENCES = ["the cat sat on the mat", "why", "", "where is the dog on the grass and who ran on it"]
MEAN, CLS, LAST = (
    {"embedding_dimension": 16, "pooling_mode": mode} for mode in ("mean", "cls", "lasttoken")
)
OLD_MEAN = {
    "word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False,
    "pooling_mode_weightedmean_tokens": False, "pooling_mode_lasttoken": False, "include_prompt": True,
}  # fmt: skip
OLD_CLS = OLD_MEAN | {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
QUERY = {"prompts": {"query": "why is it ", "document": ""}}
# kind: model, settings of the pooling, later modules, settings of sentences, and of tokens
KINDS: dict[str, tuple[str, dict[str, Any], tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "all-MiniLM": ("bert", OLD_MEAN, ("Normalize",), {}, {"max_seq_length": 8, "do_lower_case": False}),
    "multi-qa-mpnet-dot": ("mpnet", CLS, (), {"similarity_fn_name": "dot"}, {}),
    "all-distilroberta": ("roberta", OLD_MEAN, ("Normalize",), {"prompts": {}, "default_prompt_name": None}, {}),
    "multilingual-e5": ("xlm-roberta, masked", OLD_MEAN, ("Normalize",), QUERY, {"max_seq_length": 512}),
    "LaBSE": ("bert", CLS, ("Dense", "Normalize"), {}, {}),
    "distiluse": ("distilbert", OLD_CLS, ("Dense",), {}, {}),
    "Qwen3-Embedding": ("qwen3", LAST, ("Normalize",), {**QUERY, "similarity_fn_name": "cosine"}, {}),
    "EmbeddingGemma": (
        "gemma3_text, encoder", MEAN, ("Dense", "Dense", "Normalize"),
        {**QUERY, "similarity_fn_name": "cosine"}, {"max_seq_length": 2048},
    ),
    "ModernBERT": ("modernbert", MEAN, (), {}, {}),
    "default prompt": ("bert", MEAN, ("Normalize",), {**QUERY, "default_prompt_name": "query"}, {}),
    "version 5.4": (
        "mpnet", {**MEAN, "include_prompt": True}, ("Normalize",),
        {**QUERY, "model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
        {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "processing_kwargs": {},
         "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}},
    ),
}  # fmt: skip
RNG = np.random.default_rng(0)
DENSE_WEIGHTS = [RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 16), (7, 5))]
DENSE_BIAS = RNG.standard_normal(5).astype(np.float32)


def write(path: Path, data: Any) -> None:
    """Write a JSON file, and its directory."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data))


def words_of(theirs: Any) -> list[str]:
    """Return the vocabulary; RoBERTa and similar models count positions by padding id 1."""
    return ["[CLS]", "[PAD]", *WORDS[2:]] if theirs.config.pad_token_id == 1 else WORDS


def write_directory(path: Path, kind: str) -> Any:
    """Write a directory of this kind, and return its model of transformers."""
    name, pooling, later, of_sentences, of_tokens = KINDS[kind]
    theirs = make(name, vocab_size=len(WORDS), tie_word_embeddings=True)
    bare = theirs.base_model
    bare.save_pretrained(path)
    side = "left" if kind.startswith("Qwen") else "right"
    text_files(path, words=words_of(bare), padding_side=side, model_max_length=10)
    entries = modules("Transformer", "Pooling", *later)
    if kind == "version 5.4":
        for entry in entries:
            name = entry["type"].rpartition(".")[2]
            parent = "sentence_transformer" if name == "Pooling" else "base"
            entry["type"] = f"sentence_transformers.{parent}.modules.{name.lower()}.{name}"
    write(path / "modules.json", entries)
    write(path / "1_Pooling/config.json", pooling)
    has_bias = later.count("Dense") == 1  # two have no bias, and no activation
    for i, weight in enumerate(DENSE_WEIGHTS[: later.count("Dense")], 2):
        settings = {"in_features": weight.shape[1], "out_features": len(weight), "bias": has_bias}
        activation = "activation.Tanh" if has_bias else "linear.Identity"
        settings["activation_function"] = f"torch.nn.modules.{activation}"
        write(path / f"{i}_Dense/config.json", settings)
        arrays = {"linear.weight": weight} | ({"linear.bias": DENSE_BIAS} if has_bias else {})
        write_safetensors(path / f"{i}_Dense/model.safetensors", arrays)
    if of_sentences:
        write(path / "config_sentence_transformers.json", of_sentences)
    if of_tokens:
        write(path / "sentence_bert_config.json", of_tokens)
    return bare


def vector_of(theirs: Any, kind: str, sentence: str) -> np.ndarray:
    """Return the vector of one sentence by the definition of its modules."""
    _, pooling, later, _, of_tokens = KINDS[kind]
    words = words_of(theirs)
    length = min(of_tokens.get("max_seq_length", 10), 38)  # 38 is the table of positions
    known = [words.index(w) if w in words else words.index("[UNK]") for w in sentence.split()]
    ids = [words.index("[CLS]"), *known[: length - 2], words.index("[SEP]")]
    with torch.no_grad():
        states = theirs(torch.tensor([ids])).last_hidden_state[0].numpy()
    if pooling is LAST:
        vector = states[-1]
    elif pooling in (CLS, OLD_CLS):
        vector = states[0]
    else:
        vector = states.mean(0)
    if later.count("Dense") == 1:
        vector = np.tanh(DENSE_WEIGHTS[0] @ vector + DENSE_BIAS)
    if later.count("Dense") == 2:
        vector = DENSE_WEIGHTS[1] @ (DENSE_WEIGHTS[0] @ vector)
    return vector / np.linalg.norm(vector) if "Normalize" in later else vector


@pytest.mark.parametrize("kind", KINDS)
def test_encode_gives_vectors_by_their_definition(tmp_path: Path, kind: str) -> None:
    theirs = write_directory(tmp_path, kind)
    encoder = nn.sentence_encoder(tmp_path)
    default = "why is it " if kind == "default prompt" else ""
    cases = [({}, default), ({"prompt": "who ran "}, "who ran ")]
    if encoder.prompts:
        cases += [({"prompt_name": "query"}, "why is it "), ({"prompt_name": "document"}, "")]
    for options, prompt in cases:
        expected = np.stack([vector_of(theirs, kind, prompt + s) for s in SENTENCES])
        found = encoder.encode(SENTENCES, 2, **options)
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5, err_msg=str(options))


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "mistral", "gpt_neox", "opt"])
def test_encode_with_untied_language_model_without_head(tmp_path: Path, name: str) -> None:
    theirs = make(name, vocab_size=len(WORDS), tie_word_embeddings=False).base_model
    theirs.save_pretrained(tmp_path)
    text_files(tmp_path, words=words_of(theirs), model_max_length=10)
    write(tmp_path / "modules.json", modules("Transformer", "Pooling"))
    pooling = {"embedding_dimension": theirs.config.hidden_size, "pooling_mode": "mean"}
    write(tmp_path / "1_Pooling/config.json", pooling)
    encoder = nn.sentence_encoder(tmp_path)
    ids = [encoder.text.encode(sentence, max_len=10) for sentence in SENTENCES]
    with torch.no_grad():
        expected = [theirs(torch.tensor([row])).last_hidden_state[0].mean(0).numpy() for row in ids]
    np.testing.assert_allclose(encoder.encode(SENTENCES, 2), expected, 1e-4, 1e-5)
    for predict in (encoder.model, encoder.model.loss):
        with pytest.raises(
            ValueError, match="^model must have an output projection .*; call model.hidden$"
        ):
            predict(np.array([ids[0]]))
    with pytest.raises(ValueError, match="missing: "):
        nn.load(tmp_path)

"""Folders of sentence-transformers of the kinds that are most used: their vectors, by definition, through transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import make
from tiny_folders import WORDS, text_files

import nn
from minigrad.io.safetensors import write_safetensors

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's models are the oracle; it is not installed"
)
pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")

SENTENCES = ["the cat sat on the mat", "why", "", "where is the dog on the grass and who ran on it"]
MEAN, CLS, LAST = (
    {"embedding_dimension": 16, "pooling_mode": mode} for mode in ("mean", "cls", "lasttoken")
)
QUERY = {"prompts": {"query": "why is it ", "document": ""}}
OLD = {
    "word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False,
    "pooling_mode_weightedmean_tokens": False, "pooling_mode_lasttoken": False, "include_prompt": True,
}  # fmt: skip
KINDS: dict[str, tuple[str, dict[str, Any], tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "all-MiniLM": ("bert", OLD, ("Normalize",), {}, {"max_seq_length": 8, "do_lower_case": False}),
    "all-mpnet-base": ("mpnet", OLD, ("Normalize",), {}, {"max_seq_length": 9}),
    "multi-qa-mpnet-dot": ("mpnet", CLS, (), {"similarity_fn_name": "dot"}, {}),
    "all-distilroberta": ("roberta", OLD, ("Normalize",), {"prompts": {}, "default_prompt_name": None}, {}),
    "bge": ("bert", {**OLD, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("Normalize",), {}, {}),
    "multilingual-e5": ("xlm-roberta, masked", OLD, ("Normalize",), QUERY, {"max_seq_length": 512}),
    "paraphrase-MiniLM": ("bert", OLD, (), {"similarity_fn_name": None}, {"max_seq_length": 128}),
    "LaBSE": ("bert", CLS, ("Dense", "Normalize"), {}, {}),
    "distiluse": ("distilbert", MEAN, ("Dense",), {}, {}),
    "Qwen3-Embedding": ("qwen3", LAST, ("Normalize",), {**QUERY, "similarity_fn_name": "cosine"}, {}),
    "a default prompt": ("bert", MEAN, ("Normalize",), {**QUERY, "default_prompt_name": "query"}, {}),
    "saved anew": (
        "mpnet", {**MEAN, "include_prompt": True}, ("Normalize",),
        {**QUERY, "model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
        {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "processing_kwargs": {},
         "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}},
    ),
}  # fmt: skip


def type_of(module: str, anew: bool) -> str:
    """What modules.json calls it, as of version 5.4, or before."""
    where = "sentence_transformer" if module == "Pooling" else "base"
    return f"sentence_transformers.{f'{where}.modules.{module.lower()}' if anew else 'models'}.{module}"


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data))


def words_of(theirs: Any) -> list[str]:
    """The vocabulary: padding is 1 for RoBERTa and its kin, which count positions by it."""
    return ["[CLS]", "[PAD]", *WORDS[2:]] if theirs.config.pad_token_id == 1 else WORDS


def folder(path: Path, kind: str) -> Any:
    """Their model, in a folder of this kind."""
    name, pooling, after, settings, of_tokens = KINDS[kind]
    theirs = make(transformers, torch, name, vocab_size=len(WORDS), tie_word_embeddings=True)
    bare = getattr(theirs, theirs.base_model_prefix, theirs)
    bare.save_pretrained(path)
    config = json.loads((path / "config.json").read_text())
    write(
        path / "config.json",
        config | {"architectures": [type(theirs).__name__.replace("Model", "ForMaskedLM")]},
    )
    side = "left" if kind.startswith("Qwen") else "right"
    text_files(path, words=words_of(bare), padding_side=side, model_max_length=10)
    modules = [
        ("", "Transformer"),
        ("1_Pooling", "Pooling"),
        *((f"{i}_{k}", k) for i, k in enumerate(after, 2)),
    ]
    write(path / "modules.json", [{"idx": i, "name": str(i), "path": p, "type": type_of(k, kind == "saved anew")}
                                  for i, (p, k) in enumerate(modules)])  # fmt: skip
    write(path / "1_Pooling/config.json", pooling)
    if "Dense" in after:
        function = "torch.nn.modules.activation.Tanh"
        write(path / "2_Dense/config.json",
              {"in_features": 16, "out_features": 5, "bias": True, "activation_function": function})  # fmt: skip
        draw = np.random.default_rng(0).standard_normal
        arrays = {"linear.weight": draw((5, 16)).astype("f4"), "linear.bias": draw(5).astype("f4")}
        write_safetensors(path / "2_Dense/model.safetensors", arrays)
    for file, data in (
        ("config_sentence_transformers.json", settings),
        ("sentence_bert_config.json", of_tokens),
    ):
        if data:
            write(path / file, data)
    return bare


def expected(theirs: Any, path: Path, kind: str, prompt: str) -> np.ndarray:
    """All sentences in one batch, padded on the tokenizer's side, step by step."""
    _, pooling, after, _, of_tokens = KINDS[kind]
    words = words_of(theirs)
    ids_of = {word: i for i, word in enumerate(words)}
    most = min(of_tokens.get("max_seq_length", 10), 38)
    rows = [
        [words.index("[CLS]"), *[ids_of.get(w, 3) for w in (prompt + s).split()][: most - 2], 2]
        for s in SENTENCES
    ]
    width = max(map(len, rows))
    real = np.array([[0] * (width - len(r)) + [1] * len(r) for r in rows])
    ids = np.array([[words.index("[PAD]")] * (width - len(r)) + r for r in rows])
    if not kind.startswith("Qwen"):
        ids, real = (
            np.array([np.roll(z, -(width - len(r))) for z, r in zip(x, rows)]) for x in (ids, real)
        )
    with torch.no_grad():
        x = theirs(torch.tensor(ids), attention_mask=torch.tensor(real)).last_hidden_state.numpy()
    if pooling is LAST:
        y = x[:, -1]
    elif pooling is CLS or pooling.get("pooling_mode_cls_token"):
        y = x[:, 0]
    else:
        y = (x * real[..., None]).sum(1) / real.sum(1, keepdims=True)
    if "Dense" in after:
        draw = np.random.default_rng(0).standard_normal
        y = np.tanh(y @ draw((5, 16)).T + draw(5))
    return y / np.linalg.norm(y, axis=1, keepdims=True) if "Normalize" in after else y


@pytest.mark.parametrize("kind", KINDS)
def test_vectors(tmp_path: Path, kind: str) -> None:
    theirs = folder(tmp_path, kind)
    encoder = nn.sentence_encoder(tmp_path)
    default = "why is it " if kind == "a default prompt" else ""
    close = lambda found, prompt: np.testing.assert_allclose(
        found, expected(theirs, tmp_path, kind, prompt), rtol=1e-4, atol=1e-5
    )
    close(encoder.encode(SENTENCES), default)
    close(encoder.encode(SENTENCES, 2, prompt="who ran "), "who ran ")
    close(encoder.encode(SENTENCES, prompt=""), "")
    if encoder.prompts:
        close(encoder.encode(SENTENCES, prompt_name="query"), "why is it ")
        close(np.stack([encoder.encode(s, prompt_name="query") for s in SENTENCES]), "why is it ")
        close(encoder.encode(SENTENCES, prompt_name="document"), "")

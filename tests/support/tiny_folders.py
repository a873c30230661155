"""Tiny directories of published models, with a tokenizer of whole words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from support.tokenizer_library import tokenizers

import nn
from minigrad.io.safetensors import write_safetensors

WORDS = [
    "[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "cat", "dog", "sat", "ran", "on", "mat", "grass", "is", "it", "why",
    "where", "who", "does", "a",
]  # fmt: skip


Write = Callable[..., Path]


def kept(write: Write) -> Write:
    """Return a function that writes a directory once, and then its files again."""

    @cache
    def files_of(**options: Any) -> dict[Path, bytes]:
        with TemporaryDirectory() as directory:
            root = write(Path(directory), **options)
            files = [file for file in root.rglob("*") if file.is_file()]
            return {file.relative_to(root): file.read_bytes() for file in files}

    def write_again(path: Path, **options: Any) -> Path:
        for name, content in files_of(**options).items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        return path

    return write_again


def text_files(
    path: Path, marks: bool = True, words: Sequence[str] = WORDS, **settings: Any
) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if marks:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            special_tokens=[(mark, words.index(mark)) for mark in ("[CLS]", "[SEP]")],
        )
    tokenizer.add_special_tokens(WORDS[:3])
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"pad_token": "[PAD]", "eos_token": "[SEP]", **settings}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))


@kept
def encoder_folder(path: Path, seed: int = 0) -> Path:
    """Write a BERT."""
    config = nn.EncoderConfig(
        len(WORDS),
        16,
        4,
        2,
        32,
        num_types=2,
        positions="learned",
        embeddings=nn.EmbeddingConfig(scale=False, norm=True),
        activation="gelu",
        norm_eps=1e-12,
        max_len=20,
        dropout=0.0,
    )
    nn.save(path, nn.EncoderModel(config, np.random.default_rng(seed)))
    text_files(path)
    return path


def modules(*kinds: str) -> list[dict[str, str]]:
    """Return the content of modules.json."""
    paths = ["" if kind == "Transformer" else f"{i}_{kind}" for i, kind in enumerate(kinds)]
    types = [f"sentence_transformers.models.{kind}" for kind in kinds]
    return [{"path": path, "type": kind} for path, kind in zip(paths, types)]


@kept
def sentence_encoder_folder(path: Path) -> Path:
    """Write a BERT with the modules of sentence-transformers: mean, linear layer, length 1."""
    encoder_folder(path)
    prompts = {"query": "the ", "document": ""}
    for name, data in {
        "modules.json": modules("Transformer", "Pooling", "Dense", "Normalize"),
        "1_Pooling/config.json": {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True},
        "2_Dense/config.json": {"in_features": 16, "out_features": 4, "bias": False},
        "sentence_bert_config.json": {"max_seq_length": 16, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": prompts, "default_prompt_name": "query"},
    }.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(json.dumps(data))
    weight = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    write_safetensors(path / "2_Dense/model.safetensors", {"linear.weight": weight})
    return path


@kept
def language_model_folder(path: Path) -> Path:
    """Write a GPT-2 with a chat template."""
    config = nn.LanguageModelConfig(len(WORDS), 16, 4, 2, 32, max_len=40, eos_id=2)
    nn.save(path, nn.LanguageModel(config, np.random.default_rng(0)))
    text_files(path, False, chat_template="{% for m in messages %}{{ m.content }} {% endfor %}")
    return path


@kept
def translator_folder(path: Path) -> Path:
    """Write a Marian."""
    config = nn.EncoderDecoderConfig(
        len(WORDS),
        len(WORDS),
        16,
        4,
        2,
        2,
        32,
        tie="all",
        pad_id=0,
        bos_id=0,
        eos_id=2,
        positions="sinusoidal_halves",
    )
    nn.save(path, nn.Transformer(config, np.random.default_rng(0)))
    text_files(path)
    return path

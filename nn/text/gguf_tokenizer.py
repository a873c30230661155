"""Tokenizers in GGUF files: byte-level BPE, and BPE with scores (SentencePiece)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minigrad.check.extras import require
from minigrad.io.gguf import GGUFHeader
from minigrad.io.json import Settings
from minigrad.io.reading import FileCopies, printable

from .huggingface import ModelText
from .tokenize import library_errors

__all__ = ["load_gguf"]

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6
"""Types of tokens."""
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPLITS = {
    "gpt-2": None,
    "llama-bpe": rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "smollm": "digits",
}
"""Pattern of the pieces that are tokenized alone, by `tokenizer.ggml.pre`. None: that of GPT-2."""
SPACE = "▁"
MOST_TOKENS = 1_000_000
LONGEST_TOKEN = 64  # characters of a token whose pairs become merges


def load_gguf(path: Path) -> ModelText:
    """Return the tokenizer in a GGUF file.

    Parameters
    ----------
    path : Path
        A file without a supported tokenizer raises a ValueError.
    """
    header = GGUFHeader(path, require("gguf", f"{printable(path, 500)}: GGUF"))
    where = f"{printable(path, 500)}: metadata"
    data = Settings(_plain(header.metadata), where)
    name = "tokenizer.ggml."
    kind = data.text(name + "model", choices=("gpt2", "llama"))
    tokens = data.list(name + "tokens", str)
    if not 0 < len(tokens) <= MOST_TOKENS or len(set(tokens)) < len(tokens):
        data.fail(name + "tokens", f"1 to {MOST_TOKENS:,} different tokens")
    types = data.list(name + "token_type", int, [1] * len(tokens))
    if len(types) != len(tokens):
        data.fail(name + "token_type", f"{len(tokens):,} types")
    library = require("tokenizers", "the tokenizer of a published model")
    with library_errors(f"{where}: not a tokenizer", path):
        make = _byte_level if kind == "gpt2" else _with_scores
        tokenizer = make(library, data, tokens, types)
        special = [t for t, kind in zip(tokens, types) if kind == CONTROL]
        added = [t for t, kind in zip(tokens, types) if kind == USER_DEFINED]
        options = {"normalized": False}
        tokenizer.add_special_tokens([library.AddedToken(t, **options) for t in special])
        tokenizer.add_tokens([library.AddedToken(t, **options) for t in added])
    settings: dict[str, Any] = {"vocab_size": len(tokens), "chat_templates": {}}
    if (template := data.text("tokenizer.chat_template", None)) is not None:
        settings["chat_templates"] = {"default": (where, template)}
    ids = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    for ours, theirs in ids.items():
        key = f"{name}{theirs}_token_id"
        if (i := data.integer(key, None, low=0)) is not None:
            if i >= len(tokens):
                data.fail(key, f"less than {len(tokens):,}")
            settings[f"{ours}_token"] = tokens[i]
    adds_bos = data.flag(name + "add_bos_token", kind == "llama")
    adds_eos = data.flag(name + "add_eos_token", False)
    wanted = [("bos_token", adds_bos), ("$A", True), ("eos_token", adds_eos)]
    parts = [settings.get(part, part) for part, is_added in wanted if is_added]
    around = [(part, tokens.index(part)) for part in parts if part in tokens]
    if around:
        second = [f"{'$B' if part == '$A' else part}:1" for part in parts]
        tokenizer.post_processor = library.processors.TemplateProcessing(
            single=parts, pair=[*parts, *second], special_tokens=around
        )
    return ModelText(tokenizer, Settings(settings, where), FileCopies(path.parent))


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the tokenizer with lists instead of arrays."""
    entries = {key: x for key, x in metadata.items() if key.startswith("tokenizer.")}
    return {key: x.tolist() if hasattr(x, "tolist") else x for key, x in entries.items()}


def _byte_level(library: Any, data: Settings, tokens: list[str], types: list[int]) -> Any:
    """Return a byte-level BPE tokenizer, as of GPT-2, Llama 3 and Qwen."""
    pattern = SPLITS[data.text("tokenizer.ggml.pre", "gpt-2", choices=tuple(SPLITS))]
    merges = []
    for merge in data.list("tokenizer.ggml.merges", str):
        first, space, second = merge.partition(" ")
        if not space:
            data.fail("tokenizer.ggml.merges", "pairs of tokens, with a space between")
        merges.append((first, second))
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = library.Tokenizer(library.models.BPE(vocab=vocab, merges=merges))
    steps, pre = [], library.pre_tokenizers
    if pattern == "digits":
        steps = [pre.Digits(individual_digits=True)]
    elif pattern is not None:
        steps = [pre.Split(library.Regex(pattern), "isolated")]
    has_pattern = pattern in (None, "digits")
    steps.append(pre.ByteLevel(add_prefix_space=False, use_regex=has_pattern))
    tokenizer.pre_tokenizer = pre.Sequence(steps)
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _with_scores(library: Any, data: Settings, tokens: list[str], types: list[int]) -> Any:
    """Return a SentencePiece BPE tokenizer, as of Llama 2, Mistral and Gemma.

    SentencePiece joins the pair of neighbours whose joint token has the highest score. A list of
    all pairs by score is the same as merges.
    """
    name = "tokenizer.ggml."
    scores = data.list(name + "scores", float)
    if len(scores) != len(tokens):
        data.fail(name + "scores", f"{len(tokens):,} scores")
    vocab = {token: i for i, token in enumerate(tokens)}
    joinable = {t for t, kind in zip(tokens, types) if kind not in (UNKNOWN, CONTROL, BYTE)}
    pairs = []
    for token in joinable:
        if len(token) <= LONGEST_TOKEN:
            for i in range(1, len(token)):
                if token[:i] in joinable and token[i:] in joinable:
                    order = (-scores[vocab[token]], vocab[token], vocab[token[:i]])
                    pairs.append((order, token[:i], token[i:]))
    merges = [(first, second) for _, first, second in sorted(pairs)]
    unknown = next((t for t, kind in zip(tokens, types) if kind == UNKNOWN), None)
    model = library.models.BPE(
        vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=BYTE in types
    )
    tokenizer = library.Tokenizer(model)
    has_prefix = data.flag(name + "add_space_prefix", True)
    normalizers, decoders = library.normalizers, library.decoders
    prefix = [normalizers.Prepend(SPACE)] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(
        [*steps, *([decoders.Strip(" ", 1, 0)] if has_prefix else [])]
    )
    return tokenizer

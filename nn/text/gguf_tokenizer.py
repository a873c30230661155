"""Tokenizers in GGUF files: byte-level BPE, and BPE with scores (SentencePiece)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minigrad.check.extras import require
from minigrad.io.gguf import GGUFHeader
from minigrad.io.json import Settings
from minigrad.io.reading import FileCopies, listed, printable

from .gguf_tables import (
    END_NAMES,
    FIM_NAMES,
    OTHER_KEYS,
    PRE_TOKENIZERS,
    VISIBLE_NAMES,
    PreTokenizer,
)
from .huggingface import ModelText
from .tokenize import library_errors

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
"""Types of tokens."""
SPACE = "▁"
MAX_TOKENS = 1_000_000
MAX_TOKEN = 64  # characters of a token whose pairs become merges
NAME = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
SPECIAL_KEYS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Stems of the keys of special tokens by those in tokenizer_config.json."""
SENTENCEPIECE_IDS = {"bos": 1, "eos": 2, "unk": 0}
"""Ids of special tokens of "llama" tokenizers if the file lacks the keys."""
KEEP_SPACES = {"<unk>", "<s>", "<|endoftext|>"}
"""Special tokens of Phi-3 that keep the spaces after them."""


def load_gguf(path: Path) -> ModelText:
    """Return the tokenizer in a GGUF file, or raise a ValueError if it is not supported."""
    header = GGUFHeader(path, require("gguf", f"{printable(path, 500)}: GGUF"))
    where = f"{printable(path, 500)}: metadata"
    data = Settings(_plain(header.metadata), where)
    kind = data.text(NAME + "model", choices=("gpt2", "llama"))
    tokens = _tokens(data)
    types, _ = _read_types(data, tokens)
    row = PRE_TOKENIZERS["default"]
    if kind == "gpt2":
        row = PRE_TOKENIZERS[data.text(NAME + "pre", "default", choices=tuple(PRE_TOKENIZERS))]
    settings: dict[str, Any] = {"vocab_size": len(tokens), "chat_templates": _templates(data)}
    for stem, key in SPECIAL_KEYS.items():
        default = SENTENCEPIECE_IDS.get(stem) if kind == "llama" else None
        if (i := _token_id(data, f"{key}_token_id", len(tokens), default)) is not None:
            settings[f"{stem}_token"] = tokens[i]
    adds_bos = data.flag(NAME + "add_bos_token", kind == "llama" or row.add_bos)
    adds_eos = data.flag(NAME + "add_eos_token", False)
    wanted = [("bos_token", adds_bos), ("$A", True), ("eos_token", adds_eos)]
    parts = [settings.get(part, part) for part, is_added in wanted if is_added]
    if lost := [part for part in parts if part in ("bos_token", "eos_token")]:
        raise ValueError(f"{where}: {NAME}{lost[0]}_id is missing, but texts need this token")
    library = require("tokenizers", "the tokenizer of a published model")
    with library_errors(f"{where}: not a tokenizer", path):
        if kind == "gpt2":
            tokenizer = _byte_level(library, data, tokens, row)
        else:
            tokenizer = _with_scores(library, data, tokens, types)
        name = str(header.metadata.get("general.name")).lower()
        strips = "phi-3" in name or "phi3" in name
        for token, kind in zip(tokens, types):
            if kind in (UNKNOWN, CONTROL, USER_DEFINED):
                rstrip = strips and token not in KEEP_SPACES
                added = library.AddedToken(token, normalized=False, rstrip=rstrip)
                add = tokenizer.add_tokens if kind == USER_DEFINED else tokenizer.add_special_tokens
                add([added])
    if len(parts) > 1:
        around = [(part, tokens.index(part)) for part in parts if part != "$A"]
        second = [f"{'$B' if part == '$A' else part}:1" for part in parts]
        tokenizer.post_processor = library.processors.TemplateProcessing(
            single=parts, pair=[*parts, *second], special_tokens=around
        )
    if unknown := data.keys() - data.taken - OTHER_KEYS:
        raise ValueError(
            f"{where}: keys must be known to the tokenizer, got {listed(sorted(unknown))}; they "
            "might change its tokens"
        )
    return ModelText(tokenizer, Settings(settings, where), FileCopies(path.parent))


def end_ids(metadata: Mapping[str, Any], where: str) -> list[int]:
    """Return the tokens that end a text, EOS first. `where` is the file of the metadata."""
    data = Settings(_plain(metadata), where)
    if NAME + "tokens" not in data:
        return [] if (eos := data.integer(NAME + "eos_token_id", None, low=0)) is None else [eos]
    return _read_types(data, _tokens(data))[1]


def _tokens(data: Settings) -> list[str]:
    """Return the tokens by id."""
    tokens = [t or f"[EMPTY_{i}]" for i, t in enumerate(data.list(NAME + "tokens", str))]
    if not 0 < len(tokens) <= MAX_TOKENS or len(set(tokens)) < len(tokens):
        data.fail(NAME + "tokens", f"1 to {MAX_TOKENS:,} different tokens")
    return tokens


def _token_id(data: Settings, key: str, count: int, default: int | None = None) -> Any:
    """Return the id of a special token below `count`, or None."""
    i = data.integer(NAME + key, None, low=0)
    if i is not None and i >= count:
        data.fail(NAME + key, f"less than {count:,}")
    return default if i is None and default is not None and default < count else i


def _read_types(data: Settings, tokens: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the type of each token, and the tokens that end a text.

    Some names decide: a file can declare the token that ends the turn of a chat as plain text.
    """
    types = [*data.list(NAME + "token_type", int, [NORMAL] * len(tokens))]
    if len(types) != len(tokens):
        data.fail(NAME + "token_type", f"{len(tokens):,} types")
    ids = {token: i for i, token in enumerate(tokens)}
    default = SENTENCEPIECE_IDS["eos"] if data.get(NAME + "model") == "llama" else None
    eos = _token_id(data, "eos_token_id", len(tokens), default)
    keys = ("eot_token_id", "eom_token_id")
    ends = {eos, *(_token_id(data, key, len(tokens)) for key in keys)}
    for name in END_NAMES & ids.keys():
        types[ids[name]] = CONTROL
        ends.add(ids[name])
    for stem, names in FIM_NAMES.items():
        i = _token_id(data, f"fim_{stem}_token_id", len(tokens))
        if i is None and (named := [ids[name] for name in names if name in ids]):
            i = named[0]
            types[i] = CONTROL
        if stem in ("pad", "rep", "sep"):
            ends.add(i)
    for name in VISIBLE_NAMES & ids.keys():
        types[ids[name]] = USER_DEFINED
    calls = ids.keys() & {"<|call|>", "<|calls|>"}
    if "<|end|>" in ids and calls and ids.keys() & {"<|return|>", "<|flush|>"}:  # ends a message
        types[ids["<|end|>"]] = USER_DEFINED
        ends.discard(ids["<|end|>"])
    if "<|tool_response>" in ids and "</s>" in ids:
        types[ids["</s>"]] = NORMAL
        ends.discard(ids["</s>"])
    return types, [i for i in (eos,) if i in ends - {None}] + sorted(ends - {eos, None})


def _templates(data: Settings) -> dict[str, tuple[str, str]]:
    """Return the chat templates by name, each with its file."""
    names = {key: key.removeprefix(f"{TEMPLATE}.") for key in data if key.startswith(TEMPLATE)}
    names.pop("tokenizer.chat_templates", None)  # the names alone
    return {
        "default" if key == TEMPLATE else name: (data.where, data.text(key))
        for key, name in names.items()
    }


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the tokenizer."""
    return {key: metadata[key] for key in metadata if key.startswith("tokenizer.")}


def _byte_level(library: Any, data: Settings, tokens: list[str], row: PreTokenizer) -> Any:
    """Return a byte-level BPE tokenizer, as of GPT-2, Llama 3 and Qwen."""
    merges = []
    for merge in data.list(NAME + "merges", str):
        first, space, second = merge.partition(" ")
        if not space:
            data.fail(NAME + "merges", "pairs of tokens, with a space between")
        merges.append((first, second))
    vocab = {token: i for i, token in enumerate(tokens)}
    model = library.models.BPE(vocab=vocab, merges=merges, ignore_merges=row.whole_words)
    tokenizer, pre = library.Tokenizer(model), library.pre_tokenizers
    splits = [pre.Split(library.Regex(pattern), "isolated") for pattern in row.patterns]
    byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre.Sequence([*splits, byte_level])
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _with_scores(library: Any, data: Settings, tokens: list[str], types: list[int]) -> Any:
    """Return a SentencePiece BPE tokenizer, as of Llama 2, Mistral and Gemma.

    SentencePiece joins the pair of neighbours whose joint token has the highest score. A list of
    all pairs by score is the same as merges.
    """
    scores = data.list(NAME + "scores", float)
    if len(scores) != len(tokens):
        data.fail(NAME + "scores", f"{len(tokens):,} scores")
    vocab = {token: i for i, token in enumerate(tokens)}
    joinable = {t for t, kind in zip(tokens, types) if kind not in (UNKNOWN, CONTROL, BYTE)}
    pairs = []
    for token in joinable:
        if len(token) <= MAX_TOKEN:
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
    has_prefix = data.flag(NAME + "add_space_prefix", True)
    normalizers, decoders = library.normalizers, library.decoders
    prefix = [normalizers.Prepend(SPACE)] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(
        [*steps, *([decoders.Strip(" ", 1, 0)] if has_prefix else [])]
    )
    return tokenizer

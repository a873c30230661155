"""Load tokenizers of published models."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minigrad.check.extras import require
from minigrad.io.atomic import read_together
from minigrad.io.json import Settings, read_if_any, read_json
from minigrad.io.reading import FileCopies, listed, printable, read_text, require_file

from .gguf_tokenizer import load_gguf
from .huggingface import SPECIAL, ModelText
from .legacy_tokenizers import byte_level_tokenizer, marian_tokenizer, wordpiece_tokenizer
from .tokenize import library_errors

__all__ = ["load"]

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "source.spm",
    "target.spm",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
"""Files of a tokenizer in a directory, which `ModelText.save` copies."""
EXPECTED_FILES = (
    "expected it, or vocab.txt, or vocab.json and merges.txt or source.spm; transformers' "
    "AutoTokenizer and its save_pretrained make it of a spiece.model or a tokenizer.model"
)
MOST_TOKENS = 1_000_000
"""Largest number of tokens or merges; XLM-V has 901,629 tokens."""
MOST_STEPS = 100
LARGEST_GROWTH = 16
"""Bounds of a normalizer or decoder."""


def load(directory: str | Path) -> ModelText:
    """Load the tokenizer of a published model.

    Needs the package `tokenizers`, and `sentencepiece` for source.spm.

    Parameters
    ----------
    directory : str or Path
        It contains tokenizer.json, or vocab.txt, or vocab.json with merges.txt or source.spm. Or a
        .gguf file, which needs the package `gguf`.

    Returns
    -------
    ModelText
        The tokenizer with its special tokens and chat templates.
    """
    if Path(directory).suffix == ".gguf":
        return load_gguf(Path(directory))
    with read_together(directory, "config.json", TOKENIZER_FILES) as source:
        return _load(source)


def _load(directory: Path) -> ModelText:
    templates = sorted(
        path.relative_to(directory).as_posix()
        for path in directory.glob("additional_chat_templates/*.jinja")
    )
    names = [name for name in (*TOKENIZER_FILES, *templates) if os.path.lexists(directory / name)]
    files = FileCopies(directory, names)
    for name in {"vocab.txt", "merges.txt"} & files.keys():
        lines = read_text(directory / name).count(
            "\n"
        )  # the library accepts files that are no text
        _check_count(f"{directory / name}: lines", lines)
    if "vocab.json" in files and "tokenizer.json" not in files:
        vocab = read_json(directory / "vocab.json")
        _check_count(f"{vocab.where}: tokens", len(vocab))
    library = require("tokenizers", "the tokenizer of a published model")
    makers = {
        ("tokenizer.json",): _fast_tokenizer,
        ("source.spm", "vocab.json"): marian_tokenizer,
        ("vocab.txt",): wordpiece_tokenizer,
        ("vocab.json", "merges.txt"): byte_level_tokenizer,
    }
    needed = next((names for names in makers if files.keys() >= set(names)), ("tokenizer.json",))
    path = require_file(directory / needed[0], EXPECTED_FILES)
    settings = _settings(directory, names)
    with library_errors(f"{path}: not the file of a tokenizer", directory):
        tokenizer = makers[needed](library, directory, settings)
    return ModelText(tokenizer, settings, files)


def _fast_tokenizer(library: Any, directory: Path, _: Settings) -> Any:
    """Return the tokenizer in tokenizer.json, if its tokens and ids are consistent.

    The library accepts one id for two tokens, and special tokens with wrong ids.
    """
    path = directory / "tokenizer.json"
    settings = read_json(path)
    model, added = settings["model"], settings.get("added_tokens") or ()
    for part, entries in (
        ("model.vocab", model.get("vocab")),
        ("model.merges", model.get("merges")),
        ("added_tokens", added),
    ):
        if isinstance(entries, (dict, list)):
            _check_count(f"{path}: {part}", len(entries))
    tokenizer = library.Tokenizer.from_file(str(path))
    tokenizer.no_padding()  # it could be longer than the memory
    tokenizer.no_truncation()
    for part in ("normalizer", "decoder"):
        _check_growth(settings, part)
    vocab = model.get("vocab")
    by_id: dict[int, str] = {}
    tokens = [(token["content"], token["id"]) for token in added]
    for word, i in [*(vocab.items() if isinstance(vocab, dict) else ()), *tokens]:
        if by_id.setdefault(i, word) != word:
            raise ValueError(f"{path}: vocab: {i} is both {by_id[i]!r:.40} and {word!r:.40}")
    for encoding in (tokenizer.encode(""), tokenizer.encode("", "")):
        if encoding.ids != [tokenizer.token_to_id(token) for token in encoding.tokens]:
            raise ValueError(
                f"{path}: post_processor: special_tokens must be the tokens "
                f"{listed(encoding.tokens)} with their ids of the vocabulary"
            )
    return tokenizer


def _check_count(name: str, count: int) -> None:
    """Raise an error for more tokens or merges than any published tokenizer has."""
    if count > MOST_TOKENS:
        raise ValueError(f"{name} must be at most {MOST_TOKENS:,}, got {count:,}")


def _check_growth(settings: Settings, part: str) -> None:
    """Raise an error if the steps of a normalizer or decoder can make a text too long."""
    steps = _steps(settings.get(part))
    growth = math.prod(max(1.0, _growth(step)) for step in steps)
    if len(steps) > MOST_STEPS or growth > LARGEST_GROWTH:
        raise ValueError(
            f"{settings.where}: {part}: there must be at most {MOST_STEPS} steps that make a text "
            f"at most {LARGEST_GROWTH} times as long, got {len(steps)} and {printable(growth, 10)}"
        )


def _steps(step: Any) -> list[dict[str, Any]]:
    """Return the steps of nested sequences in one list."""
    if not isinstance(step, dict):
        return []
    inner = step.get("normalizers") or step.get("decoders")
    return [step for part in inner for step in _steps(part)] if inner else [step]


def _growth(step: dict[str, Any]) -> float:
    """Return how many characters can replace one character of a text."""
    kind = step.get("type")
    if kind == "Replace":
        replaced = step["pattern"].get("String")
        content = len(step["content"])
        return content / len(replaced) if replaced else content + 1
    if kind == "Prepend":
        return 1 + len(step["prepend"]) / 32
    if kind == "Precompiled":
        charsmap = base64.b64decode(step["precompiled_charsmap"] or "")
        texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
        return max(map(len, texts)) / 32  # the longest text of NFKC has 33 bytes
    return 1


def _settings(directory: Path, files: Iterable[str]) -> Settings:
    """Return tokenizer_config.json, completed with the settings of other files.

    These are special_tokens_map.json, the chat templates ("chat_templates": for each name its file
    and its text), and `vocab_size` and `pad_token_id` of config.json.
    """
    settings = read_if_any(directory / "tokenizer_config.json")
    settings |= {**read_if_any(directory / "special_tokens_map.json"), **settings}
    for name in SPECIAL:  # a string, or an object with its "content"
        if isinstance(settings.get(name), dict):
            settings[name] = settings.object(name).text("content")
    templates: dict[str, tuple[str, str]] = {}
    if isinstance(settings.get("chat_template"), list):
        for data in settings.list("chat_template", dict):
            template = Settings(data, f"{settings.where}: chat_template")
            templates[template.text("name")] = settings.where, template.text("template")
    elif (source := settings.text("chat_template", None)) is not None:
        templates["default"] = settings.where, source
    for file in files:
        if file.endswith(".jinja"):
            name = "default" if file == "chat_template.jinja" else Path(file).stem
            path = directory / file
            templates[name] = printable(path, 500), read_text(path)
    config = read_if_any(directory / "config.json")
    settings |= {
        "chat_templates": templates,
        "vocab_size": config.integer("vocab_size", None),
        "pad_token_id": config.take("pad_token_id", int, None),
    }
    return settings

"""Finding the tokenizer of a published model in its folder."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minigrad.extras import require
from minigrad.io.atomic import read_together
from minigrad.io.json import Settings, read_if_any, read_json
from minigrad.io.reading import FileCopies, found_file, listed, printable, read_text

from .huggingface import SPECIAL, ModelText
from .legacy_tokenizers import byte_level_tokenizer, wordpiece_tokenizer
from .sentencepiece import marian_tokenizer
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
"""What a folder may hold of a tokenizer; `ModelText.save` writes them as they were."""
KINDS = (
    ("tokenizer.json",),
    ("source.spm", "vocab.json"),
    ("vocab.txt",),
    ("vocab.json", "merges.txt"),
)
"""What a tokenizer is made of: the first of these whose files are all there."""
HOW = "; transformers' AutoTokenizer and its save_pretrained make it of a spiece.model or a tokenizer.model"
MOST_STEPS, LARGEST_GROWTH = 100, 16
"""Bounds of a normalizer or decoder."""
MARIAN = {"eos_token": "</s>", "pad_token": "<pad>"}
"""What is meant where its settings do not say."""


def load(directory: str | Path) -> ModelText:
    """The tokenizer of a folder: tokenizer.json, or as older ones have vocab.txt, vocab.json +
    merges.txt, source.spm.

    Needs the `tokenizers` package, and `sentencepiece` for source.spm.
    """
    with read_together(directory, "config.json", TOKENIZER_FILES) as source:
        return _load(source)


def _load(directory: Path) -> ModelText:
    more = sorted(
        path.relative_to(directory).as_posix()
        for path in directory.glob("additional_chat_templates/*.jinja")
    )
    names = [name for name in (*TOKENIZER_FILES, *more) if os.path.lexists(directory / name)]
    files = FileCopies(directory, names)
    for name in {"vocab.txt", "merges.txt"} & files.keys():
        read_text(directory / name)  # an error for what is no text, which the library would take
    library = require("tokenizers", "the tokenizer of a published model")
    name = next((names[0] for names in KINDS if files.keys() >= set(names)), "tokenizer.json")
    path = found_file(
        directory / name,
        f"expected it, or vocab.txt, or vocab.json and merges.txt or source.spm{HOW}",
    )
    settings = _settings(directory, names)
    with library_errors(f"{path}: not the file of a tokenizer", directory):
        tokenizer = _tokenizer(path, settings, library)
        if name == "tokenizer.json":
            _check_tokenizer(read_json(path), tokenizer)
    return ModelText(tokenizer, settings, files)


def _tokenizer(path: Path, settings: Settings, library: Any) -> Any:
    """A tokenizer from tokenizer.json, or from the files that were customary before."""
    if path.name == "tokenizer.json":
        return library.Tokenizer.from_file(str(path))
    if path.name == "source.spm":
        settings |= {name: settings.text(name, token) for name, token in MARIAN.items()}
        return marian_tokenizer(path.parent)
    return (wordpiece_tokenizer if path.name == "vocab.txt" else byte_level_tokenizer)(
        path.parent, settings
    )


def _check_tokenizer(settings: Settings, tokenizer: Any) -> None:
    """Check what the library accepts: ids of two tokens, and special tokens with wrong ids."""
    for part in ("normalizer", "decoder"):
        _check_growth(settings, part)
    vocab, by_id = settings["model"].get("vocab"), dict[int, str]()
    added = [(token["content"], token["id"]) for token in settings.get("added_tokens") or ()]
    for word, i in [*(vocab.items() if isinstance(vocab, dict) else ()), *added]:
        if by_id.setdefault(i, word) != word:
            raise ValueError(
                f"{settings.where}: vocab: {i} is both {by_id[i]!r:.40} and {word!r:.40}"
            )
    for encoding in (tokenizer.encode(""), tokenizer.encode("", "")):
        if encoding.ids != [tokenizer.token_to_id(token) for token in encoding.tokens]:
            raise ValueError(
                f"{settings.where}: post_processor: special_tokens: expected the tokens "
                f"{listed(encoding.tokens)} with their ids of the vocabulary"
            )


def _check_growth(settings: Settings, part: str) -> None:
    """Check that a normalizer or decoder has few steps that multiply the length of a text."""
    steps = _steps(settings.get(part))
    growth = math.prod(max(1.0, _growth(step)) for step in steps[:MOST_STEPS])
    if len(steps) > MOST_STEPS or growth > LARGEST_GROWTH:
        raise ValueError(
            f"{settings.where}: {part}: expected at most {MOST_STEPS} steps that make a text at "
            f"most {LARGEST_GROWTH} times as long, got {len(steps)} that make it "
            f"{printable(growth, 10)} times as long"
        )


def _steps(step: Any) -> list[dict[str, Any]]:
    """Return the steps of nested sequences in one list."""
    if not isinstance(step, dict):
        return []
    if step.get("type") != "Sequence":
        return [step]
    inner = step.get("normalizers") or step.get("decoders") or ()
    return [one for part in inner for one in _steps(part)]


def _growth(step: dict[str, Any]) -> float:
    """Return how many characters of the file's choice can replace one character of a text."""
    kind = step.get("type")
    if kind == "Replace":
        replaced, content = step["pattern"].get("String"), len(step["content"])
        return content / len(replaced) if replaced else content + 1
    if kind == "Prepend":
        return 1 + len(step["prepend"]) / 32
    if kind == "Precompiled":
        charsmap = base64.b64decode(step["precompiled_charsmap"] or "")
        texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
        return max(map(len, texts)) / 32  # that of NFKC has 33 bytes
    return 1


def _settings(directory: Path, files: Iterable[str]) -> Settings:
    """tokenizer_config.json, with what special_tokens_map.json has beyond it, "chat_templates" and
    vocab_size.
    """
    found = read_if_any(directory / "tokenizer_config.json")
    found |= {**read_if_any(directory / "special_tokens_map.json"), **found}
    for name in SPECIAL:  # either a text, or an object with its "content"
        if isinstance(found.get(name), dict):
            found[name] = found.object(name).text("content")
    found["chat_templates"] = _chat_templates(
        found, [directory / name for name in files if name.endswith(".jinja")]
    )
    found["vocab_size"] = read_if_any(directory / "config.json").take(
        "vocab_size", (int, type(None)), None
    )
    return found


def _chat_templates(settings: Settings, files: Iterable[Path]) -> dict[str, str]:
    """The chat templates of a folder, by name; one without a name is called "default"."""
    found = {}
    if isinstance(settings.get("chat_template"), list):
        several = [
            Settings(t, f"{settings.where}: chat_template")
            for t in settings.list("chat_template", dict)
        ]
        found = {template.text("name"): template.text("template") for template in several}
    elif (template := settings.text("chat_template", None)) is not None:
        found = {"default": template}
    return found | {
        "default" if f.name == "chat_template.jinja" else f.stem: read_text(f) for f in files
    }

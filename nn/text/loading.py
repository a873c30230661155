"""Load tokenizers of published models."""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minigrad.check.extras import require
from minigrad.io.atomic import read_together
from minigrad.io.json import Settings, read_if_any, read_json
from minigrad.io.reading import FileCopies, listed, printable, read_text, require_file

from .gguf_tokenizer import load_gguf
from .hub import find_model
from .huggingface import SPECIAL, ModelText
from .legacy_tokenizers import legacy_class, whole_tokens
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
    "target_vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
"""Files of a tokenizer in a directory, which `ModelText.save` copies."""
TOKENIZER_PATTERNS = (*TOKENIZER_FILES, "additional_chat_templates/*.jinja")
"""Files of a tokenizer on the Hub."""
MAX_TOKENS = 1_000_000
"""Largest number of tokens or merges; XLM-V has 901,629 tokens."""
MAX_STEPS = 100
MAX_GROWTH = 16
"""Bounds of the parts of a tokenizer."""


def load(directory: str | Path) -> ModelText:
    """Return the tokenizer of a published model, with its special tokens and chat templates.

    Needs the package `tokenizers`, and `sentencepiece` for source.spm.

    Parameters
    ----------
    directory : str or Path
        It contains tokenizer.json. Or vocab.txt, or vocab.json with merges.txt or source.spm, if
        `tokenizer_class` of tokenizer_config.json or the `model_type` of config.json is that of a
        supported class. Or a .gguf file, which needs the package `gguf`, or a name on the Hub, as
        in `nn.load`.
    """
    directory = find_model(directory, TOKENIZER_PATTERNS)
    if directory.suffix == ".gguf":
        return load_gguf(directory)
    with read_together(directory, "config.json", TOKENIZER_FILES) as source:
        return _load(source)


def _load(directory: Path) -> ModelText:
    found = directory.glob("additional_chat_templates/*.jinja")
    templates = [path.relative_to(directory).as_posix() for path in found]
    names = [name for name in (*TOKENIZER_FILES, *templates) if os.path.lexists(directory / name)]
    files = FileCopies(directory, names)
    for name in {"vocab.txt", "merges.txt"} & files.keys():
        text = read_text(directory / name)  # the library accepts files that are no text
        _check_count(f"{directory / name}: lines", text.count("\n"))
    library = require("tokenizers", "the tokenizer of a published model")
    settings = _settings(directory, names)
    row = None if "tokenizer.json" in files else legacy_class(directory, settings)
    path, *_ = [require_file(directory / name) for name in (row.files if row else names[:1])]
    for name in {"vocab.json", "target_vocab.json"} & files.keys() if row else ():
        vocab = read_json(directory / name)
        _check_count(f"{vocab.where}: tokens", len(vocab))
    with library_errors(f"{path}: not the file of a tokenizer", directory):
        if row is None:
            tokenizer = _fast_tokenizer(library, directory)
        else:
            tokenizer = row.make(library, directory, settings)
            for name, token in row.special.items():
                if settings.get(name) is None and tokenizer.token_to_id(token) is not None:
                    settings[name] = token
                    settings["special_tokens"].setdefault(token, Settings({}, settings.where))
            if row.mask_lstrip and not settings["special_tokens"].get(settings.get("mask_token")):
                flags = Settings({"lstrip": True}, settings.where)
                settings["special_tokens"][settings.text("mask_token")] = flags
        _add_tokens(library, tokenizer, settings)
        if row is not None:
            _add_template(library, tokenizer, settings, row.around)
        target = None
        if row is not None and settings.flag("separate_vocabs", False):  # of Marian
            target = whole_tokens(library, directory / "target_vocab.json")
    return ModelText(tokenizer, settings, files, target)


def _add_tokens(library: Any, tokenizer: Any, settings: Settings) -> None:
    """Add the tokens of added_tokens_decoder, in the order of their ids, and the special ones."""
    entries: Settings = settings["added_tokens"]
    if wrong := [key for key in entries if not re.fullmatch("[0-9]{1,7}", key)]:
        raise ValueError(f"{entries.where} must have ids as keys, got {printable(wrong[0])}")
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    special, flags = settings["special_tokens"], {}
    ids: dict[str, int] = {}
    for key in sorted(entries, key=int):
        token = entries.object(key)
        ids[content := token.text("content")] = int(key)
        flags[content] = token
    for content, token in special.items():
        if content not in added and (tokenizer.token_to_id(content) is not None or token is None):
            flags.setdefault(content, token or Settings({}, settings.where))
    for content, token in flags.items():
        is_special = token.flag("special", False) or content in special
        names = ("single_word", "lstrip", "rstrip")
        tokenizer.add_tokens([
            library.AddedToken(
                content,
                **{name: token.flag(name, False) for name in names},
                normalized=token.flag("normalized", not is_special),
                special=is_special,
            )
        ])  # fmt: skip
        if ids.get(content, found := tokenizer.token_to_id(content)) != found:
            raise ValueError(
                f"{entries.where}: {printable(content)} must be {found}, its id after the "
                f"vocabulary, got {ids[content]}"
            )


def _add_template(library: Any, tokenizer: Any, settings: Settings, around: str) -> None:
    """Set the special tokens around a text: those of a class, or those that the settings name."""
    if around in ("bert", "roberta"):
        names = ["cls_token", "sep_token"]
    elif not around and settings.keys() & {"add_bos_token", "add_eos_token"}:
        names = [
            name if settings.flag(f"add_{name}", False) and settings.text(name, None) else ""
            for name in ("bos_token", "eos_token")
        ]
    else:
        return
    first, last = ([settings.text(name)] if name else [] for name in names)
    for token, name in zip((*first, *last), filter(None, names)):
        if tokenizer.token_to_id(token) is None:
            settings.fail(name, "a token of the vocabulary")
    single = [*first, "$A", *last]
    if around == "bert":
        pair = [*single, "$B:1", f"{last[0]}:1"]
    elif around:
        pair = [*single, *last, "$B", *last]
    else:
        pair = single + [f"{part}:1" for part in (*first, "$B", *last)]
    special = {token: tokenizer.token_to_id(token) for token in (*first, *last)}
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[*special.items()]
    )


def _fast_tokenizer(library: Any, directory: Path) -> Any:
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
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        _check_growth(settings, part)
    vocab = model.get("vocab")
    by_id: dict[int, str] = {}
    tokens = [(token["content"], token["id"]) for token in added]
    for word, i in [*(vocab.items() if isinstance(vocab, dict) else ()), *tokens]:
        if by_id.setdefault(i, word) != word:
            raise ValueError(f"{path}: vocab: {i} is both {by_id[i]!r:.40} and {word!r:.40}")
    for encoding in (tokenizer.encode(""), tokenizer.encode("", "")):
        if len(encoding.ids) > MAX_STEPS:
            raise ValueError(
                f"{path}: post_processor: there must be at most {MAX_STEPS} special tokens around "
                f"a text, got {len(encoding.ids):,}"
            )
        if encoding.ids != [tokenizer.token_to_id(token) for token in encoding.tokens]:
            raise ValueError(
                f"{path}: post_processor: special_tokens must be the tokens "
                f"{listed(encoding.tokens)} with their ids of the vocabulary"
            )
    return tokenizer


def _check_count(name: str, count: int) -> None:
    """Raise an error for more tokens or merges than any published tokenizer has."""
    if count > MAX_TOKENS:
        raise ValueError(f"{name} must be at most {MAX_TOKENS:,}, got {count:,}")


def _check_growth(settings: Settings, part: str) -> None:
    """Raise an error if the steps of a part of the tokenizer can make a text too long."""
    steps = _steps(settings.get(part))
    growth = math.prod(max(1.0, _growth(step)) for step in steps)
    if len(steps) > MAX_STEPS or growth > MAX_GROWTH:
        raise ValueError(
            f"{settings.where}: {part}: there must be at most {MAX_STEPS} steps that make a text "
            f"at most {MAX_GROWTH} times as long, got {len(steps)} and {printable(growth, 10)}"
        )


def _steps(step: Any) -> list[dict[str, Any]]:
    """Return the steps of nested sequences in one list."""
    if not isinstance(step, dict):
        return []
    names = ("normalizers", "pretokenizers", "processors", "decoders")
    inner = next((step[name] for name in names if step.get(name)), None)
    return [step for part in inner for step in _steps(part)] if inner else [step]


def _growth(step: dict[str, Any]) -> float:
    """Return how many characters can replace one character of a text."""
    kind = step.get("type")
    if kind == "Replace":
        replaced = step["pattern"].get("String")
        content = len(step["content"])
        return content / len(replaced) if replaced else content + 1
    if kind == "ByteLevel":  # a letter for each byte, of which many have two bytes
        return 2
    if kind == "TemplateProcessing":
        uses = [sum("Sequence" in part for part in step[name]) for name in ("single", "pair")]
        return max(uses[0], uses[1] / 2)
    if kind == "Prepend":
        return 1 + len(step["prepend"]) / 32
    if kind == "Precompiled":
        charsmap = base64.b64decode(step["precompiled_charsmap"] or "")
        texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
        return max(map(len, texts)) / 32  # the longest text of NFKC has 33 bytes
    return 1


def _settings(directory: Path, files: Iterable[str]) -> Settings:
    """Return tokenizer_config.json, completed with the settings of other files.

    These are special_tokens_map.json, added_tokens.json, the chat templates ("chat_templates": for
    each name its file and its text), and some settings of config.json. "special_tokens" has the
    flags of each special token by its content; None if it need not be in the vocabulary.
    """
    settings = read_if_any(directory / "tokenizer_config.json")
    settings |= {**read_if_any(directory / "special_tokens_map.json"), **settings}
    special: dict[str, Settings | None] = {}
    for name in SPECIAL:  # a string, or an object with its "content"
        if isinstance(settings.get(name), dict):
            token = settings.object(name)
            settings[name] = token.text("content")
            special[settings[name]] = token
        elif (content := settings.text(name, None)) is not None:
            special.setdefault(content, Settings({}, settings.where))
    for name in ("additional_special_tokens", "extra_special_tokens"):
        more: Any = settings.take(name, list | dict, None) or ()
        for entry in more.values() if isinstance(more, dict) else more:
            named = entry.get("content") if isinstance(entry, dict) else entry
            if not isinstance(named, str):
                settings.fail(name, "a list of tokens")
            special.setdefault(str(named), None)
    settings["special_tokens"] = special
    entries = settings.object("added_tokens_decoder", None)
    if entries is None:
        added = Settings({}, settings.where)
        if "tokenizer.json" not in files:  # which has them, too
            added = read_if_any(directory / "added_tokens.json")
        ids = {str(added.integer(token, low=0)): {"content": token} for token in added}
        entries = Settings(ids, added.where)
    settings["added_tokens"] = entries
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
        "model_type": config.text("model_type", None),
        "tokenizer_class": settings.text("tokenizer_class", config.text("tokenizer_class", None)),
    }
    return settings

"""Finding the tokenizer of a published model in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minigrad.extras import require
from minigrad.files.json import Settings, read_json

from .pretrained import MARKS, ModelText
from .sentencepiece import MarianText

__all__ = ["load"]

FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "vocab.txt", "vocab.json", "merges.txt", "source.spm", "target.spm", "spiece.model", "sentencepiece.bpe.model",
    "tokenizer.model",
)  # fmt: skip
"""What a folder may hold of a tokenizer; `ModelText.save` writes them as they were."""


def load(directory: str | Path) -> ModelText:
    """The tokenizer of a folder: tokenizer.json, or as older ones have vocab.txt, vocab.json + merges.txt, source.spm.

    Needs the `tokenizers` package.
    """
    directory = Path(directory)
    files = {name: (directory / name).read_bytes() for name in FILES if (directory / name).is_file()}
    path = directory / "tokenizer.json"
    if not path.is_file() and {"source.spm", "vocab.json"} <= set(files):
        return MarianText(directory, _marks(directory), files)
    library = require("tokenizers", "the tokenizer of a published model")
    if path.is_file():
        try:
            tokenizer = library.Tokenizer.from_file(str(path))
        except Exception as error:
            raise ValueError(f"{path}: not the file of a tokenizer ({error})") from None
    else:
        tokenizer = _older(directory, library)
    return ModelText(tokenizer, _marks(directory), files)


def _older(directory: Path, library: Any) -> Any:
    """A tokenizer from the files that were customary before tokenizer.json."""
    if (directory / "vocab.txt").is_file():
        lower = _settings(directory / "tokenizer_config.json").flag("do_lower_case", True)
        return library.BertWordPieceTokenizer(str(directory / "vocab.txt"), lowercase=lower)._tokenizer
    if (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        names = str(directory / "vocab.json"), str(directory / "merges.txt")
        return library.ByteLevelBPETokenizer(*names, add_prefix_space=False)._tokenizer
    raise FileNotFoundError(
        f"{directory / 'tokenizer.json'}: no such file, nor vocab.txt, nor vocab.json and merges.txt"
    )


def _settings(path: Path) -> Settings:
    return read_json(path) if path.is_file() else Settings({}, str(path))


def _marks(directory: Path) -> Settings:
    """tokenizer_config.json, with the marks of special_tokens_map.json where it has none, and the chat template."""
    marks = _settings(directory / "tokenizer_config.json")
    for name, value in _settings(directory / "special_tokens_map.json").items():
        marks.setdefault(name, value)
    for name in MARKS:  # either a text, or an object with its "content"
        if isinstance(marks.get(name), dict):
            marks[name] = marks.object(name).text("content")
    template = directory / "chat_template.jinja"
    if template.is_file():
        marks["chat_template"] = template.read_text(encoding="utf-8")
    elif isinstance(marks.get("chat_template"), list):  # several, with names
        named = {t["name"]: t["template"] for t in marks.list("chat_template", dict)}
        marks["chat_template"] = named.get("default") or next(iter(named.values()), None)
    return marks

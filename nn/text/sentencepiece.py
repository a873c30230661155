"""Marian's tokenizers: SentencePiece models (Kudo, Richardson 2018, arXiv:1808.06226)."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minigrad.extras import require
from minigrad.io.json import Settings, read_json
from minigrad.io.reading import read_bytes

from .tokenize import library_errors

__all__ = ["marian_tokenizer"]


def _model_in(path: Path) -> Any:
    """Return the SentencePiece model of a file."""
    library = require("sentencepiece", "a tokenizer with source.spm")
    data = read_bytes(path)
    with library_errors(f"{path}: not a SentencePiece model"):
        model = library.SentencePieceProcessor(model_proto=data)
        model.encode("one")
    if any(map(model.is_byte, range(model.get_piece_size()))):
        raise ValueError(
            f"{path}: expected a model without pieces for bytes (they are not supported)"
        )
    return model


def marian_tokenizer(directory: Path, settings: Settings) -> Any:
    """Return Marian's tokenizer: pieces by source.spm, ids by vocab.json, and EOS at the end.

    A text can begin with a token such as ">>fra<<": the language to translate to. Needs the
    `tokenizers` and the `sentencepiece` package. The special tokens are added to the settings.
    """
    for name, token in {"eos_token": "</s>", "pad_token": "<pad>"}.items():
        settings[name] = settings.text(name, token)
    library = require("tokenizers", "the tokenizer of a published model")
    vocabulary, special = read_json(directory / "vocab.json"), ["</s>", "<unk>", "<pad>"]
    ids = {token: vocabulary.integer(token, low=0) for token in vocabulary}
    if sorted(ids.values()) != list(range(len(ids))) or not ids.keys() >= set(special):
        raise ValueError(
            f"{vocabulary.where}: expected tokens numbered from 0 to {len(ids) - 1}, "
            f"{', '.join(special)} among them"
        )
    model = _model_in(directory / "source.spm")

    def cut(_: int, text: Any) -> list[Any]:
        language, rest = re.findall("(?s)^(>>.*?<<)?(.*)", str(text))[0]
        pieces = model.encode(rest, out_type=str)
        return [library.NormalizedString(piece) for piece in (language, *pieces) if piece]

    step = SimpleNamespace(pre_tokenize=lambda text: text.split(cut))
    tokenizer = library.Tokenizer(library.models.WordLevel(ids, "<unk>"))
    tokenizer.pre_tokenizer = library.pre_tokenizers.PreTokenizer.custom(step)
    tokenizer.post_processor = library.processors.TemplateProcessing(
        "$A </s>", "$A $B </s>", [("</s>", ids["</s>"])]
    )
    tokenizer.add_special_tokens(special)
    spaces, ends = (("▁", " "), (library.Regex("^ +| +$"), ""))
    steps = [
        library.decoders.Fuse(),
        library.decoders.Replace(*spaces),
        library.decoders.Replace(*ends),
    ]
    tokenizer.decoder = library.decoders.Sequence(steps)
    return tokenizer

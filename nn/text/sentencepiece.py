"""SentencePiece models (Kudo, Richardson 2018, arXiv:1808.06226), as OPUS-MT's folders have them.

The file is a protocol buffer: pieces with their scores, and how text is normalised before it is cut up.
"""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minigrad.extras import require
from minigrad.files.found import found_file
from minigrad.files.json import read_json

from .unigram import NORMAL, segmenter

__all__ = ["marian_tokenizer", "pieces_of", "sentencepiece_segmenter"]

UNIGRAM, BYTE = 1, 6  # a kind of models, and one of pieces
SPACES = {"add_dummy_prefix": 3, "remove_extra_whitespaces": 4, "escape_whitespaces": 5}  # numbers of fields


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers, and what they hold (an integer, a float, or bytes)."""
    stream = io.BytesIO(data)

    def take(size: int) -> bytes:
        if size > len(data) - stream.tell():
            raise ValueError("it ends within a field")
        return stream.read(size)

    def varint() -> int:
        byte = take(1)[0]
        return byte if byte < 0x80 else byte & 0x7F | varint() << 7

    kinds = {0: varint, 1: lambda: take(8), 2: lambda: take(varint()), 5: lambda: struct.unpack("<f", take(4))[0]}
    while stream.tell() < len(data):
        number, kind = divmod(varint(), 8)
        if kind not in kinds:
            raise ValueError(f"a field of kind {kind}")
        yield number, kinds[kind]()


def pieces_of(path: str | Path) -> tuple[list[tuple[str, float, int]], dict[str, Any]]:
    """The pieces of a SentencePiece model, each with its score and its kind; and settings, among them "charsmap"."""
    path = found_file(path)
    try:
        fields = list(_fields(path.read_bytes()))
        found = [dict(_fields(value)) for number, value in fields if number == 1]
        pieces = [(piece[1].decode("utf-8"), float(piece.get(2, 0.0)), piece.get(3, NORMAL)) for piece in found]
        trainer, normalizer = (dict(_fields(dict(fields).get(number, b""))) for number in (2, 3))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a SentencePiece model ({error})") from None
    if not pieces or not {kind for *_, kind in pieces} <= set(range(1, 7)):
        raise ValueError(f"{path}: not a SentencePiece model (it has no pieces, or of unknown kinds)")
    if odd := [piece for piece, score, _ in pieces if not math.isfinite(score)]:
        raise ValueError(f"{path}: expected finite scores, but not that of {odd[0]!r:.40}")
    settings = {"model_type": trainer.get(3, UNIGRAM), "charsmap": normalizer.get(2, b"")}
    settings["treat_whitespace_as_suffix"] = trainer.get(24, 0)
    return pieces, settings | {name: normalizer.get(number, 1) for name, number in SPACES.items()}


def sentencepiece_segmenter(path: str | Path) -> Callable[[str], list[str]]:
    """A function from a text to its pieces, as a SentencePiece model cuts it up."""
    pieces, settings = pieces_of(path)
    for name, expected in {"model_type": UNIGRAM, "treat_whitespace_as_suffix": 0, **dict.fromkeys(SPACES, 1)}.items():
        if settings[name] != expected:
            raise ValueError(f"{path}: expected {name} {expected}, got {settings[name]} (others are not supported)")
    if any(kind == BYTE for *_, kind in pieces):
        raise ValueError(f"{path}: expected a model without pieces for bytes (they are not supported)")
    try:
        return segmenter(pieces, settings["charsmap"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def marian_tokenizer(directory: Path) -> Any:
    """A tokenizer for a Marian folder: text is cut up by source.spm, numbered by vocab.json, and ends in EOS.

    A text can begin with a token such as ">>fra<<": the language to translate to.
    """
    library = require("tokenizers", "the tokenizer of a published model")
    vocabulary, special = read_json(directory / "vocab.json"), ["</s>", "<unk>", "<pad>"]
    ids = {token: vocabulary.integer(token, low=0) for token in vocabulary}
    if sorted(ids.values()) != list(range(len(ids))) or not ids.keys() >= set(special):
        raise ValueError(
            f"{vocabulary.where}: expected tokens numbered from 0 to {len(ids) - 1}, {', '.join(special)} among them"
        )
    pieces_in = sentencepiece_segmenter(directory / "source.spm")

    def cut(_: int, text: Any) -> list[Any]:
        language, rest = re.findall("(?s)^(>>.*?<<)?(.*)", str(text))[0]
        return [library.NormalizedString(piece) for piece in (language, *pieces_in(rest)) if piece]

    step = SimpleNamespace(pre_tokenize=lambda text: text.split(cut))
    tokenizer = library.Tokenizer(library.models.WordLevel(ids, "<unk>"))
    tokenizer.pre_tokenizer = library.pre_tokenizers.PreTokenizer.custom(step)
    tokenizer.post_processor = library.processors.TemplateProcessing("$A </s>", "$A $B </s>", [("</s>", ids["</s>"])])
    tokenizer.add_special_tokens(special)
    spaces, ends = (("▁", " "), (library.Regex("^ +| +$"), ""))
    steps = [library.decoders.Fuse(), library.decoders.Replace(*spaces), library.decoders.Replace(*ends)]
    tokenizer.decoder = library.decoders.Sequence(steps)
    return tokenizer

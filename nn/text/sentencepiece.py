"""SentencePiece models (Kudo, Richardson 2018, arXiv:1808.06226), as OPUS-MT's folders have them.

The file is a protocol buffer: pieces with their scores, and how text is normalised before it is cut up.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from minigrad.extras import require
from minigrad.files.json import Settings, read_json

from .pretrained import ModelText
from .tokenize import check_texts

__all__ = ["MarianText", "pieces_of", "sentencepiece_tokenizer"]

UNIGRAM = 1


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers, and what they hold (an integer, a float, or bytes)."""
    stream = io.BytesIO(data)

    def varint() -> int:
        value = shift = 0
        while (byte := stream.read(1)[0]) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    while stream.tell() < len(data):
        number, kind = divmod(varint(), 8)
        if kind not in (0, 1, 2, 5):
            raise ValueError(f"a field of kind {kind}")
        length = {0: 0, 1: 8, 5: 4}[kind] if kind != 2 else varint()
        if stream.tell() + length > len(data):
            raise IndexError("a field is longer than the file")
        value = stream.read(length)
        yield number, varint() if kind == 0 else struct.unpack("<f", value)[0] if kind == 5 else value


def pieces_of(path: str | Path) -> tuple[list[tuple[str, float]], dict[str, Any]]:
    """The pieces of a SentencePiece model with their scores, and its settings: "model_type", "charsmap", "unk_id"."""
    path = Path(path)
    pieces: list[tuple[str, float]] = []
    settings: dict[str, Any] = {"model_type": UNIGRAM, "charsmap": b"", "unk_id": 0}
    try:
        for number, value in _fields(path.read_bytes()):
            if number == 1:
                piece = dict(_fields(value))
                if piece.get(3) == 2:
                    settings["unk_id"] = len(pieces)
                pieces.append((piece[1].decode("utf-8"), float(piece.get(2, 0.0))))
            elif number == 2:
                settings["model_type"] = dict(_fields(value)).get(3, UNIGRAM)
            elif number == 3:
                settings["charsmap"] = dict(_fields(value)).get(2, b"")
    except (IndexError, KeyError, ValueError, AttributeError, TypeError, struct.error) as error:
        raise ValueError(f"{path}: not a SentencePiece model ({error})") from None
    if not pieces:
        raise ValueError(f"{path}: not a SentencePiece model (it has no pieces)")
    return pieces, settings


def sentencepiece_tokenizer(path: str | Path) -> Any:
    """A tokenizer of the `tokenizers` package that cuts text up as a SentencePiece model does."""
    library = require("tokenizers", "the tokenizer of a published model")
    pieces, settings = pieces_of(path)
    if settings["model_type"] != UNIGRAM:
        raise ValueError(f"{path}: expected a unigram model, got model_type {settings['model_type']}")
    tokenizer = library.Tokenizer(library.models.Unigram(pieces, settings["unk_id"], False))
    steps = [library.normalizers.Precompiled(settings["charsmap"])] if settings["charsmap"] else []
    steps += [library.normalizers.Strip(), library.normalizers.Replace(library.Regex(" {2,}"), " ")]
    tokenizer.normalizer = library.normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = library.pre_tokenizers.Metaspace("▁", "always")
    tokenizer.decoder = library.decoders.Metaspace("▁", "always")
    return tokenizer


class MarianText(ModelText):
    """The text of a Marian folder: cut up by source.spm, numbered by vocab.json, each text ending in EOS.

    A text can begin with a token such as ">>fra<<", where the vocabulary has it: the language to translate to.
    """

    def __init__(self, directory: Path, settings: Settings, files: Mapping[str, bytes]) -> None:
        vocabulary = read_json(directory / "vocab.json")
        self.ids = {token: vocabulary.integer(token, low=0) for token in vocabulary}
        self.names = {i: token for token, i in self.ids.items()}
        if sorted(self.ids.values()) != list(range(len(self.ids))):
            raise ValueError(f"{vocabulary.where}: expected its tokens to be numbered from 0 to {len(self.ids) - 1}")
        super().__init__(sentencepiece_tokenizer(directory / "source.spm"), settings, files)
        self.eos_id, self.pad_id = self.ids.get("</s>", 0), self.ids.get("<pad>")
        self.unk_id = self.ids.get("<unk>", 1)

    def __len__(self) -> int:
        return len(self.ids)

    def id(self, token: str | None) -> Any:
        """The id of a token; None for one that there is not."""
        return None if token is None else self.ids.get(token)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The tokens of ids."""
        return [self.names.get(int(i), "") for i in ids]

    def _encoded(
        self, texts: Sequence[str], pairs: Sequence[str | None], special: bool, max_len: int | None,
        language: str | None,
    ) -> list[tuple[list[int], list[int]]]:  # fmt: skip
        if any(pair is not None for pair in pairs) or language is not None:
            raise ValueError("encode: a Marian model takes no pairs, and its language as a token: '>>fra<< a text'")
        if max_len is not None and max_len <= special:
            raise ValueError(f"encode: expected max_len above {special:d}, the EOS token, got {max_len}")
        check_texts(texts)
        found = []
        for text in texts:
            match = re.match(r"(>>.+?<<)\s*", text)
            first = [match[1]] if match and match[1] in self.ids else []
            rest = text[match.end() :] if match and first else text
            pieces = first + self.tokenizer.encode(rest, add_special_tokens=False).tokens
            ids = [self.ids.get(piece, self.unk_id) for piece in pieces][
                : None if max_len is None else max_len - special
            ]
            found.append((self._within(ids + [self.eos_id] * special), [0] * (len(ids) + special)))
        return found

    def _decoded(self, ids: list[int], special: bool) -> str:
        left_out = () if special else (self.eos_id, self.pad_id, self.unk_id)
        return "".join(self.tokens(i for i in ids if i not in left_out)).replace("▁", " ").strip()

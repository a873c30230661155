"""Tokenizers: text to tokens, and tokens back to text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from minigrad.core.errors import MissingExtraError
from minigrad.extras import require
from minigrad.io.reading import printable

__all__ = [
    "BPETokenizer",
    "CharTokenizer",
    "SpaceTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "tokenizer_named",
]

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_CJK = "\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff60"
_CHAR = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+|[^\w\s]|_")
_OPENING, _CLOSING = "([{“‘«¿¡$£€#", ".,;:!?)]}%”’»…。，！？；：、"


class Tokenizer:
    """Splits text into tokens, and joins tokens to text. Subclasses define both."""

    name = ""

    def __init__(self, lowercase: bool = False, simplified: bool = False) -> None:
        self.lowercase, self.simplified = lowercase, simplified

    def __call__(self, text: str) -> list[str]:
        """The tokens of a text."""
        return self.split(self.normal(text))

    def normal(self, text: str) -> str:
        """The text that is split: in lower case, or with simplified for traditional Chinese
        characters, if so made.
        """
        text = text.lower() if self.lowercase else text
        return _simplifier().convert(text) if self.simplified else text

    def split(self, text: str) -> list[str]:
        raise NotImplementedError

    def join(self, tokens: Sequence[str]) -> str:
        """The text that these tokens make."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `tokenizer_named` makes this tokenizer again."""
        return {"name": self.name, "lowercase": self.lowercase, "simplified": self.simplified}


@lru_cache(1)
def _simplifier() -> Any:
    return require("opencc", "folding Chinese characters").OpenCC("t2s")


class SpaceTokenizer(Tokenizer):
    """For text that is tokenized already: splits at white space only."""

    name = "space"

    def split(self, text: str) -> list[str]:
        return text.split()

    def join(self, tokens: Sequence[str]) -> str:
        return " ".join(tokens)


class WordTokenizer(Tokenizer):
    """Words (with the apostrophes inside them) and single punctuation marks."""

    name = "word"

    def split(self, text: str) -> list[str]:
        return _WORD.findall(text)

    def join(self, tokens: Sequence[str]) -> str:
        text, quotes = "", 0
        for token in tokens:
            closing = token[0] in _CLOSING or (token == '"' and quotes % 2 == 1)
            glued = (
                not text or closing or text[-1] in _OPENING or (text[-1] == '"' and quotes % 2 == 1)
            )
            text += token if glued or text[-1] in "-/" or token in "-/" else " " + token
            quotes += token == '"'
        return text


class CharTokenizer(Tokenizer):
    """Chinese and other characters that words are not spaced by, one by one; other words and
    numbers whole.
    """

    name = "char"

    def split(self, text: str) -> list[str]:
        return _CHAR.findall(text)

    def join(self, tokens: Sequence[str]) -> str:
        text = ""
        for token in tokens:
            spaced = all(c.isascii() and c.isalnum() for c in (text[-1:], token[0]))
            text += " " + token if spaced else token
        return text


class BPETokenizer(Tokenizer):
    """Byte-level byte-pair encoding, learned from text; needs the package tokenizers.

    Sennrich, Haddow, Birch (2016), arXiv:1508.07909, by the `tokenizers` library.
    """

    name = "bpe"

    def __init__(self, model: str, lowercase: bool = False, simplified: bool = False) -> None:
        super().__init__(lowercase, simplified)
        self.model = model  # the library's JSON
        self._tokenizer = require("tokenizers", "BPETokenizer").Tokenizer.from_str(model)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8000,
        lowercase: bool = False,
        whole_words: bool = False,
        simplified: bool = False,
    ) -> BPETokenizer:
        """Learn `vocab_size` pieces from texts: the 256 bytes, and a piece for each merge.

        Letters, digits and punctuation are never merged with one another, unless `whole_words` says
        that words are what white space separates: for text that is tokenized already.
        """
        lib = require("tokenizers", "BPETokenizer")
        tokenizer = lib.Tokenizer(lib.models.BPE())
        bytes_of = lib.pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=not whole_words)
        spaces = [lib.pre_tokenizers.WhitespaceSplit()] if whole_words else []
        tokenizer.pre_tokenizer = lib.pre_tokenizers.Sequence([*spaces, bytes_of])
        tokenizer.decoder = lib.decoders.ByteLevel()
        alphabet = bytes_of.alphabet()
        trainer = lib.trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False
        )
        normal = Tokenizer(lowercase, simplified).normal
        tokenizer.train_from_iterator(map(normal, texts), trainer)
        return cls(tokenizer.to_str(), lowercase, simplified)

    @property
    def pieces(self) -> list[str]:
        """All pieces, by number: with a vocabulary of these, no text has an unknown token."""
        by_piece = self._tokenizer.get_vocab()
        return sorted(by_piece, key=by_piece.__getitem__)

    def words(self, text: str) -> list[str]:
        """The stretches of a text that merges do not cross, in the characters that stand for bytes."""
        text = self.normal(text)
        if self._tokenizer.normalizer is not None:
            text = self._tokenizer.normalizer.normalize_str(text)
        return [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(text)]

    def split(self, text: str) -> list[str]:
        check_texts([text])
        with library_errors("the tokenizer cannot split this text"):
            return list(self._tokenizer.encode(text).tokens)

    def join(self, tokens: Sequence[str]) -> str:
        return self._tokenizer.decoder.decode(list(tokens)).strip()

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "model": json.loads(self.model)}


def check_texts(texts: Iterable[Any]) -> None:
    """An error for what is no text, or one that UTF-8 cannot hold, as of an argument in another
    encoding.
    """
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"expected texts, got {text!r:.60}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"{text!r:.60} is no text in UTF-8 ({error.reason})") from None


@contextmanager
def library_errors(message: str, directory: Path | None = None) -> Iterator[None]:
    """Raise errors of a tokenizer's library, and panics of its Rust code, as a ValueError.

    Parameters
    ----------
    message : str
        The beginning of the error's message.
    directory : Path, optional
        Messages that begin with its path are kept as they are.
    """
    try:
        yield
    except MissingExtraError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if directory is not None and str(error).startswith(str(directory)):
            raise ValueError(str(error)) from None
        raise ValueError(f"{message}: {printable(error, 300)}") from None


def tokenizer_named(name: str, **options: Any) -> Tokenizer:
    """The tokenizer of this name: "word", "char", "space", or "bpe" (with its model)."""
    kinds = {
        kind.name: kind for kind in (WordTokenizer, CharTokenizer, SpaceTokenizer, BPETokenizer)
    }
    if name not in kinds:
        raise ValueError(f"unknown tokenizer {name!r:.60}; expected one of {', '.join(kinds)}")
    if "model" in options:
        options["model"] = json.dumps(options["model"])
    return kinds[name](**options)

"""Tokenizers, which convert text to tokens and back."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from minigrad.arguments import check_choice
from minigrad.check.extras import MissingExtraError, require
from minigrad.io.reading import printable

from .vocabulary import SPECIALS

__all__ = [
    "BPETokenizer",
    "CharTokenizer",
    "SpaceTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "tokenizer_named",
]

_CJK = "\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff60"
_OPENING = "([{“‘«¿¡$£€#"
_CLOSING = ".,;:!?)]}%”’»…。，！？；：、،؛؟।॥"
SPACE, GLUE = "▁", "￭"
"""Tokens for a space, or none, between two tokens of which `join` assumes the opposite."""


@cache
def _word_pattern() -> re.Pattern[str]:
    """Return a pattern of words and punctuation marks; combining marks belong to words."""
    word = rf"[\w{_marks()}]"
    return re.compile(rf"{word}+(?:['’]{word}+)*|[^\w\s]")


@cache
def _char_pattern() -> re.Pattern[str]:
    """Return a pattern of Chinese and Japanese characters, other words and punctuation marks."""
    return re.compile(rf"[{_CJK}]|(?:[^\W_{_CJK}]|[{_marks()}])+|[^\w\s]|_")


def _marks() -> str:
    """Return all combining marks, such as the vowel signs of Hindi."""
    characters = map(chr, range(0x300, 0x1F000))
    return "".join(c for c in characters if unicodedata.category(c) in ("Mn", "Mc"))


class Tokenizer:
    """Base of tokenizers. Subclasses define `split` and `join`.

    Parameters
    ----------
    lowercase : bool, default False
        Convert strings to lower case first.
    """

    name = ""

    def __init__(self, lowercase: bool = False) -> None:
        self.lowercase = lowercase

    def __call__(self, text: str) -> list[str]:
        """Return the tokens of a string, in lower case if that was chosen."""
        return self.split(self.normal(text))

    def normal(self, text: str) -> str:
        """Return a string in lower case, if that was chosen.

        Parameters: as `Tokenizer.split`.
        """
        return text.lower() if self.lowercase else text

    def split(self, text: str) -> list[str]:
        """Return the tokens of a string.

        Parameters
        ----------
        text : str
            A sentence.
        """
        raise NotImplementedError

    def join(self, tokens: Sequence[str]) -> str:
        """Return the string that consists of these tokens.

        That of `split(text)` is `text` with single spaces for runs of white space.

        Parameters
        ----------
        tokens : sequence of str
            Tokens of one sentence.
        """
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments with which `tokenizer_named` creates an equal tokenizer."""
        return {"name": self.name, "lowercase": self.lowercase}


class _PatternTokenizer(Tokenizer):
    """Tokenizer by a regular expression that matches all characters but white space.

    Subclasses define `_pattern` and `_is_spaced`. `SPACE` and `GLUE` mark what `_is_spaced` misses.
    """

    def _pattern(self) -> re.Pattern[str]:
        """Return the pattern of a token."""
        raise NotImplementedError

    def _is_spaced(self, last: str, token: str, quotes: int) -> bool:
        """Return whether a space is expected between two tokens, after `quotes` quotation marks."""
        raise NotImplementedError

    def split(self, text: str) -> list[str]:
        tokens: list[str] = []
        last, end, quotes = "", 0, 0
        for match in self._pattern().finditer(text):
            token = match[0]
            is_spaced = match.start() > end
            if last and is_spaced != self._is_spaced(last, token, quotes):
                tokens.append(SPACE if is_spaced else GLUE)
            tokens.append(2 * token if token in (SPACE, GLUE) else token)
            last, end, quotes = token, match.end(), quotes + (token == '"')
        return tokens

    def join(self, tokens: Sequence[str]) -> str:
        text = last = mark = ""
        quotes = 0
        for token in filter(None, tokens):
            if token in (SPACE, GLUE):
                mark = token
                continue
            token = token[1:] if token in (2 * SPACE, 2 * GLUE) else token
            is_spaced = mark == SPACE if mark else self._is_spaced(last, token, quotes)
            text += f" {token}" if last and is_spaced else token
            last, mark, quotes = token, "", quotes + (token == '"')
        return text


class SpaceTokenizer(Tokenizer):
    """Tokenizer of text that is tokenized already: splits at white space only.

    Parameters: as `Tokenizer`.
    """

    name = "space"

    def split(self, text: str) -> list[str]:
        """Return the parts of a string between white space."""
        return text.split()

    def join(self, tokens: Sequence[str]) -> str:
        """Return the tokens with a space between each two."""
        return " ".join(tokens)


class WordTokenizer(_PatternTokenizer):
    """Tokenizer of words, with the apostrophes inside them, and single punctuation marks.

    Parameters: as `Tokenizer`.
    """

    name = "word"

    def _pattern(self) -> re.Pattern[str]:
        return _word_pattern()

    def _is_spaced(self, last: str, token: str, quotes: int) -> bool:
        is_quoted = quotes % 2 == 1
        return not (
            token[:1] in _CLOSING
            or last[-1:] in _OPENING
            or (is_quoted and '"' in (last, token))
            or last in "-/"
            or token in "-/"
        )


class CharTokenizer(_PatternTokenizer):
    """Tokenizer of single Chinese and Japanese characters. Other words and numbers stay whole.

    Parameters: as `Tokenizer`.
    """

    name = "char"

    def _pattern(self) -> re.Pattern[str]:
        return _char_pattern()

    def _is_spaced(self, last: str, token: str, quotes: int) -> bool:
        return all(_char_pattern().fullmatch(f"{c}a") for c in (last[-1:], token[:1]))


class BPETokenizer(Tokenizer):
    """Tokenizer by byte-level byte-pair encoding. Needs the package `tokenizers`.

    Other parameters: as `Tokenizer`.

    Parameters
    ----------
    model : str
        JSON of the `tokenizers` library. `train` learns one from texts.

    References
    ----------
    Sennrich, Haddow, Birch (2016), arXiv:1508.07909.
    """

    name = "bpe"

    def __init__(self, model: str, lowercase: bool = False) -> None:
        super().__init__(lowercase)
        self.model = model
        self._tokenizer = require("tokenizers", "BPETokenizer").Tokenizer.from_str(model)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8000,
        lowercase: bool = False,
        whole_words: bool = False,
    ) -> BPETokenizer:
        """Return a tokenizer that learned pieces from texts: the 256 bytes, and one for each merge.

        Other parameters: as `Tokenizer`.

        Parameters
        ----------
        texts : iterable of str
            Sentences to learn from.
        vocab_size : int, default 8000
            Number of pieces.
        whole_words : bool, default False
            Merge anything between white space, for text that is tokenized already. Otherwise
            letters, digits and punctuation are never merged with each other.
        """
        if isinstance(texts, str):
            raise TypeError(
                "BPETokenizer.train: texts must be an iterable of strings, got a string; put it in "
                "a list"
            )
        lib = require("tokenizers", "BPETokenizer")
        tokenizer = lib.Tokenizer(lib.models.BPE())
        byte_level = lib.pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=not whole_words)
        spaces = [lib.pre_tokenizers.WhitespaceSplit()] if whole_words else []
        tokenizer.pre_tokenizer = lib.pre_tokenizers.Sequence([*spaces, byte_level])
        tokenizer.decoder = lib.decoders.ByteLevel()
        trainer = lib.trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=byte_level.alphabet(), show_progress=False
        )
        normal = Tokenizer(lowercase).normal
        tokenizer.train_from_iterator(map(normal, texts), trainer)
        return cls(tokenizer.to_str(), lowercase)

    @property
    def pieces(self) -> list[str]:
        """All pieces, by id. With a vocabulary of these, no string has an unknown token."""
        ids = self._tokenizer.get_vocab()
        return [_renamed(piece) for piece in sorted(ids, key=ids.__getitem__)]

    def words(self, text: str) -> list[str]:
        """Return the parts of a string that merges do not cross, with a character for each byte.

        Parameters: as `Tokenizer.split`.
        """
        pieces = self._tokenizer.pre_tokenizer.pre_tokenize_str(self.normal(text))
        return [word for word, _ in pieces]

    def split(self, text: str) -> list[str]:
        """Return the pieces of a string."""
        check_texts([text])
        with library_errors("the tokenizer cannot split this text"):
            return [_renamed(piece) for piece in self._tokenizer.encode(text).tokens]

    def join(self, tokens: Sequence[str]) -> str:
        """Return the string that consists of these pieces."""
        return self._tokenizer.decoder.decode([token.lstrip(" ") for token in tokens]).strip()

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments with which `tokenizer_named` creates an equal tokenizer."""
        return {**super().to_dict(), "model": json.loads(self.model)}


def _renamed(piece: str) -> str:
    """Return a piece with a space before it if it has the name of a special token."""
    return f" {piece}" if piece in SPECIALS else piece


def check_texts(texts: Any) -> list[str]:
    """Return a list of texts, which must be strings without surrogates, as in UTF-8."""
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        raise TypeError(
            f"texts must be a list of strings, got {texts!r:.60}; put a single string in one"
        )
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"a text must be a string, got {text!r:.60}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"a text must be valid UTF-8, got {text!r:.60} ({error.reason})"
            ) from None
    return texts


@contextmanager
def library_errors(message: str, directory: Path | None = None) -> Iterator[None]:
    """Raise errors of a tokenizer's library, and panics of its Rust code, as a ValueError."""
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
    """Return a new tokenizer.

    Parameters
    ----------
    name : str
        "word", "char", "space" or "bpe".
    **options
        Arguments of the class: `lowercase`, and for "bpe" the `model`.
    """
    classes = {
        kind.name: kind for kind in (WordTokenizer, CharTokenizer, SpaceTokenizer, BPETokenizer)
    }
    check_choice("", "tokenizer", name, *classes)
    if "model" in options:
        options["model"] = json.dumps(options["model"])
    return classes[name](**options)

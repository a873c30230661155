"""A tokenizer of words with the methods of `tokenizers.Tokenizer` that `nn.text.ModelText` calls."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from minigrad.io.json import Settings
from minigrad.io.reading import FileCopies
from nn.text.huggingface import ModelText

SPECIAL = ["<pad>", "<s>", "</s>", "fr_XX", "en_XX"]
WORDS = [*SPECIAL, *["the", "cat", "dog", "sees", "a", "big", "house", "tree", "bird", "and"]]


class WordTokenizer:
    """Words between spaces, with <s> before and </s> behind a text and a pair."""

    def __init__(self, words: Sequence[str] = WORDS, language: str | None = None) -> None:
        self.words, self.limit = list(words), None
        self.before = ["<s>"] if language is None else [language]

    def no_padding(self) -> None:
        """Do nothing, as there is no padding."""

    def no_truncation(self) -> None:
        self.limit = None

    def enable_truncation(self, max_length: int) -> None:
        self.limit = max_length

    def get_vocab_size(self) -> int:
        return len(self.words)

    def token_to_id(self, token: str) -> int | None:
        return self.words.index(token) if token in self.words else None

    def id_to_token(self, i: int) -> str | None:
        return self.words[i] if i in range(len(self.words)) else None

    def num_special_tokens_to_add(self, has_pairs: bool) -> int:
        return 3 if has_pairs else 2

    def encode_batch(self, inputs: list[Any], add_special_tokens: bool) -> list[Any]:
        return [self.encode(x, add_special_tokens) for x in inputs]

    def encode(self, texts: Any, special: bool) -> Any:
        parts = [text.split() for text in ([texts] if isinstance(texts, str) else texts)]
        around = 1 + len(parts) if special else 0
        while self.limit is not None and sum(map(len, parts)) + around > self.limit:
            max(parts, key=len).pop()
        tokens, types = [], []
        for kind, part in enumerate(parts):
            row = [
                *(self.before if special and not kind else []),
                *part,
                *(["</s>"] if special else []),
            ]
            tokens, types = tokens + row, types + [kind] * len(row)
        ids = [self.words.index(token) for token in tokens]
        mask = [int(token in SPECIAL) for token in tokens]
        return SimpleNamespace(ids=ids, type_ids=types, tokens=tokens, special_tokens_mask=mask)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        words = [self.words[i] for i in ids]
        return " ".join(w for w in words if not (skip_special_tokens and w in SPECIAL))


def word_text(language: str | None = None, **settings: Any) -> ModelText:
    """Return a `ModelText` of words, with settings of tokenizer_config.json; None leaves one out."""
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", **settings}
    present = {name: value for name, value in names.items() if value is not None}
    return ModelText(
        WordTokenizer(language=language),
        Settings(present, "tokenizer_config.json"),
        FileCopies("."),
    )

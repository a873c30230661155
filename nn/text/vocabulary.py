"""Vocabularies: tokens and their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

__all__ = ["EOS", "PAD", "BOS", "SPECIALS", "UNK", "Vocabulary"]

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
"""First four tokens of every vocabulary: padding, start, end, and unknown tokens."""


class Vocabulary:
    """Bidirectional mapping of tokens and ids.

    Parameters
    ----------
    tokens : sequence of str
        Tokens by id. The first four must be `SPECIALS`.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = list(tokens)
        if tuple(self.tokens[:4]) != SPECIALS:
            raise ValueError(
                f"Vocabulary: tokens must begin with {', '.join(SPECIALS)}, got "
                f"{self.tokens[:4]!r:.300}"
            )
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self._ids) != len(self.tokens):
            repeated = [token for token, count in Counter(self.tokens).items() if count > 1]
            names = f"{repeated[:5]!r:.300}"
            raise ValueError(f"Vocabulary: tokens must be distinct, got twice: {names}")

    @classmethod
    def build(
        cls, sentences: Iterable[Sequence[str]], min_count: int = 1, max_size: int | None = None
    ) -> Vocabulary:
        """Return the vocabulary of tokenized sentences, in order of frequency, then alphabet.

        Parameters
        ----------
        sentences : iterable of sequences of str
            Pass training data only.
        min_count : int, default 1
            Tokens that occur less often become `<unk>`.
        max_size : int, optional
            Keep at most this many tokens, including `SPECIALS`. Rarer tokens become `<unk>`.
        """
        counts = Counter(token for sentence in sentences for token in sentence)
        frequent = [t for t, n in counts.items() if n >= min_count and t not in SPECIALS]
        frequent.sort(key=lambda token: (-counts[token], token))
        return cls([*SPECIALS, *frequent][: None if max_size is None else max(4, max_size)])

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(tuple(self.tokens))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens)"

    def encode(self, tokens: Iterable[str], bos: bool = False, eos: bool = False) -> list[int]:
        """Return the ids of tokens.

        Parameters
        ----------
        tokens : iterable of str
            Tokens that are not in the vocabulary get the id `UNK`. So do the names of special
            tokens, which are part of the text.
        bos, eos : bool, default False
            Add `BOS` at the start, or `EOS` at the end.
        """
        ids = [max(self._ids.get(token, UNK), UNK) for token in tokens]
        return [BOS] * bos + ids + [EOS] * eos

    def decode(self, ids: Iterable[Any]) -> list[str]:
        """Return the tokens of ids up to the first `EOS`, without `BOS` and padding.

        Parameters
        ----------
        ids : iterable of int
            Ids of one sentence.
        """
        tokens = []
        for i in ids:
            if i == EOS:
                break
            if not 0 <= i < len(self.tokens):
                raise IndexError(f"Vocabulary: ids must be from 0 to {len(self) - 1}, got {i}")
            if i not in (PAD, BOS):
                tokens.append(self.tokens[i])
        return tokens

"""Tokens by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

__all__ = ["EOS", "PAD", "BOS", "SPECIALS", "UNK", "Vocabulary"]

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
"""The first four tokens of every vocabulary: padding, start, end, and any token that is not in it.
"""


class Vocabulary:
    """The tokens that a model knows, each with its number; the first four are `SPECIALS`."""

    def __init__(self, tokens: Sequence[str]) -> None:
        if tuple(tokens[:4]) != SPECIALS:
            raise ValueError(
                f"Vocabulary: expected {', '.join(SPECIALS)} first, got {list(tokens[:4])}"
            )
        self.tokens = list(tokens)
        self._index = {token: i for i, token in enumerate(self.tokens)}
        if len(self._index) != len(self.tokens):
            twice = [token for token, count in Counter(tokens).items() if count > 1]
            raise ValueError(f"Vocabulary: tokens given twice: {twice[:5]}")

    @classmethod
    def build(
        cls, sentences: Iterable[Sequence[str]], min_count: int = 1, max_size: int | None = None
    ) -> Vocabulary:
        """The tokens of these sentences, most frequent first (equal ones in order of the alphabet).

        Give it training text only. Tokens rarer than `min_count`, or past `max_size`, become
        `<unk>`.
        """
        counts = Counter(token for sentence in sentences for token in sentence)
        for special in SPECIALS:
            counts.pop(special, None)
        listed = sorted(
            (token for token, n in counts.items() if n >= min_count), key=lambda t: (-counts[t], t)
        )
        return cls(
            [*SPECIALS, *listed[: None if max_size is None else max(0, max_size - len(SPECIALS))]]
        )

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(tuple(self.tokens))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens)"

    def encode(self, tokens: Iterable[str], bos: bool = False, eos: bool = False) -> list[int]:
        """The numbers of tokens, between BOS and EOS if asked for."""
        ids = [self._index.get(token, UNK) for token in tokens]
        return [BOS] * bos + ids + [EOS] * eos

    def decode(self, ids: Iterable[Any]) -> list[str]:
        """The tokens of numbers, up to the first EOS, without BOS and padding."""
        tokens = []
        for i in ids:
            if i == EOS:
                break
            if not 0 <= i < len(self.tokens):
                raise IndexError(f"Vocabulary: expected numbers from 0 to {len(self) - 1}, got {i}")
            if i not in (PAD, BOS):
                tokens.append(self.tokens[i])
        return tokens

"""BPE dropout: Provilkov, Emelianenko, Voita (2020), arXiv:1910.13267."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from .tokenize import BPETokenizer

__all__ = ["BPEDropout"]

_NEVER = 1 << 62  # the rank of two pieces that are not merged


class BPEDropout:
    """Splits text as a `BPETokenizer` does, but leaves out each possible merge with probability
    `p`, each time anew.

    So a model sees words split in many ways; in translating, the tokenizer itself splits. The
    pieces are the tokenizer's own: make the vocabulary of all `tokenizer.pieces`.
    """

    def __init__(self, tokenizer: BPETokenizer, p: float = 0.1) -> None:
        if not 0 <= p < 1:
            raise ValueError(f"BPEDropout: expected 0 <= p < 1, got {p}")
        model = json.loads(tokenizer.model)["model"]
        others = (
            "continuing_subword_prefix",
            "end_of_word_suffix",
            "byte_fallback",
            "ignore_merges",
        )
        if found := [name for name in others if model.get(name)]:
            raise ValueError(
                f"BPEDropout: expected a tokenizer as BPETokenizer.train makes it, got one with "
                f"{found}"
            )
        pairs: list[Any] = [
            tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]
        ]
        self.tokenizer, self.p = tokenizer, p
        self._rank: dict[tuple[str, str], int] = {pair: i for i, pair in enumerate(pairs)}

    def __call__(self, text: str, generator: np.random.Generator) -> list[str]:
        """The tokens of a text, with merges drawn from `generator`."""
        words = self.tokenizer.words(text)
        steps = sum(map(len, words))  # a word has fewer merges than letters
        skipped = iter((generator.geometric(1 - self.p, steps) - 1).tolist())
        return [piece for word in words for piece in self._split(word, skipped)]

    def _split(self, word: str, skipped: Iterator[int]) -> list[str]:
        """Merge until nothing can be merged, or all that can be is left out.

        Of the possible merges, best first, as many are left out before the first that is not as a
        geometric variable says.
        """
        pieces = list(word)
        rank = lambda i: self._rank.get((pieces[i], pieces[i + 1]), _NEVER)
        ranks = [rank(i) for i in range(len(pieces) - 1)]  # of each piece and the next
        while ranks:
            left_out = next(skipped)
            if left_out >= len(ranks):
                break
            i = sorted(range(len(ranks)), key=ranks.__getitem__)[left_out]
            if ranks[i] == _NEVER:
                break
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
            del ranks[i]
            for j in range(max(i - 1, 0), min(i + 1, len(ranks))):
                ranks[j] = rank(j)
        return pieces

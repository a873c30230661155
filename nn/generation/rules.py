"""Rules for the next token, which hold for greedy search, beam search and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.optim.settings import checked_count, checked_number

__all__ = ["Rules"]


@dataclass(frozen=True)
class Rules:
    """Tokens that are forced, forbidden or less likely.

    Each field is also an argument of `generate`, `stream`, `greedy_search`, `beam_search` and
    `sample`. Fields that hold token ids take any iterable of integers.

    Parameters
    ----------
    min_len : int
        Number of new tokens before which no EOS token is generated.
    repetition_penalty : float
        Divisor of the positive logits of tokens that occur already, and factor of the negative
        ones (Keskar et al. 2019, arXiv:1909.05858).
    no_repeat_ngram_size : int
        Length of the sequences of tokens that do not occur twice; 0 allows all.
    suppress : iterable of int
        Tokens that are never generated.
    first : iterable of int
        Tokens with which the generated sequence begins.
    """

    min_len: int = 0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    suppress: Sequence[int] = ()
    first: Sequence[int] = ()

    def __post_init__(self) -> None:
        checked_number("Rules", "repetition_penalty", self.repetition_penalty, above=True)
        checked_count("Rules", "min_len", self.min_len, 0)
        checked_count("Rules", "no_repeat_ngram_size", self.no_repeat_ngram_size, 0)
        for name in ("suppress", "first"):
            object.__setattr__(self, name, token_ids(name, getattr(self, name)))

    def apply(
        self, logits: np.ndarray, history: np.ndarray, new: int, ends: Sequence[int]
    ) -> np.ndarray:
        """Return logits (rows, vocab) that follow the rules, with -inf for forbidden tokens.

        `history` (rows, L) holds the tokens so far, with -1 for padding at the left. The last
        `new` of them are generated. A forced token has the logit 0.
        """
        if self == _NONE:
            return logits
        logits = logits.copy()
        if new < len(self.first):
            logits[:] = -np.inf
            logits[:, self.first[new]] = 0
            return logits
        for row, padded in zip(logits, history):
            tokens = padded[padded >= 0]
            if self.repetition_penalty != 1:
                self._penalise(row, np.unique(tokens))
            if self.no_repeat_ngram_size:
                row[self._repeating(tokens)] = -np.inf
        if new < self.min_len:
            logits[:, ends] = -np.inf
        logits[:, self.suppress] = -np.inf
        return logits

    def _penalise(self, row: np.ndarray, tokens: np.ndarray) -> None:
        """Apply `repetition_penalty` to these tokens' logits in `row` (vocab,), in place."""
        penalty = self.repetition_penalty
        with np.errstate(over="ignore"):
            row[tokens] *= np.where(row[tokens] < 0, penalty, 1 / penalty)

    def _repeating(self, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens that would repeat an n-gram of `tokens` (L,)."""
        n = self.no_repeat_ngram_size
        if len(tokens) < n:
            return tokens[:0]
        ngrams = np.lib.stride_tricks.sliding_window_view(tokens, n)
        return ngrams[(ngrams[:, :-1] == tokens[len(tokens) - n + 1 :]).all(1), -1]


def token_ids(name: str, ids: Any) -> tuple[int, ...]:
    """Return an iterable of token ids as a tuple, or raise an error that names the argument."""
    try:
        ids = tuple(ids)
    except TypeError:
        raise TypeError(f"{name} must be an iterable of token ids, got {ids!r:.60}") from None
    for i in ids:
        if isinstance(i, bool) or not isinstance(i, (int, np.integer)):
            raise TypeError(f"{name} must hold integers, got {i!r:.60}")
    return tuple(map(int, ids))


_NONE = Rules()

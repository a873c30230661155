"""Rules for the next token, which hold for greedy search, beam search and sampling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.arguments import checked_count, checked_number

__all__ = ["Rules"]

OTHER_NAMES = {
    "suppress_tokens": "suppress",
    "begin_suppress_tokens": "begin_suppress",
    "bad_words_ids": "bad_words",
    "forced_eos_token_id": "last",
}
"""Options that have the same values in generation_config.json, by their names there."""
_FIXES = OTHER_NAMES | {
    "max_new_tokens": "max_len",
    "min_new_tokens": "min_len",
    "eos_token_id": "eos",
    "forced_bos_token_id": "first",
    "attention_mask": "padding_mask (True = a real token)",
    "input_ids": "prompt, or source for a Transformer",
    "max_length": "max_len, the number of new tokens",
    "num_return_sequences": "beam_search(..., n_best=N), or the prompt N times",
    "seed": "generator=np.random.default_rng(seed)",
    "stop": "stream_text(..., stop=[...])",
    "stop_strings": "stream_text(..., stop=[...])",
}
"""What to write in place of options of other libraries, mostly of transformers."""
_TOKEN_LISTS = ("suppress", "begin_suppress", "first", "last")


@dataclass(frozen=True)
class Rules:
    """Tokens that are forced, forbidden or less likely.

    Each field is also an argument of `generate`, `stream`, `greedy_search`, `beam_search`
    and `sample`. Fields that hold token ids take any iterable of integers.

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
    begin_suppress : iterable of int
        Tokens that are not generated at the beginning, after `first`.
    bad_words : iterable of iterables of int
        Sequences of tokens that are never generated.
    first : iterable of int
        Tokens with which the generated sequence begins.
    last : iterable of int
        Tokens of which one is generated at `max_len`.
    """

    min_len: int = 0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    suppress: Sequence[int] = ()
    begin_suppress: Sequence[int] = ()
    bad_words: Sequence[Sequence[int]] = ()
    first: Sequence[int] = ()
    last: Sequence[int] = ()

    def __post_init__(self) -> None:
        checked_number("Rules", "repetition_penalty", self.repetition_penalty, above=True)
        for name in ("min_len", "no_repeat_ngram_size"):
            checked_count("Rules", name, getattr(self, name), 0)
        for name in _TOKEN_LISTS:
            object.__setattr__(self, name, token_ids(name, getattr(self, name)))
        words = tuple(token_ids("bad_words", ids) for ids in _items("bad_words", self.bad_words))
        if () in words:
            raise ValueError(
                "bad_words must hold sequences of at least one token, got an empty one"
            )
        object.__setattr__(self, "bad_words", words)

    def _check_ids(self, vocab_size: int, ends: Sequence[int]) -> None:
        """Raise an error if a token id is not in the vocabulary."""
        lists = {name: getattr(self, name) for name in _TOKEN_LISTS}
        lists |= {"eos": ends, "bad_words": [i for ids in self.bad_words for i in ids]}
        for name, ids in lists.items():
            for i in ids:
                if not 0 <= i < vocab_size:
                    raise ValueError(
                        f"{name} must hold token ids from 0 to {vocab_size - 1}, got {i}"
                    )

    def apply(
        self,
        logits: np.ndarray,
        history: np.ndarray,
        new: int,
        is_last: bool,
        ends: Sequence[int],
    ) -> np.ndarray:
        """Return logits that follow the rules, with -inf for forbidden and 0 for forced tokens.

        Parameters
        ----------
        logits : array, shape (rows, vocab)
        history : array of int, shape (rows, L)
            Tokens so far, with -1 for padding at the left.
        new : int
            Number of generated tokens.
        is_last : bool
            True if the next token is the last one, at `max_len`.
        ends : sequence of int
            EOS tokens.
        """
        if new == 0:
            self._check_ids(logits.shape[-1], ends)
        if self == _NONE:
            return logits
        if forced := (is_last and self.last) or self.first[new : new + 1]:
            logits = np.full_like(logits, -np.inf)
            logits[:, forced] = 0
            return logits
        logits = logits.copy()
        if self.repetition_penalty != 1 or self.no_repeat_ngram_size or self.bad_words:
            for row, padded in zip(logits, history):
                self._apply_to_row(row, padded[padded >= 0])
        if new < self.min_len:
            logits[:, ends] = -np.inf
        logits[:, self.suppress] = -np.inf
        if new == len(self.first):
            logits[:, self.begin_suppress] = -np.inf
        return logits

    def _apply_to_row(self, row: np.ndarray, tokens: np.ndarray) -> None:
        """Change the logits in `row` (vocab,) in place, given the tokens so far (L,)."""
        if self.repetition_penalty != 1:
            seen, penalty = np.unique(tokens), self.repetition_penalty
            with np.errstate(over="ignore"):
                row[seen] *= np.where(row[seen] > 0, 1 / penalty, penalty)
        if self.no_repeat_ngram_size:
            row[self._ends_of_ngrams(tokens)] = -np.inf
        row[self._ends_of_bad_words(tokens.tolist())] = -np.inf

    def _ends_of_ngrams(self, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens that would repeat an n-gram of `tokens` (L,)."""
        n = self.no_repeat_ngram_size
        if len(tokens) < n:
            return tokens[:0]
        ngrams = np.lib.stride_tricks.sliding_window_view(tokens, n)
        return ngrams[(ngrams[:, :-1] == tokens[len(tokens) - n + 1 :]).all(1), -1]

    def _ends_of_bad_words(self, tokens: list[int]) -> list[int]:
        """Return the tokens that would complete a bad word after `tokens`."""
        return [
            ids[-1] for ids in self.bad_words if tokens[len(tokens) - len(ids) + 1 :] == [*ids[:-1]]
        ]


def check_options(name: str, options: Iterable[str], others: Collection[str] = ()) -> None:
    """Raise a TypeError for an option that is neither a field of `Rules` nor one of `others`."""
    for option in options:
        if option not in Rules.__dataclass_fields__ and option not in others:
            fix = f"; write {_FIXES[option]}" if option in _FIXES else ""
            raise TypeError(
                f"{name}: options must be arguments of {name} or fields of Rules, got {option}{fix}"
            )


def rules_of(name: str, options: Mapping[str, Any]) -> Rules:
    """Return the rules with these options of the function `name`."""
    check_options(name, options)
    return Rules(**options)


def token_ids(name: str, ids: Any) -> tuple[int, ...]:
    """Return an iterable of token ids as a tuple, or raise an error that names the argument."""
    ids = _items(name, ids)
    for i in ids:
        if isinstance(i, bool) or not isinstance(i, (int, np.integer)):
            raise TypeError(f"{name} must hold integers, got {i!r:.60}")
    return tuple(map(int, ids))


def _items(name: str, ids: Any) -> tuple[Any, ...]:
    try:
        return tuple(ids)
    except TypeError:
        raise TypeError(f"{name} must be an iterable of token ids, got {ids!r:.60}") from None


_NONE = Rules()

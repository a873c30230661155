"""What may come next: limits that hold for every way of choosing a token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minigrad.optim.settings import checked_count, checked_number

__all__ = ["Rules"]


@dataclass(frozen=True)
class Rules:
    """What is not to be generated, or less readily; each field is also an argument of `generate`
    and its kind.

    No EOS comes before `min_len` new tokens. A `repetition_penalty` above 1 divides the positive
    logits of tokens that are there already, and multiplies the negative ones (Keskar et al. 2019,
    arXiv:1909.05858). No run of `no_repeat_ngram_size` tokens comes twice (0: any may). Tokens in
    `suppress` never come. The tokens in `first` come first, whatever the model says.
    """

    min_len: int = 0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    suppress: Sequence[int] = ()
    first: Sequence[int] = ()

    def __post_init__(self) -> None:
        checked_number("Rules", "repetition_penalty", self.repetition_penalty, above=True)
        for name in ("suppress", "first"):
            if not isinstance(getattr(self, name), Iterable):
                raise TypeError(
                    f"Rules: expected token ids for {name}, got {getattr(self, name)!r}"
                )
        checked_count("Rules", "min_len", self.min_len, 0)
        checked_count("Rules", "no_repeat_ngram_size", self.no_repeat_ngram_size, 0)

    def apply(
        self, logits: np.ndarray, history: np.ndarray, new: int, ends: Sequence[int]
    ) -> np.ndarray:
        """Logits (rows, vocab), with -inf where nothing may come.

        `history` (rows, L) has all tokens so far, -1 where there is none, and `new` of them are
        generated.
        """
        if self == _NONE:
            return logits
        logits = logits.copy()
        if self.repetition_penalty != 1:
            for row, seen in zip(logits, history):
                tokens = np.unique(seen[seen >= 0])
                factor = np.where(
                    row[tokens] < 0, self.repetition_penalty, 1 / self.repetition_penalty
                )
                with np.errstate(over="ignore"):
                    row[tokens] = row[tokens] * factor
        n = self.no_repeat_ngram_size
        if n and history.shape[1] >= n:
            for row, seen in zip(logits, history):
                runs = np.lib.stride_tricks.sliding_window_view(seen, n)
                again = (runs[:, :-1] == seen[len(seen) - n + 1 :]).all(1)
                row[runs[again, -1]] = -np.inf
        if new < self.min_len:
            logits[:, list(ends)] = -np.inf
        logits[:, list(self.suppress)] = -np.inf
        if new < len(self.first):
            forced = logits[:, self.first[new]].copy()
            logits[:] = -np.inf
            logits[:, self.first[new]] = np.where(np.isfinite(forced), forced, 0)
        return logits


_NONE = Rules()

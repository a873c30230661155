"""A batch of sequences that grow by a token at a time: what all ways of choosing the token share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigrad.optim.settings import checked_count

from ..layers.module import evaluating
from ..text.batches import padded
from .rules import Rules

__all__ = ["OWN", "Hypothesis"]

OWN = -1
"""As `eos`: the EOS tokens of the model's configuration."""
NOTHING_LEFT = "generate: the rules (suppress, no_repeat_ngram_size, min_len) leave no token that may come next"


@dataclass
class Hypothesis:
    """A decoded sequence: its tokens (without BOS, with EOS if it was reached) and its score.

    `log_prob` is the sum of the logarithms of the tokens' probabilities; `score` is what the search
    ranked by.
    """

    tokens: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    score: float = 0.0


class Decoding:
    """The model's state, and the tokens so far.

    `source` (N, L) are the source ids of a sequence-to-sequence model. `prompt`, for a language
    model, is one list of tokens, or several, whose lengths can differ. Works on any model with
    `start` and `step`.
    """

    def __init__(
        self,
        model: Any,
        source: Any,
        prompt: Any,
        max_len: int,
        eos: int | Iterable[int] | None,
        rules: Rules,
    ) -> None:
        self.model, self.max_len, self.rules = (
            model,
            checked_count("generate", "max_len", max_len),
            rules,
        )
        self.ends = eos_ids(model, eos)
        self.new = 0  # tokens that were generated
        begin = (
            prompt_rows(prompt)
            if source is None
            else np.full((len(source), 1), model.config.bos_id)
        )
        self.history = begin  # all tokens so far (rows, L), -1 for padding
        self._limit: int | None = None  # on what the model can look back at
        if source is None:
            unlimited = model.config.positions.kind in _UNLIMITED
            self._limit = None if unlimited else model.config.max_len
            self._restart(self._limit)
        else:
            with evaluating():
                self.state, self._next = model.start(np.asarray(source)), begin

    def _restart(self, count: int | None) -> None:
        """Begin anew with the last `count` tokens (None: all)."""
        seen = self.history[:, -count:] if count else self.history
        with evaluating():
            self.state = self.model.start(seen >= 0)
        self._next = np.maximum(seen, 0)

    def logits(self) -> np.ndarray:
        """The model's logits (rows, vocab) of the tokens that come next."""
        if self._limit is not None and self.state.length + self._next.shape[1] > self._limit:
            self._restart(self._limit - self._limit // 2)  # a later restart than at the next token
        with evaluating():
            logits = np.asarray(self.model.step(self._next, self.state))
        if self.new == 0:
            self._check_ids(logits.shape[-1])
        return logits

    def _check_ids(self, words: int) -> None:
        for name, ids in (
            ("eos", self.ends),
            ("suppress", self.rules.suppress),
            ("first", self.rules.first),
        ):
            if wrong := [
                i for i in ids if not isinstance(i, (int, np.integer)) or not 0 <= i < words
            ]:
                raise ValueError(
                    f"generate: {name}: expected token ids from 0 to {words - 1}, got "
                    f"{wrong[0]!r:.30}"
                )

    def ruled(self, logits: np.ndarray) -> np.ndarray:
        """Logits (rows, vocab), as the rules change them."""
        return self.rules.apply(logits, self.history, self.new, self.ends)

    def advance(self, tokens: Sequence[int] | np.ndarray, rows: np.ndarray | None = None) -> None:
        """Add a token to each row; `rows` (None: all, as they are) are those that go on, in this
        order.
        """
        if rows is not None:
            self.state.select(rows)
            self.history = self.history[rows]
        self._next = np.asarray(tokens).reshape(-1, 1)
        self.history = np.concatenate([self.history, self._next], 1)
        self.new += 1


_UNLIMITED = ("none", "alibi", "relative")


def eos_ids(model: Any, eos: int | Iterable[int] | None) -> tuple[int, ...]:
    """The tokens that end a sequence."""
    if isinstance(eos, (int, np.integer)):
        return tuple(model.config.end_ids) if eos == OWN else (int(eos),)
    if eos is not None and not isinstance(eos, Iterable):
        raise TypeError(f"generate: eos: expected a token id or several, got {eos!r}")
    return () if eos is None else tuple(eos)


def prompt_rows(prompt: Any) -> np.ndarray:
    """Prompts as one array (N, L), those that are shorter behind tokens of -1."""
    if prompt is None:
        raise ValueError(
            "expected source ids (for an encoder-decoder model) or a prompt (for a language model)"
        )
    rows = [prompt] if not len(prompt) or np.ndim(prompt[0]) == 0 else list(prompt)
    arrays = [np.asarray(row) for row in rows]
    for row in arrays:
        if row.ndim != 1 or not len(row) or row.dtype.kind not in "iu" or row.min() < 0:
            raise ValueError(
                f"prompt: expected at least one token id in each, got {row.dtype} {row.shape}"
            )
    return padded(arrays, -1, left=True)


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """log Σ exp of each row, (rows, 1), a few rows at a time."""
    result = np.empty((len(logits), 1), logits.dtype)
    step = 1 + (1 << 15) // logits.shape[1]
    for start in range(0, len(logits), step):
        part, out = logits[start : start + step], result[start : start + step]
        top = part.max(-1, keepdims=True)
        e = np.subtract(part, top)
        np.exp(e, out=e)
        np.log(e.sum(-1, keepdims=True), out=out)
        out += top
    return result

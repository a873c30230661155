"""Beam search: the best of several hypotheses that grow side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np

from minigrad.arguments import checked_count

from ..generation import with_maximum
from .rules import rules_of
from .sequences import NOTHING_LEFT, OWN, Hypothesis, RuledDecoding, log_sum_exp

__all__ = ["beam_search"]

MAX_BEAM = 1000
MAX_PENALTY = 20  # length ** penalty stays a number


def beam_search(
    model: Any,
    source: Any = None,
    *,
    prompt: Any = None,
    padding_mask: Any = None,
    beam_size: int = 4,
    max_len: int = 128,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    n_best: int = 1,
    eos: int | Iterable[int] | None = OWN,
    **rules: Any,
) -> list[list[Hypothesis]]:
    """Return the `n_best` best hypotheses that a beam finds for each sentence, best first.

    The results are those of `model.generate` of Hugging Face's transformers. The
    rules change log-probabilities.

    Other parameters: as `greedy_search`.

    Parameters
    ----------
    beam_size : int
        Number of hypotheses that are extended at each step, and of finished ones that are kept.
    length_penalty : float
        Exponent of the length in the score, log_prob / length**length_penalty. The length counts
        generated tokens, including EOS. 0 favours short hypotheses, 1 compares means.
    early_stopping : bool or "never"
        When to stop a sentence that has `beam_size` finished hypotheses. True: at once. False: when
        the best running hypothesis would not score higher if it ended now. "never": when it cannot
        score higher at any length up to `max_len`.
    n_best : int
        Number of hypotheses to return, at most `beam_size`.
    """
    check_beam(beam_size, length_penalty, early_stopping)
    if checked_count("beam_search", "n_best", n_best) > beam_size:
        raise ValueError(f"n_best must be from 1 to beam_size ({beam_size}), got {n_best}")
    decoding = RuledDecoding(
        model, source, prompt, padding_mask, max_len, eos, rules_of("beam_search", rules)
    )
    beams = [
        _Beam(beam_size, max_len, float(length_penalty), early_stopping, decoding.ends)
        for _ in decoding.history
    ]
    running = beams  # each has a row of the batch for every hypothesis in `alive`
    while running:
        logits = with_maximum(decoding.logits())  # (rows, vocab)
        so_far = np.array([h.log_prob for beam in running for h in beam.alive])
        totals = decoding.ruled(logits - log_sum_exp(logits))
        totals += so_far[:, None]
        first, rows = 0, []
        for beam in running:
            end = first + len(beam.alive)
            continued = beam.advance(totals[first:end])
            if not beam.done:
                rows += [first + row for row in continued]
            first = end
        if not all(beam.finished for beam in running if beam.done):
            raise ValueError(NOTHING_LEFT)
        running = [beam for beam in running if not beam.done]
        if running:
            decoding.advance([h.tokens[-1] for b in running for h in b.alive], np.array(rows))
    return [beam.finished[:n_best] for beam in beams]


def check_beam(beam_size: int, length_penalty: float, early_stopping: bool | str = False) -> None:
    """Raise an error for settings that `beam_search` refuses, before anything is computed."""
    is_count = isinstance(beam_size, Integral) and not isinstance(beam_size, bool)
    if not is_count or not 1 <= beam_size <= MAX_BEAM:
        raise ValueError(f"beam_size must be an integer from 1 to {MAX_BEAM}, got {beam_size!r}")
    if not isinstance(length_penalty, Real) or not abs(length_penalty) <= MAX_PENALTY:
        raise ValueError(
            f"length_penalty must be a number from -{MAX_PENALTY} to {MAX_PENALTY}, got "
            f"{length_penalty!r}"
        )
    if not isinstance(early_stopping, bool) and early_stopping != "never":
        raise ValueError(
            f"early_stopping must be False, True or 'never', got {early_stopping!r:.30}"
        )


def _largest(x: np.ndarray, count: int, width: int = 256) -> np.ndarray:
    """Return the indices of the `count` largest values of x (n,), largest first.

    Equal values are in the order of their indices. NaN is the smallest value.
    """
    tops = x
    if len(x) > 4 * count * width:  # maxima of slices are enough for a lower bound
        whole = len(x) // width * width
        tops = x[:whole].reshape(-1, width).max(1)
    least = -np.partition(-tops, count - 1)[count - 1]
    indices = np.flatnonzero(~(x < least))
    return indices[np.argsort(-x[indices], kind="stable")[:count]]


@dataclass
class _Beam:
    """Running and finished hypotheses of one sentence, best first."""

    size: int
    max_len: int
    length_penalty: float
    early_stopping: bool | str
    ends: tuple[int, ...]
    alive: list[Hypothesis] = field(default_factory=lambda: [Hypothesis()])
    finished: list[Hypothesis] = field(default_factory=list)
    done: bool = False

    def advance(self, totals: np.ndarray) -> list[int]:
        """Extend the hypotheses and return which of them continue, with repetitions.

        `totals` (alive, vocab) are log-probabilities of the extended hypotheses. A hypothesis
        finishes only if it is among the best `size`.
        """
        vocab, length = totals.shape[1], len(self.alive[0].tokens) + 1
        flat = totals.reshape(-1)
        count = (1 + len(self.ends)) * self.size  # `size` remain if all others end
        alive: list[Hypothesis] = []
        continued: list[int] = []
        for rank, index in enumerate(_largest(flat, min(count, len(flat))).tolist()):
            row, token = divmod(index, vocab)
            if flat[index] == -np.inf:  # forbidden
                break
            new = Hypothesis([*self.alive[row].tokens, token], float(flat[index]))
            if token in self.ends or length == self.max_len:
                if rank < self.size:
                    new.score = self._score(new.log_prob, length)
                    self.finished.append(new)
                    self.finished.sort(key=lambda h: -h.score)
                    del self.finished[self.size :]
            elif len(alive) < self.size:
                alive.append(new)
                continued.append(row)
        self.alive = alive
        self.done = not alive or (len(self.finished) == self.size and not self._can_improve())
        return continued

    def _can_improve(self) -> bool:
        """Return whether a running hypothesis may still replace a finished one."""
        if self.early_stopping is True:
            return False
        best = self.alive[0]
        length = len(best.tokens)
        if self.early_stopping == "never" and self.length_penalty > 0:
            length = self.max_len
        return self._score(best.log_prob, length) > self.finished[-1].score

    def _score(self, log_prob: float, length: int) -> float:
        return log_prob / length**self.length_penalty

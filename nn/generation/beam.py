"""Beam search: the best of several hypotheses that grow side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .decoding import NOTHING_LEFT, OWN, Decoding, Hypothesis, log_sum_exp
from .rules import Rules

__all__ = ["beam_search"]

WIDEST = 1000
STEEPEST = 20  # length ** penalty stays a number


def beam_search(
    model: Any,
    source: Any = None,
    *,
    prompt: Any = None,
    beam_size: int = 4,
    max_len: int = 128,
    length_penalty: float = 1.0,
    n_best: int = 1,
    eos: int | Iterable[int] | None = OWN,
    **rules: Any,
) -> list[list[Hypothesis]]:
    """The `n_best` best-scoring sequences of each sentence that a beam of `beam_size` finds, best
    first.

    The score is log_prob / length^length_penalty (EOS included): 0 favours short sequences, 1
    compares means. Sequences that do not end within `max_len` tokens compete as they are. A
    sentence is done when nothing in its beam can still get among its `n_best`. The rest as in
    `greedy_search`; here the rules change the logarithms of the probabilities.
    """
    check_beam(beam_size, length_penalty)
    if not 1 <= n_best <= beam_size:
        raise ValueError(
            f"beam_search: expected 1 <= n_best <= beam_size, got {n_best} and {beam_size}"
        )
    decoding = Decoding(model, source, prompt, max_len, eos, Rules(**rules))
    search = [
        _Beam(beam_size, n_best, max_len, length_penalty, decoding.ends) for _ in decoding.history
    ]
    live = search  # the sentences in the batch, each with a row for every hypothesis in its beam
    while True:
        logits = decoding.logits()  # (rows, vocab)
        so_far = np.array([h.log_prob for beam in live for h in beam.alive], logits.dtype)[:, None]
        offset = so_far - log_sum_exp(logits)
        totals = (
            logits + offset
            if decoding.rules == Rules()
            else decoding.ruled(logits + (offset - so_far)) + so_far
        )
        first, rows = 0, []
        for beam in live:
            end = first + len(beam.alive)
            picks = beam.advance(totals[first:end])
            if not beam.done:
                rows += [first + pick for pick in picks]
            first = end
        live = [beam for beam in live if not beam.done]
        if not all(beam.finished for beam in search if beam.done):
            raise ValueError(NOTHING_LEFT)
        if not live:
            return [beam.finished[:n_best] for beam in search]
        decoding.advance([h.tokens[-1] for beam in live for h in beam.alive], np.array(rows))


def check_beam(beam_size: int, length_penalty: float) -> None:
    """An error for a beam that cannot be: a script asks before it trains for hours."""
    if (
        not isinstance(beam_size, int)
        or isinstance(beam_size, bool)
        or not 1 <= beam_size <= WIDEST
    ):
        raise ValueError(
            f"beam_size: expected a whole number from 1 to {WIDEST}, got {beam_size!r}"
        )
    if not isinstance(length_penalty, (int, float)) or not abs(length_penalty) <= STEEPEST:
        raise ValueError(
            f"length_penalty: expected a number from -{STEEPEST} to {STEEPEST}, got "
            f"{length_penalty!r}"
        )


def _largest(x: np.ndarray, count: int, width: int = 256) -> np.ndarray:
    """Where the `count` largest of x (n,) are, largest first."""
    if len(x) <= 4 * count * width:
        places = np.arange(len(x))
    else:  # they are in the stretches with the largest maxima, or in the rest
        whole = len(x) // width * width
        tops = x[:whole].reshape(-1, width).max(1)
        stretches = np.argpartition(tops, -count)[-count:]
        places = np.r_[(stretches[:, None] * width + np.arange(width)).reshape(-1), whole : len(x)]
        places.sort()  # of equals the first wins
    best = places[np.argpartition(-x[places], count - 1)[:count]]
    return best[np.argsort(-x[best], kind="stable")]


class _Beam:
    """The beam of one sentence."""

    def __init__(
        self, size: int, n_best: int, max_len: int, length_penalty: float, ends: tuple[int, ...]
    ) -> None:
        self.size, self.n_best, self.max_len = size, n_best, max_len
        self.length_penalty, self.ends = length_penalty, ends
        self.alive = [Hypothesis()]
        self.finished: list[Hypothesis] = []
        self.done = False

    def advance(self, totals: np.ndarray) -> list[int]:
        """Extend every hypothesis, given the total log-probabilities (alive, vocab); the rows that
        go on.
        """
        vocab = totals.shape[1]
        flat = totals.reshape(-1)
        enough = (1 + max(1, len(self.ends))) * self.size  # even if as many as can, end
        best = _largest(flat, min(enough, len(flat)))
        alive: list[Hypothesis] = []
        picks: list[int] = []
        for place in best.tolist():
            row, token = divmod(place, vocab)
            if flat[place] == -np.inf:  # ruled out
                break
            new = Hypothesis([*self.alive[row].tokens, token], float(flat[place]))
            if token in self.ends:
                self._finish(new)
            elif len(alive) < self.size:
                alive.append(new)
                picks.append(row)
        self.alive = alive
        length = len(alive[0].tokens) if alive else self.max_len
        if length >= self.max_len:
            for h in alive:
                self._finish(h)
            self.done = True
        elif (
            len(self.finished) >= self.n_best
        ):  # can the best that goes on still get among the n_best?
            longest = self.max_len if self.length_penalty > 0 else length + 1
            self.done = (
                self._score(alive[0].log_prob, longest) <= self.finished[self.n_best - 1].score
            )
        return picks

    def _score(self, log_prob: float, length: int) -> float:
        return log_prob / length**self.length_penalty

    def _finish(self, h: Hypothesis) -> None:
        h.score = self._score(h.log_prob, len(h.tokens))
        self.finished.append(h)
        self.finished.sort(key=lambda h: -h.score)

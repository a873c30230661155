"""Greedy decoding and sampling: choose the next token, append it, repeat.

On a first reading: `Decoding.steps`, and the two functions that choose tokens, `likeliest` and
`sampled`. A model needs `start` and `step`, which computes the logits of the next token from the
tokens that are new, with the keys and values of earlier tokens in its state. `nn.decoding` extends
this class by prompts of different lengths, rules and beams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minigrad.arguments import checked_count, checked_number
from minigrad.arrays import Ids
from minigrad.random import default_generator

from .models import checked_ids
from .module import evaluating

__all__ = ["Decoding", "decode", "likeliest", "sampled"]

Chooser = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Returns tokens (rows,) and their log-probabilities from logits (rows, vocab)."""


class Decoding:
    """A batch of sequences that grow by one token at a time.

    Parameters
    ----------
    model : Module
        Any model with `start` and `step`.
    state : DecodingState
        Result of `model.start`; changed in place.
    tokens : array of int, shape (N, L)
        First tokens of the sequences.
    max_len : int
        Number of new tokens at which a sequence ends without an end token.
    ends : tuple of int
        Tokens that end a sequence.

    Attributes
    ----------
    history : array of int, shape (rows, L)
        All tokens of the sequences that have not ended.
    new : int
        Number of tokens that were appended.
    """

    def __init__(
        self, model: Any, state: Any, tokens: np.ndarray, max_len: int, ends: tuple[int, ...] = ()
    ) -> None:
        self.model, self.state = model, state
        self.max_len, self.ends = checked_count("decode", "max_len", max_len), ends
        self.history = self._next = tokens
        self.new = 0

    def steps(self, choose: Chooser) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Choose and append tokens until all sequences have ended.

        Parameters
        ----------
        choose : function
            `likeliest`, or a function like it.

        Yields
        ------
        rows, tokens : array of int
            Indices of the sequences that continue, and the next token of each.
        log_probs : array of float
            Log-probabilities of the tokens.
        """
        rows = np.arange(len(self.history))
        while len(rows) and self.new < self.max_len:
            tokens, log_probs = choose(with_maximum(self.logits()))
            yield rows, tokens, log_probs
            running = np.flatnonzero(~np.isin(tokens, self.ends))
            rows = rows[running]
            self.advance(tokens[running], None if len(running) == len(tokens) else running)

    def logits(self) -> np.ndarray:
        """Return the logits (rows, vocab) of the next tokens."""
        with evaluating():
            return np.asarray(self.model.step(self._next, self.state))

    def advance(self, tokens: Sequence[int] | np.ndarray, rows: np.ndarray | None = None) -> None:
        """Append a token to each sequence.

        Parameters
        ----------
        tokens : array of int, shape (rows,)
            Tokens to append.
        rows : array of int, optional
            Indices of the sequences that stay, in their new order; all by default.
        """
        if rows is not None:
            self.state.select(rows)
            self.history = self.history[rows]
        self._next = np.asarray(tokens).reshape(-1, 1)
        self.history = np.concatenate([self.history, self._next], 1)
        self.new += 1


def with_maximum(logits: np.ndarray) -> np.ndarray:
    """Return logits whose rows have a finite maximum, or raise an error; -inf is possible."""
    largest = logits.max(-1)
    if not np.isfinite(largest).all():
        wrong = largest[~np.isfinite(largest)][0]
        raise ValueError(
            f"logits must have a finite maximum, got {wrong}; weights of the model are damaged, "
            "or its values are too large for its dtype"
        )
    return logits


def likeliest(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable token of each row, and its log-probability.

    Parameters
    ----------
    logits : array of float, shape (rows, vocab)
        Unnormalized log-probabilities.
    """
    best = logits.argmax(-1)
    return best, log_probabilities(logits)[np.arange(len(best)), best]


def sampled(
    logits: np.ndarray, temperature: float = 1.0, generator: np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return a token of each row, drawn by its probability, and its log-probability.

    Other parameters: as `likeliest`.

    Parameters
    ----------
    temperature : float
        Divisor of the logits.
    generator : numpy.random.Generator, optional
        Draws the tokens; the default generator if not given.
    """
    checked_number("sampled", "temperature", temperature, above=True)
    log_probs = log_probabilities(logits.astype(float) / temperature)
    return drawn(log_probs, log_probs, default_generator(generator))


def drawn(
    chances: np.ndarray, log_probs: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return a token of each row and its log-probability.

    `chances` are the logarithms by which it is drawn: `log_probs`, or those of permitted tokens.
    """
    ends = np.cumsum(np.exp(chances), axis=-1)
    tokens = (ends <= generator.random((len(ends), 1)) * ends[:, -1:]).sum(-1)  # none of chance 0
    return tokens, log_probs[np.arange(len(tokens)), tokens]


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the logarithm of the softmax of each row, of arrays, since decoding needs no graph."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def decode(
    model: Any,
    tokens: Ids,
    source: Ids = None,
    *,
    max_len: int = 128,
    choose: Chooser = likeliest,
) -> list[list[int]]:
    """Return the tokens that follow each row, up to and including an end token.

    Parameters
    ----------
    model : LanguageModel or Transformer
        A model with `start` and `step`.
    tokens : array of int, shape (N, L)
        First tokens, without padding: a prompt, or `bos_id` of a `Transformer`.
    source : array of int, shape (N, L_s), optional
        Source ids of a `Transformer`.
    max_len : int
        Number of new tokens at which a sequence ends without an end token.
    choose : function
        `likeliest` by default; or `sampled`, or a function like it.
    """
    with evaluating():
        state = model.start() if source is None else model.start(source)
    decoding = Decoding(model, state, checked_ids("tokens", tokens), max_len, model.config.end_ids)
    sequences: list[list[int]] = [[] for _ in decoding.history]
    for rows, following, _ in decoding.steps(choose):
        for row, token in zip(rows, following.tolist()):
            sequences[row].append(token)
    return sequences

"""Exercises of lesson 8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

import minigrad as mg

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _texts(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.permutation(40), np.array([5, 0, 7]), 4
    yield rng.permutation(60), rng.permutation(9)[:5], 5
    yield rng.permutation(9), np.array([5, 0, 5]), 3  # up to the last letter
    yield rng.permutation(5), np.array([2]), 1


@exercises.add(
    cases=_texts,
    mistakes={
        "A piece has one letter too few: the last letter is only predicted, not read.": lambda ids, starts, length: (
            ids[starts[:, None] + np.arange(length)]
        ),
        "A row should be a piece; here a column is one.": lambda ids, starts, length: ids[
            starts + np.arange(length + 1)[:, None]
        ],
        "The starts are not used: the pieces follow each other from the first letter on.": lambda ids, starts, length: (
            ids[: len(starts) * (length + 1)].reshape(len(starts), -1)
        ),
        "A start is a position in the text, not the number of a piece.": lambda ids, starts, length: (
            ids[starts[:, None] * length + np.arange(length + 1)]
        ),
        "Each piece begins one letter after its start.": lambda ids, starts, length: ids[
            starts[:, None] + 1 + np.arange(length + 1)
        ],
    },
)
def pieces(ids: Any, starts: Any, length: int) -> Any:
    """Return the length + 1 letters from each start on, (N, length + 1)."""
    return ids[starts[:, None] + np.arange(length + 1)]


def _predictions(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for n, length, letters in ((2, 3, 5), (4, 6, 7), (5, 1, 3)):
        scores = 2 * rng.standard_normal((n, length, letters))
        yield mg.log_softmax(scores).data, rng.integers(letters, size=(n, length + 1))


def _right(log_p: Any, pieces: Any) -> Any:
    return np.take_along_axis(log_p, pieces[:, 1:, None], -1)


@exercises.add(
    cases=_predictions,
    mistakes={
        "The logarithms are natural; a bit is the logarithm to base 2: divide by np.log(2).": lambda log_p, pieces: (
            -_right(log_p, pieces).mean()
        ),
        "This is the logarithm to base 10; a bit is the logarithm to base 2: divide by np.log(2).": lambda log_p, pieces: (
            -_right(log_p, pieces).mean() / np.log(10)
        ),
        "Divide by np.log(2), do not multiply: a factor of 2 is one bit.": lambda log_p, pieces: (
            -_right(log_p, pieces).mean() * np.log(2)
        ),
        "The sign is missing: the logarithm of a probability is negative.": lambda log_p, pieces: (
            _right(log_p, pieces).mean() / np.log(2)
        ),
        "It is the sum of all letters; take the mean.": lambda log_p, pieces: (
            -_right(log_p, pieces).sum() / np.log(2)
        ),
        "It is the number of bits of a whole piece; take the mean over its letters, too.": lambda log_p, pieces: (
            -_right(log_p, pieces).sum() / np.log(2) / len(pieces)
        ),
        "Position t predicts the next letter, pieces[:, t + 1], not its own.": lambda log_p, pieces: (
            -np.take_along_axis(log_p, pieces[:, :-1, None], -1).mean() / np.log(2)
        ),
        "It is the logarithm of the mean probability; take the mean of the logarithms.": lambda log_p, pieces: (
            -np.log2(np.exp(_right(log_p, pieces)).mean())
        ),
        "The mean is over all letters of the alphabet; only the right one counts.": lambda log_p, pieces: (
            -log_p.mean() / np.log(2)
        ),
    },
)
def bits(log_p: Any, pieces: Any) -> Any:
    """Return the mean number of bits for the next letter; log_p is (N, L, V) and pieces (N, L + 1)."""
    right = np.take_along_axis(log_p, pieces[:, 1:, None], axis=-1)  # (N, L, 1)
    return -right.mean() / np.log(2)


def _draws(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for rows, letters, size, temperature in (
        (40, 6, 2, 0.5),
        (40, 5, 1, 2.0),
        (40, 7, 20, 0.02),
        (3, 8, 1, 1.0),
    ):
        logits = size * rng.standard_normal((rows, letters))
        yield logits, temperature, rng.random(rows)


def _drawn(p: Any, u: Any) -> Any:
    return (p.cumsum(-1) <= u[:, None]).sum(-1)


def _softmax(scores: Any) -> Any:
    return mg.softmax(scores).data


def _overflowing(draw: Any) -> Any:
    def sample(logits: Any, temperature: float, u: Any) -> Any:
        with np.errstate(all="ignore"):
            e = np.exp(logits / temperature)
            return draw(e / e.sum(-1, keepdims=True), u)

    return sample


@exercises.add(
    cases=_draws,
    mistakes={
        "The logits are multiplied by the temperature; divide them by it.": lambda logits, temperature, u: (
            _drawn(_softmax(logits * temperature), u)
        ),
        "The temperature is not used.": lambda logits, temperature, u: _drawn(_softmax(logits), u),
        "It is the likeliest letter: u is not used.": lambda logits, temperature, u: logits.argmax(
            -1
        ),
        "The logits are divided by the root of the temperature; divide by the temperature.": lambda logits, temperature, u: (
            _drawn(_softmax(logits / np.sqrt(temperature)), u)
        ),
        "The temperature divides the probabilities; it should divide the logits.": lambda logits, temperature, u: (
            _drawn(_softmax(logits) / temperature, u)
        ),
        "It is the letter before: u lies in the next part of the line.": lambda logits, temperature, u: (
            _drawn(_softmax(logits / temperature), u) - 1
        ),
        "The parts are in the reverse order: begin with letter 0.": lambda logits, temperature, u: (
            _drawn(_softmax(logits / temperature), 1 - u)
        ),
        "A low temperature makes large logits, and their exponentials overflow: subtract the largest one first.": (
            _overflowing(_drawn)
        ),
        "Exponentials of large logits overflow, and their quotients are nan: subtract the largest logit first.": (
            _overflowing(lambda p, u: (p.cumsum(-1) > u[:, None]).argmax(-1))
        ),
    },
)
def sample(logits: Any, temperature: float, u: Any) -> Any:
    """Return the letter (N,) in whose part of the line from 0 to 1 the number u (N,) lies."""
    scores = logits / temperature
    p = np.exp(scores - scores.max(-1, keepdims=True))  # (N, V)
    ends = p.cumsum(-1)
    return (ends <= u[:, None] * ends[:, -1:]).sum(-1)

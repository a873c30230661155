"""Exercises of lesson 9."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

import minigrad as mg

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _product(matrix: Any) -> Any:
    return lambda x: x @ matrix


def _states(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for layers, length, d, vocabulary in ((3, 4, 4, 6), (2, 5, 3, 5)):
        states = 3 * rng.standard_normal((layers, length, d))
        output = _product(2 * rng.standard_normal((d, vocabulary)))
        yield states, _unit, output, rng.permutation(vocabulary)[:length]
    large = _product(1000 * rng.standard_normal((d, vocabulary)))
    yield states, _unit, large, rng.integers(vocabulary, size=length)


def _chosen(p: Any, words: Any) -> Any:
    return p[:, np.arange(len(words)), words]


def _unsafe_softmax(scores: Any) -> Any:
    with np.errstate(all="ignore"):
        e = np.exp(scores)
        return e / e.sum(-1, keepdims=True)


def _softmax(x: Any, axis: int = -1) -> Any:
    return mg.softmax(x, axis).data


@exercises.add(
    cases=_states,
    mistakes={
        "The normalization is missing.": lambda states, norm, output, words: _chosen(
            _softmax(output(states)), words
        ),
        "These are scores; softmax makes probabilities of them.": lambda states, norm, output, words: (
            _chosen(output(norm(states)), words)
        ),
        "Large scores overflow: subtract the largest score at each position first.": lambda states, norm, output, words: (
            _chosen(_unsafe_softmax(output(norm(states))), words)
        ),
        "These are logarithms of probabilities; take their exponentials.": lambda states, norm, output, words: (
            _chosen(mg.log_softmax(output(norm(states))).data, words)
        ),
        "softmax is over the layers; it should be over the vocabulary.": lambda states, norm, output, words: (
            _chosen(_softmax(output(norm(states)), 0), words)
        ),
        "Each layer gives the probability of its own likeliest word; the words are given.": lambda states, norm, output, words: (
            _softmax(output(norm(states))).max(-1)
        ),
        "It is the probability at the last position only.": lambda states, norm, output, words: (
            _softmax(output(norm(states)))[:, -1, words]
        ),
        "The normalization comes before the output layer, not after it.": lambda states, norm, output, words: (
            _chosen(_softmax(norm(output(states))), words)
        ),
    },
)
def lens(states: Any, norm: Any, output: Any, words: Any) -> Any:
    """Return the probability of words (L,) after each layer, (layers, L)."""
    scores = output(norm(states))  # (layers, L, vocabulary)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p[:, np.arange(len(words)), words]


def _repeating(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for ids in ([3, 1, 4, 3, 1, 4, 3], [2, 7, 2, 5, 7, 2], [6, 6, 1, 6, 6, 6, 1], [0, 2, 0, 5, 0]):
        weights = np.tril(rng.random((2, len(ids), len(ids))))
        yield weights / weights.sum(-1, keepdims=True), np.array(ids)


def _pairs(ids: Any, first: bool = False) -> Any:
    """Return the positions of repeated words, and those of an earlier occurrence of the same word."""
    found = [(t, np.flatnonzero(ids[:t] == ids[t])) for t in range(len(ids))]
    return zip(*((t, before[0 if first else -1]) for t, before in found if len(before)))


def _mean_weight(weights: Any, ids: Any, offset: int, first: bool = False) -> Any:
    queries, keys = map(np.array, _pairs(ids, first))
    return weights[:, queries, keys + offset].mean(-1)


def _over_all(weights: Any, ids: Any) -> Any:
    queries, keys = map(np.array, _pairs(ids))
    return weights[:, queries, keys + 1].sum(-1) / len(ids)


@exercises.add(
    cases=_repeating,
    mistakes={
        "It is the weight for the earlier occurrence itself; take the position after it.": lambda weights, ids: (
            _mean_weight(weights, ids, 0)
        ),
        "It is the weight for the position before the earlier occurrence; take the one after it.": lambda weights, ids: (
            _mean_weight(weights, ids, -1)
        ),
        "Rows are queries and columns are keys; here it is the other way round.": lambda weights, ids: (
            _mean_weight(weights.swapaxes(1, 2), ids, 1)
        ),
        "The mean is over all positions; words that are new do not count.": _over_all,
        "It is the sum; return the mean over the repeated words.": lambda weights, ids: (
            _over_all(weights, ids) * len(ids)
        ),
        "It is the first occurrence of the word; take the last one before it.": lambda weights, ids: (
            _mean_weight(weights, ids, 1, first=True)
        ),
    },
)
def copying(weights: Any, ids: Any) -> Any:
    """Return the mean weight (h,) of repeated words for the position after their earlier occurrence."""
    found = []
    for t in range(len(ids)):
        before = [s for s in range(t) if ids[s] == ids[t]]
        if before:
            found.append(weights[:, t, before[-1] + 1])
    return np.mean(found, axis=0)

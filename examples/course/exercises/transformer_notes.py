"""Exercises of lesson 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _softmax(scores: Any) -> Any:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _divided(e: Any) -> Any:
    with np.errstate(all="ignore"):
        return e / e.sum(-1, keepdims=True)


def _targets(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (np.array([[2, 7, 8, 9, 3], [2, 5, 6, 3, 0]]),)
    yield (rng.integers(1, 20, (3, 7)),)
    yield (rng.integers(1, 20, (5, 2)),)


@exercises.add(
    cases=_targets,
    mistakes={
        "The two are exchanged: first what it reads, then what is wanted.": lambda target: (
            target[:, 1:],
            target[:, :-1],
        ),
        "Both are the same; the wanted tokens are one further.": lambda target: (
            target[:, :-1],
            target[:, :-1],
        ),
        "Nothing is left out: the two have L - 1 columns.": lambda target: (target, target),
        "The first sentence is left out; leave out the first token of each.": lambda target: (
            target[:-1],
            target[1:],
        ),
    },
)
def shifted(target: Any) -> Any:
    """Return a pair: what the decoder reads and the tokens wanted, (N, L - 1) each."""
    return target[:, :-1], target[:, 1:]


def _scores(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.standard_normal((4, 4)),)
    yield (rng.standard_normal((6, 6)) * 3,)
    yield (rng.standard_normal((5, 5)) + 2000 * (1 - np.tri(5)),)  # later words have large scores
    yield (1000 * rng.standard_normal((5, 5)),)
    yield (np.array([[-3.0]]),)


@exercises.add(
    cases=_scores,
    mistakes={
        "The mask comes after softmax: the rows do not sum to 1 any more.": lambda scores: (
            _softmax(scores) * np.tri(len(scores))
        ),
        "A score of 0 is not hidden: softmax makes a weight of it. Use -inf.": lambda scores: (
            _softmax(scores * np.tri(len(scores)))
        ),
        "It hides the past and shows what comes later; np.tri is a lower triangle.": lambda scores: (
            _softmax(np.where(np.tri(len(scores)).T, scores, -np.inf))
        ),
        "The mask is not used.": _softmax,
        "The largest score is taken over later words, too; earlier ones may vanish beside it.": lambda scores: (
            _divided(np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(len(scores)))
        ),
        "Large scores overflow: subtract the largest one of each row first.": lambda scores: (
            _divided(np.exp(np.where(np.tri(len(scores)), scores, -np.inf)))
        ),
        "The mask has one word too many; row i ends at column i.": lambda scores: _softmax(
            np.where(np.tri(len(scores), k=1), scores, -np.inf)
        ),
        "A word may see itself; the diagonal is not hidden.": lambda scores: _softmax(
            np.where(np.tri(len(scores), k=-1), scores, -1e30)
        ),
        "Row i should end at column i; here it begins after it.": lambda scores: _softmax(
            np.where(np.tri(len(scores)) == 0, scores, -1e30)
        ),
        "A small number added to a score does not hide it: use -inf.": lambda scores: _softmax(
            scores + np.tri(len(scores)) - 1
        ),
    },
)
def weights_of_past(scores: Any) -> Any:
    """Return weights (L, L) of scores (L, L): row i is a softmax over columns 0 to i, then zeros."""
    masked = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)
    e = np.exp(masked - masked.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _words(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for L, M, d, size in ((3, 5, 6, 2), (4, 4, 8, 4), (2, 3, 40, 30), (6, 2, 3, 5)):
        matrices = rng.standard_normal((3, d, size))
        yield (rng.standard_normal((L, d)), rng.standard_normal((M, d)), *matrices)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ k.T / np.sqrt(q.shape[1])) @ v


@exercises.add(
    cases=_words,
    mistakes={
        "Keys and values come from the words of the decoder; that is self-attention.": lambda x, memory, W_Q, W_K, W_V: (
            _attention(x @ W_Q, x @ W_K, x @ W_V)
        ),
        "The queries come from the memory; they should come from the decoder's words.": lambda x, memory, W_Q, W_K, W_V: (
            _attention(memory @ W_Q, memory @ W_K, memory @ W_V)
        ),
        "The two are exchanged: the decoder asks, the memory answers.": lambda x, memory, W_Q, W_K, W_V: (
            _attention(memory @ W_Q, x @ W_K, x @ W_V)
        ),
        "The products are not divided by the root of the key's size.": lambda x, memory, W_Q, W_K, W_V: (
            _softmax(x @ W_Q @ (memory @ W_K).T) @ (memory @ W_V)
        ),
        "The products are divided by the key's size; divide by its root.": lambda x, memory, W_Q, W_K, W_V: (
            _softmax(x @ W_Q @ (memory @ W_K).T / W_K.shape[1]) @ (memory @ W_V)
        ),
        "The root is of the size of a word; it should be of the size of a key.": lambda x, memory, W_Q, W_K, W_V: (
            _softmax(x @ W_Q @ (memory @ W_K).T / np.sqrt(x.shape[1])) @ (memory @ W_V)
        ),
        "The values are the keys; they have a matrix of their own.": lambda x, memory, W_Q, W_K, W_V: (
            _attention(x @ W_Q, memory @ W_K, memory @ W_K)
        ),
        "The root is of the number of words; it should be of the size of a key.": lambda x, memory, W_Q, W_K, W_V: (
            _softmax(x @ W_Q @ (memory @ W_K).T / np.sqrt(len(memory))) @ (memory @ W_V)
        ),
    },
)
def cross_attention(x: Any, memory: Any, W_Q: Any, W_K: Any, W_V: Any) -> Any:
    """Return (L, d') from words x (L, d) and memory (M, d), with matrices (d, d')."""
    q, k, v = x @ W_Q, memory @ W_K, memory @ W_V
    scores = q @ k.T / np.sqrt(q.shape[1])
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def _matrices(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (2 + 3 * rng.standard_normal((4, 6)), 1)
    yield (2 + 3 * rng.standard_normal((5, 3)), 0)
    yield (np.array([[7.0, 7.0, 7.0], [1.0, 2.0, 6.0]]), 1)
    yield (3e-3 * rng.standard_normal((3, 4)), 1)  # the variance is as small as 1e-5
    yield (rng.standard_normal((3, 4)), 0, 0.1)


def _centred(x: Any, axis: int) -> Any:
    return x - x.mean(axis, keepdims=True)


@exercises.add(
    cases=_matrices,
    mistakes={
        "It divides by the variance; divide by its root.": lambda x, axis, eps=1e-5: (
            _centred(x, axis) / (x.var(axis, keepdims=True) + eps)
        ),
        "eps is added to the root; add it to the variance, inside the root.": lambda x, axis, eps=1e-5: (
            _centred(x, axis) / (x.std(axis, keepdims=True) + eps)
        ),
        "The value of eps is an argument; use it.": lambda x, axis, eps=1e-5: normalise(x, axis),
        "The mean is not subtracted.": lambda x, axis, eps=1e-5: (
            x / np.sqrt(x.var(axis, keepdims=True) + eps)
        ),
        "The axis is not used: the mean is taken of the whole matrix.": lambda x, axis, eps=1e-5: (
            (x - x.mean()) / np.sqrt(x.var() + eps)
        ),
        "It normalises along the other axis.": lambda x, axis, eps=1e-5: (
            _centred(x, 1 - axis) / np.sqrt(x.var(1 - axis, keepdims=True) + eps)
        ),
        "The variance is a sum divided by n, not by n - 1.": lambda x, axis, eps=1e-5: (
            _centred(x, axis) / np.sqrt(x.var(axis, ddof=1, keepdims=True) + eps)
        ),
        "The variance is the mean square after the mean is subtracted; here it is not.": lambda x, axis, eps=1e-5: (
            _centred(x, axis) / np.sqrt((x**2).mean(axis, keepdims=True) + eps)
        ),
        "eps is not used; equal values would be 0 / 0.": lambda x, axis, eps=1e-5: (
            _centred(x, axis) / np.maximum(x.std(axis, keepdims=True), 1e-30)
        ),
    },
)
def normalise(x: Any, axis: int, eps: float = 1e-5) -> Any:
    """Return x with mean 0 and variance 1 along an axis."""
    centred = x - x.mean(axis, keepdims=True)
    return centred / np.sqrt(x.var(axis, keepdims=True) + eps)

"""Exercises of lesson 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

import minigrad as mg

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _things(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.standard_normal((2, 3, 4)),)
    yield (3 + rng.standard_normal((4, 6, 10)),)
    yield (rng.standard_normal((5, 4, 2)),)


@exercises.add(
    cases=_things,
    mistakes={
        "The mean is of the batch; it should be of the things of one table.": lambda x: (
            (x - x.mean(0)) ** 2
        ).sum(-1),
        "The differences are not squared: positive and negative ones cancel.": lambda x: (
            x - x.mean(1, keepdims=True)
        ).sum(-1),
        "The sum is over the things; it should be over the features.": lambda x: (
            (x - x.mean(1, keepdims=True)) ** 2
        ).sum(1),
        "The mean of the table is not subtracted.": lambda x: (x**2).sum(-1),
        "It is the distance; the squared distance is asked for.": lambda x: np.sqrt(
            ((x - x.mean(1, keepdims=True)) ** 2).sum(-1)
        ),
        "It is the mean over the features; their sum is asked for.": lambda x: (
            (x - x.mean(1, keepdims=True)) ** 2
        ).mean(-1),
        "The mean is over the features of each thing; it should be over the things.": lambda x: (
            (x - x.mean(2, keepdims=True)) ** 2
        ).sum(-1),
        "The mean is of all values; it should be of the things of one table, for each feature.": lambda x: (
            ((x - x.mean()) ** 2).sum(-1)
        ),
        "These are sizes of differences; square them.": lambda x: abs(
            x - x.mean(1, keepdims=True)
        ).sum(-1),
    },
)
def salience(x: Any) -> Any:
    """Return how far each thing (N, L, D) is from the mean of its table: squared distances (N, L)."""
    return ((x - x.mean(1, keepdims=True)) ** 2).sum(-1)


def _attentions(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield tuple(rng.standard_normal(shape) for shape in ((2, 3, 4), (2, 5, 4), (2, 5, 6)))
    yield tuple(rng.standard_normal(shape) for shape in ((4, 1, 8), (4, 2, 8), (4, 2, 3)))
    yield tuple(9 * rng.standard_normal(shape) for shape in ((1, 2, 5), (1, 3, 5), (1, 3, 5)))
    yield tuple(rng.standard_normal(shape) for shape in ((2, 6, 3), (2, 4, 3), (2, 4, 1)))


def _attention(
    divisor: Any = lambda k, v: np.sqrt(k.shape[2]), axis: int = 2, keys: bool = False
) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = mg.einsum("nid,njd->nij", q, k) / divisor(k, v)
        return mg.einsum("nij,njd->nid", mg.softmax(scores, axis=axis), k if keys else v)

    return attention


@exercises.add(
    cases=_attentions,
    differentiable=True,
    mistakes={
        "The scores are not divided by the root of d_k.": _attention(lambda k, v: 1),
        "The scores are divided by d_k; divide by its root.": _attention(lambda k, v: k.shape[2]),
        "The root is of the size of a value; it should be of the size of a key.": _attention(
            lambda k, v: np.sqrt(v.shape[2])
        ),
        "The root is of the number of keys; it should be of the size of a key.": _attention(
            lambda k, v: np.sqrt(k.shape[1])
        ),
        "The weights sum to 1 over the queries; they should over the keys.": _attention(axis=1),
        "The weights add up keys; they should add up values.": _attention(keys=True),
        "The root is of the number of queries; it should be of the size of a key.": lambda q, k, v: (
            _attention(lambda k, v: np.sqrt(q.shape[1]))(q, k, v)
        ),
        "The output is divided by the root; divide the scores, before softmax.": lambda q, k, v: (
            _attention(lambda k, v: 1)(q, k, v) / np.sqrt(k.shape[2])
        ),
    },
)
def attention(q: Any, k: Any, v: Any) -> Any:
    """Return outputs (N, L_q, d_v) of queries (N, L_q, d_k), keys (N, L_k, d_k), values (N, L_k, d_v)."""
    scores = mg.einsum("nid,njd->nij", q, k) / np.sqrt(k.shape[2])
    return mg.einsum("nij,njd->nid", mg.softmax(scores), v)


def _masks(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((3, 4)), np.array([[1, 1, 1, 1], [1, 0, 1, 0], [0, 1, 0, 0]], bool)
    yield rng.standard_normal((2, 3)), np.array([[1, 1, 0], [0, 0, 0]], bool)
    yield 2000.0 * np.array([[0, 0.4, 1], [-1, -1.2, -3]]), np.array([[1, 1, 0], [1, 1, 0]], bool)
    yield 1000 * rng.standard_normal((4, 5)), rng.random((4, 5)) < 0.7
    yield rng.standard_normal((4, 2)), np.ones((4, 2), bool)


def _divided(e: Any) -> Any:
    with np.errstate(all="ignore"):
        sums = e.sum(-1, keepdims=True)
        return np.where(sums == 0, 0, e / sums)


def _hidden(score: float) -> Any:
    def masked_weights(scores: Any, mask: Any) -> Any:
        with np.errstate(invalid="ignore"):
            s = np.where(mask, scores, score)
            e = np.exp(s - s.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True)

    return masked_weights


@exercises.add(
    cases=_masks,
    mistakes={
        "The largest score is taken over hidden keys, too; visible ones may vanish beside it.": lambda scores, mask: (
            _divided(np.exp(scores - scores.max(-1, keepdims=True)) * mask)
        ),
        "Large scores overflow: subtract the largest visible score of each row first.": lambda scores, mask: (
            _divided(np.exp(np.where(mask, scores, -np.inf)))
        ),
        "True means: visible. Here it hides.": lambda scores, mask: masked_weights(scores, ~mask),
        "A row without a visible key is 0 / 0, NaN; its weights should be 0.": _hidden(-np.inf),
        "A row without a visible key gets equal weights; they should be 0.": _hidden(-1e9),
        "A score of 0 is not hidden: softmax makes a weight of it. Use -inf.": _hidden(0),
        "The mask comes after softmax: the rows do not sum to 1 any more.": lambda scores, mask: (
            mask * mg.softmax(scores).data
        ),
        "The columns sum to 1; the rows should.": lambda scores, mask: (
            masked_weights(scores.T, mask.T).T
        ),
    },
)
def masked_weights(scores: Any, mask: Any) -> Any:
    """Return softmax over the keys where the mask is True; 0 elsewhere, and in rows without a True."""
    scores = np.where(mask, scores, -1e30)
    e = np.exp(scores - scores.max(-1, keepdims=True)) * mask
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-30)

"""Exercises of lesson 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

import minigrad as mg

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _scores(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.standard_normal((3, 4)), rng.standard_normal((3, 4)))
    yield (rng.standard_normal((5, 16)), rng.standard_normal((2, 16)))
    yield (rng.standard_normal((4, 4)), rng.standard_normal((4, 4)))
    yield (rng.standard_normal((2, 3)), rng.standard_normal((5, 3)))


def _unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@exercises.add(
    cases=_scores,
    mistakes={
        "The products are not divided by the root of the key's size.": lambda q, k: q @ k.T,
        "The products are divided by d_k; the standard deviation of a product is its root.": lambda q, k: (
            q @ k.T / q.shape[1]
        ),
        "The products are multiplied by the root of the key's size; divide them.": lambda q, k: (
            q @ k.T * np.sqrt(q.shape[1])
        ),
        "Rows are queries and columns are keys; here it is the other way round.": lambda q, k: (
            k @ q.T / np.sqrt(q.shape[1])
        ),
        "The root is of the number of words; it should be of the size of a key.": lambda q, k: (
            q @ k.T / np.sqrt(len(k))
        ),
        "The vectors are divided by their lengths; divide the products by the root of d_k.": lambda q, k: (
            _unit(q) @ _unit(k).T
        ),
    },
)
def scaled_scores(q: Any, k: Any) -> Any:
    """Return the score of each query (L_q, d_k) with each key (L_k, d_k)."""
    return q @ k.T / np.sqrt(k.shape[1])


def _weights(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.standard_normal((3, 4)),)
    yield (1000 * rng.standard_normal((2, 5)),)
    yield (rng.standard_normal((4, 4)) - 1000,)  # the largest score is far below 0
    yield (rng.standard_normal((5, 2)),)


def _divided(e: Any) -> Any:
    with np.errstate(all="ignore"):
        return e / e.sum(1, keepdims=True)


def _softmax_of_all(scores: Any) -> Any:
    e = np.exp(scores - scores.max())
    return e / e.sum()


def _softmax_by_columns(scores: Any) -> Any:
    e = np.exp(scores - scores.max(0))
    return e / e.sum(0)


def _without_maximum(scores: Any) -> Any:
    with np.errstate(over="ignore"):
        return _divided(np.exp(scores))


@exercises.add(
    cases=_weights,
    mistakes={
        "All weights together sum to 1; each row should.": _softmax_of_all,
        "The columns sum to 1; the rows should.": _softmax_by_columns,
        "Large scores overflow: subtract the largest score of each row first.": _without_maximum,
        "The scores are divided by their sum; take their exponentials first.": lambda scores: (
            scores / scores.sum(1, keepdims=True)
        ),
        "The exponentials are not divided by their sum.": lambda scores: np.exp(
            scores - scores.max(1, keepdims=True)
        ),
        "The base is e, not 2: use np.exp.": lambda scores: _divided(
            np.exp2(scores - scores.max(1, keepdims=True))
        ),
        "One largest score is subtracted from all rows; small rows vanish: subtract that of each row.": lambda scores: (
            _divided(np.exp(scores - scores.max()))
        ),
    },
)
def softmax_rows(scores: Any) -> Any:
    """Return weights (L_q, L_k): positive, each row with sum 1."""
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _attention(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    q, k, v = (rng.standard_normal((4, d)) for d in (3, 3, 5))
    yield q, k, v, np.tril(np.ones((4, 4), bool))
    yield q, k, v, rng.random((4, 4)) < 0.5 + np.eye(4)
    q, k, v = (rng.standard_normal(shape) for shape in ((2, 5), (3, 5), (3, 2)))
    yield 60 * q, 60 * k, v, np.array([[1, 1, 0], [0, 1, 1]], bool)
    q, k = -90 * abs(k), 90 * abs(q)  # all scores are far below 0
    yield q, k, v[:2], np.array([[1, 0], [0, 1], [1, 1]], bool)


def _masked(q: Any, k: Any, v: Any, mask: Any, size: int) -> Any:
    return mg.softmax(np.where(mask, q @ k.T / np.sqrt(size), -np.inf)) @ v


@exercises.add(
    cases=_attention,
    differentiable=True,
    mistakes={
        "The mask is not used.": lambda q, k, v, mask: (
            mg.softmax(q @ k.T / np.sqrt(k.shape[1])) @ v
        ),
        "A score of 0 is not hidden: softmax makes a weight of it. Use -inf.": lambda q, k, v, mask: (
            mg.softmax(np.where(mask, q @ k.T / np.sqrt(k.shape[1]), 0)) @ v
        ),
        "The scores are not divided by the root of d_k.": lambda q, k, v, mask: (
            mg.softmax(np.where(mask, q @ k.T, -np.inf)) @ v
        ),
        "The scores are divided by d_k; divide by its root.": lambda q, k, v, mask: (
            mg.softmax(np.where(mask, q @ k.T / k.shape[1], -np.inf)) @ v
        ),
        "The weights sum to 1 over the queries; they should over the keys.": lambda q, k, v, mask: (
            mg.softmax(np.where(mask, q @ k.T / np.sqrt(k.shape[1]), -1e30), 0) @ v
        ),
        "True means: may attend. Here it hides.": lambda q, k, v, mask: (
            mg.softmax(np.where(mask, -1e30, q @ k.T / np.sqrt(k.shape[1]))) @ v
        ),
        "The mask comes after softmax: the rows do not sum to 1 any more.": lambda q, k, v, mask: (
            (mg.softmax(q @ k.T / np.sqrt(k.shape[1])) * mask) @ v
        ),
        "The root is of the number of keys; it should be of the size of a key.": lambda q, k, v, mask: (
            _masked(q, k, v, mask, len(k))
        ),
        "The root is of the size of a value; it should be of the size of a key.": lambda q, k, v, mask: (
            _masked(q, k, v, mask, v.shape[1])
        ),
        "The mask is transposed: its rows are queries.": lambda q, k, v, mask: _masked(
            q, k, v, mask.T, k.shape[1]
        ),
    },
)
def masked_attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Return attention (L_q, d_v) in which query i uses key j only if mask[i, j] is True."""
    scores = np.where(mask, q @ k.T / np.sqrt(k.shape[1]), -np.inf)
    return mg.softmax(scores) @ v


def _runs(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield ([(0.0, 1.0), (1.0, 0.0), (0.59, 0.95)],)
    yield ([(0.0, 1.0), (0.02, 1.0)],)
    yield ([(0.98, 0.99), (0.5, 0.6), (0.4, 1.0)],)
    yield ([(0.05, 0.5), (0.5, 0.05), (0.6, 0.95), (0.95, 0.6), (0.02, 0.03), (0.08, 0.87)],)
    yield ([(0.11, 0.97), (0.97, 0.11), (0.03, 0.89), (0.89, 0.03), (0.09, 0.91), (0.91, 0.09)],)


@exercises.add(
    cases=_runs,
    mistakes={
        "It looks at the mean only: always the same answer gives 50 % as well as guessing does.": lambda runs: (
            ["always one kind" if np.mean(run) < 0.6 else "knows more" for run in runs]
        ),
        "It looks at animals only.": lambda runs: [
            "always one kind" if animals < 0.1 else "knows more" for animals, _ in runs
        ],
        "One rate must be below 0.1, and the other above 0.9 as well.": lambda runs: [
            "always one kind" if min(run) < 0.1 else "knows more" for run in runs
        ],
        "One rate must be above 0.9, and the other below 0.1 as well.": lambda runs: [
            "always one kind" if max(run) > 0.9 else "knows more" for run in runs
        ],
        "It looks at the difference of the rates; compare each with its own limit.": lambda runs: [
            "always one kind" if max(run) - min(run) > 0.8 else "knows more" for run in runs
        ],
        "It looks at the mean of the rates; compare each with its own limit.": lambda runs: [
            "always one kind" if abs(np.mean(run) - 0.5) < 0.1 else "knows more" for run in runs
        ],
        "The two answers are exchanged.": lambda runs: [
            "knows more" if min(run) < 0.1 and max(run) > 0.9 else "always one kind" for run in runs
        ],
        "It gives one answer for all seeds.": lambda runs: ["always one kind"] * len(runs),
        "A model that is right on both kinds knows more.": lambda runs: [
            "knows more" if abs(animals - places) > 0.5 else "always one kind"
            for animals, places in runs
        ],
    },
)
def what_is_left(runs: Any) -> Any:
    """Return "always one kind" for each run that is right on one kind only, else "knows more"."""
    return [
        "always one kind" if min(run) < 0.1 and max(run) > 0.9 else "knows more" for run in runs
    ]

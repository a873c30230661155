"""Exercises of lesson 5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _sizes(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield 2, 4
    yield 5, 8
    yield 7, 6
    yield 1, 2


def _positions(
    step: float = 2, first: int = 0, mixed: bool = True, sines: bool = True, base: float = 10_000
) -> Any:
    def positions(length: int, d: int) -> Any:
        exponents = step * np.arange(d // 2) / d
        angles = np.arange(first, first + length)[:, None] / base**exponents
        both = (np.sin(angles), np.cos(angles)) if sines else (np.cos(angles), np.sin(angles))
        return np.stack(both, -1).reshape(length, d) if mixed else np.concatenate(both, -1)

    return positions


def _of_columns(length: int, d: int) -> Any:
    column = np.arange(d)
    angles = np.arange(length)[:, None] / 10_000 ** (column / d)
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))


@exercises.add(
    cases=_sizes,
    mistakes={
        "The exponent is 2i / d, where i counts pairs of columns.": _positions(step=4),
        "The factor 2 of the exponent 2i / d is missing.": _positions(step=1),
        "The two columns of a pair have the same angle: columns 2i and 2i + 1 both have the exponent 2i / d.": _of_columns,
        "The first position is 0, not 1.": _positions(first=1),
        "Sines and cosines take turns: sin, cos, sin, cos …": _positions(mixed=False),
        "Even columns are sines, odd ones cosines.": _positions(sines=False),
        "The base of the power is 10,000.": _positions(base=1000),
        "The position is divided by the power of 10,000, not multiplied by it.": _positions(
            step=-2
        ),
    },
)
def positions(length: int, d: int) -> Any:
    """Return the vectors of the first positions: (length, d)."""
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, d, 2) / d)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, d)


def _words(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for factor, L, d, d_k, d_v in (
        (1, 3, 4, 2, 5),
        (30, 2, 4, 3, 6),
        (1, 5, 6, 4, 4),
        (1, 6, 3, 4, 2),
    ):
        Q, K, V = (rng.standard_normal((d, size)) for size in (d_k, d_k, d_v))
        yield factor * rng.standard_normal((L, d)), Q, K, V


def _head(
    divisor: Any = lambda x, K, V: np.sqrt(K.shape[1]),
    rows: bool = True,
    safe: bool = True,
    swapped: bool = False,
    exponential: bool = True,
) -> Any:
    def head(x: Any, WQ: Any, WK: Any, WV: Any) -> Any:
        Q, K = (x @ WK, x @ WQ) if swapped else (x @ WQ, x @ WK)
        scores = Q @ K.T / divisor(x, K, x @ WV)
        axis = 1 if rows else 0
        with np.errstate(all="ignore"):
            e = np.exp(scores - (scores.max(axis, keepdims=True) if safe else 0))
            e = e if exponential else scores
            return e / e.sum(axis, keepdims=True) @ (x @ WV)

    return head


def _transposed(x: Any, WQ: Any, WK: Any, WV: Any) -> Any:
    scores = x @ WQ @ (x @ WK).T / np.sqrt(WK.shape[1])
    e = np.exp(scores - scores.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).T @ (x @ WV)


@exercises.add(
    cases=_words,
    mistakes={
        "The products are not divided by the root of the key's size.": _head(lambda x, K, V: 1),
        "The products are divided by the size of a key; divide by its root.": _head(
            lambda x, K, V: K.shape[1]
        ),
        "The root is of the size of a word; it should be of the size of a key.": _head(
            lambda x, K, V: np.sqrt(x.shape[1])
        ),
        "The root is of the size of a value; it should be of the size of a key.": _head(
            lambda x, K, V: np.sqrt(V.shape[1])
        ),
        "The root is of the number of words; it should be of the size of a key.": _head(
            lambda x, K, V: np.sqrt(len(x))
        ),
        "The columns sum to 1; the rows should.": _head(rows=False),
        "Large scores overflow: subtract the largest score of each row first.": _head(safe=False),
        "Queries and keys are the other way round.": _head(swapped=True),
        "The scores are divided by their sum; take their exponentials first.": _head(
            exponential=False
        ),
        "The weights are transposed: their rows are queries.": _transposed,
    },
)
def head(x: Any, WQ: Any, WK: Any, WV: Any) -> Any:
    """Return (L, d_v) from words x (L, d), with matrices (d, d_k), (d, d_k) and (d, d_v)."""
    Q, K, V = x @ WQ, x @ WK, x @ WV
    scores = Q @ K.T / np.sqrt(K.shape[1])  # (L, L)
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ V


def _layers(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for factor, L in ((1, 3), (9, 2), (1, 9)):
        shapes = (L, 4), (4, 8), (8,), (8, 4), (4,)
        yield tuple(factor * rng.standard_normal(shape) for shape in shapes)


@exercises.add(
    cases=_layers,
    mistakes={
        "The ReLU between the two layers is missing.": lambda x, W1, b1, W2, b2: (
            (x @ W1 + b1) @ W2 + b2
        ),
        "The ReLU comes between the layers, not at the end.": lambda x, W1, b1, W2, b2: np.maximum(
            (x @ W1 + b1) @ W2 + b2, 0
        ),
        "The biases b1 and b2 are missing.": lambda x, W1, b1, W2, b2: np.maximum(x @ W1, 0) @ W2,
        "ReLU has no upper end; here large values are cut off at 6.": lambda x, W1, b1, W2, b2: (
            np.clip(x @ W1 + b1, 0, 6) @ W2 + b2
        ),
        "ReLU makes 0 of a negative value; abs changes its sign.": lambda x, W1, b1, W2, b2: (
            abs(x @ W1 + b1) @ W2 + b2
        ),
        "The second bias, b2, is missing.": lambda x, W1, b1, W2, b2: (
            np.maximum(x @ W1 + b1, 0) @ W2
        ),
        "The first bias, b1, is missing.": lambda x, W1, b1, W2, b2: (
            np.maximum(x @ W1, 0) @ W2 + b2
        ),
        "The first bias is inside the ReLU.": lambda x, W1, b1, W2, b2: (
            (np.maximum(x @ W1, 0) + b1) @ W2 + b2
        ),
        "There is one ReLU, between the layers; here a second one comes at the end.": lambda x, W1, b1, W2, b2: (
            np.maximum(feed_forward(x, W1, b1, W2, b2), 0)
        ),
        "ReLU makes 0 of a negative value, not a hundredth of it.": lambda x, W1, b1, W2, b2: (
            feed_forward(x, W1, b1, W2, b2) - 0.01 * np.maximum(-(x @ W1 + b1), 0) @ W2
        ),
        "ReLU keeps positive values; here negative ones are kept: use np.maximum.": lambda x, W1, b1, W2, b2: (
            np.minimum(x @ W1 + b1, 0) @ W2 + b2
        ),
    },
)
def feed_forward(x: Any, W1: Any, b1: Any, W2: Any, b2: Any) -> Any:
    """Return ReLU(x W1 + b1) W2 + b2."""
    return np.maximum(x @ W1 + b1, 0) @ W2 + b2


def _rows(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (3 * rng.standard_normal((3, 4)) + 1,)
    yield (1e-3 * rng.standard_normal((2, 5)) + 1,)  # the variance is as small as 1e-6
    yield (np.array([[7.0, 7, 7], [1, 2, 6]]),)
    yield (rng.standard_normal((6, 2)),)


def _norm(
    axis: Any = 1, mean: bool = True, root: bool = True, ddof: int = 0, eps: float = 1e-6
) -> Any:
    def layer_norm(x: Any) -> Any:
        centred = x - x.mean(axis, keepdims=True) if mean else x
        variance = x.var(axis, keepdims=True, ddof=ddof) + eps
        with np.errstate(invalid="ignore"):
            return centred / (np.sqrt(variance) if root else variance)

    return layer_norm


@exercises.add(
    cases=_rows,
    mistakes={
        "Mean and variance are of the columns; they should be of each row.": _norm(axis=0),
        "The mean is not subtracted.": _norm(mean=False),
        "It divides by the variance; divide by its root.": _norm(root=False),
        "Mean and variance are of all values; they should be of each row.": _norm(axis=None),
        "1e-6 is added to the root; add it to the variance, inside the root.": lambda x: (
            (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-6)
        ),
        "Add 1e-6 to the variance, not 1e-5.": _norm(eps=1e-5),
        "The variance divides by d, not by d - 1.": _norm(ddof=1),
        "The variance gets no 1e-6; a row of equal values would be 0 / 0.": _norm(eps=0),
        "The variance is the mean square after the mean is subtracted; here it is not.": lambda x: (
            (x - x.mean(1, keepdims=True)) / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)
        ),
    },
)
def layer_norm(x: Any) -> Any:
    """Return x with mean 0 and variance 1 of each row; add 1e-6 to the variance."""
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-6)

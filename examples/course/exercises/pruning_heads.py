"""Exercises of lesson 11."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _sizes(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (2, 3)
    yield (3, 2)
    yield (1, 4)


def _gates(layers: int, heads: int, silent: float = 0.0) -> Any:
    gates = np.ones((layers * heads, layers, heads))
    for i in range(layers * heads):
        gates[i, i // heads, i % heads] = silent
    return gates


@exercises.add(
    cases=_sizes,
    mistakes={
        "Ones and zeros are exchanged: a gate of 1 leaves the head on.": lambda layers, heads: (
            1 - _gates(layers, heads)
        ),
        "The heads go through one layer after the other: head i % heads of layer i // heads.": lambda layers, heads: (
            _gates(layers, heads)
            .reshape(layers, heads, layers, heads)
            .swapaxes(0, 1)
            .reshape(-1, layers, heads)
        ),
        "All heads are on in every matrix.": lambda layers, heads: np.ones(
            (layers * heads, layers, heads)
        ),
        "A silent head stays silent in the matrices after it.": lambda layers, heads: np.cumprod(
            _gates(layers, heads), 0
        ),
    },
)
def one_silent(layers: int, heads: int) -> Any:
    """Return gates (layers * heads, layers, heads); matrix i has a 0 at head i and ones elsewhere."""
    return (1 - np.eye(layers * heads)).reshape(-1, layers, heads)


def _derivatives(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.standard_normal((5, 2, 3)),)
    yield (rng.standard_normal((4, 3, 3)),)
    yield (rng.standard_normal((2, 4, 1)),)


@exercises.add(
    cases=_derivatives,
    mistakes={
        "The size is taken after the mean, so that derivatives cancel.": lambda d: abs(d.mean(0)),
        "The sizes are not taken.": lambda d: d.mean(0),
        "It is the sum over sentences; divide by their number.": lambda d: abs(d).sum(0),
        "It is the largest size; the mean of the sizes is asked for.": lambda d: abs(d).max(0),
        "It is the mean of the squares; the mean of the sizes is asked for.": lambda d: (d**2).mean(
            0
        ),
        "It is the root of the mean square; the mean of the sizes is asked for.": lambda d: np.sqrt(
            (d**2).mean(0)
        ),
        "It is the median; the mean of the sizes is asked for.": lambda d: np.median(abs(d), 0),
        "It is the standard deviation; the mean of the sizes is asked for.": lambda d: d.std(0),
    },
)
def importance(derivatives: Any) -> Any:
    """Return the importance of each head (layers, heads) from derivatives (N, layers, heads)."""
    return abs(derivatives).mean(0)


def _importances(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (np.array([[0.3, 0.1, 0.2], [0.6, 0.4, 0.5]]),)
    yield (rng.random((3, 4)),)
    yield (rng.standard_normal((2, 5)),)  # a loss can also fall without a head
    yield (rng.random((4, 2)),)


def _all_heads(importance: Any) -> list[tuple[int, int]]:
    heads = importance.shape[1]
    return [(int(i) // heads, int(i) % heads) for i in importance.ravel().argsort()]


def _in_each_layer(importance: Any) -> list[tuple[int, int]]:
    return [(i, int(h)) for i, row in enumerate(importance) for h in row.argsort()[:-1]]


@exercises.add(
    cases=_importances,
    mistakes={
        "The most important heads come first.": lambda importance: removal_order(-importance),
        "A pair is (layer, head), not (head, layer).": lambda importance: [
            pair[::-1] for pair in removal_order(importance)
        ],
        "A negative importance is less than 0: leave out abs.": lambda importance: removal_order(
            abs(importance)
        ),
        "All heads are in the list; the best of each layer should stay.": _all_heads,
        "Each layer is sorted by itself; compare the heads of all layers.": _in_each_layer,
        "Only the best head of all stays; one in each layer should.": lambda importance: _all_heads(
            importance
        )[:-1],
        "The least important head of each layer is missing; the most important should stay.": lambda importance: [
            head for head in _all_heads(importance) if head[1] != importance[head[0]].argmin()
        ],
    },
)
def removal_order(importance: Any) -> Any:
    """Return pairs (layer, head) from least to most important, without the best of each layer."""
    heads = importance.shape[1]
    order = [(int(i) // heads, int(i) % heads) for i in importance.ravel().argsort()]
    return [(layer, head) for layer, head in order if head != importance[layer].argmax()]


def _counts(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (1, 12, 5)
    yield (3, 16, 4)
    yield (2, 7, 3)


@exercises.add(
    cases=_counts,
    mistakes={
        "The biases are missing.": lambda count, d_model, size: count * 4 * size * d_model,
        "The fourth matrix has no biases that belong to a head.": lambda count, d_model, size: (
            count * (4 * size * d_model + 4 * size)
        ),
        "The columns of the fourth matrix are missing.": lambda count, d_model, size: (
            count * (3 * size * d_model + 3 * size)
        ),
        "A bias has `size` values, not `d_model`.": lambda count, d_model, size: (
            count * (4 * size * d_model + 3 * d_model)
        ),
        "The bias of the fourth matrix belongs to no head.": lambda count, d_model, size: (
            count * (4 * size * d_model + 3 * size + d_model)
        ),
        "It is the number for one head.": lambda count, d_model, size: (
            4 * size * d_model + 3 * size
        ),
    },
)
def parameters_of(count: int, d_model: int, size: int) -> Any:
    """Return the number of parameters of `count` heads of this size."""
    return count * (4 * size * d_model + 3 * size)

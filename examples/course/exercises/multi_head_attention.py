"""Exercises of lesson 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

import minigrad as mg

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _rows(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.standard_normal((5, 6)), 2)
    yield (rng.standard_normal((3, 12)), 4)
    yield (rng.standard_normal((4, 4)), 2)
    yield (rng.standard_normal((7, 3)), 3)
    yield (rng.standard_normal((2, 5)), 1)


@exercises.add(
    cases=_rows,
    mistakes={
        "The axis of the heads comes first: exchange the first two axes.": lambda x, heads: (
            x.reshape(len(x), heads, -1)
        ),
        "A reshape alone mixes words: first give each row its heads, then exchange two axes.": lambda x, heads: (
            x.reshape(heads, len(x), -1)
        ),
        "The values of a head are neighbours; here they are `heads` columns apart.": lambda x, heads: (
            np.moveaxis(x.reshape(len(x), -1, heads), 2, 0)
        ),
        "Each head has all values; give each its own part.": lambda x, heads: np.stack([x] * heads),
    },
)
def split_into_heads(x: Any, heads: int) -> Any:
    """Return the parts (heads, L, p) of rows (L, heads * p)."""
    return x.reshape(len(x), heads, -1).swapaxes(0, 1)


def _layers(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for length, width, heads in ((3, 8, 2), (5, 8, 4), (7, 6, 3), (2, 3, 1)):
        yield (
            rng.standard_normal((length, width)),
            *(rng.standard_normal((width, width)) / 2 for _ in range(4)),
            heads,
        )


def _attend(
    x: Any, W_Q: Any, W_K: Any, W_V: Any, W_O: Any, heads: int, scale: float = 1.0, axis: int = -1
) -> Any:
    """Return `multi_head` with scores times a factor, and the softmax along an axis."""
    q, k, v = (split_into_heads(x @ W, heads) for W in (W_Q, W_K, W_V))
    S = mg.softmax(scale * q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2]), axis)
    return (S @ v).swapaxes(0, 1).reshape(len(x), -1) @ W_O


def _never_merged(x: Any, W_Q: Any, W_K: Any, W_V: Any, W_O: Any, heads: int) -> Any:
    q, k, v = (split_into_heads(x @ W, heads) for W in (W_Q, W_K, W_V))
    S = mg.softmax(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2]))
    return (S @ v).reshape(len(x), -1) @ W_O


@exercises.add(
    cases=_layers,
    differentiable=True,
    mistakes={
        "The scores are divided by the root of the width; a head has keys of size p.": lambda x, *W: (
            _attend(x, *W, scale=W[-1] ** -0.5)
        ),
        "The scores are not divided by the root of p.": lambda x, *W: _attend(
            x, *W, scale=(x.shape[1] / W[-1]) ** 0.5
        ),
        "The scores are divided by p; divide by its root.": lambda x, *W: _attend(
            x, *W, scale=(x.shape[1] / W[-1]) ** -0.5
        ),
        "Queries and keys are the other way round.": lambda x, W_Q, W_K, *W: _attend(
            x, W_K, W_Q, *W
        ),
        "There is one head; split queries, keys and values.": lambda x, *W: _attend(x, *W[:-1], 1),
        "The last matrix, W_O, is not used.": lambda x, *W: _attend(
            x, *W[:3], np.eye(x.shape[1]), W[-1]
        ),
        "A reshape alone mixes words: exchange the axes of heads and words first.": _never_merged,
        "The weights sum to 1 over the queries; they should over the keys.": lambda x, *W: _attend(
            x, *W, axis=-2
        ),
        "The scores are divided by the root of the number of heads; a head has keys of size p.": lambda x, *W: (
            _attend(x, *W, scale=(x.shape[1] / W[-1]) ** 0.5 * W[-1] ** -0.5)
        ),
    },
)
def multi_head(x: Any, W_Q: Any, W_K: Any, W_V: Any, W_O: Any, heads: int) -> Any:
    """Return self-attention (L, d) of words x (L, d) with several heads."""
    q, k, v = (split_into_heads(x @ W, heads) for W in (W_Q, W_K, W_V))  # (heads, L, p) each
    S = mg.softmax(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2]))  # (heads, L, L)
    return (S @ v).swapaxes(0, 1).reshape(len(x), -1) @ W_O


def _outputs(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.standard_normal((2, 5, 3)), rng.standard_normal((6, 4)))
    yield (rng.standard_normal((4, 3, 2)), rng.standard_normal((8, 8)))
    yield (rng.standard_normal((3, 7, 2)), rng.standard_normal((6, 7)))


@exercises.add(
    cases=_outputs,
    mistakes={
        "It is the sum over heads; return each head by itself.": lambda z, W_O: (
            z.swapaxes(0, 1).reshape(z.shape[1], -1) @ W_O
        ),
        "Every head uses the first rows of W_O; head h has rows h * p to (h + 1) * p.": lambda z, W_O: (
            z @ W_O[: z.shape[2]]
        ),
        "The blocks of rows are in the reverse order.": lambda z, W_O: (
            z @ W_O.reshape(len(z), -1, W_O.shape[1])[::-1]
        ),
        "A head has neighbouring rows of W_O; here they are as far apart as there are heads.": lambda z, W_O: (
            z @ W_O.reshape(z.shape[2], len(z), -1).swapaxes(0, 1)
        ),
    },
)
def contributions(z: Any, W_O: Any) -> Any:
    """Return what each head adds to the output, (heads, L, d), from z (heads, L, p) and W_O."""
    heads, _, p = z.shape
    return z @ W_O.reshape(heads, p, -1)

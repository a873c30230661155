"""Tables with things on them, questions about the things, and a picture of where one looks.

Used by lesson 2. A thing has a shape, is grey or red, and carries a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from labels import label
from pictures import COLOUR

import minigrad as mg
from minigrad import optim

__all__ = ["CIRCLE", "STAR", "Tables", "arrows", "draw", "lay", "train"]

MARKERS = "os^D*phP"  # of matplotlib, one for each shape
CIRCLE, STAR = MARKERS.index("o"), MARKERS.index("*")
SHAPES, NUMBERS, THINGS = len(MARKERS), 10, 6


class Tables(NamedTuple):
    """Tables of six things, with a question about the number on one of them."""

    shapes: np.ndarray  # (N, 6), all different on a table
    red: np.ndarray  # (N, 6) of bool, one thing of each table
    numbers: np.ndarray  # (N, 6)
    x: np.ndarray  # (N, 6, 20): shape, grey or red, number; a 1 for each, else 0
    question: np.ndarray  # (N, 8): the shape asked for
    answer: np.ndarray  # (N,): the number on the thing of this shape


def lay(n: int, rng: np.random.Generator) -> Tables:
    """Return `n` random tables."""
    shapes = _shuffled(n, SHAPES, rng)[:, :THINGS]
    red = rng.integers(THINGS, size=(n, 1)) == np.arange(THINGS)
    numbers = rng.integers(NUMBERS, size=(n, THINGS))
    parts = np.eye(SHAPES)[shapes], np.eye(2)[red.astype(int)], np.eye(NUMBERS)[numbers]
    asked = np.arange(n), rng.integers(THINGS, size=n)
    x = np.concatenate(parts, -1)
    return Tables(shapes, red, numbers, x, np.eye(SHAPES)[shapes[asked]], numbers[asked])


def arrows(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return things (n, 6, 16) whose arrows make a circle, and where each arrow points, (n, 6).

    A thing is its own shape and the shape that its arrow points to.
    """
    shapes, order = _shuffled(n, SHAPES, rng)[:, :THINGS], _shuffled(n, THINGS, rng)
    target = np.empty_like(order)
    np.put_along_axis(target, order, np.roll(order, -1, 1), 1)
    pointed = np.take_along_axis(shapes, target, 1)
    return np.concatenate([np.eye(SHAPES)[shapes], np.eye(SHAPES)[pointed]], -1), target


def train(
    parameters: Sequence[mg.Tensor],
    logits: Callable[[], mg.Tensor],
    answer: np.ndarray,
    steps: int = 150,
) -> None:
    """Train the parameters of `logits` on the cross-entropy of the answers."""
    optimizer = optim.Adam(parameters, lr=0.05)
    for _ in range(steps):
        loss = mg.cross_entropy(logits(), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def draw(drawn: Any, tables: Tables, at: int, steps: Sequence[tuple[str, Any, str]]) -> None:
    """Draw a table once for each step (kind, weights or None, title); a disc is as large as a weight."""
    place = np.array(
        [[0.2, 0.75], [0.55, 0.85], [0.85, 0.6], [0.7, 0.2], [0.38, 0.42], [0.12, 0.2]]
    )
    for axes, (kind, weights, title) in zip(drawn.subplots(1, 4, squeeze=False)[0], steps):
        axes.set(xlim=(-0.08, 1.08), ylim=(-0.02, 1.06), xticks=[], yticks=[])
        axes.set_title(label(title), color=COLOUR[kind])
        for side in axes.spines.values():
            side.set(visible=True, color=COLOUR["x"])
        for i, (x, y) in enumerate(place):
            if weights is not None:
                axes.scatter(x, y, 1800 * weights[i], color=COLOUR["weight"], alpha=0.6, lw=0)
            colour = "#d62728" if tables.red[at, i] else "#8a8f98"
            axes.scatter(x, y, 330, color=colour, marker=MARKERS[tables.shapes[at, i]])
            number = str(tables.numbers[at, i])
            axes.text(x, y, number, color="white", ha="center", va="center", fontsize=8)
    for axes in drawn.axes[len(steps) :]:
        axes.set_axis_off()


def _shuffled(n: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Return n random orders of 0 … length - 1."""
    return rng.permuted(np.tile(np.arange(length), (n, 1)), axis=1)

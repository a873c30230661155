"""Exercises of lesson 10."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _images(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.random((3, 4, 6, 3)), 2)
    yield (rng.random((2, 6, 9, 1)), 3)
    yield (rng.random((1, 6, 2, 2)), 2)
    yield (rng.random((2, 2, 3, 1)), 1)


@exercises.add(
    cases=_images,
    mistakes={
        "The pixels are only counted off, four after the other; cut rows and columns apart first.": lambda images, size: (
            images.reshape(len(images), -1, size * size * images.shape[-1])
        ),
        "The patches go down the columns; they should go row by row.": lambda images, size: (
            patches(images.swapaxes(1, 2), size)
            .reshape(len(images), -1, size, size, images.shape[-1])
            .swapaxes(2, 3)
            .reshape(len(images), -1, size * size * images.shape[-1])
        ),
        "The patches are right; make one vector of each.": lambda images, size: patches(
            images, size
        ).reshape(len(images), -1, size, size, images.shape[-1]),
        "The colours of a pixel should stay together.": lambda images, size: (
            patches(images, size)
            .reshape(len(images), -1, size * size, images.shape[-1])
            .swapaxes(2, 3)
            .reshape(len(images), -1, size * size * images.shape[-1])
        ),
    },
)
def patches(images: Any, size: int) -> Any:
    """Return images (N, height, width, colours) as patches (N, patches, size * size * colours)."""
    n, height, width, colours = images.shape
    tiles = images.reshape(n, height // size, size, width // size, size, colours)
    return tiles.swapaxes(2, 3).reshape(n, -1, size * size * colours)


def _maps(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (np.array([[0, 0, 1], [1, 2, 2]]), np.array([[0, 1, 1], [1, 2, 0]]), 1)
    yield (rng.integers(3, size=(4, 5, 5)), rng.integers(3, size=(4, 5, 5)), 2)
    yield (rng.integers(4, size=(2, 3, 6)), rng.integers(4, size=(2, 3, 6)), 0)


def _share(part: Any, whole: Any) -> Any:
    return part / whole if whole else np.inf


@exercises.add(
    cases=_maps,
    mistakes={
        "This is the share of all pixels that are right; background would count most.": lambda p, t, c: (
            (p == t).mean()
        ),
        "It divides by the pixels that are of the class; count those that are called so as well.": lambda p, t, c: (
            ((p == c) & (t == c)).sum() / (t == c).sum()
        ),
        "It divides by the pixels that are called so; count those that are of the class as well.": lambda p, t, c: (
            ((p == c) & (t == c)).sum() / (p == c).sum()
        ),
        "This is the Dice coefficient, twice the intersection by both sums; divide the intersection by the union.": lambda p, t, c: (
            2 * ((p == c) & (t == c)).sum() / ((p == c).sum() + (t == c).sum())
        ),
        "It is the mean over images or rows; count over all pixels.": lambda p, t, c: np.mean(
            [iou(a, b, c) for a, b in zip(p, t)]
        ),
        "Pixels in both sets count twice; count the union once.": lambda p, t, c: (
            ((p == c) & (t == c)).sum() / ((p == c).sum() + (t == c).sum())
        ),
        "Below the line is the union, |, not what is in one of the two only.": lambda p, t, c: (
            _share(((p == c) & (t == c)).sum(), ((p == c) ^ (t == c)).sum())
        ),
        "This counts the pixels in both; divide by the number of pixels in the union.": lambda p, t, c: (
            ((p == c) & (t == c)).sum()
        ),
        "This is the mean over classes; only class c counts.": lambda p, t, c: np.mean(
            [iou(p, t, k) for k in range(3)]
        ),
    },
)
def iou(predicted: Any, truth: Any, c: int) -> Any:
    """Return intersection over union of class c, over all pixels."""
    called, is_one = predicted == c, truth == c
    return (called & is_one).sum() / (called | is_one).sum()


def _windows(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (4, 1)
    yield (6, 2)
    yield (3, 0)
    yield (5, 4)
    yield (2, 3)


def _apart(side: int) -> Any:
    y, x = np.divmod(np.arange(side * side), side)
    return abs(y[:, None] - y), abs(x[:, None] - x)


@exercises.add(
    cases=_windows,
    mistakes={
        "Patches whose numbers are close need not be neighbours: a row ends and the next begins.": lambda side, reach: (
            abs(np.subtract.outer(np.arange(side * side), np.arange(side * side))) <= reach
        ),
        "Rows and columns are added; patches at the corners of the window are missing.": lambda side, reach: (
            sum(_apart(side)) <= reach
        ),
        "One of the two distances is enough here; both should be small.": lambda side, reach: (
            np.minimum(*_apart(side)) <= reach
        ),
        "Rows are limited, columns are not; both distances should be small.": lambda side, reach: (
            _apart(side)[0] <= reach
        ),
        "Columns are limited, rows are not; both distances should be small.": lambda side, reach: (
            _apart(side)[1] <= reach
        ),
        "This is a circle; rows and columns are limited each by itself.": lambda side, reach: (
            np.hypot(*_apart(side)) <= reach
        ),
        "A mask has the values True and False, not 1 and 0.": lambda side, reach: (
            1 * window(side, reach)
        ),
        "The edge of the window is missing: use <=.": lambda side, reach: (
            np.maximum(*_apart(side)) < reach
        ),
        "The window reaches one patch too far: use <=, not <= reach + 1.": lambda side, reach: (
            window(side, reach + 1)
        ),
        "A patch sees itself, too: the diagonal is True.": lambda side, reach: (
            window(side, reach) & ~np.eye(side * side, dtype=bool)
        ),
    },
)
def window(side: int, reach: int) -> Any:
    """Return a mask (side * side, side * side): True for patches at most `reach` rows and columns apart."""
    row, column = np.divmod(np.arange(side * side), side)
    down, across = abs(row[:, None] - row), abs(column[:, None] - column)
    return (down <= reach) & (across <= reach)


def _layers(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (window(5, 1), 2)
    yield (np.tri(6, dtype=bool) & ~np.tri(6, k=-2, dtype=bool), 3)
    yield (window(4, 1), 1)


@exercises.add(
    cases=_layers,
    mistakes={
        "This is the field of one layer; multiply by the mask once for each layer.": lambda mask, layers: (
            mask
        ),
        "This is one layer too many.": lambda mask, layers: receptive_field(mask, layers + 1),
        "This is one layer too few.": lambda mask, layers: receptive_field(mask, layers - 1),
        "The matrix holds numbers of ways; say whether there is one.": lambda mask, layers: (
            np.linalg.matrix_power(mask.astype(int), layers)
        ),
        "Rows are who sees and columns who is seen; here it is the other way round.": lambda mask, layers: (
            receptive_field(mask.T, layers)
        ),
        "The mask is multiplied by a number; multiply matrices, with @, once for each layer.": lambda mask, layers: (
            mask * layers
        ),
    },
)
def receptive_field(mask: Any, layers: int) -> Any:
    """Return for each patch (row) from which patches (columns) something arrives after some layers."""
    field = np.eye(len(mask), dtype=bool)
    for _ in range(layers):
        field = field @ mask
    return field

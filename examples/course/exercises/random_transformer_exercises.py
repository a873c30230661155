"""Exercises of lesson 6."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from grading import Exercises

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _pairs(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield ([(words, words) for words in itertools.product("abc", repeat=3)],)
    lines = ["a b:x", "b a:x", *2 * ["a b:y", "b a:y"], *3 * ["a b:z"]]
    lines += [*3 * ["a a b:u"], "a b a:v", "a b b:w", "b a b:t"]
    sides = [line.split(":") for line in lines]
    yield ([(tuple(source.split()), target.split()) for source, target in sides],)
    yield ([(source.split(), tuple(target.split())) for source, target in sides[::-1]],)


def _by(key: Any = lambda source: tuple(sorted(source)), best: Any = max) -> Any:
    """Return `most_right` with another key than the sorted words of a source, or another answer."""

    def most_right(pairs: Any) -> int:
        answers: dict[Any, list[Any]] = {}
        for source, target in pairs:
            answers.setdefault(key(source), []).append(tuple(target))
        return sum(best(list(map(same.count, same))) for same in answers.values())

    return most_right


@exercises.add(
    cases=_pairs,
    mistakes={
        "Order does not count: sort the words of a source.": _by(tuple),
        "Repeated words count: a b b and a a b differ.": _by(frozenset),
        "The answer of a bag is its most frequent target, not its first.": _by(
            best=lambda counts: counts[0]
        ),
        "The answer of a bag is its most frequent target, not its last.": _by(
            best=lambda counts: counts[-1]
        ),
        "It is the number of pairs with a bag's least frequent target.": _by(best=min),
        "It is the number of bags; two sources of a bag may have the same target.": lambda pairs: (
            len({tuple(sorted(source)) for source, _ in pairs})
        ),
        "A bag gets one answer: count the pairs with its most frequent target.": lambda pairs: len(
            {(tuple(sorted(source)), tuple(target)) for source, target in pairs}
        ),
    },
)
def most_right(pairs: Any) -> int:
    """Return how many pairs (source, target) a model can get right that does not know the order."""
    targets: dict[Any, list[Any]] = {}
    for source, target in pairs:
        targets.setdefault(tuple(sorted(source)), []).append(tuple(target))
    return sum(max(same.count(target) for target in same) for same in targets.values())


def _slopes(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield np.array([0.5, -0.3, 0.2]), False
    yield np.array([0.5, -0.3, 0.2]), True
    yield rng.uniform(-0.5, 0.5, 24), True
    yield np.array([-2.0]), True
    yield rng.uniform(-2, 2, 6), False


@exercises.add(
    cases=_slopes,
    mistakes={
        "Slopes of layers in a row are multiplied, not added.": lambda slopes, add: np.sum(
            slopes + add
        ),
        "Each layer adds its input: the 1 belongs to each factor, not to the product.": lambda slopes, add: (
            add + np.prod(slopes)
        ),
        "`add` is not used.": lambda slopes, add: np.prod(slopes),
        "The 1 is only there if `add` is true.": lambda slopes, add: np.prod(1 + slopes),
        "It is the slope after each layer; return the last one.": lambda slopes, add: np.cumprod(
            slopes + add
        ),
        "The first layer is left out.": lambda slopes, add: np.prod((slopes + add)[1:]),
        "The last layer is left out.": lambda slopes, add: np.prod((slopes + add)[:-1]),
    },
)
def slope_of_stack(slopes: Any, add: bool) -> Any:
    """Return the slope of layers in a row; with `add`, each layer adds its input to its output."""
    return np.prod(1 + slopes if add else slopes)


def _queries_and_keys(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((40, 2)), rng.standard_normal((12, 2))
    yield rng.standard_normal((30, 3)), rng.standard_normal((15, 3))
    yield rng.standard_normal((5, 4)), rng.standard_normal((9, 4))


@exercises.add(
    cases=_queries_and_keys,
    mistakes={
        "It asks which query is best for each key; ask which key is best for each query.": lambda Q, K: (
            len(np.unique((Q @ K.T).argmax(0)))
        ),
        "Count each key once, however many queries prefer it.": lambda Q, K: len(Q),
        "It is the smallest score that wins here; it should be the largest.": lambda Q, K: len(
            np.unique((Q @ K.T).argmin(1))
        ),
        "The largest score wins; a large negative score does not.": lambda Q, K: len(
            np.unique(abs(Q @ K.T).argmax(1))
        ),
        "A score is a dot product, not a distance.": lambda Q, K: len(
            np.unique(((Q[:, None] - K) ** 2).sum(-1).argmin(1))
        ),
    },
)
def winners(Q: Any, K: Any) -> int:
    """Return how many of the keys K (m, d) have the largest score for a query of Q (n, d)."""
    return len(np.unique((Q @ K.T).argmax(1)))


_TREE = {
    (): {"a": 0.5, "b": 0.3, "c": 0.2},
    ("a",): {"x": 0.22, "y": 0.2, "z": 0.19, "u": 0.21, "v": 0.18},
    ("c",): {"x": 0.9, "y": 0.1},
    ("c", "x"): {"u": 0.95, "v": 0.05},
}


_LATE = {  # a finished sentence is in the beam before a better one is finished
    (): {"a": 0.6, "b": 0.4},
    ("a",): {"x": 0.9, "y": 0.1},
    ("a", "x"): {"u": 0.9, "v": 0.1},
}


_PUSHED = {  # better beginnings push a finished sentence out of the beam, and all end worse
    (): {"a": 0.8, "b": 0.2},
    ("a",): {"x": 0.51, "y": 0.49},
    **{("a", word): {"u": 0.27, "v": 0.25, "w": 0.24, "z": 0.24} for word in "xy"},
}


_WIDE = {  # the third beginning ends best
    (): {"a": 0.4, "b": 0.33, "c": 0.27},
    **{(word,): {"x": 0.5, "y": 0.3, "z": 0.2} for word in "ab"},
    ("c",): {"x": 0.9, "y": 0.1},
}


def _trees(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _TREE, 1
    yield _TREE, 2
    yield _TREE, 3
    yield _LATE, 2
    yield _PUSHED, 2
    yield _WIDE, 2
    yield _WIDE, 3


def _search(
    fixed: int = 0, product: bool = True, keep: bool = True, more: Any = any, sign: int = -1
) -> Any:
    def beam_search(tree: Any, width: int) -> Any:
        width = fixed or width
        beam = [((), 1.0)]
        while more(words in tree for words, _ in beam):
            longer = [
                ((*words, word), p * q if product else q)
                for words, p in beam
                for word, q in tree.get(words, {}).items()
            ]
            if keep:
                longer += [(words, p) for words, p in beam if words not in tree]
            beam = sorted(longer, key=lambda pair: sign * pair[1])[:width]
        return beam[0]

    return beam_search


def _first_finished(tree: Any, width: int) -> Any:
    """Return the first finished sentence that is in the beam, as soon as there is one."""
    beam = [((), 1.0)]
    while all(words in tree for words, _ in beam):
        longer = [((*words, word), p * q) for words, p in beam for word, q in tree[words].items()]
        beam = sorted(longer, key=lambda pair: -pair[1])[:width]
    return next(pair for pair in beam if pair[0] not in tree)


@exercises.add(
    cases=_trees,
    mistakes={
        "It keeps one beginning; keep `width`.": _search(fixed=1),
        "Compare the product of all probabilities, not the last one.": _search(product=False),
        "A finished sentence stays in the beam; it is lost here.": _search(keep=False),
        "It keeps all beginnings; keep `width`.": _search(fixed=1000),
        "It stops when one sentence is finished; another one may become better. Go on until all are.": _first_finished,
        "It stops when one sentence is finished, and returns a beginning. Go on until all are.": _search(
            more=all
        ),
        "It keeps the least probable beginnings; sort from the largest probability down.": _search(
            sign=1
        ),
    },
)
def beam_search(tree: Any, width: int) -> Any:
    """Return the best sentence found, as (words, probability), with a beam of `width` beginnings."""
    beam = [((), 1.0)]
    while any(words in tree for words, _ in beam):
        longer = []
        for words, p in beam:
            if words in tree:
                longer += [((*words, word), p * q) for word, q in tree[words].items()]
            else:
                longer.append((words, p))  # finished
        beam = sorted(longer, key=lambda pair: -pair[1])[:width]
    return beam[0]

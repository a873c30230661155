"""Batches of about equal work: sentences of like length together, as many as a number of tokens
allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from minigrad.optim.settings import checked_count

from .corpus import IndexedPairs
from .vocabulary import PAD

__all__ = ["PairBatches", "padded"]

IdPair = tuple[Sequence[int], Sequence[int]]


def padded(
    sequences: Sequence[Sequence[int] | np.ndarray],
    pad_id: int = PAD,
    length: int | None = None,
    left: bool = False,
) -> np.ndarray:
    """Id lists as one array (N, L), shorter ones filled up with padding at the end, or at the
    `left`.
    """
    array = np.full(
        (len(sequences), length or max(map(len, sequences), default=0)), pad_id, np.int64
    )
    for row, ids in zip(array, sequences):
        row[len(row) - len(ids) if left else 0 :][: len(ids)] = ids
    return array


class PairBatches:
    """Batches of (source ids, target ids), two padded arrays, each of at most `max_tokens` padded
    tokens a side.

    Sentences are sorted by length within pools of a hundred batches or so, so that little is
    padded. With `shuffle`, order and pools are drawn anew in each epoch, from `seed` and the
    epoch's number alone.

    `pairs` are pairs of ids, in memory or `IndexedPairs`. With `encode` they may be anything of
    which `encode(pair, generator)` makes a pair of ids, anew in each epoch: see `BPEDropout`. Of
    pairs in a file, memory holds their order, 4 bytes each, and the lengths of one pool.
    """

    def __init__(
        self,
        pairs: Sequence[Any],
        max_tokens: int = 4096,
        shuffle: bool = True,
        seed: int = 0,
        pad_id: int = PAD,
        encode: Callable[[Any, np.random.Generator], IdPair] | None = None,
    ) -> None:
        if not len(pairs):
            raise ValueError("PairBatches: no pairs")
        self.pairs, self.encode = pairs, encode
        self.max_tokens = checked_count("PairBatches", "max_tokens", max_tokens)
        self.shuffle, self.seed, self.pad_id = (
            shuffle,
            checked_count("PairBatches", "seed", seed, 0),
            pad_id,
        )
        self._lengths: np.ndarray | None = None  # where they are all in memory
        if isinstance(pairs, IndexedPairs):
            self._mean = pairs.mean_length()
            self._check(pairs.longest)
        elif encode is None:
            sizes = _sizes(pairs)
            if not sizes.all():
                raise ValueError(f"PairBatches: pair {sizes.all(1).argmin()} has an empty side")
            self._lengths, self._mean = sizes.max(1), sizes.mean()
            self._check(sizes.max())
        else:
            generator = np.random.default_rng(seed)
            self._mean = _sizes([encode(pair, generator) for pair in pairs[:1000]]).mean()

    def _check(self, longest: int) -> None:
        if longest > self.max_tokens:
            raise ValueError(
                f"PairBatches: a sentence of {longest} tokens exceeds max_tokens={self.max_tokens}"
            )

    def _pools(self, epoch: int) -> Iterator[tuple[Any, list[np.ndarray]]]:
        """For each pool of an epoch: where to look up pairs of ids by number, and the numbers of
        each batch.
        """
        rng = np.random.default_rng([self.seed, epoch])
        n = len(self.pairs)
        order = np.arange(n, dtype=np.uint32)
        if self.shuffle:
            rng.shuffle(order)
        size = max(1, int(100 * self.max_tokens / self._mean)) if self.shuffle else n
        for start in range(0, n, size):
            numbers = order[start : start + size]
            ids, lengths = self._encoded(numbers, [self.seed, epoch, start])
            by_length = np.argsort(lengths, kind="stable")
            numbers, lengths = numbers[by_length], lengths[by_length]
            groups = [numbers[part] for part in _cut(lengths, self.max_tokens)]
            if self.shuffle:
                groups = [groups[i] for i in rng.permutation(len(groups))]
            yield ids, groups

    def _encoded(self, numbers: np.ndarray, seed: list[int]) -> tuple[Any, np.ndarray]:
        """Where to look up these pairs of ids, and their lengths."""
        if self._lengths is not None:
            return self.pairs, self._lengths[numbers]
        if self.encode is None:
            return self.pairs, self.pairs.lengths(numbers)  # type: ignore[attr-defined]
        generator = np.random.default_rng(seed)
        ids = {i: self.encode(self.pairs[i], generator) for i in numbers.tolist()}
        lengths = _sizes(ids.values()).max(1)
        self._check(lengths.max())
        return ids, lengths

    def plan(self, epoch: int = 0) -> list[np.ndarray]:
        """Which pairs make up each batch of an epoch."""
        return [group for _, groups in self._pools(epoch) for group in groups]

    def epoch(self, epoch: int = 0, start: int = 0, rank: int = 0, ranks: int = 1) -> Iterator[Any]:
        """The batches of an epoch, from number `start` on.

        A rank of a parallel run reads of each the rows `rank::ranks`; where there is none, its
        batch is None.
        """
        for ids, groups in self._pools(epoch):
            for group in groups[start:]:
                own = group[rank::ranks].tolist()
                sources, targets = zip(*[ids[i] for i in own]) if own else ((), ())
                yield (padded(sources, self.pad_id), padded(targets, self.pad_id)) if own else None
            start = max(0, start - len(groups))

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self.epoch()

    def __len__(self) -> int:
        """How many batches the first epoch has; others may differ by a few."""
        return sum(len(groups) for _, groups in self._pools(0))


def _sizes(pairs: Iterable[IdPair]) -> np.ndarray:
    """The lengths of both sides, (pairs, 2)."""
    return np.array([[len(a), len(b)] for a, b in pairs])


def _cut(lengths: np.ndarray, max_tokens: int) -> list[slice]:
    """Rising lengths cut into stretches, each as long as its last length lets it be."""
    parts = []
    first = 0
    while first < len(lengths):
        some = lengths[first : first + max_tokens // lengths[first]]
        count = int(np.searchsorted(some * np.arange(1, len(some) + 1), max_tokens, side="right"))
        parts.append(slice(first, first + count))
        first += count
    return parts

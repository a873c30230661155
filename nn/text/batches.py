"""Batches of about equal work: sentences of like length together, as many as a number of tokens allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .vocabulary import PAD

__all__ = ["PairBatches", "padded"]


def padded(sequences: Sequence[Sequence[int]], pad_id: int = PAD, length: int | None = None) -> np.ndarray:
    """Id lists as one array (N, L), shorter ones filled up with padding at the end."""
    array = np.full((len(sequences), length or max(map(len, sequences), default=0)), pad_id, np.int64)
    for row, ids in zip(array, sequences):
        row[: len(ids)] = ids
    return array


class PairBatches:
    """Batches of (source ids, target ids), two padded arrays, each of at most `max_tokens` padded tokens a side.

    Sentences are sorted by length within pools of a hundred batches or so, so that little is padded.
    With `shuffle`, order and pools are drawn anew in each epoch, from `seed` and the epoch's number
    alone: a run that is taken up again in the middle of an epoch sees the batches it would have seen.
    """

    def __init__(
        self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], max_tokens: int = 4096, shuffle: bool = True,
        seed: int = 0, pad_id: int = PAD,
    ) -> None:  # fmt: skip
        if not pairs:
            raise ValueError("PairBatches: no pairs")
        if empty := [i for i, (a, b) in enumerate(pairs) if not len(a) or not len(b)]:
            raise ValueError(f"PairBatches: pair {empty[0]} has an empty side")
        self.pairs = pairs
        self.max_tokens = max_tokens
        self.shuffle = shuffle
        self.seed = seed
        self.pad_id = pad_id
        self._lengths = np.array([max(len(a), len(b)) for a, b in pairs])
        if self._lengths.max() > max_tokens:
            raise ValueError(f"PairBatches: a sentence of {self._lengths.max()} tokens exceeds max_tokens={max_tokens}")

    def plan(self, epoch: int = 0) -> list[np.ndarray]:
        """Which pairs make up each batch of an epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        n = len(self.pairs)
        order = rng.permutation(n) if self.shuffle else np.arange(n)
        pool = max(1, int(100 * self.max_tokens / self._lengths.mean())) if self.shuffle else n
        groups = []
        for start in range(0, n, pool):
            part = order[start : start + pool]
            part = part[np.argsort(self._lengths[part], kind="stable")]
            first = 0
            for i in range(1, len(part) + 1):  # lengths rise: the last sentence decides the width
                if i == len(part) or self._lengths[part[i]] * (i - first + 1) > self.max_tokens:
                    groups.append(part[first:i])
                    first = i
        if self.shuffle:
            groups = [groups[i] for i in rng.permutation(len(groups))]
        return groups

    def epoch(self, epoch: int = 0, start: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The batches of an epoch, from number `start` on."""
        for group in self.plan(epoch)[start:]:
            sources, targets = zip(*[self.pairs[i] for i in group])
            yield padded(sources, self.pad_id), padded(targets, self.pad_id)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self.epoch()

    def __len__(self) -> int:
        return len(self.plan())

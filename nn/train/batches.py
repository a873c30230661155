"""Batches: what a trainer accepts, in an order that the number of the epoch decides."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from minigrad.optim.settings import checked_count

__all__ = ["ArrayBatches", "Batches", "WindowBatches", "as_batches"]


class Batches:
    """Batches that come in a new order in each epoch, drawn from its number alone.

    So a run that is taken up again within an epoch sees what it would have seen. Subclasses define
    `plan` and `take`. A loop `for batch in batches` is an epoch; the next one has another order.
    """

    _passes = 0

    def plan(self, epoch: int = 0) -> Sequence[Any]:
        """What makes up each batch of an epoch."""
        raise NotImplementedError

    def take(self, item: Any) -> Any:
        """The batch for an item of the plan."""
        raise NotImplementedError

    def epoch(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from number `start` on."""
        for item in self.plan(epoch)[start:]:
            yield self.take(item)

    def __iter__(self) -> Iterator[Any]:
        self._passes += 1
        return self.epoch(self._passes - 1)

    def __len__(self) -> int:
        return len(self.plan())


class RowBatches(Batches):
    """Batches of `batch_size` rows; the last one may be smaller. A rank of a parallel run reads
    only its own rows.

    With `shuffle`, rows are drawn anew in each epoch, from `seed` and the epoch's number.
    Subclasses define `rows`, and `take` for some of them.
    """

    def __init__(self, batch_size: int, shuffle: bool, seed: int) -> None:
        owner = type(self).__name__
        self.batch_size = checked_count(owner, "batch_size", batch_size)
        self.shuffle, self.seed = shuffle, checked_count(owner, "seed", seed, 0)

    def rows(self, generator: np.random.Generator) -> np.ndarray:
        """The rows of an epoch, before they are shuffled."""
        raise NotImplementedError

    def plan(self, epoch: int = 0) -> list[np.ndarray]:
        generator = np.random.default_rng([self.seed, epoch])
        rows = self.rows(generator)
        rows = generator.permutation(rows) if self.shuffle else rows
        return [rows[i : i + self.batch_size] for i in range(0, len(rows), self.batch_size)]

    def epoch(self, epoch: int = 0, start: int = 0, rank: int = 0, ranks: int = 1) -> Iterator[Any]:
        """The batches of an epoch, from number `start` on: of each the rows `rank::ranks`, None
        where there is none.
        """
        for rows in self.plan(epoch)[start:]:
            own = rows[rank::ranks]
            yield self.take(own) if len(own) else None


class ArrayBatches(RowBatches):
    """Batches of rows from arrays of like length: tuples with a part of each array.

    ArrayBatches(ids, classes, batch_size=32)
    """

    def __init__(self, *arrays: Any, batch_size: int, shuffle: bool = True, seed: int = 0) -> None:
        self.arrays = [np.asarray(a) for a in arrays]
        if len({len(a) for a in self.arrays if a.ndim}) != 1 or not all(
            a.ndim for a in self.arrays
        ):
            raise ValueError(
                f"ArrayBatches: expected arrays of one length, got {[a.shape for a in self.arrays]}"
            )
        super().__init__(batch_size, shuffle, seed)

    def rows(self, generator: np.random.Generator) -> np.ndarray:
        return np.arange(len(self.arrays[0]))

    def take(self, item: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(a[item] for a in self.arrays)


class WindowBatches(RowBatches):
    """Batches (ids,) of windows from one long sequence of token ids, for a language model.

    A window has `length` + 1 tokens: `length` that are read, and as many that are predicted.
    Windows lie side by side; with `shuffle`, from another first token in each epoch.
    """

    def __init__(
        self, ids: Any, length: int, batch_size: int, shuffle: bool = True, seed: int = 0
    ) -> None:
        self.ids = np.asarray(ids)
        if self.ids.ndim != 1 or self.ids.dtype.kind not in "iu":
            raise ValueError(
                f"WindowBatches: expected integer ids (L,), got {self.ids.dtype} {self.ids.shape}"
            )
        self.length = checked_count("WindowBatches", "length", length)
        super().__init__(batch_size, shuffle, seed)
        if len(self.ids) <= length:
            raise ValueError(
                f"WindowBatches: {len(self.ids)} tokens are too few for windows of {length} + 1"
            )

    def rows(self, generator: np.random.Generator) -> np.ndarray:
        last = len(self.ids) - 1 - self.length  # where the last window can begin
        first = int(generator.integers(min(self.length, last + 1))) if self.shuffle else 0
        return np.arange(first, last + 1, self.length)

    def take(self, item: np.ndarray) -> tuple[np.ndarray]:
        return (self.ids[item[:, None] + np.arange(self.length + 1)],)


class _Sequence(Batches):
    """The batches of a list, shuffled or not."""

    def __init__(self, batches: Sequence[Any], shuffle: bool) -> None:
        self.batches, self.shuffle = batches, shuffle

    def plan(self, epoch: int = 0) -> Any:
        n = len(self.batches)
        return (
            np.random.default_rng([0, epoch]).permutation(n).tolist() if self.shuffle else range(n)
        )

    def take(self, item: int) -> Any:
        return self.batches[item]


class _Iterable:
    """The batches of an iterable, or of a function that returns one for the number of an epoch."""

    def __init__(self, source: Iterable[Any] | Callable[[int], Iterable[Any]]) -> None:
        self.source = source

    def epoch(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        found = self.source(epoch) if callable(self.source) else self.source
        return itertools.islice(iter(found), start, None)


def as_batches(batches: Any, shuffle: bool = True) -> Any:
    """An object with `epoch(number, start)`, from one, a sequence, an iterable or a function of the
    epoch's number.

    A sequence is shuffled by epoch, if asked for; other sources decide about their order
    themselves.
    """
    if callable(getattr(batches, "epoch", None)):
        return batches
    if isinstance(batches, Iterator):
        raise TypeError(
            "batches: a generator runs once only; pass a list, or a function epoch -> generator"
        )
    if isinstance(batches, Sequence) and not isinstance(batches, (str, bytes)):
        return _Sequence(batches, shuffle)
    if callable(batches) or isinstance(batches, Iterable):
        return _Iterable(batches)
    raise TypeError(
        f"batches: expected an iterable of batches, or a function epoch -> iterable, got "
        f"{batches!r:.80}"
    )

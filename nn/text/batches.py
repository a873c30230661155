"""Batches for training, in an order that a seed and the number of the epoch decide."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from minigrad.arguments import checked_count
from minigrad.nested import leaves, rebuilt
from minigrad.numpy.nested import aligned
from minigrad.tensor import Tensor, unwrap

from .vocabulary import PAD

__all__ = ["Batches", "PairBatches", "WindowBatches", "as_batches", "padded"]

IdPair = tuple[Sequence[int], Sequence[int]]
Take = Callable[[np.ndarray], Any]


def padded(
    sequences: Sequence[Sequence[int] | np.ndarray],
    pad_id: int = PAD,
    length: int | None = None,
    left: bool = False,
) -> np.ndarray:
    """Return sequences of ids as rows (N, length) of one array, filled with padding.

    Parameters
    ----------
    sequences : sequence of sequences of int
        Ids of each row.
    pad_id : int
        Id that fills the rows.
    length : int, optional
        Columns of the array; the longest sequence by default.
    left : bool
        True = padding comes before the ids, False = after them.
    """
    length = length or max(map(len, sequences), default=0)
    array = np.full((len(sequences), length), pad_id, np.int64)
    for row, ids in zip(array, map(np.asarray, sequences)):
        if ids.dtype.kind not in "iub" and len(ids):
            raise TypeError(f"padded: sequences must hold integers, got {ids.dtype}")
        row[length - len(ids) if left else 0 :][: len(ids)] = ids
    return array


class Batches:
    """Batches of arrays or of a dataset, in a new order in each epoch.

        for x, y in nn.Batches(inputs, labels, batch_size=32):
            loss = model.loss(x, y)

    A `for` loop is one epoch and yields Tensors with the dtypes of the data, which should be those
    of the model (`inputs.astype(np.float32)`). A `Trainer` reads NumPy arrays, and layers convert
    them.
    The order depends on `seed` and the number of the epoch alone, so a `Trainer` resumes exactly in
    mid-epoch. A subclass overrides `take`, and `rows` or `plan`.

    Parameters
    ----------
    *data : arrays, dict of arrays, or dataset
        Arrays of one length give tuples with some rows of each. A dict of arrays gives dicts. A
        dataset is any other object with a length and integer indices; its items are samples.
    batch_size : int
        Rows of a batch. The last batch of an epoch may have fewer.
    shuffle : bool
        True = draw a new order for each epoch.
    seed : int
        Seed of the orders, at least 0.
    drop_last : bool
        True = leave out a last batch with fewer than `batch_size` rows.
    collate : function, optional
        Takes a list of samples and returns a batch. By default numbers and arrays are stacked, in
        tuples, lists and dicts too, and strings are listed.

    Attributes
    ----------
    dataset : object
        The samples, with a length and indices.
    """

    _passes = 0

    def __init__(
        self,
        *data: Any,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        name = type(self).__name__
        self.batch_size = checked_count(name, "batch_size", batch_size)
        self.seed = checked_count(name, "seed", seed, 0)
        self.shuffle, self.drop_last, self.collate = shuffle, drop_last, collate
        is_dataset = len(data) == 1 and not isinstance(data[0], (dict, np.ndarray, Tensor))
        self.dataset = data[0] if is_dataset else _Arrays(name, *data)
        if not hasattr(self.dataset, "__len__") or not hasattr(self.dataset, "__getitem__"):
            raise TypeError(
                f"{name}: data must be arrays, a dict of arrays, or an object with a length and "
                f"indices, got {self.dataset!r:.60}; make a list of it"
            )

    def rows(self, generator: np.random.Generator) -> np.ndarray:
        """Return the rows of an epoch before they are shuffled; `generator` may draw them.

        Parameters
        ----------
        generator : numpy.random.Generator
            Seeded by `seed` and the number of the epoch.
        """
        return np.arange(len(self.dataset))

    def plan(self, epoch: int = 0) -> Sequence[Any]:
        """Return the rows of each batch of an epoch, as a list of arrays (rows,).

        Parameters: as `Batches.epoch`.
        """
        generator = np.random.default_rng([self.seed, epoch])
        rows = self.rows(generator)
        rows = generator.permutation(rows) if self.shuffle else rows
        end = len(rows) - len(rows) % self.batch_size if self.drop_last else len(rows)
        return [rows[i : i + self.batch_size] for i in range(0, end, self.batch_size)]

    def take(self, rows: Any) -> Any:
        """Return the batch of these rows.

        Parameters
        ----------
        rows : array of int, shape (rows,)
            An item of `plan`, or some of its rows.
        """
        if self.collate is None and isinstance(self.dataset, _Arrays):
            return self.dataset[rows]
        return (self.collate or _stack)([self.dataset[i] for i in rows.tolist()])

    def epoch(self, epoch: int = 0, start: int = 0, rank: int = 0, ranks: int = 1) -> Iterator[Any]:
        """Yield the batches of an epoch, of NumPy arrays.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.
        start : int
            Index of the first batch that is returned.
        rank, ranks : int
            The rows `rank::ranks` of each batch are read.

        Yields
        ------
        batch
            None if there are no such rows.
        """
        for rows, take in itertools.islice(self._planned(epoch), start, None):
            shard = rows if ranks == 1 else rows[rank::ranks]
            yield take(shard) if ranks == 1 or len(shard) else None

    def __iter__(self) -> Iterator[Any]:
        self._passes += 1
        for batch in self.epoch(self._passes - 1):
            arrays = leaves(batch)
            yield rebuilt(batch, [Tensor(a) if _is_numeric(a) else a for a in arrays])

    def __len__(self) -> int:
        """Return the number of batches of the first epoch."""
        return len(self.plan())

    def _planned(self, epoch: int) -> Iterator[tuple[Any, Take]]:
        """Return the rows of each batch, and the function that makes the batch of them."""
        return ((rows, self.take) for rows in self.plan(epoch))


class _Arrays:
    """Dataset of arrays of one length, in a tuple or dict."""

    def __init__(self, name: str, *data: Any) -> None:
        tree = data[0] if len(data) == 1 and isinstance(data[0], dict) else data
        is_leaf = lambda value: value is not tree
        arrays = [np.asarray(unwrap(value)) for value in leaves(tree, is_leaf)]
        shapes = [array.shape for array in arrays]
        if len({shape[:1] for shape in shapes}) != 1 or not shapes[0]:
            raise ValueError(f"{name}: data must be arrays of one length, got shapes {shapes}")
        self.arrays = rebuilt(tree, arrays, is_leaf)

    def __len__(self) -> int:
        return len(leaves(self.arrays)[0])

    def __getitem__(self, rows: Any) -> Any:
        return rebuilt(self.arrays, [array[rows] for array in leaves(self.arrays)])

    def fingerprint(self) -> list[Any]:
        """Return the shapes, and some rows of arrays above 64 MB."""
        return [[a.shape, a[:: 1 + (a.nbytes >> 26)]] for a in leaves(self.arrays)]


def _is_numeric(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"


def _stack(samples: list[Any]) -> Any:
    """Return one array for each number or array of the samples, and lists of strings."""
    try:
        columns = list(zip(*[aligned(samples[0], sample) for sample in samples]))
        stacked = [np.stack([np.asarray(unwrap(x)) for x in column]) for column in columns]
    except ValueError as error:
        raise ValueError(
            f"Batches: samples must have one structure and shape, got {error}; pass collate="
        ) from None
    values = [a if _is_numeric(a) else list(column) for a, column in zip(stacked, columns)]
    return rebuilt(samples[0], values)


class WindowBatches(Batches):
    """Batches (ids,) of windows from one long sequence of token ids, for a language model.

    A window has `length` + 1 tokens: `length` inputs and, shifted by one, `length` targets. Windows
    lie side by side. With `shuffle`, the first window of each epoch begins at another token.

    Other parameters: as `Batches`.

    Parameters
    ----------
    ids : array of int, shape (L,)
        The sequence.
    length : int
        Tokens that a window predicts; less than L.
    """

    def __init__(
        self, ids: Any, length: int, batch_size: int, shuffle: bool = True, seed: int = 0
    ) -> None:
        self.ids = np.asarray(unwrap(ids))
        if self.ids.ndim != 1 or self.ids.dtype.kind not in "iu":
            raise ValueError(
                "WindowBatches: ids must be integers of shape (L,), got "
                f"{self.ids.dtype} {self.ids.shape}"
            )
        super().__init__(self.ids, batch_size=batch_size, shuffle=shuffle, seed=seed)
        self.length = checked_count("WindowBatches", "length", length)
        if len(self.ids) <= length:
            raise ValueError(
                f"WindowBatches: length must be less than the {len(self.ids)} ids, got {length}"
            )

    def rows(self, generator: np.random.Generator) -> np.ndarray:
        """Return the first tokens of the windows of an epoch."""
        last = len(self.ids) - 1 - self.length  # first token of the last possible window
        first = int(generator.integers(min(self.length, last + 1))) if self.shuffle else 0
        return np.arange(first, last + 1, self.length)

    def take(self, rows: np.ndarray) -> tuple[np.ndarray]:
        """Return the windows that begin at these tokens."""
        return (self.ids[rows[:, None] + np.arange(self.length + 1)],)


class PairBatches(Batches):
    """Batches (source ids, target ids) of about equal work: two padded arrays.

    Pairs are sorted by length within pools of about a hundred batches, so little is padded. With
    `shuffle`, pools and the order of batches are drawn again in each epoch.

    Other parameters: as `Batches`.

    Parameters
    ----------
    pairs : sequence of (source ids, target ids)
        With `encode`, a sequence of any objects. It can read pairs from a file, as in
        `examples/indexed_pairs.py`. Memory holds 4 bytes a pair for the lengths.
    max_tokens : int
        Most tokens of a batch on each side, padding included.
    pad_id : int
        Id that fills shorter rows.
    encode : function, optional
        Takes an item of `pairs` and a generator and returns a pair of ids, anew in each epoch.
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
            raise ValueError("PairBatches: pairs must contain at least one pair, got none")
        self.pairs, self.encode, self.shuffle, self.pad_id = pairs, encode, shuffle, pad_id
        self.max_tokens = checked_count("PairBatches", "max_tokens", max_tokens)
        self.seed = checked_count("PairBatches", "seed", seed, 0)
        if encode is None:
            sizes = _sizes(pairs, range(len(pairs)))
            self._lengths = sizes.max(1)
            self._mean = sizes.mean()
            self._check(self._lengths.max())
        else:
            generator = np.random.default_rng(seed)
            first = [encode(pair, generator) for pair in pairs[:1000]]
            self._mean = _sizes(first, range(len(first))).mean()

    def plan(self, epoch: int = 0) -> list[np.ndarray]:
        """Return the indices of the pairs of each batch of an epoch."""
        return [rows for rows, _ in self._planned(epoch)]

    def _planned(self, epoch: int) -> Iterator[tuple[np.ndarray, Take]]:
        rng = np.random.default_rng([self.seed, epoch])
        n = len(self.pairs)
        order = np.arange(n, dtype=np.uint32)
        if self.shuffle:
            rng.shuffle(order)
        size = max(1, int(100 * self.max_tokens / self._mean)) if self.shuffle else n
        for start in range(0, n, size):
            rows = order[start : start + size]
            ids: Any = self.pairs
            if self.encode is None:
                lengths = self._lengths[rows]
            else:
                generator = np.random.default_rng([self.seed, epoch, start])
                ids = {i: self.encode(self.pairs[i], generator) for i in rows.tolist()}
                lengths = _sizes(ids.values(), [*ids]).max(1)
                self._check(lengths.max())
            by_length = np.argsort(lengths, kind="stable")
            batches = list(_cut(rows[by_length], lengths[by_length], self.max_tokens))
            for i in rng.permutation(len(batches)) if self.shuffle else range(len(batches)):
                yield batches[i], partial(self._padded, ids)

    def _padded(self, ids: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sources, targets = zip(*[ids[i] for i in rows.tolist()])
        return padded(sources, self.pad_id), padded(targets, self.pad_id)

    def _check(self, longest: int) -> None:
        if longest > self.max_tokens:
            raise ValueError(
                f"PairBatches: max_tokens must be at least {longest}, the length of the longest "
                f"sentence, got {self.max_tokens}; leave out or truncate longer sentences"
            )


def _sizes(pairs: Iterable[IdPair], indices: Sequence[int]) -> np.ndarray:
    """Return the lengths of both sides, (pairs, 2), or raise an error for an empty side."""
    both = itertools.chain.from_iterable((len(a), len(b)) for a, b in pairs)
    sizes = np.fromiter(both, np.uint32, 2 * len(indices)).reshape(-1, 2)
    if not sizes.all():
        pair = indices[int(sizes.all(1).argmin())]
        raise ValueError(f"PairBatches: both sides of pair {pair} must have at least one id")
    return sizes


def _cut(rows: np.ndarray, lengths: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Yield slices of rows, each as long as its last (largest) length allows."""
    while len(rows):
        most = lengths[: max_tokens // lengths[0]]
        padded_sizes = most * np.arange(1, len(most) + 1)
        count = int(np.searchsorted(padded_sizes, max_tokens, side="right"))
        yield rows[:count]
        rows = rows[count:]
        lengths = lengths[count:]


class _Source:
    """Batches of a sequence, an iterable, or a function of the number of an epoch."""

    def __init__(self, batches: Any, shuffle: bool) -> None:
        self.batches = batches
        self.shuffle = shuffle

    def epoch(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        batches = self.batches
        if isinstance(batches, Sequence):
            rows = np.arange(len(batches))
            order = np.random.default_rng([0, epoch]).permutation(rows) if self.shuffle else rows
            return (batches[i] for i in order[start:].tolist())
        return itertools.islice(batches(epoch) if callable(batches) else batches, start, None)

    def __len__(self) -> int:
        return len(self.batches)


def as_batches(batches: Any, shuffle: bool = True) -> Any:
    """Return an object with `epoch(number, start)`, as a `Trainer` reads batches.

    Parameters
    ----------
    batches : object, sequence, iterable or function
        An object with that method is returned unchanged. A function takes the number of an epoch
        and returns an iterable.
    shuffle : bool
        True = a sequence is shuffled in each epoch. Other sources keep their order.
    """
    if callable(getattr(batches, "epoch", None)):
        return batches
    if isinstance(batches, Iterator):
        raise TypeError(
            "batches must be a list, or a function epoch -> generator, got a generator, which "
            "runs once only"
        )
    is_source = callable(batches) or isinstance(batches, Iterable)
    if not is_source or isinstance(batches, (str, bytes)):
        raise TypeError(
            "batches must be an iterable of batches, or a function epoch -> iterable, got "
            f"{batches!r:.80}"
        )
    return _Source(batches, shuffle)

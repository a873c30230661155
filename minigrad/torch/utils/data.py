"""Data sets and batches with the names of `torch.utils.data`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from minigrad.check.namespace import namespace
from nn import Batches

from ..functions import _source

__all__ = ["DataLoader", "Dataset", "Subset", "TensorDataset", "random_split"]

T = TypeVar("T")


class Dataset(Generic[T]):
    """Base class of data sets, which have `__len__` and `__getitem__`."""

    def __getitem__(self, index: int) -> T:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Rows of tensors whose first axes have one length."""

    def __init__(self, *tensors: Any) -> None:
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) != 1:
            raise ValueError(f"TensorDataset: tensors must have one length, got {lengths}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset[T]):
    """Items of a data set at indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> T:
        item: T = self.dataset[self.indices[index]]
        return item

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Any, lengths: Sequence[int | float], generator: Any = None
) -> list[Subset[Any]]:
    """Divide a data set at random.

    Parameters: as `torch.utils.data.random_split`.
    """
    n, sizes = len(dataset), [int(length) for length in lengths]
    if math.isclose(sum(lengths), 1):
        sizes = [math.floor(n * part) for part in lengths]
        for i in range(n - sum(sizes)):
            sizes[i % len(sizes)] += 1
    if sum(sizes) != n:
        raise ValueError(f"random_split: lengths must add up to {n}, got {list(lengths)}")
    order = _source(generator).permutation(n)
    ends = np.cumsum(sizes)
    return [Subset(dataset, order[end - size : end].tolist()) for size, end in zip(sizes, ends)]


class DataLoader(Batches):
    """Batches of a data set, in a new order in each epoch if `shuffle` is true.

    Parameters: as `torch.utils.data.DataLoader`. `num_workers` must be 0, and `pin_memory` has no
    effect.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        generator: Any = None,
    ) -> None:
        if num_workers:
            raise ValueError(
                f"DataLoader: num_workers must be 0, got {num_workers}; data are read in this "
                "process"
            )
        seed = int(_source(generator).integers(2**32)) if shuffle else 0
        super().__init__(
            dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            collate=collate_fn,
        )
        self.dataset = dataset  # also arrays, whose rows are samples


if not TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = namespace(__name__)

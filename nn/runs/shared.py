"""Losses of batches, split among the ranks and processes of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minigrad.fast.parallel import SingleProcess, start_parallel
from minigrad.modes import no_grad
from minigrad.optim import Optimizer
from minigrad.tensor import Tensor

from ..module import Module, evaluating
from ..text.batches import Batches
from .agreement import digest
from .interrupts import Interrupts, Stopped
from .objectives import Objective, check_has_parts


class SharedLosses:
    """Splits batches among ranks, and among the processes of each.

    Within this context the ranks of `parallel` work together; outside it each works by itself. A
    rank reads only its rows if the source of the batches and the objective split them by rows;
    otherwise it reads whole batches.
    """

    def __init__(self, model: Module, objective: Any, optimizer: Optimizer, parallel: Any) -> None:
        self.model = model
        self.objective = objective
        self.parallel = start_parallel(parallel, optimizer, self._loss, model=model)
        self.interrupts = Interrupts()
        self._single = self._together = SingleProcess(optimizer, self._loss)

    def __enter__(self) -> SharedLosses:
        if self.parallel.size * self.parallel.parts > 1:
            check_has_parts(self.objective, self.model)
        self._together = self.parallel.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._together = self._single
        self.parallel.__exit__(*error)

    def _by_rows(self, source: Any) -> bool:
        split = getattr(type(self.objective), "split", None)
        return self._together.size > 1 and isinstance(source, Batches) and split is Objective.split

    def batches(self, source: Any, epoch: int, start: int = 0) -> Iterator[Any]:
        """Return the batches of an epoch as this rank reads them; None if it has no rows of one."""
        shard = (self._together.rank, self._together.size) if self._by_rows(source) else ()
        return iter(source.epoch(epoch, start, *shard))

    def parts(self, source: Any, batch: Any) -> list[Any]:
        """Return the parts of a batch that the processes of this rank work on."""
        together = self._together
        rank, ranks = (0, 1) if self._by_rows(source) else (together.rank, together.size)
        if batch is None:
            return []
        if ranks * self.parallel.parts == 1:
            return [batch]
        return self.objective.split(batch, ranks * self.parallel.parts)[rank::ranks]

    def count(
        self, step: int, source: Any, batches: Sequence[Any], parts: list[list[Any]]
    ) -> tuple[float, bool]:
        """Return the number of targets in the parts of all ranks, and whether one is to stop.

        Ranks that read whole batches must read the same ones.
        """
        count = sum(self.objective.count(self.model, part) for shard in parts for part in shard)
        whole = self._together.size > 1 and not self._by_rows(source)
        checksum = int(digest(batches)[:8], 16) if whole else 0
        count, stop, total = self.parallel.sum([count, self.interrupts.noted, checksum])
        if total != checksum * self._together.size:
            raise ValueError(
                f"step {step}: the batch of rank {self.parallel.rank} differs from the batches of "
                "other ranks"
            )
        return count, bool(stop)

    def _loss(self, shard: tuple[Any, float]) -> Tensor:
        part, count = shard
        return self.objective.total(self.model, part) / count

    def mean(self, source: Any) -> float:
        """Return the mean loss over all batches of a source, in evaluation mode."""
        rank, size = self._together.rank, self._together.size
        by_rows = self._by_rows(source)
        total = count = 0.0
        with no_grad(), evaluating():
            for i, batch in enumerate(self.batches(source, 0)):
                if batch is not None and (by_rows or i % size == rank):
                    total += self.objective.total(self.model, batch).item()
                    count += self.objective.count(self.model, batch)
                if self.interrupts.noted and size == 1:
                    raise Stopped
        total, count = self._together.sum([total, count])
        if not count:
            raise ValueError("batches must have at least one target, got none")
        return total / count

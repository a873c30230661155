"""The losses of batches, shared out among the ranks and processes of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minigrad.core.modes import no_grad
from minigrad.core.tensor import Tensor
from minigrad.optim import Optimizer
from minigrad.parallel import Alone, start_parallel

from ..layers.module import Module
from ..text.batches import PairBatches
from .agreement import digest
from .batches import RowBatches
from .interrupts import Interrupts, Stopped
from .objectives import Objective


class SharedLosses:
    """Sums an objective over batches, of which each rank takes its part, and in training each of
    its processes.

    Within this context the ranks of `parallel` work together; outside it each takes all by itself.
    A rank reads its own rows alone where the source offers it, and the objective splits by rows
    too; else it reads whole batches.
    """

    def __init__(self, model: Module, objective: Any, optimizer: Optimizer, parallel: Any) -> None:
        self.model, self.objective = model, objective
        self.parallel = start_parallel(parallel, optimizer, self._loss, model=model)
        self.interrupts = Interrupts()
        self._alone = self._together = Alone(optimizer, self._loss)

    def __enter__(self) -> SharedLosses:
        self._together = self.parallel.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._together = self._alone
        self.parallel.__exit__(*error)

    def _by_rows(self, source: Any) -> bool:
        split = getattr(type(self.objective), "split", None)
        return (
            self._together.size > 1
            and isinstance(source, (RowBatches, PairBatches))
            and split is Objective.split
        )

    def batches(self, source: Any, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch as this rank reads them; None is one of which it has no rows."""
        own = (self._together.rank, self._together.size) if self._by_rows(source) else ()
        return iter(source.epoch(epoch, start, *own))

    def backward(self, step: int, source: Any, batches: list[Any]) -> tuple[float, float, bool]:
        """The mean loss over the targets of a step's batches, how many those are, and whether
        Ctrl-C was pressed.

        All ranks get the same; the gradients are with `parallel`.
        """
        parallel, by_rows = self.parallel, self._by_rows(source)
        parts = [self._own_parts(batch, by_rows) for batch in batches]
        counted = sum(self.objective.count(self.model, part) for own in parts for part in own)
        seen = (
            int(digest(batches)[:8], 16) if self._together.size > 1 and not by_rows else 0
        )  # the same whole batches
        count, stop, all_seen = parallel.sum([counted, self.interrupts.noted, seen])
        if all_seen != seen * self._together.size:
            raise ValueError(
                f"step {step}: the batch of rank {parallel.rank} is not that of the other ranks"
            )
        loss = 0.0
        for i, own in enumerate(parts):
            shards = [(part, max(count, 1)) for part in own]
            loss += sum(parallel.backward(shards, add=i > 0))
        return parallel.sum([loss])[0], count, bool(stop)

    def _own_parts(self, batch: Any, by_rows: bool) -> list[Any]:
        """The parts of a batch that the processes of this rank work on."""
        rank, ranks = (0, 1) if by_rows else (self._together.rank, self._together.size)
        if batch is None:
            return []
        if ranks * self.parallel.parts == 1:
            return [batch]
        return self.objective.split(batch, ranks * self.parallel.parts)[rank::ranks]

    def _loss(self, shard: tuple[Any, float]) -> Tensor:
        part, count = shard
        return self.objective.total(self.model, part) / count

    def mean(self, source: Any) -> float:
        """The mean loss over all batches of a source, in evaluation mode; the ranks take whole ones
        in turn.
        """
        training, by_rows = self.model.training, self._by_rows(source)
        total, count = 0.0, 0.0
        self.model.eval()
        try:
            with no_grad():
                for i, batch in enumerate(self.batches(source, 0)):
                    if batch is not None and (
                        by_rows or i % self._together.size == self._together.rank
                    ):
                        total += self.objective.total(self.model, batch).item()
                        count += self.objective.count(self.model, batch)
                    if self.interrupts.noted and self._together.size == 1:
                        raise Stopped
        finally:
            self.model.train(training)
        total, count = self._together.sum([total, count])
        return total / max(count, 1)

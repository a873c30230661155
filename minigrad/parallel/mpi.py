"""Training steps shared by the ranks of an MPI job, on as many machines as there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..optim import Optimizer
from ..runtime import available_cores, get_num_threads, threads
from . import job
from .bfloat16 import add_up_in_bfloat16
from .buckets import Buckets
from .forked import DataParallel
from .protocol import Alone
from .surroundings import generators, reseed, surroundings

__all__ = ["MPIParallel"]


class MPIParallel(Alone):
    """Steps of all ranks of a job that mpiexec or srun started; each may fork `processes` for its
    own cores.

        mpiexec -n 4 python train.py        # in which a Trainer finds its ranks by itself, or
        Trainer(..., parallel=functools.partial(MPIParallel, processes=2, bfloat16=True))

    Each rank calls `backward` with its own shards (none, where a batch has too few rows). Gradients
    are summed in place by all-reduce, a bucket of at least `bucket_bytes` at a time, once a step.
    With `overlap` a thread does it while backward goes on: by default where a rank has a core to
    spare, and no processes. With `bfloat16` gradients travel in 16 bits: half the bytes, sums in 32
    bits, rounded before and after. Needs mpi4py and an MPI (`pip install mpi4py mpich`).
    """

    def __init__(
        self,
        optimizer: Optimizer,
        loss: Callable[[Any], Tensor],
        processes: int = 1,
        *,
        bfloat16: bool = False,
        overlap: bool | None = None,
        bucket_bytes: int = 1 << 23,
    ) -> None:
        super().__init__(optimizer, loss)
        self.comm = job.begin()
        self.rank, self.size = self.comm.rank, self.comm.size
        self._own = (
            Alone(optimizer, loss) if processes == 1 else DataParallel(optimizer, loss, processes)
        )
        self.parts = self._own.parts
        if overlap is None:
            overlap = available_cores() > 1
        self.overlap = bool(overlap) and self.size > 1 and processes == 1
        add_up = partial(add_up_in_bfloat16, self.comm) if bfloat16 else self._summed
        self.buckets = Buckets(optimizer, add_up, bucket_bytes, self.overlap)
        if isinstance(self._own, DataParallel) and self.size > 1:
            self._own.reduce = self._reduce_sum
        self._reduced = False
        self._contexts = ExitStack()

    # -- steps -------------------------------------------------------------------------------------

    def backward(self, shards: Sequence[Any], add: bool = False, last: bool = False) -> list[float]:
        if add and self._reduced:
            raise RuntimeError(
                "MPIParallel: backward(last=True) has summed the gradients already; call step() "
                "first"
            )
        if self.size == 1:
            return self._own.backward(shards, add)
        self._reduced = False
        every = generators(surroundings(self.loss))
        seeds = [int(generator.integers(0, 2**63, self.size)[self.rank]) for generator in every]
        common = [generator.bit_generator.state for generator in every]
        reseed(every, seeds)
        try:
            losses = self._backward_of_own(shards, add, last)
        finally:
            for generator, state in zip(every, common):
                generator.bit_generator.state = state
        if last and self.parts == 1:
            self._reduce()
        return losses

    def _backward_of_own(self, shards: Sequence[Any], add: bool, last: bool) -> list[float]:
        if self.parts > 1:
            return self._own.backward(shards or [None], add)[: len(shards)]
        if not shards and not add:
            self.optimizer.zero_grad()
        self.buckets.begin()
        losses = []
        for i, shard in enumerate(shards):
            on_leaf = (
                self.buckets.on_leaf if last and self.overlap and i == len(shards) - 1 else None
            )
            losses.append(self._backward(shard, add or i > 0, on_leaf))
        return losses

    def step(self) -> float | None:
        if self.size > 1 and not self._reduced:
            self._reduce()
        self._reduced = False
        return self._own.step()

    def _reduce(self) -> None:
        """Sum the gradients that are in this process over all ranks; those of several are summed by
        `step` first.
        """
        self.buckets.gather()
        if self.parts == 1:
            self.buckets.send_rest()
        self.buckets.bind(
            self._summed(self.buckets.present()) > 0
        )  # what has a gradient on one rank has one on all
        self._reduced = True

    def _reduce_sum(self) -> None:
        """Sum over all ranks what the processes of this one have added up."""
        self.buckets.begin()
        self.buckets.send_rest()

    # -- communication between ranks
    # ------------------------------------------------------------------

    def sum(self, numbers: Sequence[float]) -> list[float]:
        return self._summed(np.array(numbers, np.float64)).tolist()

    def barrier(self) -> None:
        job.leave()

    def agree(self, facts: Mapping[str, Any]) -> None:
        import json

        own = json.dumps({**facts, "": os.uname().nodename}, default=str).encode()
        sizes = self._summed(np.eye(self.size, dtype=np.int64)[self.rank] * len(own))
        texts = np.zeros((self.size, sizes.max()), np.uint8)  # as numbers: nothing is unpickled
        texts[self.rank, : len(own)] = np.frombuffer(own, np.uint8)
        first, *others = [
            json.loads(bytes(row[:size])) for row, size in zip(self._summed(texts), sizes)
        ]
        for rank, other in enumerate(others, 1):
            for name in sorted({*first, *other} - {""}):
                if first.get(name) != other.get(name):
                    raise ValueError(
                        f"{name}: {other.get(name)!r:.80} on rank {rank} ({other['']}), but "
                        f"{first.get(name)!r:.80} on "
                        f"rank 0 ({first['']}); all ranks must have the same"
                    )

    def _summed(self, array: np.ndarray) -> np.ndarray:
        """The sum of the arrays of all ranks, in place."""
        from mpi4py import MPI

        self.comm.Allreduce(MPI.IN_PLACE, array)
        return array

    # -- beginning and end
    # -----------------------------------------------------------------------------

    def __enter__(self) -> MPIParallel:
        job.working(True)
        self._contexts.enter_context(threads(min(get_num_threads(), available_cores())))
        return self

    def __exit__(self, kind: Any = None, *error: object) -> None:
        self._contexts.close()
        self._own.close()
        if kind is None:
            self.barrier()
            job.working(False)

    def close(self) -> None:
        self._own.close()

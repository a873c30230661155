"""Training steps shared by the ranks of an MPI job, on one machine or several."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from ...check.extras import require
from ...optim import Optimizer
from ...tensor import Tensor
from ..runtime import available_cores, get_num_threads, threads
from . import job
from .captured_state import captured_state, check_rows_are_independent, generators, reseed
from .forked import DataParallel
from .memory import FlatGradients
from .protocol import SingleProcess

__all__ = ["MPIParallel"]

_MESSAGE_SIZE = 1 << 21  # elements that one message sums; MPI allocates as much memory


class MPIParallel(SingleProcess):
    """Training steps of all ranks of a job that mpiexec or srun started.

    Each rank calls `backward` with its own shards, or with none if a batch has too few rows. `step`
    sums the gradients of all ranks, in place. `seconds`, `bytes` and `messages` count what the sums
    took, including the time that a rank waits for slower ones. Requires mpi4py and an MPI library
    (`pip install mpi4py mpich`).

    Other parameters: as `SingleProcess`.

    Parameters
    ----------
    processes : int
        Number of processes of each rank, as in `DataParallel`; 1 by default.

    Examples
    --------
    `mpiexec -n 4 python train.py` runs a script with a `Trainer`. To fork processes in each rank:

        Trainer(..., parallel=functools.partial(MPIParallel, processes=2))
    """

    def __init__(
        self,
        optimizer: Optimizer,
        loss: Callable[[Any], Tensor],
        processes: int = 1,
        *,
        model: Any,
    ) -> None:
        super().__init__(optimizer, loss, model=model)
        self.comm = job.begin()
        self.rank, self.size = self.comm.rank, self.comm.size
        if self.size > 1:
            check_rows_are_independent("MPIParallel", model)
        self._local = (
            SingleProcess(optimizer, loss)
            if processes == 1
            else DataParallel(optimizer, loss, processes, model=model)
        )
        self.parts = self._local.parts
        if isinstance(self._local, DataParallel) and self.size > 1:
            self._local.reduce = self._sum_gradients
        self.seconds, self.bytes, self.messages = 0.0, 0, 0
        self._contexts = ExitStack()
        self._own: FlatGradients | None = None  # without forked processes

    # -- steps

    def backward(self, shards: Sequence[Any], add: bool = False) -> list[float]:
        """Compute the losses of this rank's shards, and their gradients.

        `shards` is empty if this batch has no rows for this rank.
        """
        if self.size == 1:
            return self._local.backward(shards, add)
        rngs = generators(captured_state(self.model))
        seeds = [int(rng.integers(0, 2**63, self.size)[self.rank]) for rng in rngs]
        common = [rng.bit_generator.state for rng in rngs]
        reseed(rngs, seeds)
        if self._own is not None:
            self._own.open()
        try:
            if not shards:  # this batch has no rows for this rank
                self._local.backward([None], add)
                return []
            return self._local.backward(shards, add)
        finally:
            for rng, state in zip(rngs, common):
                rng.bit_generator.state = state

    def step(self) -> float | None:
        """Change the parameters by the sum of the gradients of all ranks."""
        if self.size > 1:
            self._gather()
        return self._local.step()

    def _gather(self) -> None:
        """Sum the gradients over all ranks; forked processes sum their gradients in `step`."""
        flat = self._flat()
        present = np.zeros(len(flat.homes), np.int64)
        present[flat.present()] = 1
        flat.fill()
        if self.parts == 1:
            self._sum_gradients()
        flat.adopt(np.flatnonzero(self._summed(present)))  # those with a gradient on any rank

    def _flat(self) -> FlatGradients:
        """Return the flat gradients of this rank, which forked processes make, too."""
        if isinstance(self._local, DataParallel) and self._local._flat is not None:
            return self._local._flat
        stepper = self.stepper
        stepper.follow()
        if self._own is None or self._own.groups is not stepper.groups:
            vectors = [np.zeros(group.size, group.dtype) for group in stepper.groups]
            self._own = FlatGradients(stepper.groups, vectors)
            for group, vector in zip(stepper.groups, vectors):
                group.gradient = vector
        return self._own

    def _sum_gradients(self) -> None:
        """Sum the flat gradients over all ranks, in place."""
        began = time.perf_counter()
        for vector in self._flat().vectors:
            for start in range(0, vector.size, _MESSAGE_SIZE):
                self.bytes += self._summed(vector[start : start + _MESSAGE_SIZE]).nbytes
                self.messages += 1
        self.seconds += time.perf_counter() - began

    # -- communication between ranks

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Sum numbers over all ranks."""
        return self._summed(np.array(numbers, np.float64)).tolist()

    def barrier(self) -> None:
        """Wait for all ranks."""
        job.wait()

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raise a ValueError on all ranks unless each passes the same names and JSON values."""
        import json

        text = json.dumps({**facts, "": platform.node()}, default=str)
        first, *others = map(json.loads, self.comm.allgather(text))
        for rank, other in enumerate(others, 1):
            for name in sorted({*first, *other} - {""}):
                if first.get(name) != other.get(name):
                    raise ValueError(
                        f"{name} must be the same on all ranks, got {other.get(name)!r:.80} on "
                        f"rank {rank} ({other['']}) and {first.get(name)!r:.80} on rank 0 "
                        f"({first['']})"
                    )

    def _summed(self, array: np.ndarray) -> np.ndarray:
        """Return the sum of the arrays of all ranks, in place."""
        mpi = require("mpi4py.MPI", "a sum over ranks")
        self.comm.Allreduce(mpi.IN_PLACE, array)
        return array

    # -- beginning and end

    def __enter__(self) -> MPIParallel:
        job.mark_working(True)
        self._contexts.enter_context(threads(min(get_num_threads(), available_cores())))
        return self

    def __exit__(self, kind: Any = None, *error: object) -> None:
        self._contexts.close()
        self.close()
        if kind is None:
            self.barrier()
            job.mark_working(False)

    def close(self) -> None:
        """End the forked processes of this rank, and release the memory of its gradients."""
        self._local.close()
        if self._own is not None:
            self._own.release()
            self.stepper.forget()
            self._own = None

"""Who takes the steps of a training run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..launcher import launched
from ..optim import Optimizer
from .forked import DataParallel
from .mpi import MPIParallel
from .protocol import Alone

__all__ = ["start_parallel"]


def start_parallel(kind: Any, optimizer: Optimizer, loss: Callable[[Any], Tensor]) -> Alone:
    """Who takes the steps: this process alone for None, a number of processes to fork, or a class
    of your own.

    Under mpiexec or srun it is all ranks of the job together, each with that number of processes;
    `Alone`, as a class, keeps them apart.
    """
    if kind is None or type(kind) is int:
        place, processes = launched(), 1 if kind is None else kind
        if place is not None and place.size > 1:
            return MPIParallel(optimizer, loss, processes)
        return (
            Alone(optimizer, loss) if processes == 1 else DataParallel(optimizer, loss, processes)
        )
    if not callable(kind):
        raise TypeError(f"parallel: expected None, a number of processes or a class, got {kind!r}")
    return kind(optimizer, loss)

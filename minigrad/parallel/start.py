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
    """Who takes the steps: this process alone for None, a number of processes to fork, or a class of your own.

    Under mpiexec or srun it is all ranks of the job together, each with that number of processes; `Alone`, as a
    class, keeps them apart.
    """
    place = launched()
    if place is not None and place.size > 1 and (kind is None or type(kind) is int):
        return MPIParallel(optimizer, loss, kind or 1)
    if kind is None:
        return Alone(optimizer, loss)
    if isinstance(kind, int) and not isinstance(kind, bool):
        return Alone(optimizer, loss) if kind == 1 else DataParallel(optimizer, loss, kind)
    if not callable(kind):
        raise TypeError(f"parallel: expected None, a number of processes or a class, got {kind!r}")
    return kind(optimizer, loss)

"""Training steps shared by several processes: one protocol, and its implementations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..launcher import launched
from ..optim import Optimizer
from .forked import DataParallel
from .mpi import MPIParallel
from .protocol import Alone

__all__ = ["Alone", "DataParallel", "MPIParallel", "start_parallel"]


def start_parallel(
    kind: Any, optimizer: Optimizer, loss: Callable[[Any], Tensor], *, model: Any
) -> Alone:
    """Return who takes the steps of a training run.

    Parameters
    ----------
    kind : None, int or class
        This process alone, a number of processes to fork, or a class to be called with the other
        arguments. Under mpiexec or srun None and numbers mean all ranks of the job together, each
        with that number of processes; `Alone`, as a class, keeps them apart.
    optimizer : Optimizer
    loss : function
        Takes a shard of a batch and returns a scalar.
    model : Module or None
        The module that `loss` uses.
    """
    if kind is None or type(kind) is int:
        place, processes = launched(), 1 if kind is None else kind
        if place is not None and place.size > 1:
            return MPIParallel(optimizer, loss, processes, model=model)
        if processes == 1:
            return Alone(optimizer, loss, model=model)
        return DataParallel(optimizer, loss, processes, model=model)
    if not callable(kind):
        raise TypeError(f"parallel: expected None, a number of processes or a class, got {kind!r}")
    return kind(optimizer, loss, model=model)

"""Training steps shared by several processes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ...optim import Optimizer
from ...tensor import Tensor
from ..launcher import launched
from ..runtime import fork_obstacle
from .forked import DataParallel
from .mpi import MPIParallel
from .protocol import SingleProcess

__all__ = ["SingleProcess", "DataParallel", "MPIParallel", "start_parallel"]


def start_parallel(
    kind: Any, optimizer: Optimizer, loss: Callable[[Any], Tensor], *, model: Any
) -> SingleProcess:
    """Return the object that takes the steps of a training run.

    Other parameters: as `SingleProcess`.

    Parameters
    ----------
    kind : None, int or class
        None: this process alone. An int: a number of processes to fork. A class: it is called with
        the other arguments. Under mpiexec or srun, None and ints mean all ranks of the job, each
        with this number of processes; the class `SingleProcess` keeps the ranks apart.
    """
    if kind is None or type(kind) is int:
        place, processes = launched(), 1 if kind is None else kind
        if processes > 1 and (obstacle := fork_obstacle()):
            warnings.warn(
                f"parallel={kind}: {obstacle}; training runs in one process",
                RuntimeWarning,
                stacklevel=4,
            )
            processes = 1
        if place is not None and place.size > 1:
            return MPIParallel(optimizer, loss, processes, model=model)
        if processes == 1:
            return SingleProcess(optimizer, loss, model=model)
        return DataParallel(optimizer, loss, processes, model=model)
    if not callable(kind):
        raise TypeError(f"parallel must be None, a number of processes or a class, got {kind!r}")
    return kind(optimizer, loss, model=model)


def __dir__() -> list[str]:
    return __all__

"""What a launcher (mpiexec, srun) tells the processes that it starts, in their environment, without
any MPI library.
"""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["Place", "launched"]


class Place(NamedTuple):
    """Which of the processes of a job this one is, in the job and on its machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int


# The variables of rank, size, rank on this machine, and ranks on this machine.
_VARIABLES = [
    (
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
    ),  # MPICH, Intel MPI, srun --mpi=pmi2
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    (
        "PMIX_RANK",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_NTASKS_PER_NODE",
    ),  # srun --mpi=pmix
]


def launched() -> Place | None:
    """The place of this process in the job of an MPI launcher; None where it was started by itself."""
    for names in _VARIABLES:
        rank, size, local_rank, local_size = (os.environ.get(name, "") for name in names)
        if rank.isdecimal() and size.isdecimal() and int(rank) < int(size):
            first = int(local_rank) if local_rank.isdecimal() else int(rank)
            return Place(
                int(rank), int(size), first, int(local_size) if local_size.isdecimal() else 1
            )
    return None

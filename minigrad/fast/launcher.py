"""Ranks from the environment that mpiexec or srun sets, without an MPI library."""

from __future__ import annotations

import os
from typing import NamedTuple


class Place(NamedTuple):
    """Index of this process in its MPI job, and on its machine, and the numbers of processes."""

    rank: int
    size: int
    local_rank: int
    local_size: int


# The variables of rank, size, rank on this machine, and ranks on this machine.
_VARIABLES = [
    # MPICH, Intel MPI, srun --mpi=pmi2
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # Open MPI
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    # srun --mpi=pmix
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
]


def launched() -> Place | None:
    """Return the index of this process in an MPI job; None if no launcher started it."""
    for names in _VARIABLES:
        texts = [os.environ.get(name, "") for name in names]
        rank, size, *local = (int(text) if text.isdecimal() else None for text in texts)
        if rank is not None and size is not None and rank < size:
            return Place(rank, size, rank if local[0] is None else local[0], local[1] or 1)
    return None

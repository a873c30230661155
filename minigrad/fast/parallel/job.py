"""MPI jobs: their start, and their end as a whole.

MPI does not handle a single rank that fails: the others would wait for it forever. So a rank that
fails prints why, and ends the job. A rank that has finished waits for the others before it leaves.
"""

from __future__ import annotations

import atexit
import os
import platform
import sys
import time
from contextlib import suppress
from functools import cache
from typing import Any

from ...check.extras import MissingExtraError, require
from ..launcher import launched

PATIENCE = 10.0  # seconds for which a rank whose work failed waits for the other ranks
MOMENT = 1.0  # seconds in which the first rank can print an error that all ranks have
_is_working = False  # True during shared work, and after shared work that ended by an error


@cache
def world() -> Any:
    """Return all ranks of the job, as a communicator of mpi4py; the first call starts MPI."""
    try:
        mpi = require("mpi4py.MPI", "a run of several ranks (mpiexec, srun)")
    except RuntimeError as error:  # mpi4py is installed, but no MPI library that it can load
        raise MissingExtraError(
            f"mpi4py found no MPI library ({error}): pip install mpich"
        ) from error
    place, comm = launched(), mpi.COMM_WORLD
    if place is not None and place.size != comm.size:
        raise RuntimeError(
            f"the launcher and mpi4py must use the same MPI library, got {place.size} processes "
            f"from the launcher and {comm.size} in {mpi.Get_library_version().splitlines()[0]}"
        )
    return comm.Dup()


@cache
def begin() -> Any:
    """Return all ranks of the job, as `world`, and let them end together from now on."""
    comm = world()
    if comm.size > 1:
        _end_together()
    return comm


def mark_working(is_working: bool) -> None:
    """Record that shared work has begun, or has ended without an error."""
    global _is_working
    _is_working = is_working


def abort(code: int, text: str = "") -> None:
    """End the job, all ranks of it.

    If all ranks fail within a moment, only the first prints its error.
    """
    place = launched()
    try:
        rank = world().rank
    except MissingExtraError:
        if place is None or place.local_rank == 0:  # the other ranks of a machine fail alike
            _print_error(text)
        return
    if rank:
        time.sleep(MOMENT)
        text = f"rank {rank} on {platform.node()}: {text}" if text else ""
    _print_error(text)
    _stop(code)


def wait(patience: float = float("inf")) -> None:
    """Wait, without use of the processor, for all ranks; after `patience` seconds, end the job."""
    end, pause = time.monotonic() + patience, 0.001
    request = _waiting().Ibarrier()
    while not request.Test():
        if time.monotonic() > end:
            _stop(1)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _stop(code: int) -> None:
    with suppress(OSError):  # hide MPI's message about the abort
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    world().Abort(code)


@cache
def _waiting() -> Any:
    """Return a second communicator of all ranks, because some may still use the first one."""
    return world().Dup()


def _end_together() -> None:
    """Let a rank that fails end the job; the others wait for all ranks at exit."""
    _waiting()  # all ranks must create it together
    show, leave_with = sys.excepthook, sys.exit
    failed: list[int] = []  # exit codes

    def hook(kind: Any, *error: Any) -> None:
        failed.append(130 if issubclass(kind, KeyboardInterrupt) else 1)
        show(kind, *error)

    def exit_with(code: Any = None) -> Any:
        failed.append(0 if code is None else code if isinstance(code, int) else 1)
        leave_with(code)

    def at_exit() -> None:
        if failed and failed[-1] not in (0, 130):
            abort(failed[-1])
        wait(PATIENCE if _is_working else float("inf"))

    sys.excepthook, sys.exit = hook, exit_with
    atexit.register(at_exit)


def _print_error(text: str) -> None:
    if text:
        with suppress(OSError, ValueError):  # standard error is closed
            print(text.rstrip("\n"), file=sys.__stderr__, flush=True)

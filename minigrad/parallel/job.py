"""The MPI job that this process is a rank of: how it begins, and that it ends as a whole.

MPI has no notion of one rank that fails: the others would wait for it for ever. So a rank that
cannot go on says why, and ends the job; and a rank that has done its part waits for the others
before it leaves.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from ..core.errors import MissingExtraError
from ..extras import require
from ..launcher import launched

__all__ = ["abort", "begin", "leave", "working", "world"]

PATIENCE = 10.0  # seconds that a rank whose work broke off waits for the others to break off too
MOMENT = 1.0  # seconds in which all ranks meet for whom the same went wrong
_broken = False  # whether the last shared work ended by an error
_over = False  # whether all ranks are on their way out


@cache
def world() -> Any:
    """All ranks of the job, as a communicator of mpi4py's; MPI begins with the first call."""
    try:
        mpi = require("mpi4py.MPI", "a run of several ranks (mpiexec, srun)")
    except RuntimeError as error:  # mpi4py is there, but no MPI that it could load
        raise MissingExtraError(
            f"mpi4py found no MPI library ({error}): pip install mpich"
        ) from error
    place, found = launched(), mpi.COMM_WORLD
    if place is not None and place.size != found.size:
        raise RuntimeError(
            f"the launcher started {place.size} processes, but MPI sees {found.size}: the "
            "launcher belongs to another "
            f"MPI than the one that mpi4py has loaded "
            f"({mpi.Get_library_version().split(chr(10))[0]})"
        )
    return found.Dup()


@cache
def begin() -> Any:
    """All ranks of the job, which from now on end together."""
    comm = world()
    if comm.size > 1:
        _for_leaving()
        _end_together()
    return comm


def working(broken: bool) -> None:
    """Note that shared work has begun (`broken`, until it ends well) or has ended."""
    global _broken
    _broken = broken


def abort(code: int, text: str = "") -> None:
    """End the job, all ranks of it, after `text` is printed on standard error. The caller ends with
    `code` after it.

    Where all ranks come here within a moment, the same went wrong for all: the first prints it, and
    nobody needs to be stopped.
    """
    global _over
    place = launched()
    try:
        rank = world().rank
    except MissingExtraError:
        if place is None or place.local_rank == 0:  # the others of this machine lack the same
            _print_error(text)
        return
    if rank == 0:
        _print_error(text)
    _over = _meet(1, MOMENT) == world().size
    if _over:
        return
    if rank:
        _print_error(f"rank {rank} on {os.uname().nodename}: {text}" if text else "")
    _stop(code)


def leave(patience: float = float("inf")) -> None:
    """Wait until all ranks have come here, without keeping a core busy; after `patience` seconds,
    end the job.
    """
    failed = _meet(0, patience)
    if failed != 0:
        if failed is not None:
            time.sleep(PATIENCE)  # for those who failed to say so, and to end the job
        _stop(1)


def _meet(failed: int, patience: float) -> int | None:
    """How many ranks have failed, when all have come to this point; None if that takes so many
    seconds.
    """
    own, all_of_them = np.array([failed]), np.zeros(1, int)
    began, request = time.monotonic(), _for_leaving().Iallreduce(own, all_of_them)
    pause = 0.001
    while not request.Test():
        if time.monotonic() - began > patience:
            return None
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return int(all_of_them[0])


def _stop(code: int) -> None:
    with suppress(OSError):  # MPI would add that it was aborted
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    world().Abort(code)


@cache
def _for_leaving() -> Any:
    """All ranks, on a line of their own: some may still be at work on the other."""
    return world().Dup()


def _end_together() -> None:
    """Ranks that end with an exception, or an exit code, end the job; others wait for all, at exit."""
    show, leave_with = sys.excepthook, sys.exit
    failed: list[int] = []  # exit codes

    def hook(kind: Any, *error: Any) -> None:
        failed.append(130 if issubclass(kind, KeyboardInterrupt) else 1)
        show(kind, *error)

    def noted_exit(code: Any = None) -> Any:
        failed.append(0 if code is None else code if isinstance(code, int) else 1)
        leave_with(code)

    def at_exit() -> None:
        if _over:
            return
        if failed and failed[-1] not in (0, 130):
            abort(failed[-1])
            return
        leave(PATIENCE if _broken else float("inf"))

    sys.excepthook, sys.exit = hook, noted_exit
    atexit.register(at_exit)


def _print_error(text: str) -> None:
    with suppress(OSError, ValueError):
        print(
            text,
            file=sys.__stderr__,
            end="" if text.endswith("\n") or not text else "\n",
            flush=True,
        )

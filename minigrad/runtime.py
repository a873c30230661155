"""What concerns the whole process: its cores, and what becomes of freed memory.

A training step asks for the same arrays again and again. By default the C library hands large freed
blocks back to the system, which clears and maps them anew page by page when they are asked for
again: that can take longer than the arithmetic done in them.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from .launcher import launched

__all__ = ["get_num_threads", "set_num_threads"]

# The BLAS libraries that NumPy is built with, by the prefix and suffix of their functions' names.
_SPELLINGS = [
    f"{start}openblas_{{}}_num_threads{end}" for start in ("scipy_", "") for end in ("64_", "")
]


@cache
def _blas() -> tuple[Callable[[int], Any], Callable[[], int]] | None:
    """The functions of OpenBLAS that set and get its number of threads; None for another library."""
    try:
        import ctypes

        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]  # finds what it links
    except (ImportError, OSError, AttributeError):
        return None
    for name in _SPELLINGS:
        if hasattr(library, name.format("set")):
            return library[name.format("set")], library[name.format("get")]
    return None


@cache
def has_blas() -> bool:
    """Whether NumPy multiplies matrices by a BLAS library, rather than by loops of its own."""
    try:
        return bool(np.show_config(mode="dicts")["Build Dependencies"]["blas"].get("found"))
    except (KeyError, TypeError, AttributeError):
        return True


def available_cores() -> int:
    """The cores that this process may use: its part of them, where a launcher put several ranks on
    one machine.
    """
    if sys.platform == "emscripten":
        return 1  # and there are no threads
    all_cores = os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else all_cores
    place = launched()
    if (
        place is not None and cores * place.local_size > all_cores
    ):  # ranks are not bound to cores of their own
        cores = max(1, cores // place.local_size)
    return cores


def get_num_threads() -> int:
    """The threads that a matrix product may use: at first as many as there are cores, or
    OPENBLAS_NUM_THREADS.
    """
    blas = _blas()
    return available_cores() if blas is None else int(blas[1]())


def set_num_threads(n: int) -> None:
    """Let matrix products use `n` threads; all else runs on the thread that calls it.

    It holds for the whole process. NumPy's other operations use one core; to use more for a
    training step, see `minigrad.parallel`.
    """
    if n < 1:
        raise ValueError(f"set_num_threads: expected at least 1, got {n}")
    blas = _blas()
    if blas is None:
        raise RuntimeError(
            "set_num_threads: NumPy is not built with OpenBLAS here; set the environment variable "
            "of its own "
            "library (MKL_NUM_THREADS, VECLIB_MAXIMUM_THREADS) before NumPy is imported"
        )
    blas[0](n)


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Within this block matrix products use `n` threads, where NumPy's BLAS takes a number."""
    set_number, before = (_blas() or (lambda n: None, None))[0], get_num_threads()
    try:
        set_number(n)
        yield
    finally:
        set_number(before)


def in_parallel(run: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """run(part) for each, on as many threads as a matrix product may use, each with one of BLAS's.

    One after another, where another thread is doing so already.
    """
    count = min(len(parts), get_num_threads())
    if count < 2 or not _ALONE.acquire(blocking=False):
        return [run(part) for part in parts]
    try:
        from concurrent.futures import ThreadPoolExecutor  # takes a tenth of minigrad's own import

        with (
            threads(1),
            ThreadPoolExecutor(count) as pool,
        ):  # BLAS's own threads would wait for each other
            jobs = [pool.submit(contextvars.copy_context().run, run, part) for part in parts]
            return [job.result() for job in jobs]
    finally:
        _ALONE.release()


_ALONE = threading.Lock()


# -- memory
# ------------------------------------------------------------------------------------------

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's <malloc.h>


@cache
def keep_freed_memory() -> bool:
    """Let glibc's malloc keep freed blocks for reuse; whether it does.

    `Trainer.fit` and decoding call this. It holds for the whole process, whose memory then stays at
    its peak. Setting the environment variable MINIGRAD_MALLOC=default leaves malloc as it is.
    """
    if os.environ.get("MINIGRAD_MALLOC") == "default":
        return False
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        return bool(
            mallopt(_M_MMAP_THRESHOLD, 1 << 30) and mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        )
    except (ImportError, OSError, AttributeError, TypeError):  # another C library
        return False

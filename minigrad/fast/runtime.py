"""Settings of the process: threads of matrix products, and reuse of freed memory.

A training step allocates the same arrays again and again. By default the C library returns large
freed blocks to the system, which then clears and maps the pages of the next arrays. That can take
longer than the arithmetic on these arrays.
"""

from __future__ import annotations

import contextvars
import os
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np

from ..arguments import checked_count
from ..graph import collecting
from ..random import shared_generator
from .launcher import launched

__all__ = ["get_num_threads", "set_num_threads"]


@cache
def _openblas(name: str) -> Any:
    """Return the function openblas_`name`, or None if NumPy is built with another library."""
    try:
        import ctypes

        # this also searches the libraries to which the module is linked
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (ImportError, OSError, AttributeError):
        return None
    spellings = (f"{start}openblas_{name}{end}" for start in ("scipy_", "") for end in ("64_", ""))
    return next((getattr(library, s) for s in spellings if hasattr(library, s)), None)


@cache
def _blas() -> tuple[Callable[[int], Any], Callable[[], int]] | None:
    """Return the functions of OpenBLAS that set and get its number of threads, if it is used."""
    set_number = _openblas("set_num_threads")
    return None if set_number is None else (set_number, _openblas("get_num_threads"))


@cache
def has_small_kernels() -> bool:
    """Return whether OpenBLAS computes small products without packing, which needs AVX-512.

    The environment variable OPENBLAS_CORETYPE replaces the processor of this machine.
    """
    core_name = _openblas("get_corename")
    if core_name is None:
        return False
    import ctypes

    core_name.restype = ctypes.c_char_p
    return core_name() in (b"SkylakeX", b"Cooperlake", b"SapphireRapids")


@cache
def has_blas() -> bool:
    """Return whether NumPy multiplies matrices by a BLAS library."""
    try:
        return bool(np.show_config(mode="dicts")["Build Dependencies"]["blas"].get("found"))
    except (KeyError, TypeError, AttributeError):
        return True


def available_cores() -> int:
    """Return the number of cores that this process, or this rank of an MPI job, can use."""
    if sys.platform == "emscripten":
        return 1  # there are no threads
    all_cores = os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else all_cores
    place = launched()
    if place is not None and cores * place.local_size > all_cores:  # ranks share these cores
        cores = max(1, cores // place.local_size)
    return cores


def fork_obstacle() -> str:
    """Return why this process cannot be forked, or an empty string."""
    if sys.platform == "darwin":
        return "forking is unsafe on macOS"
    is_able = hasattr(os, "fork") and hasattr(signal, "pthread_sigmask")
    return "" if is_able else "this system cannot fork"


def get_num_threads() -> int:
    """Return the number of threads of a matrix product.

    By default it is the number of cores, or the environment variable OPENBLAS_NUM_THREADS.
    """
    if OwnThreads.entered:
        return 1 if OwnThreads.sharing() else OwnThreads.number
    blas = _blas()
    return available_cores() if blas is None else int(blas[1]())


def set_num_threads(n: int) -> None:
    """Set the number of threads of matrix products in this process.

    NumPy's other operations use one core. To use several cores for a training step, see
    `minigrad.fast.parallel`.

    Parameters
    ----------
    n : int
        At least 1.

    Raises
    ------
    RuntimeError
        If NumPy is not built with OpenBLAS.
    """
    n = checked_count("set_num_threads", "n", n)
    blas = _blas()
    if blas is None:
        raise RuntimeError(
            "set_num_threads: NumPy is not built with OpenBLAS here; set the environment variable "
            "of its library (MKL_NUM_THREADS, VECLIB_MAXIMUM_THREADS) before NumPy is imported"
        )
    with OwnThreads.lock:
        if OwnThreads.entered:
            OwnThreads.number = n
        else:
            blas[0](n)


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Set the number of threads of matrix products within a block, if NumPy uses OpenBLAS."""
    set_number, get_number = _blas() or (lambda n: None, lambda: 1)
    before = get_number()
    try:
        set_number(n)
        yield
    finally:
        set_number(before)


class OwnThreads:
    """Block in which BLAS uses one thread, because `in_parallel` uses the other cores.

    After a product by several threads, those of OpenBLAS look for more work for about 25 ms, on the
    cores that the threads of `in_parallel` need. So a sequence of products uses either kind.
    Several threads can be in a block, and blocks can be nested.

    A block ends when its object is freed, because Ctrl-C can come before `__exit__`.
    """

    lock = threading.RLock()  # reentrant, since a block may be freed inside it
    entered: ClassVar[dict[int, weakref.ref[OwnThreads]]] = {}  # by id
    sharing: ClassVar[Any] = lambda: None  # refers to the block inside `in_parallel`
    number = 1  # threads of BLAS outside all blocks

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def __enter__(self) -> OwnThreads:
        with OwnThreads.lock:
            if not self.entered:
                OwnThreads.number = get_num_threads()
            self.entered[id(self)] = weakref.ref(self, partial(_end_block, id(self)))
            if len(self.entered) == 1 and (blas := _blas()):
                blas[0](1)
        return self

    def share(self) -> bool:
        """Take the threads of `in_parallel`, and return whether they were free."""
        with OwnThreads.lock:
            if is_free := OwnThreads.sharing() is None:
                OwnThreads.sharing = weakref.ref(self)
        return is_free

    def __exit__(self, *error: object) -> None:
        _end_block(id(self))


def _end_block(key: int, freed: object = None) -> None:
    with OwnThreads.lock:
        if id(OwnThreads.sharing()) == key:
            OwnThreads.sharing = lambda: None
        if [*OwnThreads.entered] == [key] and (blas := _blas()):
            blas[0](OwnThreads.number)  # before the rest: Ctrl-C or a fork may come in between
        OwnThreads.entered.pop(key, None)


def in_parallel(run: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Return `run(part)` for each part, on as many threads as a matrix product can use.

    Each thread multiplies matrices on one core. If another thread is inside this function, the
    parts run one after another.
    """
    count, block = min(len(parts), get_num_threads()), OwnThreads()
    if count < 2 or not block.share():
        return [run(part) for part in parts]
    results: list[Any] = [None] * len(parts)
    pending = deque(enumerate(parts))

    def work() -> None:
        while pending:
            try:
                i, part = pending.popleft()
            except IndexError:  # another thread took the last one
                return
            results[i] = run(part)

    with block:  # BLAS's threads would wait for each other
        for _ in range(_Job.threads, count - 1):
            threading.Thread(target=_work, args=(_Job.waiting,), daemon=True).start()
            _Job.threads += 1
        jobs = [_Job(work) for _ in range(count - 1)]
        try:
            work()
        finally:
            pending.clear()  # after an error
            for job in jobs:
                job.done.acquire()
    for job in jobs:
        if job.error is not None:
            raise job.error
    return results


class _Job:
    """Call of a function by a thread of `in_parallel`, in a copy of this context."""

    threads = 0  # that were started
    waiting: SimpleQueue[_Job] = SimpleQueue()

    def __init__(self, work: Callable[[], None]) -> None:
        context = contextvars.copy_context()
        self.work = lambda: context.run(work)
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()
        _Job.waiting.put(self)


def _work(waiting: SimpleQueue[_Job]) -> None:
    """Run jobs, as a thread of `in_parallel`."""
    while True:
        job = waiting.get()
        try:
            job.work()
        except BaseException as error:
            job.error = error
        job.done.release()
        del job  # and what it refers to


def _forget_threads() -> None:
    """Forget the other threads of the process that forked this one: they do not run here."""
    _Job.threads, _Job.waiting = 0, SimpleQueue()
    for block in (OwnThreads.sharing(), *(ref() for ref in list(OwnThreads.entered.values()))):
        if block is not None and block.thread != threading.get_ident():
            _end_block(id(block))


def hold_during_fork(lock: Callable[[], Any]) -> None:
    """Acquire a lock for each fork: else another thread could hold it in the new process forever.

    The function returns a Lock or RLock. Whoever holds it must not wait for another lock.
    """
    if hasattr(os, "register_at_fork"):
        release = lambda: lock().release()
        os.register_at_fork(
            before=lambda: lock().acquire(), after_in_parent=release, after_in_child=release
        )


hold_during_fork(lambda: shared_generator().bit_generator.lock)  # acquired last
hold_during_fork(lambda: OwnThreads.lock)
hold_during_fork(lambda: collecting)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


# -- memory

if sys.platform == "linux" and os.environ.get("MINIGRAD_MALLOC") != "default":
    # then glibc keeps freed blocks of up to 2 MiB, and at most 4 MiB at the end of its memory
    np.empty(2 << 20, np.uint8)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as in glibc's <malloc.h>


@cache
def keep_freed_memory() -> bool:
    """Let glibc's malloc keep all freed blocks for reuse, and return whether it does.

    `Trainer.fit` calls this. The memory of the process then stays at its peak. The environment
    variable MINIGRAD_MALLOC=default leaves malloc unchanged, also when minigrad is imported.
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

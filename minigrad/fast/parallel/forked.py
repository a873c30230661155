"""Training steps on several cores: processes that share parameters, gradients and state.

NumPy's matrix products use all cores, its other operations one. Threads do not help: the operations
of a Transformer are so short that two threads mostly wait for the interpreter's lock. So a batch is
split over processes, forked from this one. Parameters are in shared memory. Each process computes
gradients in separate arrays. All processes then sum, clip and apply them, each for a part of the
parameters.
"""

from __future__ import annotations

import atexit
import itertools
import mmap
import os
import signal
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...arguments import checked_count
from ...io.signals import ENDING
from ...optim import Optimizer
from ...optimizer import norm_of, sum_of_squares
from ...tensor import Tensor
from ..runtime import fork_obstacle, get_num_threads, threads
from ..stepper import Block
from .captured_state import (
    captured_state,
    check_rows_are_independent,
    generators,
    is_same,
    reseed,
)
from .memory import FlatGradients, FlatParameters
from .protocol import SingleProcess

__all__ = ["DataParallel"]

_SMALL = 1 << 20
"""With fewer parameters, one process updates them faster than several."""


def _shared_zeros(size: int, dtype: Any) -> np.ndarray:
    """Return zeros in memory that this process shares with its forks."""
    return np.frombuffer(mmap.mmap(-1, max(1, size) * np.dtype(dtype).itemsize), dtype, size)


_STARTED: weakref.WeakSet[DataParallel] = weakref.WeakSet()
"""Objects that have processes now."""


class DataParallel(SingleProcess):
    """Training steps of several processes on one machine.

    `backward` computes the first shard in this process, and the others in copies of this process,
    forked at the first call. The copies share parameters and settings of `optimizer`. If settings,
    parts, buffers, hooks or modes of `model` change, the copies are replaced. Between the batches
    of one step, such a change is an error. Other values that `loss` reads keep their values of the
    first `backward`. Put values that change into the shard. The generators of this process draw
    the seeds of each shard, so that runs repeat. The parameters are in shared memory until `close`
    copies them back to the arrays that they had before; arrays and tensors that share memory with
    them have old values meanwhile.

    Other parameters: as `SingleProcess`.

    Parameters
    ----------
    processes : int
        Number of processes; 2 by default. More than 1 requires a system that can fork.

    Examples
    --------
        with DataParallel(optimizer, loss, processes=2, model=model) as parallel:
            losses = parallel.backward([(source[::2], target[::2]), (source[1::2], target[1::2])])
            norm = parallel.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        loss: Callable[[Any], Tensor],
        processes: int = 2,
        *,
        model: Any,
    ) -> None:
        super().__init__(optimizer, loss, model=model)
        self.processes = self.parts = checked_count("DataParallel", "processes", processes)
        # called when the sum of all gradients is in this process
        self.reduce: Callable[[], None] | None = None
        self._owner = os.getpid(), threading.get_ident()
        self._captured: list[Any] = []  # the state of the model when the processes were forked
        self._workers: list[tuple[Any, Any]] = []  # (process, end of the pipe to it)
        self._gradients: list[list[np.ndarray]] = []  # flat arrays by process and group
        self._flat: FlatGradients | None = None  # if there are other processes
        self._moved: FlatParameters | None = None
        self._is_unsummed = False  # True while the processes have gradients that are not summed

    # -- public methods

    def backward(self, shards: Sequence[Any], add: bool = False) -> list[float]:
        """Compute the losses of 1 to `processes` shards, and their gradients.

        Until `step`, each process keeps its own part of the gradients.
        """
        if not 1 <= len(shards) <= self.processes:
            raise ValueError(
                f"DataParallel: shards must be 1 to {self.processes} batches, got {len(shards)}"
            )
        if self.processes == 1:
            return super().backward(shards, add)
        if self._workers:
            self._check_owner()
            if not is_same(self._captured, self._state()):
                self.close()  # the processes have copies of the old state
                if add:
                    raise RuntimeError(
                        "DataParallel: the model must not change between the batches of one step"
                    )
        self._is_unsummed = False
        try:
            with threads(max(1, get_num_threads() // self.processes)):
                losses = self._backward_together(shards, add)
        except BaseException:
            self.close()  # the state of the other processes is unknown
            raise
        self._is_unsummed = True
        return losses

    def step(self) -> float | None:
        """Change the parameters by the sum of all gradients."""
        if not self._workers:
            return self.optimizer.step()
        self._check_owner()
        stepper, flat, moved = self.stepper, self._flat, self._moved
        assert flat is not None and moved is not None
        try:
            blocks, gradients = stepper.collect()
            if stepper.groups is not flat.groups or not moved.are_here():
                raise RuntimeError(
                    "DataParallel: parameters were added or replaced since backward(); call "
                    "backward() again"
                )
            self._is_unsummed = False
            flat.fill()
            flat.adopt(flat.present())
            is_large = sum(group.size for group in stepper.groups) >= _SMALL
            others = self._workers if is_large and not stepper.overlap else []
            own, *shares = _shares(blocks, 1 + len(others))
            for worker, share in zip(others, shares):
                self._send([worker], "sum", share)
            squares = self._summed(own) + sum(self._answers(others))
            if self.reduce is not None:
                self.reduce()
                squares = sum_of_squares(gradients)
            norm = norm_of(gradients, squares)
            factor = stepper.factor(norm)
            if factor is None:  # the step is skipped
                return norm
            if not stepper.is_safe(norm * factor):  # only one process can undo a step
                others, own = [], blocks
            with stepper.undone_on_error(norm * factor):
                stepper.advance(blocks)
                settings = stepper.settings()
                self._send(others, "update", factor, settings)
                stepper.update(own, gradients[: len(own)], factor, settings)
            self._answers(others)
            return norm
        except FloatingPointError:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the other processes, and move gradients and memory back to this one."""
        is_owner = os.getpid() == self._owner[0]  # False in a process that was forked meanwhile
        for process, pipe in self._workers if is_owner else ():
            pipe.close()
            process.kill()
            process.join()
        if self in _STARTED:
            _STARTED.discard(self)
            del self.optimizer.step
            assert self._flat is not None and self._moved is not None
            if self._is_unsummed and is_owner:
                self._flat.fill()
                self._flat.adopt(self._flat.present())
                for first, *others in zip(*self._gradients):
                    for other in others:
                        first += other
            self._flat.release()
            self._moved.release()
            self.stepper.forget()
        self._workers, self._gradients, self._is_unsummed = [], [], False
        self._flat = self._moved = None

    def _backward_together(self, shards: Sequence[Any], add: bool) -> list[float]:
        if not self._workers:
            self._start()
        drawn = [
            g.integers(0, 2**63, self.processes - 1).tolist() for g in generators(self._captured)
        ]
        for worker, seeds, shard in zip(
            self._workers, zip(*drawn), [*shards[1:], *[None] * self.processes]
        ):
            self._send([worker], "run", seeds, shard, add)
        loss = self._backward(shards[0], add)
        losses, with_gradient = zip((loss, ()), *self._answers(self._workers))
        assert self._flat is not None
        for i in set().union(*with_gradient).difference(self._flat.present()):
            p = self._flat.homes[i][0]
            p.grad = np.zeros(p.shape, p.dtype)
        return list(losses[: len(shards)])

    # -- methods of every process

    def _state(self) -> list[Any]:
        facts = [(p, p.requires_grad, p._array) for p in self.optimizer.state]
        return [*itertools.chain(*facts), *captured_state(self.model)]

    def _backward(self, shard: Any, add: bool) -> float:
        if self._flat is not None:
            self._flat.open()
        return super()._backward(shard, add)

    def _summed(self, blocks: Sequence[Block]) -> float:
        """Add the gradients of all processes into the first's; return the sum of squares."""
        return sum_of_squares(map(self._sum_block, blocks))

    def _sum_block(self, block: Block) -> np.ndarray:
        first, *others = [
            vectors[block.group][block.start : block.stop] for vectors in self._gradients
        ]
        for other in others:
            first += other
        return first

    # -- the other processes

    def _start(self) -> None:
        import multiprocessing.util

        if obstacle := fork_obstacle():
            raise RuntimeError(f"DataParallel: {obstacle}; use processes=1")
        check_rows_are_independent("DataParallel", self.model)
        if any(other.optimizer is self.optimizer for other in _STARTED):
            raise RuntimeError(
                "DataParallel: optimizer must not be shared with another DataParallel that has "
                "processes; close() the other one first"
            )
        self._owner = os.getpid(), threading.get_ident()
        if any(other._owner != self._owner for other in _STARTED):
            raise RuntimeError(
                "DataParallel: only one thread must start processes, but another thread has some; "
                "close() its DataParallel first"
            )
        context = multiprocessing.get_context("fork")
        self.stepper.forget()
        self.stepper.follow(_shared_zeros)
        groups = self.stepper.groups
        self._moved = FlatParameters(groups, _shared_zeros)
        self.stepper.follow()  # lets go of the arrays that the parameters had before
        self._gradients = [
            [_shared_zeros(group.size, group.dtype) for group in groups]
            for _ in range(self.processes)
        ]
        self._flat = FlatGradients(groups, self._gradients[0])
        for group, vector in zip(groups, self._gradients[0]):
            group.gradient = vector
        self._captured = self._state()
        self.optimizer.step = self._refuse_step  # type: ignore[method-assign]
        _STARTED.add(self)
        # registered last, it runs before multiprocessing's function, which would wait for processes
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        # only the first process handles these signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *ENDING})
        try:
            for rank in range(1, self.processes):
                parents_end, childs_end = context.Pipe()
                args = rank, parents_end, childs_end
                process = context.Process(target=self._serve, args=args, daemon=True)
                with warnings.catch_warnings():
                    # Python warns of threads; those of BLAS are idle, and it supports forks
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
                childs_end.close()
                self._workers.append((process, parents_end))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _refuse_step(self, closure: Any = None) -> NoReturn:
        raise RuntimeError(
            "step must not be called on the optimizer while a DataParallel has its gradients in "
            "several processes; call step() of the DataParallel"
        )

    def _check_owner(self) -> None:
        process, thread = self._owner
        if process != os.getpid():
            raise RuntimeError(
                "DataParallel must be used in the process that started it, not in a fork of it; "
                "close() it before the fork"
            )
        if thread != threading.get_ident():
            raise RuntimeError("DataParallel must be used in the thread that started it")

    def _serve(self, rank: int, parents_end: Any, pipe: Any) -> None:
        """Answer requests in a forked process until its pipe is closed."""
        for _, earlier in self._workers:
            earlier.close()
        parents_end.close()
        assert self._flat is not None
        self._flat = FlatGradients(self._flat.groups, self._gradients[rank])
        self.optimizer.zero_grad()  # the first process keeps the gradients from before the fork
        self._blocks: list[Block] = []
        try:
            while True:
                pipe.send(self._answer(*pipe.recv()))
        except (EOFError, OSError):  # the first process has closed the pipe, or has ended
            return

    def _answer(self, kind: str, *args: Any) -> tuple[Any, tuple[str, str] | None]:
        """Return the result of a request, or the error as a line and a traceback."""
        try:
            if kind == "run":
                seeds, shard, add = args
                reseed(generators(self._captured), seeds)
                return self._run(shard, add), None
            if kind == "sum":
                self._blocks = args[0]
                return self._summed(self._blocks), None
            vectors = self._gradients[0]
            gradients = [vectors[b.group][b.start : b.stop] for b in self._blocks]
            self.stepper.update(self._blocks, gradients, *args)
            return None, None
        except Exception as error:
            return None, (f"{type(error).__name__}: {error}", traceback.format_exc())

    def _run(self, shard: Any, add: bool) -> tuple[float, list[int]]:
        """Write the gradients of a shard to the flat arrays of this process, 0 if there are none.

        Return the loss, and the indices of the parameters with a gradient.
        """
        loss = self._backward(shard, add)
        assert self._flat is not None
        self._flat.fill()
        return loss, self._flat.present()

    def _send(self, workers: list[tuple[Any, Any]], *message: Any) -> None:
        for process, pipe in workers:
            _unless_gone(process, pipe.send, message)

    def _answers(self, workers: list[tuple[Any, Any]]) -> list[Any]:
        answers = []
        for process, pipe in workers:
            answer, error = _unless_gone(process, pipe.recv)
            if error is not None:
                line, where = error
                raise RuntimeError(
                    f"DataParallel: a shard failed in another process: {line}"
                ) from RuntimeError(where)
            answers.append(answer)
        return answers


def _shares(blocks: list[Block], processes: int) -> list[list[Block]]:
    """Divide blocks among processes."""
    ends = [len(blocks) * rank // processes for rank in range(processes + 1)]
    return [blocks[a:b] for a, b in itertools.pairwise(ends)]


def _close_all() -> None:
    for started in list(_STARTED):
        started.close()


def _unless_gone(process: Any, call: Callable[..., Any], *args: Any) -> Any:
    """Call a method of a pipe, or raise an error about how the process ended."""
    try:
        return call(*args)
    except (EOFError, ConnectionError):
        # raised below without this error as its context: Python 3.13 warns of the buffer in its
        # frames when it is collected
        pass
    raise _error_of_ended(process)


def _error_of_ended(process: Any) -> RuntimeError:
    """Return the error for a process that has ended."""
    process.join(10)
    code = process.exitcode
    how = f"ended with exit code {code}"
    if code is not None and code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
        how += ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
    return RuntimeError(
        f"DataParallel: process {process.pid}, which computed a part of the batch, {how}"
    )

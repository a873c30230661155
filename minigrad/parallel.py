"""Training steps on several cores: processes that share parameters, gradients and optimizer state.

NumPy's matrix products use all cores, its other operations one. Threads do not mend that: the
operations of a Transformer are so short that two threads mostly wait for the interpreter's lock. So a
batch is split over processes, forked from this one, each with a core to itself. Parameters are in
memory that all see; each process has gradients of its own, which are then summed, clipped and applied
by all processes together, each for a share of the parameters.
"""

from __future__ import annotations

import mmap
import signal
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .core.random import default_generator, manual_seed
from .core.tensor import Tensor
from .optim import Optimizer, Work
from .runtime import get_num_threads, threads

__all__ = ["DataParallel"]

_SMALL = 1 << 20  # parameters; with fewer, one process updates them sooner than two are told to


def _shared_zeros(size: int, dtype: Any) -> np.ndarray:
    """Zeros in memory that this process shares with those forked from it."""
    return np.frombuffer(mmap.mmap(-1, max(1, size) * np.dtype(dtype).itemsize), dtype, size)


class DataParallel:
    """Gradients of `loss(shard)`, summed over shards that are worked on at the same time, and steps with them.

        with DataParallel(optimizer, lambda shard: model.loss(*shard, reduction="sum") / n) as parallel:
            losses = parallel.backward([(source[::2], target[::2]), (source[1::2], target[1::2])])
            norm = parallel.step()

    The first shard is this process's own. The others go to copies of it, forked at the first
    `backward`: what changes later in this process they do not see, but for the parameters and settings
    of `optimizer`. Each shard draws its random numbers from a seed that the default generator gives, so
    that runs repeat. With one process, all is as without this class. Needs a system that can fork.
    """

    def __init__(self, optimizer: Optimizer, loss: Callable[[Any], Tensor], processes: int = 2) -> None:
        if processes < 1:
            raise ValueError(f"DataParallel: expected at least 1 process, got {processes}")
        self.optimizer = optimizer
        self.loss = loss
        self.processes = processes
        self._workers: list[tuple[Any, Any]] = []  # (process, the end of a pipe to it)
        self._gradients: list[list[np.ndarray]] = []  # of each process, the flat arrays of each group

    # -- what a user calls -----------------------------------------------------------------------

    def backward(self, shards: Sequence[Any], add: bool = False) -> list[float]:
        """The losses of at most `processes` shards; their gradients replace earlier ones, or with `add` add to them.

        Until `step`, each process holds its own part of the gradients.
        """
        if not 1 <= len(shards) <= self.processes:
            raise ValueError(f"DataParallel: expected 1 to {self.processes} shards, got {len(shards)}")
        if self.processes == 1:
            return [self._backward(shards[0], add)]
        try:
            with threads(max(1, get_num_threads() // self.processes)):
                return self._backward_together(shards, add)
        except BaseException:
            self.close()  # the others may be anywhere: they are made anew
            raise

    def step(self) -> float | None:
        """Sum the gradients and change the parameters, as `Optimizer.step`, whose answer it gives."""
        if not self._workers:
            return self.optimizer.step()
        try:
            runs = [group.gathered() for group in self.optimizer._groups]
            alone = sum(group.size for group in self.optimizer._groups) < _SMALL
            others = [] if alone else [pipe for _, pipe in self._workers]
            for pipe in others:
                pipe.send(("sum", runs))
            work = self._share(runs, 0, 1 + len(others))
            squares = self._summed(work)
            if others:
                squares += sum(self._answers())
            norm, factor = self.optimizer.clipping(squares)
            constants = self.optimizer.advance()
            for pipe in others:
                pipe.send(("update", factor, constants))
            self.optimizer.update(work, factor, constants)
            if others:
                self._answers()
            return norm
        except FloatingPointError:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the other processes; a later `backward` begins with new ones."""
        for process, pipe in self._workers:
            pipe.close()
            process.kill()
            process.join()
        self._workers = []

    def __enter__(self) -> DataParallel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _backward_together(self, shards: Sequence[Any], add: bool) -> list[float]:
        if not self._workers:
            self._start()
        seeds = default_generator().integers(0, 2**63, self.processes - 1).tolist()
        for (_, pipe), seed, shard in zip(self._workers, seeds, [*shards[1:], *[None] * self.processes]):
            pipe.send(("run", seed, shard, add))
        losses = [self._backward(shards[0], add)]
        with_gradient = set(self._with_gradient())
        for loss, found in self._answers():
            losses.append(loss)
            with_gradient.update(found)
        for i, p in enumerate(self._parameters()):
            if i in with_gradient and p.grad is None:
                p.grad = np.zeros(p.shape, p.dtype)
        return losses[: len(shards)]

    # -- what every process does -----------------------------------------------------------------

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.optimizer._groups for p in group.parameters]

    def _with_gradient(self) -> list[int]:
        return [i for i, p in enumerate(self._parameters()) if p.grad is not None]

    def _backward(self, shard: Any, add: bool) -> float:
        if not add:
            self.optimizer.zero_grad()
        loss = self.loss(shard)
        loss.backward()
        return loss.item()

    def _share(self, runs: list[list[slice]], rank: int, processes: int) -> Work:
        work = self.optimizer.work(runs)
        return work[len(work) * rank // processes : len(work) * (rank + 1) // processes]

    def _summed(self, work: Work) -> float:
        """Add the gradients of all processes into those of the first; the sum of their squares."""
        numbers = {id(group): i for i, group in enumerate(self.optimizer._groups)}
        squares = 0.0
        for group, block in work:
            first, *others = [arrays[numbers[id(group)]][block] for arrays in self._gradients]
            for other in others:
                first += other
            if self.optimizer.clip_norm is not None:
                squares += float(np.dot(first, first))
        return squares

    # -- the other processes -----------------------------------------------------------------------

    def _start(self) -> None:
        import multiprocessing

        if "fork" not in multiprocessing.get_all_start_methods():
            raise RuntimeError("DataParallel: this system cannot fork; use processes=1")
        context = multiprocessing.get_context("fork")
        groups = self.optimizer._groups
        for group in groups:
            group.move(_shared_zeros)
        spare = [[_shared_zeros(g.size, g.data.dtype) for g in groups] for _ in range(self.processes - 1)]
        self._gradients = [[g.grad for g in groups], *spare]
        for rank in range(1, self.processes):
            own, other = context.Pipe()
            process = context.Process(target=self._serve, args=(rank, own, other), daemon=True)
            with warnings.catch_warnings():  # NumPy's own threads: they are idle, and its BLAS knows of forks
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            other.close()
            self._workers.append((process, own))

    def _serve(self, rank: int, parents_end: Any, pipe: Any) -> None:
        """What a forked process does until its pipe is closed."""
        for _, earlier in self._workers:
            earlier.close()
        parents_end.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's to answer
        for group, grad in zip(self.optimizer._groups, self._gradients[rank]):
            group.collect_in(grad)
        self.optimizer.zero_grad()  # those from before the fork are the first process's to count
        work: Work = []
        while True:
            try:
                kind, *args = pipe.recv()
            except (EOFError, OSError):
                return
            try:
                answer: Any = None
                for group, grad in zip(self.optimizer._groups, self._gradients[rank if kind == "run" else 0]):
                    group.grad = grad
                if kind == "run":
                    seed, shard, add = args
                    manual_seed(seed)
                    answer = self._run(shard, add)
                elif kind == "sum":
                    work = self._share(args[0], rank, self.processes)
                    answer = self._summed(work)
                else:
                    self.optimizer.update(work, *args)
                pipe.send((answer, None))
            except Exception:
                pipe.send((None, traceback.format_exc()))

    def _run(self, shard: Any, add: bool) -> tuple[float, list[int]]:
        """Leave the gradients of a shard in this process's flat arrays: zeros where there are none."""
        if shard is None and not add:
            self.optimizer.zero_grad()
        loss = 0.0 if shard is None else self._backward(shard, add)
        for group in self.optimizer._groups:
            group.gathered()
            for p, place in zip(group.parameters, group.places):
                if p.grad is None:
                    group.grad[place] = 0
        return loss, self._with_gradient()

    def _answers(self) -> list[Any]:
        answers = []
        for process, pipe in self._workers:
            try:
                answer, error = pipe.recv()
            except (EOFError, OSError):
                process.join()
                raise RuntimeError(f"DataParallel: a process ended with exit code {process.exitcode}") from None
            if error is not None:
                raise RuntimeError(f"DataParallel: a shard failed in another process:\n{error}")
            answers.append(answer)
        return answers

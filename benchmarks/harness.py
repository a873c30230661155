"""Fair comparison of libraries: one worker process each, one of them running at a time.

Two libraries that each own a pool of threads disturb one another in one process, so each gets its
own. Workers take turns, with a pause between in which idle pools go to sleep, and what is compared
is the median over the rounds.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
PAUSE = 0.3  # seconds between turns
TURN = 0.2  # least seconds of a turn: a short task is repeated, and the mean counts


KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1)}
"""Settings of glibc's malloc that minigrad makes for itself: keep freed memory."""


class Worker:
    """A process that runs one task of one library, on request.

    torch:compiled is the task train_compiled of `with_torch`, and torch+kept has minigrad's
    settings of malloc.
    """

    def __init__(self, library: str, task: str, config: dict[str, Any]) -> None:
        self.library = library
        launcher = ["mpiexec", "-n", str(config["ranks"])] if "ranks" in config else []
        command = [
            *launcher,
            sys.executable,
            str(HERE / "harness.py"),
            library.removesuffix("+kept"),
            task,
            json.dumps(config),
        ]
        env = os.environ | (KEPT if library.endswith("+kept") else {})
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE, env=env
        )
        self.facts = self._answer()
        self.seconds: list[float] = []
        self.counts: list[dict[str, float]] = []  # what the task counts, a turn
        self.peak = 0

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the {self.library} worker ended with code {self._process.wait()}")
        return json.loads(line)

    def turn(self, count: bool = True) -> None:
        """Run the task once, and keep how long it took."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        answer = self._answer()
        if count:
            self.seconds.append(answer["seconds"])
            self.counts.append(answer["counts"])
            self.peak = answer["peak"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    @property
    def median(self) -> float:
        return median(self.seconds)


def compare(
    libraries: list[str], task: str, config: dict[str, Any], rounds: int, warmup: int = 2
) -> list[Worker]:
    """Let the libraries take turns at a task; return the workers that could start."""
    workers = []
    for library in libraries:
        try:
            workers.append(Worker(library, task, config))
        except RuntimeError as error:
            print(f"  (left out: {error})", file=sys.stderr)
    return take_turns(workers, rounds, warmup)


def take_turns(workers: list[Worker], rounds: int, warmup: int) -> list[Worker]:
    """Run the workers' tasks in turns, then end them."""
    for i in range(warmup + rounds):
        for worker in workers:
            time.sleep(PAUSE)
            worker.turn(count=i >= warmup)
    for worker in workers:
        worker.close()
    return workers


def machine() -> str:
    """Describe the machine, for the head of a table."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    cores = sum(line.startswith("processor") for line in lines) or 1
    return f"{model}, {cores} cores, Python {platform.python_version()}"


def _children() -> list[int]:
    path = Path("/proc/self/task") / str(os.getpid()) / "children"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def _private(pid: int) -> int:
    """Return the bytes that a process shares with no other, such as its parent."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


def follow(pipe: Any, step: Callable[[], None]) -> None:
    """Take a step whenever the other end of the pipe asks for one, until it is closed."""
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        step()
        pipe.send(None)


def in_processes(prepare: Callable[[], Callable[[], None]], processes: int) -> Callable[[], None]:
    """Return a step that this process and forked ones take at once; each prepares its own part."""
    import multiprocessing

    def part(pipe: Any) -> None:
        step = prepare()
        pipe.send(None)
        follow(pipe, step)

    pipes = []
    for _ in range(processes - 1):
        own, other = multiprocessing.Pipe()
        multiprocessing.get_context("fork").Process(target=part, args=(other,), daemon=True).start()
        own.recv()
        pipes.append(own)
    own_part = prepare()

    def step() -> None:
        for pipe in pipes:
            pipe.send(None)
        own_part()
        for pipe in pipes:
            pipe.recv()

    return step


def serve(library: str, task: str, config: dict[str, Any]) -> None:
    """Prepare the task of a worker, and run it once for each line of input."""
    import resource

    sys.path.insert(0, str(HERE.parent))
    library, _, variant = library.partition(":")
    try:
        module = importlib.import_module(f"with_{library}")
    except ModuleNotFoundError as error:
        sys.exit(f"{error}")
    task = f"{task}_{variant}" if variant else task
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = getattr(module, task)(**config)
    facts = step.facts if hasattr(step, "facts") else {}
    counts = step.counts if hasattr(step, "counts") else dict  # counts of the task, which only grow
    print(json.dumps({"version": module.VERSION, **facts}), flush=True)
    for _ in sys.stdin:
        start, times, before = time.perf_counter(), 0, counts()
        while times == 0 or time.perf_counter() - start < TURN:
            step()
            times += 1
        seconds = (time.perf_counter() - start) / times
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle) * 1024 + sum(
            map(_private, _children())
        )
        counted = {name: (value - before[name]) / times for name, value in counts().items()}
        print(json.dumps({"seconds": seconds, "peak": peak, "counts": counted}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))

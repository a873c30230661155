"""Benchmarks `mpi`, steps by ranks of MPI on one machine, and `scale`, a model of many machines."""

from __future__ import annotations

import shutil
from statistics import median
from typing import Any

import numpy as np
import scale as model
from harness import Worker, compare, take_turns
from sizes import SIZES

MESSAGES = (
    1,
    1 << 12,
    1 << 16,
    1 << 18,
    1 << 20,
    1 << 22,
)  # numbers of 4 bytes, for the line of the model


def mpi(rounds: int) -> dict[str, Any]:
    """Measure steps of 1 and 2 ranks, of forked processes, and of PyTorch with gloo."""
    if shutil.which("mpiexec") is None:
        raise SystemExit("mpi: no mpiexec found: pip install mpi4py mpich")
    alpha, beta = line(rounds)
    result: dict[str, Any] = {"alpha_us": alpha * 1e6, "beta_ns": beta * 1e9}
    print(f"2 ranks sum m bytes in {alpha * 1e6:.0f} µs + m × {beta * 1e9:.3f} ns")
    print(f"{'':32}       ms   of 1 rank   communicating   MB a step   predicted ms")
    for size in ("toy", "small"):
        result[size] = _steps(size, rounds, alpha, beta)
    return result


def line(rounds: int) -> tuple[float, float]:
    """Fit a line, α and β, to the times of an all-reduce of two ranks of this machine."""
    tasks = [Worker("minigrad", "all_reduce_mpi", {"ranks": 2, "floats": n}) for n in MESSAGES]
    times = [median(worker.seconds) for worker in take_turns(tasks, rounds, 1)]
    sizes = 4.0 * np.array(MESSAGES)
    weights = 1 / np.array(times)  # errors are in proportion to the time
    beta, alpha = np.polyfit(sizes, times, 1, w=weights)
    return max(float(alpha), 0.0), max(float(beta), 0.0)


def _steps(size: str, rounds: int, alpha: float, beta: float) -> dict[str, Any]:
    half = SIZES[size].batch // 2
    kinds = {
        "1 rank": ("minigrad", "train_mpi", {"ranks": 1}),
        "2 ranks": ("minigrad", "train_mpi", {"ranks": 2}),
        "2 forked processes": ("minigrad", "train", {"processes": 2}),
        "PyTorch, 2 processes, gloo": ("torch:processes", "train", {}),
        "half the batch, 1 rank": ("minigrad", "train_mpi", {"ranks": 1, "batch": half}),
    }
    workers = {}
    for name, (library, task, config) in kinds.items():
        try:
            workers[name] = Worker(library, task, {"size": size, **config})
        except RuntimeError as error:
            print(f"  (left out: {name}: {error})")
    take_turns(list(workers.values()), rounds, 2)
    alone = workers["1 rank"].median
    result = {}
    for name, worker in workers.items():
        count = {key: median(turn[key] for turn in worker.counts) for key in worker.counts[0]}
        measured = {"ms": worker.median * 1e3, "of_one": worker.median / alone, **count}
        if name == "2 ranks":  # as long as half the batch takes alone, and then the all-reduce
            talk = alpha * count["messages"] + beta * count["bytes"]
            measured["predicted_ms"] = 1e3 * (workers["half the batch, 1 rank"].median + talk)
        result[name] = measured
        shown = (
            f"{count['communication'] / worker.median:16.0%}{count['bytes'] / 1e6:12.1f}"
            if count
            else f"{'':28}"
        )
        predicted = f"{measured['predicted_ms']:15.1f}" if "predicted_ms" in measured else ""
        print(
            f"{size:6}{name:26}{measured['ms']:9.1f}{measured['of_one']:12.2f}{shown}{predicted}",
            flush=True,
        )
    return result


def scale(rounds: int) -> dict[str, Any]:
    """Predict the efficiency of up to 1,000 nodes from a step of this whole machine."""
    result: dict[str, Any] = {}
    for size in ("small", "base"):
        (forked,) = compare(["minigrad"], "train", {"size": size}, rounds)
        (counted,) = compare(["minigrad"], "train_mpi", {"size": size, "ranks": 1}, 1, 0)
        parameters = counted.facts["parameters"]
        rows = model.table(size, parameters, forked.median)
        result[size] = {"parameters": parameters, "ms": forked.median * 1e3, "rows": rows}
    return result

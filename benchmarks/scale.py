"""Costs of a step on many machines: the α-β model of all-reduce, and the resulting efficiency.

A message of m bytes takes α + β m seconds. Every rank sends and receives one message at a time, and
the network serves all of them at once (Hockney, 1994). Gradients of n bytes are summed over p
ranks:

    ring      p - 1 turns in which each rank passes on 1/p of the array and adds, and p - 1 turns
              that distribute the sums
              2 (p - 1) α + 2 (p - 1)/p β n               Patarasuk, Yuan (2009)
    halving   log₂ p turns with halves, quarters ... of the array, and as many back
              2 log₂ p α + 2 (p - 1)/p β n                Rabenseifner (2004); MPICH, long arrays
    tree      to the root of a binomial tree, log₂ p turns with the whole array, and back
              2 log₂ p (α + β n)                          Thakur, Rabenseifner, Gropp (2005)

Each machine computes t seconds a step, and works with the efficiency t / (t + T). With several
batches a step, t is as many times as long.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = ["NETWORKS", "Network", "all_reduce", "batches_for", "efficiency", "table"]


class Network(NamedTuple):
    """Network with the seconds of each message and of each of its bytes."""

    name: str
    alpha: float
    beta: float


# Typical: TCP over Ethernet takes 50 µs a message, remote memory access 3 µs; 90% of the rate.
NETWORKS = [
    Network("1 Gbit/s", 50e-6, 8 / 0.9e9),
    Network("10 Gbit/s", 30e-6, 8 / 9e9),
    Network("100 Gbit/s", 3e-6, 8 / 90e9),
]
ALGORITHMS = ("ring", "halving", "tree")
NODES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


def all_reduce(algorithm: str, ranks: int, size: float, network: Network) -> float:
    """Return the seconds until all ranks have the sum of `size` bytes."""
    _, alpha, beta = network
    depth = math.ceil(math.log2(ranks))
    if algorithm == "tree":
        return 2 * depth * (alpha + beta * size)
    turns = {"ring": ranks - 1, "halving": depth}[algorithm]
    return 2 * turns * alpha + 2 * (ranks - 1) / ranks * beta * size


def efficiency(compute: float, communication: float) -> float:
    """Return the share of a step in which a machine computes."""
    return compute / (compute + communication)


def batches_for(target: float, compute: float, communication: float) -> int:
    """Return how many batches to accumulate for an efficiency of `target`."""
    return max(1, math.ceil(target / (1 - target) * communication / compute - 1e-9))


def table(size: str, parameters: int, compute: float) -> list[dict[str, Any]]:
    """Print and return times of all-reduce and efficiency for each network and number of nodes."""
    n = 4 * parameters
    print(
        f"\n{size}: {parameters / 1e6:.1f} million parameters, {n / 1e6:.0f} MB and "
        f"{compute * 1e3:.0f} ms a step"
    )
    print(f"{'':17}       ms of an all-reduce{'':14}batches")
    print(f"{'network':11}{'nodes':>6}     ring  halving     tree  efficiency  for 90%")
    rows = []
    for network in NETWORKS:
        for nodes in NODES:
            times = {a: all_reduce(a, nodes, n, network) for a in ALGORITHMS}
            best = min(times.values())
            row = {
                "efficiency": efficiency(compute, best),
                "batches": batches_for(0.9, compute, best),
            }
            rows.append({"size": size, "network": network.name, "nodes": nodes, **times, **row})
            shown = "".join(f"{1e3 * t:9.1f}" for t in times.values())
            print(f"{network.name:11}{nodes:6}{shown}{row['efficiency']:12.0%}{row['batches']:9}")
    return rows

"""Benchmarks, by hand: `python tests/benchmarks ops`.

ops   time per recorded op, forward and backward, on small arrays, against PyTorch
"""

from __future__ import annotations

import argparse
from statistics import geometric_mean

from harness import compare, machine

OPS = [
    "add", "multiply", "divide", "negative", "tanh", "relu", "exp, log", "square", "matmul",
    "reshape", "transpose", "slice", "mean", "softmax", "maximum", "where",
]  # fmt: skip


def ops(rounds: int) -> None:
    """µs for one op, in a chain of 200 on 8 × 8 float64 arrays."""
    print("op, 8 × 8 float64        minigrad    PyTorch    ratio")
    ratios = []
    for name in OPS:
        ours, theirs = compare(["minigrad", "torch"], "ops", {"name": name, "n": 200, "side": 8}, rounds, warmup=5)
        ratio = ours.median / theirs.median
        ratios.append(ratio)
        print(f"{name:20}{ours.median / 200 * 1e6:10.2f} µs{theirs.median / 200 * 1e6:8.2f} µs{ratio:8.2f}", flush=True)
    print(f"geometric mean of the ratios: {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ops"], help="which benchmark")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each library (default: %(default)s)")
    args = parser.parse_args()
    print(machine())
    {"ops": ops}[args.what](args.rounds)

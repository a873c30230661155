"""Times of all-reduce in `benchmarks/scale.py`, compared with the algorithms on arrays."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


def load() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks/scale.py"
    spec = importlib.util.spec_from_file_location("benchmarks_scale", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


scale = load()
NETWORK = scale.Network("exact", 3.0, 0.25)  # sums of these have no rounding


def ring(arrays: np.ndarray) -> tuple[int, int]:
    """Sum the arrays in place; return the turns, and the bytes that a rank sends."""
    p, n = arrays.shape
    parts = arrays.reshape(p, p, n // p)
    for back in (False, True):
        for turn in range(p - 1):
            moved = [(rank, (rank - turn + back) % p) for rank in range(p)]
            values = [parts[rank, part].copy() for rank, part in moved]
            for (rank, part), value in zip(moved, values):
                target = parts[(rank + 1) % p]
                target[part] = value if back else target[part] + value
    return 2 * (p - 1), 2 * (p - 1) * parts[0, 0].nbytes


def halving(arrays: np.ndarray) -> tuple[int, int]:
    """Halve the own part while adding, then double it while copying."""
    p, n = arrays.shape
    spans, sent = [(0, n)] * p, 0
    distances = [2**k for k in range(p.bit_length() - 1)]
    for distance in reversed(distances):
        before = arrays.copy()
        for rank, (start, stop) in enumerate(spans):
            middle = (start + stop) // 2
            spans[rank] = (start, middle) if not rank & distance else (middle, stop)
            part = slice(*spans[rank])
            arrays[rank, part] += before[rank ^ distance, part]
        sent += before[0, slice(*spans[0])].nbytes
    for distance in distances:
        before, old = arrays.copy(), list(spans)
        sent += before[0, slice(*old[0])].nbytes
        for rank in range(p):
            start, stop = old[rank ^ distance]
            arrays[rank, start:stop] = before[rank ^ distance, start:stop]
            spans[rank] = min(old[rank][0], start), max(old[rank][1], stop)
    return 2 * len(distances), sent


def tree(arrays: np.ndarray) -> tuple[int, int]:
    """Add up to the root, then copy from it; the root sends or receives in each turn."""
    p = len(arrays)
    distances = [2**k for k in range((p - 1).bit_length())]
    for distance in distances:
        for rank in range(0, p - distance, 2 * distance):
            arrays[rank] += arrays[rank + distance]
    for distance in reversed(distances):
        for rank in range(0, p - distance, 2 * distance):
            arrays[rank + distance] = arrays[rank]
    return 2 * len(distances), 2 * len(distances) * arrays[0].nbytes


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize("algorithm", [ring, halving, tree], ids=lambda f: f.__name__)
def test_all_reduce_takes_the_time_of_the_algorithm(algorithm: Any, ranks: int) -> None:
    if algorithm is halving and ranks & (ranks - 1):
        pytest.skip("halving is played through for powers of two alone")
    arrays = np.random.default_rng(ranks).integers(0, 100, (ranks, 2 * 240)).astype(float)
    expected = arrays.sum(0)
    turns, sent = algorithm(arrays)
    np.testing.assert_array_equal(arrays, np.tile(expected, (ranks, 1)))
    assert scale.all_reduce(algorithm.__name__, ranks, arrays[0].nbytes, NETWORK) == pytest.approx(
        3 * turns + 0.25 * sent
    )


def test_batches_for_reaches_the_efficiency() -> None:
    assert scale.efficiency(3.0, 1.0) == 0.75
    for communication in (0.01, 1.0, 7.3):
        k = scale.batches_for(0.9, 2.0, communication)
        assert scale.efficiency(2.0 * k, communication) >= 0.9 - 1e-9
        assert k == 1 or scale.efficiency(2.0 * (k - 1), communication) < 0.9


def test_table_has_all_networks_at_a_thousand_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = scale.table("small", 10_000_000, 0.1)
    assert {(row["network"], row["nodes"]) for row in rows} >= {
        (n.name, 1000) for n in scale.NETWORKS
    }
    assert all(0 < row["efficiency"] <= 1 and row["batches"] >= 1 for row in rows)
    assert capsys.readouterr().out.count("\n") == len(rows) + 4

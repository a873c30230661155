"""The model of all-reduce against the algorithms themselves, played through on arrays."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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
    """All-reduce in place; the turns, and the bytes that a rank sends."""
    p, n = arrays.shape
    parts = arrays.reshape(p, p, n // p)
    sent = 0
    for back in (False, True):
        for turn in range(p - 1):
            moved = [(rank, (rank - turn + back) % p) for rank in range(p)]
            values = [parts[rank, part].copy() for rank, part in moved]
            for (rank, part), value in zip(moved, values):
                target = parts[(rank + 1) % p]
                target[part] = value if back else target[part] + value
            sent += values[0].nbytes
    return 2 * (p - 1), sent


def halving(arrays: np.ndarray) -> tuple[int, int]:
    p, n = arrays.shape
    turns = sent = 0
    spans = [(0, n)] * p
    distance = p // 2
    while distance:
        before = arrays.copy()
        for rank in range(p):
            start, stop = spans[rank]
            middle = (start + stop) // 2
            spans[rank] = (start, middle) if not rank & distance else (middle, stop)
            own = slice(*spans[rank])
            arrays[rank, own] = before[rank, own] + before[rank ^ distance, own]
        sent += before[0, slice(*spans[0])].nbytes
        turns, distance = turns + 1, distance // 2
    distance = 1
    while distance < p:
        before, old = arrays.copy(), list(spans)
        sent += before[0, slice(*old[0])].nbytes
        for rank in range(p):
            other = old[rank ^ distance]
            arrays[rank, slice(*other)] = before[rank ^ distance, slice(*other)]
            spans[rank] = min(old[rank][0], other[0]), max(old[rank][1], other[1])
        turns, distance = turns + 1, 2 * distance
    return turns, sent


def tree(arrays: np.ndarray) -> tuple[int, int]:
    p = len(arrays)
    turns, distance = 0, 1
    while distance < p:
        for rank in range(0, p, 2 * distance):
            if rank + distance < p:
                arrays[rank] += arrays[rank + distance]
        turns, distance = turns + 1, 2 * distance
    while distance > 1:
        distance //= 2
        for rank in range(0, p, 2 * distance):
            if rank + distance < p:
                arrays[rank + distance] = arrays[rank]
        turns += 1
    return turns, turns * arrays[0].nbytes  # of the root, one turn after the other


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize("algorithm", [ring, halving, tree], ids=lambda f: f.__name__)
def test_all_reduce_takes_what_the_model_says(algorithm, ranks: int) -> None:
    if algorithm is halving and ranks & (ranks - 1):
        pytest.skip("halving is played through for powers of two alone")
    arrays = np.random.default_rng(ranks).integers(0, 100, (ranks, 2 * 240)).astype(float)
    expected = arrays.sum(0)
    turns, sent = algorithm(arrays)
    np.testing.assert_array_equal(arrays, np.tile(expected, (ranks, 1)))
    assert scale.all_reduce(algorithm.__name__, ranks, arrays[0].nbytes, NETWORK) == pytest.approx(
        3 * turns + 0.25 * sent
    )


def test_efficiency_and_what_raises_it() -> None:
    assert scale.efficiency(3.0, 1.0) == 0.75
    for communication in (0.01, 1.0, 7.3):
        k = scale.batches_for(0.9, 2.0, communication)
        assert scale.efficiency(2.0 * k, communication) >= 0.9 - 1e-9
        assert k == 1 or scale.efficiency(2.0 * (k - 1), communication) < 0.9


def test_the_table_has_every_network_and_a_thousand_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = scale.table("small", 10_000_000, 0.1)
    assert {(row["network"], row["nodes"]) for row in rows} >= {
        (n.name, 1000) for n in scale.NETWORKS
    }
    assert all(0 < row["efficiency"] <= 1 and row["batches"] >= 1 for row in rows)
    assert capsys.readouterr().out.count("\n") == len(rows) + 4

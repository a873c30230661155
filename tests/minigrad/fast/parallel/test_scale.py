"""Times of all-reduce and efficiencies in `benchmarks/scale.py`."""

from __future__ import annotations

import pytest

from benchmarks import scale


@pytest.mark.parametrize(
    "algorithm, ranks, turns, arrays",
    [
        ("ring", 5, 8, 8 / 5),
        ("halving", 16, 8, 30 / 16),
        ("tree", 5, 6, 6),
    ],
)
def test_all_reduce_takes_time_of_turns_and_bytes(
    algorithm: str, ranks: int, turns: int, arrays: float
) -> None:
    """In `turns` one after another, a rank sends `arrays` times the whole array."""
    network = scale.Network("exact", 3.0, 0.25)
    seconds = scale.all_reduce(algorithm, ranks, 480, network)
    assert seconds == pytest.approx(3 * turns + 0.25 * 480 * arrays)


@pytest.mark.parametrize("communication", [0.01, 1.0, 7.3])
def test_batches_for_returns_least_number_with_efficiency(communication: float) -> None:
    k = scale.batches_for(0.9, 2.0, communication)
    assert scale.efficiency(2.0 * k, communication) >= 0.9 - 1e-9
    assert k == 1 or scale.efficiency(2.0 * (k - 1), communication) < 0.9


def test_efficiency_is_share_of_computation() -> None:
    assert scale.efficiency(3.0, 1.0) == 0.75

"""Pairs of ids in a file."""

from __future__ import annotations

import itertools
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripts import load

from nn.text.batches import PairBatches

corpus = load("indexed_pairs")
IndexedPairs = corpus.IndexedPairs

sides = st.lists(st.integers(0, 69), min_size=1, max_size=6)
id_pairs = st.lists(st.tuples(sides, sides), min_size=1, max_size=40)


@given(
    pairs=id_pairs,
    vocab_size=st.sampled_from([70, 1 << 16, (1 << 16) + 1]),
    block=st.integers(1, 7),
)
def test_indexed_pairs_write_then_read_returns_the_pairs(
    pairs: list[Any], vocab_size: int, block: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "BLOCK", block)
        found = IndexedPairs.write(Path(name) / "pairs", iter(pairs), vocab_size)
        assert [(a.tolist(), b.tolist()) for a, b in found] == pairs
        assert found[0][0].itemsize == (2 if vocab_size <= 1 << 16 else 4)
        with pytest.raises(IndexError, match="the pair must be from 0 to"):
            found[len(pairs)]


@given(pairs=id_pairs, epoch=st.integers(0, 3), start=st.integers(0, 5))
def test_indexed_pairs_in_batches_equals_pairs_in_memory(
    pairs: list[Any], epoch: int, start: int
) -> None:
    many = pairs * 200  # several pools
    with tempfile.TemporaryDirectory() as name:
        found = IndexedPairs.write(Path(name) / "pairs", many, 70)
        batches, expected = (
            itertools.islice(PairBatches(data, 12).epoch(epoch, start), 200)
            for data in (found, many)
        )
        for got, want in zip(batches, expected, strict=True):
            assert [side.tolist() for side in got] == [side.tolist() for side in want]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    IndexedPairs.write(tmp_path / "pairs", [([1, 2], [3]), ([4], [1])], 5)
    return tmp_path / "pairs"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "pairs must contain at least one pair, got none"),
        ([([1], [2]), ([1], [])], "both sides of pair 1 must have at least one id"),
        ([([1], [2]), ([5], [0])], "ids of pair 1 must be from 0 to 4, got 5"),
        ([([1], [2]), ([1], [-1])], "ids of pair 1 must be from 0 to 4, got -1"),
        ([([1], [2]), ([1], [1.7])], "ids of pairs 0 to 1 must be integers, got float64"),
        ([([1], [2]), (["3"], [1])], "ids of pairs 0 to 1 must be integers, got <U"),
    ],
)
def test_indexed_pairs_failed_write_keeps_the_old_file(
    written: Path, pairs: list[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        IndexedPairs.write(written, pairs, 5)
    assert len(IndexedPairs(written)) == 2 and list(written.parent.iterdir()) == [written]


def test_indexed_pairs_fingerprint_changes_with_the_file(written: Path) -> None:
    before = IndexedPairs(written).fingerprint()
    assert IndexedPairs(written).fingerprint() == before
    IndexedPairs.write(written, [([1, 2], [3]), ([4], [2])], 5)
    assert IndexedPairs(written).fingerprint() != before


def test_indexed_pairs_large_file_uses_memory_of_a_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "BLOCK", 256)

    def peak(n: int) -> int:
        pairs = ((range(i % 20 + 1), range(i % 23 + 1)) for i in range(n))
        tracemalloc.start()
        for _ in PairBatches(IndexedPairs.write(tmp_path / "pairs", pairs, 30), 60).epoch():
            pass
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    small, large = peak(700), peak(4_000)
    assert large < 1.1 * small + 16 * 3_300  # 12 bytes a pair; 600 as lists

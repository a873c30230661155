"""Pairs of ids in a file."""

from __future__ import annotations

import itertools
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nn.text.corpus as corpus
from minigrad.io.safetensors import SafetensorsFile, write_safetensors
from nn.text import IndexedPairs, PairBatches

sides = st.lists(st.integers(0, 69), min_size=1, max_size=6)
id_pairs = st.lists(st.tuples(sides, sides), min_size=1, max_size=40)


@given(
    pairs=id_pairs,
    vocab_size=st.sampled_from([70, 1 << 16, (1 << 16) + 1]),
    block=st.integers(1, 7),
)
def test_indexed_pairs_write_then_read_returns_the_pairs(
    pairs: list, vocab_size: int, block: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "BLOCK", block)
        path = Path(name) / "pairs"
        found = IndexedPairs.write(path, iter(pairs), vocab_size)
        assert [(a.tolist(), b.tolist()) for a, b in found] == pairs and len(found) == len(pairs)
        assert found[0][0].itemsize == (2 if vocab_size <= 1 << 16 else 4)
        numbers = np.random.default_rng(0).permutation(len(pairs))
        assert found.lengths(numbers).tolist() == [max(map(len, pairs[i])) for i in numbers]
        assert found.longest == max(found.lengths(numbers)) and found.mean_length() == np.mean(
            [len(side) for pair in pairs for side in pair]
        )
        assert [file.name for file in Path(name).iterdir()] == ["pairs"]


@given(
    pairs=id_pairs,
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
    start=st.integers(0, 5),
    pool=st.booleans(),
)
def test_indexed_pairs_in_batches_equals_pairs_in_memory(
    pairs: list, seed: int, epoch: int, start: int, pool: bool
) -> None:
    many = pairs * (200 if pool else 1)
    with tempfile.TemporaryDirectory() as name:
        found = IndexedPairs.write(Path(name) / "pairs", many, 70)
        expected = PairBatches(many, 12, seed=seed)
        batches = PairBatches(found, 12, seed=seed)
        stop = start + 200
        for got, want in itertools.zip_longest(
            itertools.islice(batches.epoch(epoch, start), stop),
            itertools.islice(expected.epoch(epoch, start), stop),
        ):
            for a, b in zip(got, want):
                np.testing.assert_array_equal(a, b)


def test_indexed_pairs_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    IndexedPairs.write(path, [([1], [2])], 5)
    for pairs, message in [
        ([], "pairs must contain at least one pair, got none"),
        ([([1], [2]), ([1], [])], "both sides of pair 1 must have at least one id"),
        ([([1], [2]), ([3, 4], [0, 5, 1])], "ids of pair 1 must be from 0 to 4, got 5"),
        ([([1], [2]), ([1], [-1])], "ids of pair 1 must be from 0 to 4, got -1"),
    ]:
        with pytest.raises(ValueError, match=f"IndexedPairs.write: {message}"):
            IndexedPairs.write(path, pairs, 5)
        assert len(IndexedPairs(path)) == 1 and [file.name for file in tmp_path.iterdir()] == [
            "pairs"
        ]


def test_indexed_pairs_damaged_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    IndexedPairs.write(path, [([1, 2], [3]), ([4], [1])], 5)
    whole = path.read_bytes()
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="pairs: not a file of indexed pairs"):
            IndexedPairs(path)
    path.write_bytes(b"MGPAIRS2" + whole)
    with pytest.raises(ValueError, match=r"pairs, .* \(it is one of version 0.2; write it again\)"):
        IndexedPairs(path)
    path.write_bytes(whole)
    file = SafetensorsFile(path)
    arrays = {name: file.read(name) for name in file}
    for name, metadata in [
        ("starts", {}),
        ("source_lengths", {}),
        ("", {"longest": "3"}),
        ("", {"index_crc32": "3"}),
    ]:
        changed = {**arrays, name: arrays[name] + 1} if name else arrays
        write_safetensors(path, changed, {**file.metadata, **metadata})
        with pytest.raises(ValueError, match="pairs: the index of pairs was changed"):
            IndexedPairs(path)
    for metadata in ({}, {**file.metadata, "longest": "x"}):
        write_safetensors(path, arrays, metadata)
        with pytest.raises(ValueError, match="pairs: not a file of indexed pairs"):
            IndexedPairs(path)
    write_safetensors(path, {"ids": arrays["ids"]}, file.metadata)
    with pytest.raises(ValueError, match="pairs: not a file of indexed pairs"):
        IndexedPairs(path)
    with pytest.raises(IndexError, match="the pair must be from 0 to 1, got 2"):
        path.write_bytes(whole)
        IndexedPairs(path)[2]
    with pytest.raises(FileNotFoundError):
        IndexedPairs(tmp_path / "nothing")


def test_indexed_pairs_large_file_uses_memory_of_a_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "BLOCK", 256)
    peaks: dict[str, list[int]] = {"write": [], "read": []}
    few, many = 2_000, 12_000
    for n in (few, many):
        pairs = ((range(i % 20 + 1), range(i % 23 + 1)) for i in range(n))
        tracemalloc.start()
        found = IndexedPairs.write(tmp_path / "pairs", pairs, 30)
        peaks["write"].append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()
        for _ in PairBatches(found, 60).epoch():
            pass
        peaks["read"].append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    for kind, (small, large) in peaks.items():
        assert large < 1.1 * small + 4 * (many - few), (
            kind
        )  # 4 bytes a pair are their order; as lists it is 600

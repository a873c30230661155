"""Batches of drawn data: every row once, in padding that fits, in an order that can be resumed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples

import minigrad as mg
import nn
from nn.text.batches import PairBatches, padded

seeds = st.integers(0, 2**32 - 1)
ids = st.lists(st.integers(1, 9), max_size=6)


@given(st.lists(ids, max_size=5), st.integers(0, 9), st.integers(0, 3), st.booleans())
def test_padded_rows_are_sequences_and_padding(
    sequences: list[list[int]], pad_id: int, more: int, left: bool
) -> None:
    longest = max(map(len, sequences), default=0)
    array = padded(sequences, pad_id, longest + more if more else None, left)
    assert array.dtype == np.int64
    expected = []
    for sequence in sequences:
        padding = [pad_id] * (longest + more - len(sequence))
        expected.append([*padding, *sequence] if left else [*sequence, *padding])
    assert array.tolist() == expected


@max_examples(25)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=40),
    copies=st.sampled_from([1, 20]),
    max_tokens=st.integers(9, 40),
    shuffle=st.booleans(),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 3),
    encodes=st.booleans(),
)
def test_pair_batches_have_every_pair_once_within_max_tokens(
    sizes: list[tuple[int, int]],
    copies: int,
    max_tokens: int,
    shuffle: bool,
    seed: int,
    epoch: int,
    encodes: bool,
) -> None:
    """Many copies make several pools, of about 100 batches."""
    pairs = [([10 + i] * a, [-10 - i] * b) for i, (a, b) in enumerate(sizes * copies)]
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "pad_id": 7}
    if encodes:
        given_pairs: Any = range(len(pairs))
        options["encode"] = lambda i, generator: pairs[i]
    else:
        given_pairs = pairs
    made = PairBatches(given_pairs, max_tokens, **options)
    batches, plan = [*made.epoch(epoch)], made.plan(epoch)
    found: list[Any] = []
    for rows, (source, target) in zip(plan, batches, strict=True):
        assert max(source.size, target.size) <= max_tokens
        assert [source.tolist(), target.tolist()] == [
            padded([pairs[i][side] for i in rows], 7).tolist() for side in (0, 1)
        ]
        found += rows.tolist()
    assert sorted(found) == list(range(len(pairs)))
    if not shuffle:  # sorted by length, and no batch could have taken the next pair
        longest = [max(len(pairs[i][0]), len(pairs[i][1])) for i in found]
        assert longest == sorted(longest)
        starts = np.cumsum([len(rows) for rows in plan])[:-1].tolist()
        assert all(
            longest[start] * (len(rows) + 1) > max_tokens for start, rows in zip(starts, plan)
        )


def test_pair_batches_draw_other_ids_in_each_pool_and_epoch() -> None:
    draw = lambda pair, generator: (generator.integers(2**40, size=1), [1])
    batches = PairBatches([0] * 1000, 4, encode=draw)
    drawn = [i for epoch in (0, 1) for rows, _ in batches.epoch(epoch) for (i,) in rows.tolist()]
    assert len({*drawn}) == 2000


def test_pools_have_about_100_batches_of_the_mean_size_of_the_first_1000_pairs() -> None:
    """Find the same mean for the same seed, also of lengths that are drawn."""
    read: list[int] = []
    encode = lambda n, generator: read.append(n) or ([5] * n, [5] * n)
    batches = PairBatches([4] * 10 + [1] * 2990, 8, encode=encode)
    assert len(read) == 1000
    next(batches.epoch())
    assert len(read) == 1000 + 100 * 8 * 1000 // 1030
    draw = lambda pair, generator: ([5] * int(generator.integers(1, 9)), [5])
    first, second = (PairBatches(range(900), 9, seed=3, encode=draw).plan() for _ in range(2))
    assert [*map(len, first)] == [*map(len, second)]


@given(
    n=st.integers(20, 90),
    max_tokens=st.integers(9, 30),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 3),
    start=st.integers(0, 20),
    ranks=st.integers(1, 3),
)
def test_pair_batches_resume_in_an_order_of_seed_and_epoch(
    n: int, max_tokens: int, seed: int, epoch: int, start: int, ranks: int
) -> None:
    pairs = [([i] * (i % 7 + 1), [i]) for i in range(n)]
    draw = lambda pair, generator: (generator.permutation(9)[: len(pair[0])], pair[1])

    def read(seed: int, epoch: int, *rest: int, encode: Any = None) -> list[Any]:
        made = PairBatches(pairs, max_tokens, seed=seed, encode=encode)
        batches = made.epoch(epoch, *rest)
        return [b if b is None else [side.tolist() for side in b] for b in batches]

    for encode in (None, draw):
        whole = read(seed, epoch, encode=encode)
        assert read(seed, epoch, start, encode=encode) == whole[start:]
    whole = read(seed, epoch)
    assert whole not in (read(seed + 1, epoch), read(seed, epoch + 1))
    rows = [sorted(row for row in sides[1]) for sides in whole]
    shares = [read(seed, epoch, 0, rank, ranks) for rank in range(ranks)]
    joined = [
        sorted(row for share in batch if share is not None for row in share[1])
        for batch in zip(*shares, strict=True)
    ]
    assert joined == rows


@given(
    n=st.integers(1, 30),
    batch_size=st.integers(1, 11),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 3),
    start=st.integers(0, 4),
    ranks=st.integers(1, 4),
    kind=st.sampled_from(["arrays", "tensors", "one array", "one tensor", "dict", "samples"]),
)
def test_batches_have_every_row_once_in_an_order_of_seed_and_epoch(
    n: int,
    batch_size: int,
    shuffle: bool,
    drop_last: bool,
    seed: int,
    epoch: int,
    start: int,
    ranks: int,
    kind: str,
) -> None:
    x, y = np.arange(2.0 * n, dtype=np.float32).reshape(n, 2), np.arange(n)
    data: Any = {
        "arrays": (x, y),
        "tensors": (mg.tensor(x), mg.tensor(y)),
        "one array": (y,),
        "one tensor": (mg.tensor(y),),
        "dict": ({"x": x, "y": y},),
        "samples": ([{"x": a, "y": b} for a, b in zip(x, y)],),
    }[kind]
    options: Any = {"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last}
    batches = nn.Batches(*data, **options, seed=seed)

    def rows(batch: Any) -> list[int]:
        """Return the rows of a batch, after a comparison of its arrays."""
        if kind.startswith("one"):
            (b,) = batch
            return list(b.tolist())
        a, b = batch if isinstance(batch, tuple) else (batch["x"], batch["y"])
        np.testing.assert_array_equal(a, x[b], strict=True)
        return list(b.tolist())

    found = [rows(batch) for batch in batches.epoch(epoch)]
    order = np.random.default_rng([seed, epoch]).permutation(n) if shuffle else y
    kept = n - n % batch_size if drop_last else n
    assert found == [
        order[i : min(i + batch_size, kept)].tolist() for i in range(0, kept, batch_size)
    ]
    assert len(batches) == len(found)
    assert [*map(rows, batches.epoch())] == [*map(rows, batches.epoch(0, 0, 0, 1))]
    assert [rows(batch) for batch in batches.epoch(epoch, start)] == found[start:]
    shares = [[*batches.epoch(epoch, 0, rank, ranks)] for rank in range(ranks)]
    for i, expected in enumerate(found):
        for rank, share in enumerate(shares):
            assert ([] if share[i] is None else rows(share[i])) == expected[rank::ranks]
    for number in range(2):  # a loop is the next epoch
        epochs = [
            rows(
                {k: t.data for k, t in b.items()}
                if isinstance(b, dict)
                else (*(t.data for t in b),)
            )
            for b in batches
        ]
        assert epochs == [rows(batch) for batch in batches.epoch(number)]


@max_examples(40)
@given(
    total=st.integers(2, 60),
    length=st.integers(1, 20),
    batch_size=st.integers(1, 5),
    shuffle=st.booleans(),
    seed=seeds,
    epoch=st.integers(0, 3),
    dtype=st.sampled_from(["i8", "u1", "u2", ">i4"]),
)
def test_window_batches_predict_each_token_at_most_once(
    total: int, length: int, batch_size: int, shuffle: bool, seed: int, epoch: int, dtype: str
) -> None:
    if length >= total:
        with pytest.raises(ValueError, match=f"length must be less than the {total} ids, got"):
            nn.WindowBatches(np.arange(total), length, batch_size)
        return
    ids = np.arange(100, 100 + total).astype(dtype)
    made = nn.WindowBatches(ids, length, batch_size, shuffle=shuffle, seed=seed)
    batches = [batch for (batch,) in made.epoch(epoch)]
    assert {batch.dtype for batch in batches} == {np.dtype(dtype)}
    windows, sizes = np.concatenate(batches), [*map(len, batches)]
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1) and 1 <= sizes[-1] <= batch_size
    generator = np.random.default_rng([seed, epoch])
    first = int(generator.integers(min(length, total - length))) if shuffle else 0
    starts = np.arange(first, total - length, length)
    starts = generator.permutation(starts) if shuffle else starts
    np.testing.assert_array_equal(windows, 100 + starts[:, None] + np.arange(length + 1))


@given(
    st.lists(st.integers(), max_size=9, unique=True),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 9),
)
def test_batches_of_a_list_are_shuffled_by_the_epoch(
    items: list[int], shuffle: bool, epoch: int, start: int
) -> None:
    found = [*nn.as_batches(items, shuffle).epoch(epoch)]
    assert [*nn.as_batches((*items,), shuffle).epoch(epoch)] == found
    order = (
        np.random.default_rng([0, epoch]).permutation(len(items)) if shuffle else range(len(items))
    )
    assert found == [items[i] for i in order]
    assert [*nn.as_batches(items, shuffle).epoch(epoch, start)] == found[start:]
    assert [*nn.as_batches(items, shuffle).epoch()] == [*nn.as_batches(items, shuffle).epoch(0, 0)]
    from_function = nn.as_batches(lambda number: (item + number for item in items))
    assert [*from_function.epoch(epoch, start)] == [item + epoch for item in items][start:]

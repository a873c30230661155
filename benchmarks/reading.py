"""Memory and speed of reading a corpus from disk or from memory, over many batches.

python benchmarks/reading.py --pairs 1000000 --batches 100000
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nn.text.batches import PairBatches

PAGE = resource.getpagesize()


def own_memory() -> float:
    """Return the megabytes of this process without pages of files, which the system can drop."""
    resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (resident - shared) * PAGE / 1e6


def made_up(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of 5 to 30 random ids a side."""
    rng = np.random.default_rng(0)
    for start in range(0, count, 10_000):
        lengths = rng.integers(5, 31, (min(10_000, count - start), 2))
        ids, first = rng.integers(4, 32_000, lengths.sum()), 0
        for a, b in lengths.tolist():
            yield ids[first : first + a], ids[first + a : first + a + b]
            first += a + b


def read(batches: PairBatches, count: int) -> None:
    """Read `count` batches; print now and then how much memory is held."""
    began, tokens = time.perf_counter(), 0
    epochs: Any = itertools.chain.from_iterable(map(batches.epoch, itertools.count()))
    for i, (source, target) in enumerate(itertools.islice(epochs, count), 1):
        tokens += source.size + target.size
        if i % (count // 10) == 0:
            rate = tokens / (time.perf_counter() - began)
            print(
                f"  {i:>9,} batches: {own_memory():6.1f} MB, "
                f"{rate / 1e6:.2f} million tokens a second",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    from indexed_pairs import IndexedPairs

    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        pairs = IndexedPairs.write(Path(directory) / "pairs", made_up(args.pairs), 32_000)
        size = pairs.path.stat().st_size / 1e6
        print(
            f"wrote {len(pairs):,} pairs, {size:.0f} MB, in "
            f"{time.perf_counter() - began:.0f} s: {own_memory():.1f} MB"
        )
        print("from the file:")
        read(PairBatches(pairs, args.batch_tokens), args.batches)
        print("from memory:")
        few = [tuple(side.tolist() for side in pair) for pair in itertools.islice(pairs, 50_000)]
        read(PairBatches(few, args.batch_tokens), args.batches // 10)


if __name__ == "__main__":
    main()

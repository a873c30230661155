"""Sentence pairs from files."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from minigrad.io.reading import found_file

__all__ = ["filter_pairs", "iter_pairs", "read_lines", "read_pairs", "split_pairs"]

Pair = tuple[str, str]


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file, plain or .gz, with their numbers."""
    path = found_file(path)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        number = 0
        try:
            for number, line in enumerate(file, 1):
                if b"\0" in line:
                    raise ValueError(f"{path}, line {number}: a zero byte; this is no text")
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start})"
            ) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a whole .gz file ({error})") from None
    if number == 0:
        raise ValueError(f"{path}: the file is empty")


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or .gz, without their ends; errors (ValueError, OSError)
    name the file.
    """
    return (line for _, line in _lines(path))


# What the columns of a table of sentences are called where its first row names them.
_HEADINGS = {
    "source", "target", "src", "tgt", "trg", "input", "output", "sentence", "sentences", "translation", "text",
    "english", "chinese", "german", "french", "spanish", "en", "zh", "de", "fr", "es", "eng", "cmn",
    "源", "目标", "英文", "中文",
}  # fmt: skip


def is_heading(pair: Pair) -> bool:
    """Whether a row names its columns: both are single known words, such as source and target."""
    return all(side.strip().lower() in _HEADINGS for side in pair)


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    reverse: bool = False,
    left_out: Counter[str] | None = None,
    keep_repeated: bool = False,
) -> list[Pair]:
    """(source, target) sentences, from one file of tab-separated columns or from two parallel
    files.

    Of a tab-separated file the first two columns are taken, and others ignored. Files are UTF-8,
    plain or .gz. Blank lines of one file, pairs with an empty side, a first row that names the
    columns, and pairs that were there before (unless `keep_repeated`, for test sets) are left out,
    and counted in `left_out`. `reverse` exchanges the sides.
    """
    pairs = list(_rows(source, target))
    count = Counter[str]() if left_out is None else left_out
    if pairs and is_heading(pairs[0]):
        count["a row of headings"] += 1
        pairs = pairs[1:]
    whole = [(b, a) if reverse else (a, b) for a, b in pairs if a and b]
    count["with an empty side"] += len(pairs) - len(whole)
    distinct = whole if keep_repeated else list(dict.fromkeys(whole))
    count["there before"] += len(whole) - len(distinct)
    if not distinct:
        raise ValueError(f"{source}: no pair of sentences found")
    return distinct


def iter_pairs(
    source: str | Path, target: str | Path | None = None, reverse: bool = False
) -> Iterator[Pair]:
    """The pairs that `read_pairs` reads, one by one, repeated ones too: for files that memory does
    not hold.

    IndexedPairs.write("train.pairs", (encode(a, b) for a, b in iter_pairs("train.en.gz",
    "train.de.gz")), 32_000)
    """
    for number, (a, b) in enumerate(_rows(source, target)):
        if a and b and not (number == 0 and is_heading((a, b))):
            yield (b, a) if reverse else (a, b)


def _rows(source: str | Path, target: str | Path | None) -> Iterator[Pair]:
    """The two sides of each line, either of which may be empty."""
    if target is None:
        for number, line in _lines(source):
            if not line.strip():
                continue
            columns = line.split("\t")
            if len(columns) < 2:
                raise ValueError(
                    f"{source}, line {number}: expected two columns separated by a tab, got one"
                )
            yield columns[0].strip(), columns[1].strip()
        return
    counts = [0, 0]
    for left, right in itertools.zip_longest(_lines(source), _lines(target)):
        counts = [count + (side is not None) for count, side in zip(counts, (left, right))]
        if left is not None and right is not None:
            yield left[1].strip(), right[1].strip()
    if counts[0] != counts[1]:
        raise ValueError(f"{source} has {counts[0]} lines, but {target} has {counts[1]}")


def filter_pairs(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    max_len: int,
    max_ratio: float | None = None,
) -> list[tuple[Sequence[str], Sequence[str]]]:
    """The pairs of token lists that have 1 to `max_len` tokens a side, one at most `max_ratio`
    times the other.
    """

    def fits(shorter: int, longer: int) -> bool:
        return (
            shorter >= 1
            and longer <= max_len
            and (max_ratio is None or longer <= max_ratio * shorter)
        )

    return [(a, b) for a, b in pairs if fits(*sorted((len(a), len(b))))]


def split_pairs(pairs: Sequence[Pair], *sizes: int, seed: int = 0) -> list[list[Pair]]:
    """The pairs in parts, by source sentence: about `sizes` pairs in the first parts, the rest in
    the last.

    No source sentence is in two parts, so that what is held out is new.
    """
    by_source: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_source.setdefault(pair[0], []).append(pair)
    sources = list(by_source)
    order = np.random.default_rng(seed).permutation(len(sources))
    parts: list[list[Pair]] = [[] for _ in range(len(sizes) + 1)]
    part = 0
    for i in order:
        while part < len(sizes) and len(parts[part]) >= sizes[part]:
            part += 1
        parts[part] += by_source[sources[i]]
    if not parts[-1]:
        raise ValueError(f"split_pairs: {len(pairs)} pairs are too few to hold out {sum(sizes)}")
    return parts

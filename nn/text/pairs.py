"""Sentence pairs from text files."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from minigrad.io.reading import require_file

__all__ = ["filter_pairs", "iter_pairs", "read_lines", "read_pairs", "split_pairs"]

Pair = tuple[str, str]

_HEADINGS = {
    "source", "target", "src", "tgt", "trg", "input", "output", "sentence", "sentences",
    "translation", "text", "label", "labels", "english", "chinese", "german", "french", "spanish",
    "en", "zh", "de", "fr", "es", "eng", "cmn", "源", "目标", "英文", "中文",
}  # fmt: skip
"""Names of columns in the first row of a table of sentences."""


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their ends.

    Parameters
    ----------
    path : str or Path
        A plain or .gz file.

    Yields
    ------
    str
        A line without its end.

    Raises
    ------
    ValueError, OSError
        If the file is empty, damaged or not UTF-8. The message names the file and line.
    """
    path = require_file(path)
    with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
        number = 0
        try:
            for number, line in enumerate(file, 1):
                if b"\0" in line:
                    raise ValueError(
                        f"{path}, line {number} must be UTF-8, got a zero byte, as in UTF-16; save "
                        "the file as UTF-8"
                    )
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield text.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number} must be UTF-8, got {error.reason} at byte {error.start}; "
                "save the file as UTF-8"
            ) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a whole .gz file ({error})") from None
    if number == 0:
        raise ValueError(f"{path}: the file is empty")


def is_heading(pair: Pair) -> bool:
    """Return whether a row names its columns: both are names such as source and target."""
    return all(side.strip().lower() in _HEADINGS for side in pair)


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    reverse: bool = False,
    left_out: Counter[str] | None = None,
    keep_repeated: bool = False,
) -> list[Pair]:
    """Read sentence pairs from one file of columns, or from two parallel files.

    Pairs with an empty side, a first row that names the columns, and repeated pairs are left out.

    Parameters
    ----------
    source : str or Path
        A UTF-8 file, plain or .gz. Without `target`, its first two tab-separated columns are read.
    target : str or Path, optional
        A file with a translation of each line of `source`.
    reverse : bool, default False
        Exchange the sides.
    left_out : Counter, optional
        Count here what is left out, by reason.
    keep_repeated : bool, default False
        Keep repeated pairs, for test sets.

    Returns
    -------
    list of (str, str)
        Source and target sentences.
    """
    count: Counter[str] = Counter() if left_out is None else left_out
    pairs = list(_complete(source, target, reverse, count))
    distinct = pairs if keep_repeated else list(dict.fromkeys(pairs))
    count["repeated"] += len(pairs) - len(distinct)
    if not distinct:
        raise ValueError(f"{source} must have at least one pair of sentences, got none")
    return distinct


def iter_pairs(
    source: str | Path, target: str | Path | None = None, reverse: bool = False
) -> Iterator[Pair]:
    """Return an iterator over the pairs of `read_pairs` and repeated ones, for large files.

    Parameters
    ----------
    source : str or Path
        A UTF-8 file, plain or .gz. Without `target`, its first two tab-separated columns are read.
    target : str or Path, optional
        A file with a translation of each line of `source`.
    reverse : bool, default False
        Exchange the sides.

    Returns
    -------
    iterator of (str, str)
        Yields source and target sentence.

    Examples
    --------
    Write token ids to a file without reading all sentences into memory::

        pairs = ((encode(a), encode(b)) for a, b in iter_pairs("train.en.gz", "train.de.gz"))
        IndexedPairs.write("train.pairs", pairs, 32_000)
    """
    return _complete(source, target, reverse, Counter())


def _complete(
    source: str | Path, target: str | Path | None, reverse: bool, left_out: Counter[str]
) -> Iterator[Pair]:
    """Yield the pairs with two sides, without headings, and count the others."""
    for number, (a, b) in enumerate(_rows(source, target)):
        if number == 0 and is_heading((a, b)):
            left_out["a row of headings"] += 1
        elif a and b:
            yield (b, a) if reverse else (a, b)
        else:
            left_out["with an empty side"] += 1


def _rows(source: str | Path, target: str | Path | None) -> Iterator[Pair]:
    """Yield the two sides of each line, either of which may be empty."""
    if target is None:
        for number, line in enumerate(read_lines(source), 1):
            if not line.strip():
                continue
            columns = line.split("\t")
            if len(columns) < 2:
                raise ValueError(
                    f"{source}, line {number} must have two columns separated by a tab, got one"
                )
            yield columns[0].strip(), columns[1].strip()
        return
    lines = itertools.zip_longest(read_lines(source), read_lines(target))
    for number, (left, right) in enumerate(lines):
        if left is None or right is None:
            all_lines = number + 1 + sum(1 for _ in lines)
            counts = (number, all_lines) if left is None else (all_lines, number)
            raise ValueError(
                f"{target} must have as many lines as {source} ({counts[0]}), got {counts[1]}"
            )
        yield left.strip(), right.strip()


def filter_pairs(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    max_len: int,
    max_ratio: float | None = None,
) -> list[tuple[Sequence[str], Sequence[str]]]:
    """Return the pairs of tokenized sentences that have suitable lengths.

    Parameters
    ----------
    pairs : sequence of (tokens, tokens)
        Tokenized source and target sentences.
    max_len : int
        Keep pairs with 1 to `max_len` tokens on each side.
    max_ratio : float, optional
        Keep pairs whose longer side has at most `max_ratio` times the tokens of the shorter side.

    Returns
    -------
    list of (tokens, tokens)
        The pairs that are kept, in the same order.
    """
    kept = []
    for a, b in pairs:
        short, long = sorted((len(a), len(b)))
        if short >= 1 and long <= max_len and (max_ratio is None or long <= max_ratio * short):
            kept.append((a, b))
    return kept


def split_pairs(pairs: Sequence[Pair], *sizes: int, seed: int = 0) -> list[list[Pair]]:
    """Split pairs at random into parts that have no source sentence in common.

    Parameters
    ----------
    pairs : sequence of (str, str)
        Source and target sentences.
    *sizes : int
        About how many pairs the first parts have. The rest is one more part.
    seed : int, default 0
        Seed of the random split.

    Returns
    -------
    list of lists of (str, str)
        One list more than there are `sizes`.
    """
    by_source: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_source.setdefault(pair[0], []).append(pair)
    groups = list(by_source.values())
    parts: list[list[Pair]] = [[] for _ in range(len(sizes) + 1)]
    part = 0
    for i in np.random.default_rng(seed).permutation(len(groups)):
        while part < len(sizes) and len(parts[part]) >= sizes[part]:
            part += 1
        parts[part] += groups[i]
    if not parts[-1]:
        raise ValueError(
            f"split_pairs: pairs must be more than the {sum(sizes)} to hold out, got {len(pairs)}"
        )
    return parts

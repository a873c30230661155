"""Sentence pairs from text files."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from minigrad.io.reading import MAX_LINE, require_file

__all__ = ["read_lines", "read_pairs", "split_pairs"]

Pair = tuple[str, str]
MAX_LISTED = 20
"""Largest number of bad lines in an error."""

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

    Raises
    ------
    ValueError, OSError
        If the file is empty, damaged or not UTF-8. The message names the file and line.
    """
    for number, line in enumerate(_decoded(path), 1):
        if not isinstance(line, str):
            raise ValueError(f"{path}, line {number} {_reason(line)}")
        yield line


def _decoded(path: str | Path) -> Iterator[str | UnicodeDecodeError]:
    """Yield the lines of `read_lines`, or the error of a line that is not UTF-8."""
    path = require_file(path)
    with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
        number = 0
        try:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE + 1), b""), 1):
                if len(line) > MAX_LINE:
                    raise ValueError(
                        f"{path}, line {number} must have at most {MAX_LINE:,} bytes; divide it"
                    )
                if b"\0" in line:
                    raise ValueError(
                        f"{path}, line {number} must be UTF-8, got a zero byte, as in UTF-16; save "
                        "the file as UTF-8"
                    )
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    yield error
                else:
                    yield text.rstrip("\r\n")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a whole .gz file ({error})") from None
    if number == 0:
        raise ValueError(f"{path}: the file is empty")


def _reason(error: UnicodeDecodeError) -> str:
    return f"must be UTF-8, got {error.reason} at byte {error.start}; save the file as UTF-8"


def is_heading(pair: Pair) -> bool:
    """Return whether a row names its columns: both are names such as source and target."""
    return all(side.strip().lower() in _HEADINGS for side in pair)


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    reverse: bool = False,
    left_out: Counter[str] | None = None,
    keep_repeated: bool = False,
    skip_bad: bool = False,
    columns: Sequence[str] | None = None,
) -> list[Pair]:
    """Return the sentence pairs of one file of columns, or of two parallel files.

    Pairs with an empty side, a first row that names the columns, and repeated pairs are left out.

    Parameters
    ----------
    source : str or Path
        A UTF-8 file, plain or .gz. Without `target`, two columns are read. They are separated by
        tabs, or those of a .csv file, or two values of the object on each line of a .jsonl file.
    target : str or Path, optional
        A file with a translation of each line of `source`.
    reverse : bool, default False
        Exchange the sides.
    left_out : Counter, optional
        Count here what is left out, by reason.
    keep_repeated : bool, default False
        Keep repeated pairs, for test sets.
    skip_bad : bool, default False
        Leave out lines that are not UTF-8 or have one column only. By default they are an error.
    columns : (str, str), optional
        Names of the two columns, in the first row or in the objects. By default the first two.

    Raises
    ------
    ValueError
        Lines are bad, and `skip_bad` is False. The message lists the first 20 of them.
    """
    count: Counter[str] = Counter() if left_out is None else left_out
    pairs = list(_complete(source, target, reverse, count, skip_bad, columns))
    distinct = pairs if keep_repeated else list(dict.fromkeys(pairs))
    count["repeated"] += len(pairs) - len(distinct)
    if not distinct:
        raise ValueError(f"{source} must have at least one pair of sentences, got none")
    return distinct


def _complete(
    source: str | Path,
    target: str | Path | None,
    reverse: bool,
    left_out: Counter[str],
    skip_bad: bool,
    columns: Sequence[str] | None,
) -> Iterator[Pair]:
    """Yield the pairs with two sides, without headings, and count the others."""
    bad: list[str] = []
    number = -1
    for number, row in enumerate(_rows(source, target, columns)):
        if isinstance(row, str):
            bad.append(row)
        elif number == 0 and columns is None and is_heading(row):
            left_out["a row of headings"] += 1
        elif all(row):
            yield (row[1], row[0]) if reverse else row
        else:
            left_out["with an empty side"] += 1
    left_out["that are bad"] += len(bad)
    if len(bad) == number + 1 > 2 and "separated by a tab" in bad[-1]:
        raise ValueError(f"{source} must have tabs between its columns; {_other_form(source)}")
    if bad and not skip_bad:
        more = [f"{len(bad) - MAX_LISTED:,} more lines are bad"] if len(bad) > MAX_LISTED else []
        raise ValueError(
            "; ".join(bad[:MAX_LISTED] + more)
            + "; correct the lines, or leave them out with skip_bad=True (--skip-bad)"
        )


def _other_form(path: str | Path) -> str:
    """Return what a file without tabs looks like, and what to do."""
    first = next(iter(read_lines(path)))
    for mark, name in ((",", "comma-separated"), (";", "semicolon-separated")):
        if mark in first:
            return f"it looks {name}: {first!r:.60}. Name it .csv if this is so"
    if first.startswith("{"):
        return "it looks like JSON lines. Name it .jsonl if this is so"
    return f"no line has one, such as {first!r:.60}"


def _table(path: Path, columns: Sequence[str] | None) -> Iterator[Pair | str]:
    """Yield two columns of a .csv or .jsonl file, or what is wrong with a row."""
    if ".jsonl" in path.suffixes:
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                names = columns or [*row][:2]
                first, second = (str(row[name]).strip() for name in names)
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                yield f"{path}, line {number} must be an object with two columns, got {error!r:.60}"
            else:
                yield first, second
        return
    lines = [f"{line}\n" for line in read_lines(path)]
    is_csv = ".csv" in path.suffixes
    mark = "\t" if not is_csv else ";" if lines[0].count(";") > lines[0].count(",") else ","
    rows = csv.reader(lines, csv.excel, delimiter=mark, quotechar='"' if is_csv else None)
    places: list[int] = [0, 1]
    try:
        if columns is not None:
            heading = [name.strip() for name in next(rows)]
            if missing := [name for name in columns if name not in heading]:
                raise ValueError(
                    f"columns must be two of {', '.join(heading)} in {path}, got {missing[0]}"
                )
            places = [heading.index(name) for name in columns]
        for row in rows:
            if len(row) > max(places):
                yield row[places[0]].strip(), row[places[1]].strip()
            elif row:
                yield f"{path}, line {rows.line_num} must have two columns, got {len(row)}"
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.line_num}: not a table ({error})") from None


def _rows(
    source: str | Path, target: str | Path | None, columns: Sequence[str] | None
) -> Iterator[Pair | str]:
    """Yield the two sides of each line, either of which may be empty, or what is wrong with it."""
    if target is None and (columns or {".csv", ".jsonl"} & set(Path(source).suffixes)):
        yield from _table(Path(source), columns)
        return
    if target is None:
        for number, line in enumerate(_decoded(source), 1):
            if not isinstance(line, str):
                yield f"{source}, line {number} {_reason(line)}"
            elif line.strip():
                first, *rest = line.split("\t")
                if rest:
                    yield first.strip(), rest[0].strip()
                else:
                    where = f"{source}, line {number}"
                    yield f"{where} must have two columns separated by a tab, got one"
        return
    lines = itertools.zip_longest(_decoded(source), _decoded(target))
    for number, (left, right) in enumerate(lines):
        if left is None or right is None:
            all_lines = number + 1 + sum(1 for _ in lines)
            counts = (number, all_lines) if left is None else (all_lines, number)
            raise ValueError(
                f"{target} must have as many lines as {source} ({counts[0]}), got {counts[1]}"
            )
        if isinstance(left, str) and isinstance(right, str):
            yield left.strip(), right.strip()
        else:
            path, error = (source, left) if isinstance(right, str) else (target, right)
            assert isinstance(error, UnicodeDecodeError)
            yield f"{path}, line {number + 1} {_reason(error)}"


def split_pairs(pairs: Sequence[Pair], *sizes: int, seed: int = 0) -> list[list[Pair]]:
    """Return pairs at random in parts, one more than `sizes`, with no common source sentence.

    Parameters
    ----------
    pairs : sequence of (str, str)
        Source and target sentences.
    *sizes : int
        About how many pairs the first parts have. The rest is one more part.
    seed : int, default 0
        Seed of the random split.
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

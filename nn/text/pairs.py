"""Sentence pairs from text files."""

from __future__ import annotations

import csv
import gzip
import hashlib
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from minigrad.io.reading import MAX_LINE, require_file

__all__ = ["read_lines", "read_pairs", "split_pairs"]

Pair = tuple[str, str]
MAX_LISTED = 8
"""Largest number of reasons in an error, and of lines with each."""


class _Bad(NamedTuple):
    """A line that is not a pair, and the reason."""

    path: str | Path
    number: int
    reason: str


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
                zero = line.find(b"\0")
                if zero >= 0:
                    reason = "a zero byte, as in UTF-16,"
                    yield UnicodeDecodeError("utf-8", line, zero, zero + 1, reason)
                    continue
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
        Rows of tabs may have further columns.
    target : str or Path, optional
        A file with a translation of each line of `source`.
    reverse : bool, default False
        Exchange the sides.
    left_out : Counter, optional
        Count here what is left out, by reason.
    keep_repeated : bool, default False
        Keep repeated pairs, for test sets.
    skip_bad : bool, default False
        Leave out lines that are not UTF-8 or no row of the table. By default they are an error.
    columns : (str, str), optional
        Names of the two columns of one file, in the first row or in the objects. A .csv or .jsonl
        file with more than two needs them.

    Raises
    ------
    ValueError
        Lines are bad, and `skip_bad` is False. The message lists the first of them.
    """
    if target is not None and columns is not None:
        raise ValueError(f"columns must be None with a file of targets, got {columns}")
    count: Counter[str] = Counter() if left_out is None else left_out
    pairs: list[Pair] = []
    bad: list[_Bad] = []
    number = -1
    rows = _rows(source, target) if target is not None else _table(Path(source), columns)
    for number, row in enumerate(rows):
        if isinstance(row, _Bad):
            bad.append(row)
        elif number == 0 and columns is None and {side.lower() for side in row} <= _HEADINGS:
            count["a row of headings"] += 1
        elif all(row):
            pairs.append((row[1], row[0]) if reverse else row)
        else:
            count["with an empty side"] += 1
    count["that are bad"] += len(bad)
    is_all = len(bad) == number + 1
    if is_all and len(bad) > 2 and "separated by tabs" in bad[-1].reason:
        raise ValueError(f"{source} must have tabs between its columns; {_other_form(source)}")
    if bad and (is_all or not skip_bad):
        raise ValueError(
            f"{_listed(bad)}; correct the lines, or leave them out with skip_bad=True (--skip-bad)"
        )
    distinct = pairs if keep_repeated else list(dict.fromkeys(pairs))
    count["repeated"] += len(pairs) - len(distinct)
    if not distinct:
        raise ValueError(f"{source} must have at least one pair of sentences, got none")
    return distinct


def _listed(bad: Sequence[_Bad]) -> str:
    """Return the first lines with each reason."""
    groups: dict[tuple[str | Path, str], list[int]] = {}
    for path, number, reason in bad:
        groups.setdefault((path, reason), []).append(number)
    parts = []
    for (path, reason), numbers in itertools.islice(groups.items(), MAX_LISTED):
        more = f" and {len(numbers) - MAX_LISTED:,} more" if len(numbers) > MAX_LISTED else ""
        lines = "line " if len(numbers) == 1 else "lines "
        lines += ", ".join(map(str, numbers[:MAX_LISTED])) + more
        parts.append(f"{path}, {lines} {reason}")
    if others := [*groups.values()][MAX_LISTED:]:
        parts.append(f"{sum(map(len, others)):,} more lines are bad")
    return "; ".join(parts)


def _other_form(path: str | Path) -> str:
    """Return what a file without tabs looks like, and what to do."""
    first = next(iter(read_lines(path)))
    for mark, name in ((",", "comma-separated"), (";", "semicolon-separated")):
        if mark in first:
            return f"it looks {name}: {first!r:.60}. Name it .csv if this is so"
    if first.startswith("{"):
        return "it looks like JSON lines. Name it .jsonl if this is so"
    return f"no line has one, such as {first!r:.60}"


def _table(path: Path, columns: Sequence[str] | None) -> Iterator[Pair | _Bad]:
    """Yield two columns of a file, or what is wrong with a row."""
    if ".jsonl" in path.suffixes:
        yield from _objects(path, columns)
        return
    is_csv = ".csv" in path.suffixes
    size, first, second = 2, 0, 1
    for i, (number, row) in enumerate(_split_rows(path, is_csv)):
        if isinstance(row, str):
            yield _Bad(path, number, row)
            continue
        if i == 0 and (is_csv or columns is not None):
            first, second = _places(path, [name.strip() for name in row], columns)
            size = len(row) if is_csv else max(first, second) + 1
            if columns is not None:
                continue
        if len(row) < size or (is_csv and len(row) > size):
            kind = f"{size} columns" if is_csv else f"{size} columns separated by tabs"
            yield _Bad(path, number, f"must have {kind}, got {len(row)}")
        else:
            yield row[first].strip(), row[second].strip()


def _places(path: Path, names: Sequence[str], columns: Sequence[str] | None) -> Sequence[int]:
    """Return the places of `columns` among the names, or those of the only two names."""
    listed = ", ".join(names)
    if columns is None:
        if len(names) != 2:
            raise ValueError(
                f"{path} must have two columns, got {len(names)}: {listed:.200}; choose two by "
                "their names (--columns A,B)"
            )
        return 0, 1
    if wrong := [a for a in columns if names.count(a) != 1 or columns.count(a) != 1]:
        raise ValueError(f"columns must be two of {listed:.200} in {path}, got {wrong[0]}")
    return [names.index(name) for name in columns]


def _split_rows(path: Path, is_csv: bool) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the first line and the columns of each row of a table, or what is wrong with it."""
    wrong: dict[int, str] = {}

    def lines() -> Iterator[str]:
        for number, line in enumerate(_decoded(path), 1):
            if not isinstance(line, str):
                wrong[number] = _reason(line)
                line = line.object.replace(b"\0", b"").decode(errors="replace").rstrip("\r\n")
            yield f"{line}\n"

    if is_csv:
        head = next(lines())
        mark = ";" if head.count(";") > head.count(",") else ","
        rows = csv.reader(lines(), delimiter=mark, strict=True)
    else:
        rows = csv.reader(lines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    while True:
        start = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            reason = f"must be a row of a table, got {error}".partition(" - do you")[0]
            yield from ((number, reason) for number in range(start, rows.line_num + 1))
            continue
        reasons = [wrong[n] for n in range(start, rows.line_num + 1) if n in wrong]
        if reasons or any(map(str.strip, row)):
            yield start, reasons[0] if reasons else row


def _objects(path: Path, columns: Sequence[str] | None) -> Iterator[Pair | _Bad]:
    """Yield two values of the object on each line, or what is wrong with it.

    Without `columns`, these are the names in the first object. Null is an empty side.
    """
    for number, line in enumerate(_decoded(path), 1):
        if not isinstance(line, str):
            yield _Bad(path, number, _reason(line))
            continue
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            values = [row[name] for name in columns or row]
            if any(isinstance(value, (list, dict)) for value in values[:2]):
                raise TypeError("values must be strings or numbers")
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            yield _Bad(path, number, f"must be an object with two columns, got {error!r:.60}")
            continue
        if columns is None:
            _places(path, columns := [*row], None)
        sides = ["" if x is None or x != x else str(x).strip() for x in values]
        yield sides[0], sides[1]


def _rows(source: str | Path, target: str | Path) -> Iterator[Pair | _Bad]:
    """Yield the lines of two parallel files, either of which may be empty, or what is wrong."""
    lines = itertools.zip_longest(_decoded(source), _decoded(target))
    for number, (left, right) in enumerate(lines, 1):
        if left is None or right is None:
            all_lines = number + sum(1 for _ in lines)
            counts = (number - 1, all_lines) if left is None else (all_lines, number - 1)
            raise ValueError(
                f"{target} must have as many lines as {source} ({counts[0]}), got {counts[1]}"
            )
        if not isinstance(left, str):
            yield _Bad(source, number, _reason(left))
        elif not isinstance(right, str):
            yield _Bad(target, number, _reason(right))
        else:
            yield left.strip(), right.strip()


def random_order(seed: int, *texts: str) -> bytes:
    """Return a key that sorts texts at random, each by itself."""
    return hashlib.sha256(repr((seed, *texts)).encode()).digest()


def split_pairs(pairs: Sequence[Pair], *sizes: int, seed: int = 0) -> list[list[Pair]]:
    """Return pairs at random in parts, one more than `sizes`, with no common source sentence.

    The order depends on each sentence alone, so nearly all keep their part if others are added.

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
    groups = [by_source[source] for source in sorted(by_source, key=partial(random_order, seed))]
    parts: list[list[Pair]] = [[] for _ in range(len(sizes) + 1)]
    part = 0
    for group in groups:
        while part < len(sizes) and len(parts[part]) >= sizes[part]:
            part += 1
        parts[part] += group
    if not parts[-1]:
        raise ValueError(
            f"split_pairs: pairs must be more than the {sum(sizes)} to hold out, got {len(pairs)}; "
            "pass more, or hold out fewer (--valid-size, --test-size of minigrad train)"
        )
    return parts

"""Labelled texts: headings, warnings, splits and scores."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nn.text.labels import label_report, label_warnings, split_by_label, without_heading
from nn.text.pairs import read_pairs, split_pairs

ROWS = [("good film", "pos"), ("bad film", "neg")] * 3


@pytest.mark.parametrize(
    ("pairs", "is_left_out"),
    [
        ([("review", "sentiment"), *ROWS], True),
        ([("a text", "sentiment"), *ROWS], False),  # of several words
        ([("review", "pos"), *ROWS], False),
        ([*ROWS, ("review", "sentiment")], False),
        ([("review", "sentiment"), *ROWS, ("odd", "Pos")], True),  # a rare label as well
        ([("a", "1"), ("b", "2")], False),
        ([("review", "sentiment"), *ROWS[:1], *ROWS[:1]], False),  # of two labels
        ([("review", "sentiment"), *ROWS[:2], *ROWS[:1]], False),  # most occur once
        (
            [("review", "a"), *ROWS, ("odd", "b"), ("even", "c"), *[("x", "d")] * 2],
            True,
        ),  # half of them
        ([("a", "1"), ("b", "2"), ("c", "3"), ("d", "3")], False),
    ],
)
def test_without_heading_leaves_out_a_first_row_of_its_own(
    pairs: list[tuple[str, str]], is_left_out: bool
) -> None:
    rest, heading = without_heading(pairs)
    assert (rest, heading) == ((pairs[1:], pairs[0]) if is_left_out else (pairs, None))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([*ROWS, ("x", "odd")], "1 labels have a single text, such as 'odd'"),
        ([*ROWS, ("x", "Pos"), ("y", "Pos")], "labels differ in case only: 'pos', 'Pos'"),
        ([*ROWS, ("x", "Maß"), ("y", "MASS")], "labels differ in case only: 'Maß', 'MASS'"),
        ([(f"t{i}", str(i % 11 / 2)) for i in range(33)], "the 11 labels are numbers, each"),
    ],
)
def test_label_warnings_name_what_may_be_wrong(pairs: list[tuple[str, str]], message: str) -> None:
    assert any(message in warning for warning in label_warnings(pairs))
    assert label_warnings(ROWS) == []


labelled = st.lists(st.tuples(st.text("ab", max_size=3), st.sampled_from("xyz")), min_size=3)


@given(labelled, st.integers(0, 5), st.integers(0, 2**31))
def test_split_by_label_keeps_all_texts_and_every_label_in_the_rest(
    pairs: list[tuple[str, str]], size: int, seed: int
) -> None:
    labels = {label for _, label in pairs}
    size = min(size, len(pairs) - len(labels))
    first, rest = split_by_label(pairs, size, seed=seed)
    assert len(first) == size and Counter(first + rest) == Counter(pairs)
    assert {label for _, label in rest} == labels


def test_split_by_label_keeps_the_shares() -> None:
    pairs = [(str(i), "rare" if i % 10 == 0 else "common") for i in range(1000)]
    first, _ = split_by_label(pairs, 100, seed=0)
    assert 7 <= Counter(label for _, label in first)["rare"] <= 13


@pytest.mark.parametrize("change", [-30, -1, 1, 30])
@pytest.mark.parametrize("split", [split_pairs, split_by_label])
def test_held_out_texts_of_a_changed_file_were_not_trained_on(split: Any, change: int) -> None:
    """A run that is resumed with more lines, or fewer, is still judged by sentences it has not seen."""
    pairs = [(f"text {i}", str(i % 3)) for i in range(1030)]
    before = pairs[:1000] if change > 0 else pairs[: 1000 - change]
    after = pairs[: len(before) + change]
    parts = [split(before, 100, 100, seed=seed) for seed in range(3)]
    assert parts[0] != parts[1] != parts[2]
    for seed, (*_, train) in enumerate(parts):
        test, valid, _ = split(after, 100, 100, seed=seed)
        assert len(set(test) & set(train)) <= (2 if split is split_by_label else 0)
        assert len(set(valid) & set(train)) <= max(2, abs(change) // 2)


LABELS = ["a", "b" * 9, "c" * 5]


@given(st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS))))
def test_label_report_equals_scikit_learn_definitions(rows: list[tuple[str, str]]) -> None:
    expected, found = zip(*rows) if rows else ((), ())
    lines = label_report(expected, found, LABELS).splitlines()
    assert {len(line) for line in lines[:-1]} == {len(lines[0])}  # columns
    for label, line in zip(LABELS, lines[1:]):
        hits = sum(a == b == label for a, b in rows)
        precision = hits / max(1, found.count(label))
        recall = hits / max(1, expected.count(label))
        f1 = 2 * hits / max(1, found.count(label) + expected.count(label))
        assert line.split() == [
            label, f"{precision:.3f}", f"{recall:.3f}", f"{f1:.3f}", str(expected.count(label)),
        ]  # fmt: skip
    f1s = [
        2 * sum(a == b == label for a, b in rows) / (found.count(label) + expected.count(label))
        for label in {*expected}
    ]
    assert f"mean F1 {sum(f1s) / max(1, len(f1s)):.3f};" in lines[-1]
    accuracy = sum(a == b for a, b in rows) / max(1, len(rows))
    best, most = Counter(expected).most_common(1)[0] if rows else ("", 0)
    assert lines[-1].startswith(f"accuracy {accuracy:.3f},")
    assert lines[-1].endswith(f"always {best!r} would be {most / max(1, len(rows)):.3f}")


@pytest.mark.parametrize("labels", [["a", "b"], ["abcd"], ["abcde"], ["abcdef", "a"]])
def test_label_report_has_columns_below_their_names(labels: list[str]) -> None:
    head, *rows, _ = label_report(labels, labels, labels).splitlines()
    assert {len(row) for row in rows} == {len(head)} and len(rows) == len(labels)


@pytest.mark.parametrize(
    ("name", "rows"), [("a.tsv", "a\tb\n \n\t\nc\td\n"), ("a.csv", "x,y\na,b\n , \nc,d\n")]
)
def test_rows_of_spaces_are_no_rows(tmp_path: Path, name: str, rows: str) -> None:
    left_out: Counter[str] = Counter()
    (tmp_path / name).write_text(rows)
    assert read_pairs(tmp_path / name, left_out=left_out)[-2:] == [("a", "b"), ("c", "d")]
    assert not left_out["that are bad"] and not left_out["with an empty side"]


TABLES = {
    "a.csv": 'text,label\n" a, ""b"" ", 1 \n"two\nlines",2\n',
    "b.csv": 'text ; label\n a, "b" ; 1 \n"two\nlines";2\n',
    "d.csv": 'a;text,label\n"a, ""b""",1\n"two\nlines",2\n',  # as many of both
    "c.jsonl": '{"text": " a, \\"b\\" ", "label": 1}\n\n{"text": "two\\nlines", "label": " 2 "}\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_read_pairs_reads_tables_by_their_standards(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TABLES[name])
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(TABLES[name].encode()))
    expected = [('a, "b"', "1"), ("two\nlines", "2")]
    columns = ["label", "a;text" if name == "d.csv" else "text"]
    for file in (tmp_path / name, tmp_path / f"{name}.gz"):
        assert read_pairs(file)[-2:] == expected  # an odd heading stays
        swapped = read_pairs(file, columns=columns)
        assert swapped == [(label, text) for text, label in expected]


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", "a,1\nb,2\nc,3\n", None, "must have tabs .*it looks comma-separated: 'a,1'"),
        ("a.tsv", "a;1\nb;2\nc;3\n", None, "it looks semicolon-separated"),
        ("a.tsv", '{"a": 1}\n{"a": 2}\n{"a": 3}\n', None, "it looks like JSON lines"),
        ("a.tsv", "a {1}\na\na\n", None, "must have tabs .*; no line has one, such as 'a \\{1\\}'"),
        ("a.tsv", "a, b;1\na\na\n", None, "it looks comma-separated"),
        ("a.tsv", "a\nb\nc\n", None, "no line has one, such as 'a'"),
        ("a.tsv", "a\nb\n", None, "lines 1, 2 must have 2 columns separated by tabs, got 1"),
        ("a.csv", "a,b\n1,2\n", ["a", "c"], "columns must be two of a, b in .*, got c"),
        ("a.csv", "a,b\n1,2\n", ["a", "a"], "columns must be two of a, b in .*, got a"),
        ("a.tsv", "a\ta\tb\n", ["a", "b"], "columns must be two of a, a, b in .*, got a"),
        ("a.csv", "a,b\n1\n", None, "line 2 must have 2 columns, got 1"),
        (
            "a.tsv",
            "a\tb\tc\n1\t2\n",
            ["c", "a"],
            "line 2 must have 3 columns separated by tabs, got 2",
        ),
        (
            "a.tsv",
            "a\tb\tc\n1\n",
            ["a", "b"],
            "line 2 must have 2 columns separated by tabs, got 1",
        ),
        ("a.csv", "a,b\nthe cat, the dog,1\n", None, "line 2 must have 2 columns, got 3"),
        ("a.csv", "i,a,b\n1,2,3\n", None, "must have two columns, got 3: i, a, b; choose two"),
        ("a.csv", "a\tb\n", None, "must have two columns, got 1"),
        ("a.csv", 'a,b\nc,"d\ne,f\n', None, "lines 2, 3 must be a row .*, got unexpected end"),
        ("a.csv", 'a,b\n"c" d,e\n', None, "line 2 must be a row of a table, got ',' expected"),
        ("a.csv", "a,b\rc,d\r", None, "line 1 must be a row of a table, got new-line"),
        ("a.tsv", "a\tb\rc\td\r", None, "line 1 must be a row of a table, got new-line"),
        ("a.jsonl", "{}\n", None, "must have two columns, got 0"),
        (
            "a.jsonl",
            '{"a": 1, "b": 2, "c": 3}\n',
            None,
            "got 3: a, b, c; choose two by their names",
        ),
        (
            "a.jsonl",
            '{"a": "1", "b": ["2"]}\n',
            None,
            "line 1 .*values must be strings or numbers",
        ),
        ("a.jsonl", '{"a": 1, "b": 2, "c": [3]}\n', None, "got 3: a, b, c; choose two by their"),
        ("a.jsonl", f'{{"a": 1, "b": {"9" * 5000}}}\n', None, "line 1 must be an object with two"),
        ("a.jsonl", '{"a": 1, "b": 2}\n{"a": 1}\n', None, "line 2 must be an object with two col"),
        ("a.jsonl", "[1]\n", None, "line 1 must be an object with two columns"),
    ],
)
def test_read_pairs_of_another_table_names_the_fault(
    tmp_path: Path, name: str, text: str, columns: list[str] | None, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_pairs(tmp_path / name, columns=columns)


def test_first_row_of_names_of_columns_is_left_out(tmp_path: Path) -> None:
    names = """source target src tgt trg input output sentence sentences translation text label labels english chinese
        german french spanish en zh de fr es eng cmn 源 目标 英文 中文"""
    for name in names.split():
        (tmp_path / "a.tsv").write_text(f"{name.title()}\ten\nhello\thallo\n", "utf-8")
        assert read_pairs(tmp_path / "a.tsv") == [("hello", "hallo")], name


def test_columns_of_two_files_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("one\n")
    with pytest.raises(ValueError, match="columns must be None with a file of targets"):
        read_pairs(tmp_path / "a", tmp_path / "b", columns=["x", "y"])


def test_warnings_of_labels_begin_beside_their_limits() -> None:
    has = lambda pairs, text: any(text in warning for warning in label_warnings(pairs))
    for count in range(8, 14):
        numbers = [(f"text {i}", str(i % count)) for i in range(3 * count)]
        assert has(numbers, "are numbers") == (count > 10)
        assert not has([*numbers, ("a", "word"), ("b", "word")], "are numbers")


@pytest.mark.parametrize("count", [7, 8, 9, 10])
def test_read_pairs_lists_the_first_bad_lines_and_counts_the_others(
    tmp_path: Path, count: int
) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n" + "bad\n" * count)
    with pytest.raises(ValueError) as caught:
        read_pairs(tmp_path / "a.tsv")
    lines = ", ".join(map(str, range(2, 2 + min(count, 8))))
    more = f" and {count - 8} more" if count > 8 else ""
    assert str(caught.value).startswith(f"{tmp_path}/a.tsv, lines {lines}{more} must have 2 col")
    (tmp_path / "a.tsv").write_bytes(b"".join(b"x" * i + b"\xff\n" for i in range(count)))
    with pytest.raises(ValueError) as caught:
        read_pairs(tmp_path / "a.tsv")  # each line has a reason of its own
    assert str(caught.value).count("must be UTF-8") == min(count, 8)
    assert (f"{count - 8} more lines are bad" in str(caught.value)) == (count > 8)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
@pytest.mark.parametrize("columns", [None, ["s", "t"], ["t", "s"]])
def test_read_pairs_reads_rows_alike_in_each_format(
    tmp_path: Path, name: str, columns: list[str] | None
) -> None:
    good = [(f"text {i}", f"label {i % 3}") for i in range(40)]
    rows: list[bytes] = [b"s\tt", b"s,t", b'{"t": "label 0", "s": "text 0"}']
    kind = ["a.tsv", "a.csv", "a.jsonl"].index(name)
    write = [
        lambda s, t: f"{s}\t{t}", lambda s, t: f'"{s}",{t}',
        lambda s, t: json.dumps({"s": s, "t": t} if len(s) % 2 else {"t": t, "s": s}),
    ][kind]  # fmt: skip
    data = [write(*pair).encode() for pair in good]
    data[3:3] = [b"\xff" + data[3], data[4][:3] + b"\0" + data[4][3:], b""]
    start = rows[kind]
    (tmp_path / name).write_bytes(b"\r\n".join([start, *data]))
    if kind == 2:
        good = [("text 0", "label 0"), *good[1:]]
    expected = good if columns != ["t", "s"] else [(t, s) for s, t in good]
    if kind == 2 and columns is None:
        expected = [(t, s) for s, t in good]  # in the order of the first object
    left_out = Counter[str]()
    found = read_pairs(tmp_path / name, columns=columns, skip_bad=True, left_out=left_out)
    if kind != 2 and columns is None:
        expected = [("s", "t"), *expected]
    assert found == expected and left_out["that are bad"] == 2


def test_read_pairs_of_json_takes_null_for_an_empty_side(tmp_path: Path) -> None:
    rows = [
        ("a", None),
        ("b", float("nan")),
        ("c", 3),
        ("d", True),
        ("e", "x"),
        ("f", 0),
        ("g", False),
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"s": s, "t": t}) for s, t in rows))
    left_out = Counter[str]()
    assert read_pairs(tmp_path / "a.jsonl", left_out=left_out) == [
        ("c", "3"), ("d", "True"), ("e", "x"), ("f", "0"), ("g", "False"),
    ]  # fmt: skip
    assert left_out["with an empty side"] == 2

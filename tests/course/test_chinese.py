"""The lessons in Chinese: nothing is missing, nothing is left over, every number and formula is the one of the English.

That all blocks of a run have their Chinese is checked where each lesson is run (conftest.py), and by docs/build.py.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from scripts import EXAMPLES, load

script = load("00_autodiff")
languages = script.Lesson.__init__.__globals__["languages"]
COURSE = EXAMPLES / "course"
FILES = sorted((COURSE / "zh").glob("[0-9]*.txt"))


def written(folder: Path, text: str) -> languages.Catalogue:  # type: ignore[name-defined]
    file = folder / "x.txt"
    file.write_text(text, encoding="utf-8")
    return languages.Catalogue("zh", [file])


def test_every_lesson_is_there() -> None:
    assert [file.stem for file in FILES] == sorted(path.stem for path in COURSE.glob("[0-9]*.py"))


# -- the texts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [COURSE / "zh" / "common.txt", *FILES], ids=lambda file: file.stem)
def test_formulas_code_and_numbers_are_those_of_the_english(file: Path) -> None:
    assert languages.Catalogue("zh", [file]).problems() == []


# -- how they are looked up ------------------------------------------------------------------------------


def test_values_of_the_run_go_to_their_places(tmp_path: Path) -> None:
    words = written(
        tmp_path,
        "> {right} of {all} are\n> right\n{all} 句中有\n{right} 句正确\n\n> ReLU\n=\n\n> size {d}: {how}\n大小 {d}：{how}\n\n"
        "> too small\n太小\n\n> all of $\\frac{a}{b}$ and {n}\n$\\frac{a}{b}$ 与 {n}\n\n"
        "> it says {words!}\n它说 {words!}\n",
    )
    assert words.text("3 of  12 are right") == "12 句中有 3 句正确"
    assert words.text("size 4: too small") == "大小 4：太小"  # a value that is a text itself
    assert (
        words.text("all of $\\frac{a}{b}$ and 7") == "$\\frac{a}{b}$ 与 7"
    )  # braces of a formula are no places
    assert words.text("it says hola mundo") == "它说 hola mundo"  # data
    assert words.text("ReLU") == "ReLU" and words.text("(2, 3)") == "(2, 3)" and not words.missing
    assert words.text("another text") == "another text" and words.missing == ["another text"]
    assert words.words("size {d}: {how}", d=1, how="x") == "大小 1：x"
    with pytest.raises(ValueError, match="no zh for 'Next'"):
        words.words("Next")


@pytest.mark.parametrize(
    ("english", "chinese", "differs"),
    [
        ("{a} of 12", "{a}/13", "12, 13"),
        ("the root $x^2$", "根 $x^3$", r"\$x\^2\$"),
        ("call `f`", "调用 `g`", "`f`, `g`"),
        ("{a} and {b}", "{a} 和 {a}", "{b}"),
        ("2,000 steps, 1e-5", "2000 步，1e-5", "2,000"),
    ],
)
def test_what_differs_is_found(tmp_path: Path, english: str, chinese: str, differs: str) -> None:
    (problem,) = written(tmp_path, f"> {english}\n{chinese}\n").problems()
    assert re.search(differs, problem)


def test_what_is_twice_or_half_is_found(tmp_path: Path) -> None:
    assert written(tmp_path, "> a\n甲\n\n> a\n乙\n").problems() == ["x.txt: twice: a"]
    for text, said in (("> a\n\n", "no translation below: *a"), ("甲\n", "expected a line with >")):
        with pytest.raises(ValueError, match=said):
            written(tmp_path, text)


def test_a_sentence_that_changed_is_named_with_its_translation(tmp_path: Path) -> None:
    words = written(
        tmp_path, "> Attention is a sum of values.\n注意力是值的加权和。\n\n> unsaid\n未说\n"
    )
    blocks = [
        {"kind": "say", "text": "Attention is a weighted sum of values."},
        {"kind": "code", "text": "a", "note": ""},
    ]
    assert words.gaps(blocks) == [
        "no zh for: Attention is a weighted sum of values.; there is one for: Attention is a sum of values.",
        "no longer said: Attention is a sum of values.",
        "no longer said: unsaid",
    ]
    assert len(words.gaps(blocks, complete=False)) == 1


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert languages.preferred() == "en"
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert languages.preferred() == "zh"
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert languages.preferred() == "en"
    with pytest.raises(ValueError, match="expected one of en, zh"):
        languages.catalogue("00_autodiff", "de")


def test_a_lesson_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        script.main(
            ["--no-pictures", "--lang", "zh", "--section", "链式", "--width", "60", "--answers"]
        )
        == 0
    )
    out, err = capsys.readouterr()
    terminal = importlib.import_module("terminal")
    prose = [
        line
        for line in out.splitlines()
        if not line.startswith("    ") and "  " not in line.strip()
    ]
    assert max(map(terminal.columns, prose)) <= 60 and not any(
        line.strip()[:1] in "，。；）”" for line in prose if line
    )
    assert out.startswith("从零开始的自动微分") and "── 链式法则 ──" in out and "── 导数" not in out
    assert "练习：" in out and "答案：" in out and "共核对 14 条论断：全部成立。" in out and not err
    assert not re.search(r"[a-z]{3,} [a-z]{3,} [a-z]{3,}", out)
    with pytest.raises(SystemExit):
        script.main(["--lang", "zh", "--list"])
    assert capsys.readouterr().out.splitlines()[1] == "链式法则"


@pytest.mark.parametrize("width", range(20, 40))
def test_no_line_begins_with_what_closes_nor_ends_with_what_opens(width: int) -> None:
    terminal = importlib.import_module("terminal")
    text = (
        "“查询”、（键）与《值》：一个词“在找什么”，凭什么被“找到”；能给出（什么）。看 softmax（行）……"
        * 3
    )
    lines = terminal.wrapped(text, width).split("\n")
    assert (
        "".join("".join(lines).split()) == "".join(text.split())
        and max(map(terminal.columns, lines)) <= width
    )
    assert not any(line[0] in "”），。、；：》" or line[-1] in "“（《" for line in lines)


# -- the terms -------------------------------------------------------------------------------------------


def terms() -> dict[str, str]:
    """English and Chinese of each term in the table of terms."""
    page = (EXAMPLES.parent / "docs" / "zh" / "terms.md").read_text(encoding="utf-8")
    found = {}
    for chinese, english in re.findall(
        r"^\| ([^|]*[\u4e00-\u9fff]) \| ([a-z][^|]*) \|", page, re.M
    ):
        names = english.split(", ")
        found |= dict(
            zip(names, chinese.split("、") if "、" in chinese else [chinese] * len(names))
        )
    return found


def test_a_term_is_the_same_everywhere() -> None:
    """Where the English has a term, so has the Chinese, but for a few places where another word reads better."""
    plain = lambda text: re.sub(r"`[^`]*`|\$[^$]*\$|\{\w+!?\}", "", text)
    texts = [
        pair
        for file in FILES
        for pair in languages.Catalogue("zh", [file]).entries.items()
        if pair[1] != "="
    ]
    counted = 0
    for english, chinese in terms().items():
        word = re.compile(rf"(?<![-\w]){english}s?(?![-\w])", re.I)
        found = [chinese in translated for text, translated in texts if word.search(plain(text))]
        counted += len(found) > 4
        assert len(found) < 5 or np.mean(found) >= 0.6, (
            f"{english} is {chinese} in {sum(found)} of {len(found)} places"
        )
    assert len(terms()) > 40 and counted > 15

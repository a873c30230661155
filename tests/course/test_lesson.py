"""What a lesson takes on its command line, and how it counts."""

from __future__ import annotations

import numpy as np
import pytest
from scripts import load

script = load("00_autodiff")
Lesson = script.Lesson


def run(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert script.main(["--no-pictures", *options]) == 0
    return capsys.readouterr().out


def test_one_section_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "--section", "chain rule")
    (heading,) = [line for line in text.splitlines() if line.startswith("── ")]
    assert heading.startswith("── The chain rule ──")
    assert (
        "Newton" not in text
        and text.startswith("Autodiff from nothing")
        and "14 statements" in text
    )


def test_sections_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        script.main(["--list"])
    listed = capsys.readouterr().out.splitlines()
    assert stopped.value.code == 0 and len(listed) == 8 and listed[1] == "The chain rule"


@pytest.mark.parametrize("width", [40, 72, 160])
def test_prose_fits_any_width(capsys: pytest.CaptureFixture[str], width: int) -> None:
    import terminal

    text = run(capsys, "--width", str(width))
    lines = text.splitlines()[:-1]
    prose = [line for line in lines if not line.startswith("    ") and "  " not in line.strip()]
    assert prose and max(map(terminal.columns, prose)) <= width
    assert "\x1b" not in text


def test_colours_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "--colour", "always", "--answers", "--section", "forty")
    assert "\x1b[32m✓\x1b[0m" in text and "Answer: Only the last of the two ways" in text
    assert "Answer:" not in run(capsys, "--section", "forty")


def test_counts_and_failures(capsys: pytest.CaptureFixture[str]) -> None:
    lesson = Lesson("x", "Title.\n\nProse of $x^2$.", ["--no-pictures"])
    lesson.numbers("these agree", [1.23449, 2.0], [1.2345, 2.0], 4)
    lesson.numbers("these do not", [1.2344, 2.0], [1.2345, 2.0], 4)
    lesson.numbers("nor shapes", np.zeros(2), np.zeros(3))
    lesson.erratum("a digit", "1.23", "1.25", True, "because")
    lesson.measured("3 ms")
    assert lesson.end() == 1
    out, err = capsys.readouterr()
    assert lesson.failed == ["these do not", "nor shapes"] and (
        lesson.checked,
        lesson.corrected,
    ) == (4, 1)
    assert (
        "✗ these do not — largest gap 0.0001" in out
        and "≠ a digit — the text: 1.23; computed: 1.25. Because" in out
    )
    assert err.count("does not agree") == 2 and "Prose of x²." in out


def test_what_is_wide_takes_several_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lesson = Lesson("x", "Title.", ["--no-pictures", "--width", "40"])
    lesson.section("A title that is longer than the terminal is wide")
    lesson.formula(r"a = b + c + d + e \qquad f = g + h + i + j")
    lesson.table(
        ["a long name of a column", "another long name", "$d_k$"], [["x", 1.5, 20], ["y", 2.5, 3]]
    )
    lesson.listing("word " * 20)
    lesson.say(
        "Here the whole formula $a + b = c$ stays together, also where it would be broken in two."
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40 and "\n\n\n" not in "\n".join(lines)
    assert any("a + b = c" in line for line in lines) and "      f = g + h + i + j" in lines
    assert [line.split() for line in lines if line.startswith("  x")] == [["x", "1.5", "20"]]

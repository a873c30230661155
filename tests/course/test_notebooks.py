"""Lessons: notebooks run, graders accept solutions and name mistakes, Markdown is plain."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scripts import EXAMPLES

pytestmark = pytest.mark.slow
COURSE = EXAMPLES / "course"
LESSONS = sorted(COURSE.glob("[0-9]*.py"))
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
HOLE = re.compile(r"^def (\w+)\(.*\n(?:    .*\n|\n)*?    \.\.\.\n", re.M)


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(COURSE))


def exercises_of(lesson: Path) -> ModuleType | None:
    """Return the module with a lesson's exercises, None if it has none."""
    found = re.search(r"^from (exercises\.\w+) import", lesson.read_text("utf-8"), re.M)
    return importlib.import_module(found[1]) if found else None


@each_lesson
def test_lesson_with_solutions_runs_and_is_graded_right(
    lesson: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Fill the holes with the solutions. The site runs lessons with open holes."""
    source, module = lesson.read_text("utf-8"), exercises_of(lesson)
    names = HOLE.findall(source)
    if module:
        assert set(names) == set(module.exercises)
        source = HOLE.sub(lambda m: module.exercises[m[1]].source() + "\n", source)
        source = f"from typing import Any\nfrom {module.__name__} import *\n{source}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(lesson)])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, str(lesson), "exec"), {"__name__": "__main__"})
    text = printed.getvalue()
    assert not re.search("^✗.*", text, re.M)
    for name in names:
        assert f"✓ {name}: right" in text
    assert text.count("✓") - len(names) <= 10  # checked values


@each_lesson
def test_hole_left_open_is_not_yet_graded(lesson: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = exercises_of(lesson)
    for match in HOLE.finditer(lesson.read_text("utf-8")):
        scope: dict[str, Any] = {}
        exec("import numpy as np\nimport minigrad as mg\n" + match[0], scope)
        assert module is not None
        assert module.grade(scope[match[1]]) is module.exercises[match[1]].reference
        assert capsys.readouterr().out.startswith(f"… {match[1]}: not yet")


def all_exercises() -> list[Any]:
    """Return the exercises of all lessons, as parameters of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(COURSE))
        modules = filter(None, map(exercises_of, LESSONS))
        return [
            pytest.param(exercise, id=name)
            for module in modules
            for name, exercise in module.exercises.items()
        ]


@pytest.mark.parametrize("exercise", all_exercises())
def test_grader_accepts_the_solution_and_names_four_mistakes(exercise: Any) -> None:
    assert exercise.judge(exercise.reference) == ""
    assert len(exercise.mistakes) >= 4
    for sentence, mistake in exercise.mistakes.items():
        assert exercise.judge(mistake) == sentence


def change(x: Any) -> Any:
    """Change the argument in place, as an answer must not."""
    x *= 2
    return x


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: x / None, "case 1 (x (3,)): it raises TypeError"),
        (lambda x: "no", "it returns str; expected ndarray"),
        (lambda x: x[:1], "it returns shape (1,); expected (3,)"),
        (lambda x: 2 * x + (x == 1), "case 1 (x (3,)): the value at [1] is 3; expected 2"),
        (lambda x: 2 * x if x.ndim == 1 else x, "case 2 (x (2, 2)): the value at [0, 0] is 1"),
        (change, "it changes its arguments"),
        (lambda x: x + x, "right"),
    ],
)
def test_grader_names_what_is_wrong(
    capsys: pytest.CaptureFixture[str], answer: Any, message: str
) -> None:
    exercises = importlib.import_module("grading").Exercises()

    @exercises.add(cases=lambda rng: iter([(np.arange(3.0),), (np.ones((2, 2)),)]))
    def double(x: Any) -> Any:
        return 2 * x

    answer.__name__ = "double"
    assert exercises.grade(answer) is (answer if message == "right" else double)
    assert message in capsys.readouterr().out


@each_lesson
def test_markdown_of_lessons_has_nothing_that_jupyter_cannot_show(lesson: Path) -> None:
    assert not re.search(r"^# (:::|```\{|\{\w+\}`).*", lesson.read_text("utf-8"), re.M)


def pattern(text: ast.expr) -> str:
    """Return the text of an expression, with {} for each value in it."""
    if isinstance(text, ast.Constant):
        return str(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(map(pattern, text.values))
    if isinstance(text, ast.BinOp):
        return pattern(text.left) + pattern(text.right)
    if isinstance(text, ast.Call) and getattr(text.func, "attr", "") == "format":
        return re.sub(r"\{[^}]*\}", "{}", pattern(text.func.value))
    return "{}"


@each_lesson
def test_checked_sentences_are_in_chinese(lesson: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = importlib.import_module("labels")
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    calls = [n for n in ast.walk(ast.parse(lesson.read_text("utf-8"))) if isinstance(n, ast.Call)]
    checked = [pattern(call.args[1]) for call in calls if getattr(call.func, "id", "") == "check"]
    for sentence in checked:
        values = [f"{i}.5" for i in range(sentence.count("{}"))]
        chinese = labels.translated(sentence.format(*values))
        assert chinese == labels.CHINESE[sentence].format(*values)
        assert [value for value in values if value not in chinese] == []


def test_phrases_of_graders_and_pictures_are_in_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = importlib.import_module("labels")
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    for parameter in all_exercises():
        for sentence in parameter.values[0].mistakes:
            assert labels.label(sentence) != sentence
    drawn = re.compile(
        r'figure\(\s*[\d.]+, [\d.]+, "([^"]+)"|"(?:x|query|key|value|weight|output)", \w+, "([^"]+)"'
    )
    for lesson in LESSONS:
        for found in drawn.findall(lesson.read_text("utf-8")):
            assert labels.label("".join(found)) != "".join(found)

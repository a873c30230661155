"""Lessons: notebooks run, graders accept solutions and name mistakes, Markdown is plain."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.environment import needs
from support.scripts import EXAMPLES

pytestmark = pytest.mark.slow
COURSE = EXAMPLES / "course"
LESSONS = sorted(COURSE.glob("[0-9]*.py"))
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
COMPARED = re.compile(r"^compare_with_torch\((\d+)", re.M)
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
    for line in re.findall("largest difference to PyTorch.*", text):
        assert float(line.split(": ")[1]) < 1e-14  # computed here, or recorded


@pytest.mark.parametrize("asked", [[], ["--solutions"]], ids=["not asked", "asked"])
def test_script_without_matplotlib_runs_and_prints_solutions_if_asked(
    tmp_path: Path, asked: list[str]
) -> None:
    code = (
        "import importlib.util, runpy, sys; real = importlib.util.find_spec; sys.argv = sys.argv[1:]\n"
        "importlib.util.find_spec = lambda name, *_: None if name == 'matplotlib' else real(name)\n"
        "sys.path[:0] = [sys.argv[0].rpartition('/')[0]]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__'); assert 'matplotlib' not in sys.modules"
    )
    lesson = COURSE / "00_autodiff.py"
    command = [sys.executable, "-W", "error", "-c", code, str(lesson), *asked]
    env = {"PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Pictures need matplotlib: pip install matplotlib" in done.stdout
    assert ("return (f(x + h) - f(x - h)) / (2 * h)" in done.stdout) == bool(asked)


def test_recorded_differences_to_torch_are_those_of_the_lessons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = importlib.import_module("torch_gaps")
    record = json.loads(gaps.RECORD.read_text("utf-8"))
    compared = [n for path in LESSONS for n in COMPARED.findall(path.read_text("utf-8"))]
    assert list(record["gaps"]) == compared
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    gaps.compare_with_torch(compared[0], np.zeros(2), lambda torch: 1 / 0)
    gap = f"{record['gaps'][compared[0]]:.0e}"
    printed = f"largest difference to PyTorch {record['version']}, recorded: {gap}\n"
    assert capsys.readouterr().out == printed


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
        (change, "it changes its argument x: `x -= y` writes"),
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


def chinese_labels() -> dict[str, str]:
    """Return the Chinese of the phrases of pictures and graders."""
    read_po = needs("babel.messages.pofile").read_po
    path = EXAMPLES.parent / "docs" / "locale" / "zh_CN" / "LC_MESSAGES" / "course" / "labels.po"
    with path.open("rb") as file:
        return {str(m.id): str(m.string) for m in read_po(file) if m.id and m.string}


def calls(path: Path, *names: str) -> list[ast.Call]:
    """Return the calls of functions of these names in a file."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return [n for n in nodes if isinstance(n, ast.Call) and getattr(n.func, "id", "") in names]


def test_phrases_of_lessons_and_graders_are_in_chinese() -> None:
    phrases = {
        argument.value
        for path in COURSE.glob("*.py")
        for call in calls(path, "check", "label", "figure")
        for argument in call.args[{"check": 1, "label": 0, "figure": 2}[call.func.id] :][:1]  # type: ignore[attr-defined]
        if isinstance(argument, ast.Constant) and path.name != "pictures.py"
    }
    drawn = re.compile(r'\("(?:x|query|key|value|weight|output)", [^"]+, "([^"]+)"\)')
    phrases |= {title for path in LESSONS for title in drawn.findall(path.read_text("utf-8"))}
    for parameter in all_exercises():
        phrases |= set(parameter.values[0].mistakes)
    chinese, fields = chinese_labels(), re.compile(r"\{.*?\}")
    for phrase in phrases:
        assert fields.findall(chinese.get(phrase, "")) == fields.findall(phrase), phrase
        assert phrase in chinese, phrase
    assert len(phrases) > 300

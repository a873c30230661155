"""Pictures of the course that are not drawn by matplotlib."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support.environment import needs
from support.scripts import EXAMPLES

NAMES, VALUES = ["x", "w", "u", "y"], [2.0, -0.5, -1.0, 1.0]
GRAPH = [[], [], [(0, -0.5), (1, 2.0)], [(2, -1.0), (2, -1.0)]]


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "course"))
    monkeypatch.setattr("sys.argv", ["lesson.py"])
    monkeypatch.chdir(tmp_path)


def groups(svg: str) -> list[tuple[bool, list[str]]]:
    """Return whether each group of a picture is faint, and its texts."""
    root = ElementTree.fromstring(svg)
    return [("opacity" in g.attrib, [t.text or "" for t in g.iter("text")]) for g in root]


def test_graph_picture_shows_values_slopes_and_gradients() -> None:
    picture = importlib.import_module("graph_pictures").graph_picture
    shown = groups(picture(NAMES, VALUES, GRAPH, [1.0, -4.0, 2.00004, 1.0]))
    assert shown == [
        (False, []), (False, []), (False, ["−0.5", "2"]), (False, ["−1", "−1"]),
        (False, ["x = 2", "∂y/∂x = 1"]), (False, ["w = −0.5", "∂y/∂w = −4"]),
        (False, ["u = −1", "∂y/∂u = 2"]), (False, ["y = 1", "∂y/∂y = 1"]),
    ]  # fmt: skip


def test_graph_picture_of_earlier_output_has_later_numbers_faint() -> None:
    picture = importlib.import_module("graph_pictures").graph_picture
    shown = groups(picture(NAMES, VALUES, GRAPH, [-0.5, 2.0, 1.0]))
    assert [faint for faint, _ in shown] == [False, False, False, True] * 2
    assert shown[4:] == [
        (False, ["x = 2", "∂u/∂x = −0.5"]), (False, ["w = −0.5", "∂u/∂w = 2"]),
        (False, ["u = −1", "∂u/∂u = 1"]), (True, ["y = 1"]),
    ]  # fmt: skip


def test_boxes_of_graph_picture_do_not_overlap() -> None:
    picture = importlib.import_module("graph_pictures").graph_picture
    graph = [[], [], [], [(0, 1.0), (1, 1.0), (2, 1.0)], [(3, 1.0), (0, 1.0)]]
    root = ElementTree.fromstring(picture("abcde", [1.0] * 5, graph, [1.0] * 5))
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    boxes = [
        {k: float(r.attrib[k]) for k in ("x", "y", "width", "height")} for r in root.iter("rect")
    ]
    for i, a in enumerate(boxes):
        assert 0 <= a["x"] <= width - a["width"] and 0 <= a["y"] <= height - a["height"]
        for b in boxes[:i]:
            assert a["y"] != b["y"] or abs(a["x"] - b["x"]) >= a["width"]


def test_show_one_of_has_a_button_for_each_picture(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = importlib.import_module("pictures")
    pictures.show_one_of("step", {"0": "<svg>a</svg>", "<1>": "<svg>b</svg>"})
    path = Path("runs/course/lesson-0.html")
    assert capsys.readouterr().out == f"[{path}: step]\n"
    page = path.read_text("utf-8")
    shown: list[Any] = []
    monkeypatch.setattr(pictures, "_in_notebook", lambda: True)
    monkeypatch.setattr(pictures, "_display", shown.append)
    pictures.show_one_of("step", {"0": "<svg>a</svg>", "<1>": "<svg>b</svg>"})
    assert page.endswith(shown[0])
    button = r'<input type="radio" name="(.*?)" id="(.*?)"( checked)?><label for="(.*?)">(.*?)</label><div>(.*?)</div>'
    found = re.findall(button, page)
    assert [item[4:] for item in found] == [("0", "<svg>a</svg>"), ("&lt;1&gt;", "<svg>b</svg>")]
    assert [bool(item[2]) for item in found] == [True, False]
    assert len({item[0] for item in found}) == 1 and len({item[1] for item in found}) == 2
    assert all(item[1] == item[3] for item in found)
    pictures.show_one_of("step", {"0": "<svg>c</svg>"})
    assert re.findall(button, shown[1])[0][0] != found[0][0]


def test_labels_in_both_languages_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = importlib.import_module("labels")
    chinese = {"after {steps} steps": "{steps} 步之后", "{}, {}": "{}、{}", "a long name": "长名"}
    monkeypatch.setattr(labels, "_phrase", lambda text, to: chinese[text] if to == "zh" else text)
    both = lambda: labels.label("{}, {}", labels.label("after {steps} steps", steps=3), "x")
    texts = {}
    for language in ("en", "zh_CN", "both"):
        monkeypatch.setenv("COURSE_LANGUAGE", language)
        texts[language] = f"a {both()} b\n{labels.wrapped('a long name', 6)}"
    assert texts["en"] == "a after 3 steps, x b\na long\nname"
    assert texts["zh_CN"] == "a 3 步之后、x b\n长名"
    assert labels.in_language(texts["both"], "en") == texts["en"]
    assert labels.in_language(texts["both"], "zh") == texts["zh_CN"]


def test_figure_in_both_languages_is_that_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("matplotlib")
    labels, pictures = (importlib.import_module(name) for name in ("labels", "pictures"))
    monkeypatch.setattr(labels, "_phrase", lambda text, to: text.upper() if to == "zh" else text)
    monkeypatch.setattr(pictures, "_in_notebook", lambda: True)
    shown: dict[str, str] = {}
    for language in ("en", "zh", "both"):
        monkeypatch.setenv("COURSE_LANGUAGE", language)
        monkeypatch.setattr(
            pictures, "_display", lambda text, to=language: shown.update({to: text})
        )
        with pictures.figure(3, 2, "a line") as drawn:
            axes = drawn.add_subplot()
            axes.plot([0, 1], label=labels.label("the line"))
            axes.set_xticks([0, 1], [labels.label("left end"), labels.label("right")])
            axes.set_xlabel(labels.label("step"))
            axes.legend()
    words = lambda text: re.findall(r">([^<>]*[^<>\s][^<>]*)</text>", text)
    for language in ("en", "zh"):
        assert words(labels.in_language(shown["both"], language)) == words(shown[language])
    assert "LEFT END" in shown["zh"] and "LEFT END" not in shown["en"]

"""Damage to what the site is made of: pages, lessons as they were recorded, translations, templates, the font."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from damage import INTENSE, Damage, Judge, array_damage, digit_damage, file_damage, json_damage

import minigrad as mg
import nn
from nn.text import SPECIALS, SpaceTokenizer, Vocabulary

pytest.importorskip("markdown_it")
pytest.importorskip("pygments")
pytest.importorskip("fontTools")
ROOT = Path(__file__).parents[2]
SVG = '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt"><g id="a"/></svg>'
PAGE = "# {title}\n\n## A part of $x^2$ & more\n\nSee [the start](start.md) and `code`.\n\n{marks}\n\n```python\nx = 1\n```\n"
WRITTEN = {"index": "", "start": "Start", "live": "Start"}
MARKS = {
    "index": "{{course}}\n\n{{explorer}}", "live": "{{with pyodide}}\n\na\n\n{{without pyodide}}\n\nb",
    "start": "{{diagram masks: The masks.}}",
}  # fmt: skip
BLOCKS: list[dict[str, Any]] = [
    {"kind": "title", "text": "A title."}, {"kind": "usage", "text": "python x.py"}, {"kind": "section", "text": "Part"},
    {"kind": "source", "title": "T", "author": "A", "file": "x/t.md", "url": "", "note": "A note."},
    {"kind": "say", "text": "Some words, $x^2$."}, {"kind": "quote", "text": "注意", "english": "attention"},
    {"kind": "formula", "tex": r"\frac{a}{b} \qquad c", "note": ""}, {"kind": "code", "text": "x = 1", "note": ""},
    {"kind": "value", "name": "x", "shape": [2], "text": "[1. 2.]"},
    {"kind": "table", "header": ["a", "b"], "rows": [["1", "2"]], "caption": ""},
    {"kind": "listing", "text": "1", "note": ""}, {"kind": "measured", "text": "3 ms"},
    {"kind": "predict", "question": "Is it so?", "answer": "So it is."},
    {"kind": "exercise", "question": "Is it so?", "answer": "So it is."},
    {"kind": "picture", "file": "a.svg", "path": "x/a.svg", "caption": "", "alt": "Some words, $x^2$."},
    {"kind": "diagram", "name": "graph", "caption": ""}, {"kind": "explorer", "file": "e.html", "path": "x/e.html", "caption": "Part"},
    {"kind": "fact", "text": "It is so.", "holds": True, "detail": ""},
    {"kind": "erratum", "text": "It is so.", "holds": True, "printed": "1", "exact": "2", "detail": "So it is."},
    {"kind": "end", "text": "All agree."},
]  # fmt: skip
CHINESE = {
    "A title.": "题目。", "python x.py": "=", "Part": "部分", "A note.": "注。", "Some words, $x^2$.": "字，$x^2$。", "Is it so?": "是吗？",
    "So it is.": "是的。", "It is so.": "是。", "All agree.": "都对。",
}  # fmt: skip


@pytest.fixture(scope="module")
def parts() -> Iterator[SimpleNamespace]:
    with pytest.MonkeyPatch.context() as patch:
        for folder in ("docs", "examples", "examples/course"):
            patch.syspath_prepend(str(ROOT / folder))
        names = (
            "languages",
            "build",
            *(f"builder.{name}" for name in ("lessons", "browser", "page", "font", "reference")),
        )
        yield SimpleNamespace(
            **{name.split(".")[-1]: importlib.import_module(name) for name in names}
        )


@pytest.fixture
def whole(tmp_path: Path, parts: SimpleNamespace) -> Path:
    """All that a small site is made of."""
    path, record = (
        tmp_path / "whole",
        tmp_path / "whole" / "site-records" / "09_build_a_transformer",
    )
    for folder in ("docs/zh", "course/zh", "live", "pyodide", "examples"):
        (path / folder).mkdir(parents=True)
    record.mkdir(parents=True)
    for name in WRITTEN:
        (path / "docs" / f"{name}.md").write_text(
            PAGE.format(title=name, marks=MARKS.get(name, ""))
        )
    for name in ("index", "terms"):
        text = PAGE.format(title=f"{name} 网页", marks=MARKS.get(name, "")).replace(
            "start.md", "../start.md"
        )
        (path / "docs" / "zh" / f"{name}.md").write_text(text)
    shutil.copytree(ROOT / "docs" / "assets", path / "assets")
    shutil.copy(ROOT / "examples" / "course" / "zh" / "common.txt", path / "course" / "zh")
    for name in ("page.html", "page.js", "worker.js"):
        shutil.copy(ROOT / "docs" / "builder" / "live" / name, path / "live")
    for name in ("live/asked.py", "examples/corpora.py"):
        (path / name).write_text("x = 1\n")
    texts = "\n\n".join(f"> {english}\n{chinese}" for english, chinese in CHINESE.items())
    (path / "course" / "zh" / "09_build_a_transformer.txt").write_text(texts)
    (path / "course" / "09_build_a_transformer.py").write_text("x = 1\n")
    (record / "lesson.json").write_text(json.dumps({"name": "x", "blocks": BLOCKS}))
    (record / "a.svg").write_text(SVG)
    (record / "e.html").write_text("<!DOCTYPE html><html><body>e</body></html>")
    translator(record)
    for name in parts.browser.CORE:
        (path / "pyodide" / name).write_text("// nothing")
    lock = {"packages": {"numpy": {"file_name": "numpy-2.whl", "depends": []}}}
    (path / "pyodide" / "pyodide-lock.json").write_text(json.dumps(lock))
    (path / "pyodide" / "numpy-2.whl").write_text("a wheel")
    return path


def translator(path: Path) -> None:
    mg.manual_seed(0)
    vocab = Vocabulary([*SPECIALS, "a"])
    model = nn.Transformer(nn.TransformerConfig(5, 5, 4, 1, 1, 1, 4))
    nn.Translator(model, vocab, vocab, SpaceTokenizer(), SpaceTokenizer()).save(path)
    nn.save_weights(path / "best.safetensors", model)


def built(path: Path, parts: SimpleNamespace, patch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The site that is made of a folder, by the names of its files; what is wrong with it is a ValueError."""
    for module, name, place in (
        (parts.build, "HERE", "docs"),
        (parts.lessons, "COURSE", "course"),
        (parts.languages, "HERE", "course"),
        (parts.page, "ASSETS", "assets"),
        (parts.browser, "ASSETS", "assets"),
        (parts.browser, "PARTS", "live"),
        (parts.browser, "ROOT", ""),
        (parts.font, "MADE", "assets/math.woff"),
    ):
        patch.setattr(module, name, path / place)
    patch.setattr(parts.build, "WRITTEN", WRITTEN)
    patch.setattr(parts.reference, "pages", list)
    for cached in (parts.page.words, parts.font.covered):
        cached.cache_clear()
    try:
        wrong = parts.build.build(path / "site", reuse=True, jobs=1, pyodide=path / "pyodide")
    finally:
        for cached in (parts.page.words, parts.font.covered):
            cached.cache_clear()
    if wrong:
        raise ValueError(max(wrong, key=lambda line: "\n" in line))
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in (path / "site").rglob("*")
        if file.is_file()
    }


FILES = (
    "docs/index.md",
    "docs/start.md",
    "docs/live.md",
    "docs/zh/terms.md",
    "course/zh/common.txt",
    "course/zh/09_build_a_transformer.txt",
    "assets/style.css",
    "assets/site.js",
    "assets/math.woff",
    "live/page.html",
    "live/worker.js",
    "pyodide/pyodide-lock.json",
    *(
        f"site-records/09_build_a_transformer/{name}"
        for name in (
            "lesson.json",
            "a.svg",
            "e.html",
            "config.json",
            "vocab.json",
            "best.safetensors",
        )
    ),
)
# Words that may be others, and what nothing but a browser reads.
FREE = (".md", "worker.js", "site.js", "style.css", "e.html", ".txt character", "a.svg", "page.html", "math.woff", "_transformer.txt cut", "config.json", "'checksums'", "= None", "with CRLF")  # fmt: skip


FOUND = (
    "course/zh/common.txt deep",
    "pyodide/pyodide-lock.json ('packages', 'numpy', 'file_name') =",
)  # by long runs


def cases_of(path: Path, rng: np.random.Generator) -> list[Damage]:
    found: list[Damage] = []
    for name in FILES:
        found += file_damage(name, rng)
        if name.endswith(".json"):
            found += json_damage(name, rng, 4, 300)(path)
        elif name.endswith(".safetensors"):
            found += array_damage(name, rng)
        else:
            found += digit_damage(name, rng, 20)
    return found


def test_damage_to_what_the_site_is_made_of(
    whole: Path, parts: SimpleNamespace, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    judge, rng = Judge(), np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        expected, cases = built(whole, parts, patch), cases_of(whole, rng)
        shutil.rmtree(whole / "site")
        assert len(expected) == 15
        found = [i for i, (what, _) in enumerate(cases) if what.startswith(FOUND)]
        chosen = {*found, *rng.permutation(len(cases))[:70].tolist()}
        for i in range(len(cases)) if INTENSE else sorted(chosen):
            what, damage = cases[i]
            directory = shutil.copytree(whole, tmp_path / "damaged")
            damage(directory)
            named = "09_build" if "site-records" in what else Path(what.split(" ")[0]).stem
            named = "html" if named == "page" else named  # of which translator.html is made
            judge.case(
                what,
                lambda d=directory, patch=patch: built(d, parts, patch),
                lambda found: found == expected,
                named,
                any(name in what for name in FREE),
            )
            shutil.rmtree(directory)
    judge.report("damaged files of the site", 70, tell)

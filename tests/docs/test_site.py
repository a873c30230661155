"""Generated pages of the site, their Chinese, and the checks of built pages.

`.ci/run` builds the whole site.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.environment import needs

needs("jupytext", "babel", "latex2mathml", "docutils")
ROOT = Path(__file__).parents[2]
LOCALE = ROOT / "docs" / "locale" / "zh_CN" / "LC_MESSAGES"
# Formulas, code, numbers and places for values: the same in both languages.
FIXED = re.compile(r"`[^`]+`|\$[^$]+\$|(?<![A-Za-z0-9\\}^_])\{\w+!?\}|\d+(?:,\d{3})*(?:\.\d+)?")


def part(name: str) -> Any:
    """Import one of the modules that build the site."""
    return importlib.import_module(name)


# -- Chinese -------------------------------------------------------------------------------------------


def messages_in(catalog: Path) -> list[Any]:
    """Return the messages of a catalog, without its header."""
    from babel.messages.pofile import read_po

    return [message for message in read_po(io.BytesIO(catalog.read_bytes())) if message.id]


@pytest.mark.parametrize("path", sorted(LOCALE.rglob("*.po")), ids=lambda path: path.stem)
def test_translations_keep_formulas_code_and_numbers(path: Path) -> None:
    for message in messages_in(path):
        assert message.string and not message.fuzzy, message.id
        assert {*FIXED.findall(message.id)} == {*FIXED.findall(message.string)}, message.id


def test_every_block_of_a_lesson_has_a_translation() -> None:
    sources = part("sources")
    for script in sources.lessons():
        catalog = sources.translations(f"course/{script.stem}")
        for cell in sources.jupytext.read(script).cells:
            if cell.cell_type == "markdown":
                chinese = sources.translate_markdown(cell.source, catalog)
                prose = re.sub(r"\$\$.*?\$\$|```.*?```|[`*$][^`*$]*[`*$]", "", chinese, flags=re.S)
                assert not re.search(r"[a-z]+ [a-z]+ [a-z]+", prose), prose


def test_words_of_a_formula_are_translated() -> None:
    """Sphinx writes "::" in place of a translated formula, so the notebook already has it in Chinese."""
    translate = part("sources").translate_markdown
    catalog = {r"x = \text{is } c": r"x = \text{属于 } c", "Text:": "正文："}
    text = "Text:\n\n$$\nx =\n\\text{is } c\n$$\n\n## Text:"
    assert translate(text, catalog) == "正文：\n\n$$\nx = \\text{属于 } c\n$$\n\n## 正文："


@pytest.mark.slow
def test_catalogs_have_the_messages_of_the_pages_and_no_others(tmp_path: Path) -> None:
    """After `sphinx-intl update`, `sphinx-intl stat` finds no untranslated or fuzzy entry."""
    command = [sys.executable, "-m", "sphinx", "-q", "-t", "draft", "-b", "gettext"]
    subprocess.run([*command, str(ROOT / "docs"), str(tmp_path)], check=True)
    compared = 0
    for catalog in sorted(LOCALE.rglob("*.po")):
        template = tmp_path / catalog.relative_to(LOCALE).with_suffix(".pot")
        if template.is_file():
            found, expected = ({m.id for m in messages_in(p)} for p in (catalog, template))
            assert (expected - found, found - expected) == (set(), set()), catalog.name
            compared += 1
    assert compared > 12


@pytest.mark.parametrize(
    "path", sorted(LOCALE.rglob("course/[0-9]*.po")), ids=lambda path: path.stem
)
def test_emphasis_of_translations_is_rendered(path: Path) -> None:
    """Markdown reads no emphasis that ends with a Chinese mark and is followed by a letter."""
    markdown_it = needs("markdown_it").MarkdownIt()
    for message in part("sources").translations(f"course/{path.stem}").values():
        plain = re.sub(r"\$[^$]+\$|`[^`]+`", "", message)
        assert "*" not in markdown_it.render(plain), message


def slug(heading: str) -> str:
    """Return the anchor that MyST gives to a heading."""
    return re.sub(r"[^\w\u4e00-\u9fff\- ]", "", heading.strip().lower().replace(" ", "-"))


@pytest.mark.parametrize("chinese", [False, True], ids=["en", "zh"])
def test_lessons_link_to_sections_of_their_appendix(chinese: bool) -> None:
    sources, count = part("sources"), 0
    for script in sources.lessons():
        text = str(sources.lesson_notebook(script, chinese).cells)
        for name, anchor in re.findall(r"statements_(\w+)\.md#([^)]+)\)", text):
            statements = (sources.STATEMENTS / f"{name}.py").read_text("utf-8")
            sections = re.findall(r"text\.section\(\s*\"(.+?)\"\s*\)", statements)
            catalog = sources.translations(f"statements_{name}") if chinese else {}
            assert anchor in [slug(catalog.get(section, section)) for section in sections]
            count += 1
    assert count > 8


def test_lessons_link_to_sections_of_the_page_for_readers() -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / "reading.md").read_text("utf-8"), re.M)
    anchors = {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in headings}
    texts = [path.read_text("utf-8") for path in part("sources").lessons()]
    links = {link for text in texts for link in re.findall(r"reading\.md#([\w-]+)", text)}
    assert links and links <= anchors


def test_course_page_has_a_card_with_a_picture_for_each_lesson() -> None:
    text = (ROOT / "docs" / "course.md").read_text("utf-8")
    card = r":::\{grid-item-card\} (.+)\n:img-top: (.+)\n:img-alt: .+\n:link: course/(\w+)\n"
    cards = re.findall(card, text)
    lessons = part("sources").lessons()
    assert sorted(name for _, _, name in cards) == [script.stem for script in lessons]
    for title, picture, name in cards:
        assert (ROOT / "docs" / picture).is_file()
        assert f"# # {title}" in (ROOT / f"examples/course/{name}.py").read_text("utf-8")


@pytest.mark.parametrize("page", ["index", "reference/index"])
def test_chinese_menu_marks_pages_without_a_translation(page: str) -> None:
    folder = (ROOT / "docs" / page).parent
    text = folder.joinpath(f"{Path(page).name}.md").read_text("utf-8")
    entries = "\n".join(re.findall(r"```\{toctree\}\n(.*?)```", text, re.S))
    titles = re.findall(r"^(.+) <(.+)>$", entries, re.M)
    untitled = re.findall(r"^([\w/]+)$", entries, re.M)
    translated = lambda name: (LOCALE / page).parent.joinpath(f"{name}.po").is_file()
    assert all(map(translated, {*untitled} - {"terms", "modules"}))  # of one language
    for title, name in titles:
        assert not translated(name) and part("sources").translations(page)[title].endswith(
            "（英文）"
        )
    assert len(titles) > 2


@pytest.mark.parametrize(
    ("language", "title"), [("zh_CN", "它是怎样搭建的（英文）"), ("en", "How it is built")]
)
def test_links_to_the_next_page_are_in_the_language_of_the_menu(language: str, title: str) -> None:
    app = type("App", (), {"config": type("Config", (), {"language": language})})
    context = {"prev": None, "next": {"title": "How it is built", "link": "../design.html"}}
    part("sources").name_neighbours(app, "course/11_pruning_heads", "", context, None)
    assert context == {"prev": None, "next": {"title": title, "link": "../design.html"}}


# -- outputs of lessons --------------------------------------------------------------------------------


def test_files_of_a_lesson_are_the_same_after_each_compilation_of_labels() -> None:
    sources = part("sources")
    lesson = sources.lessons()[7]
    contents = []
    for _ in range(2):
        sources.write_labels()
        (sources.COURSE / "labels.mo").write_bytes(
            (sources.COURSE / "labels.mo").read_bytes() + bytes(len(contents))
        )
        contents.append([path.read_bytes() for path in sources.course_files(lesson)])
    sources.write_labels()
    assert contents[0] == contents[1]
    names = [path.name for path in sources.course_files(lesson)]
    assert {"watch.html", "by_hand.py", "labels.po", "build_a_transformer.py"} <= {*names}


def test_outputs_are_added_in_each_language_and_computed_again_after_a_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("nbclient", "ipykernel")
    sources, labels = part("sources"), part("labels")
    text = (
        "# %%\nfrom shown import show\n\n# %% [markdown]\n# Text\n\n# %%\nimport sys\n\n"
        'print("first")\nsys.stdout.flush()\nprint(show("word"))\n'
    )
    (tmp_path / "labels.py").write_text(Path(labels.__file__).read_text("utf-8"), "utf-8")
    shown = 'from labels import in_each\n\n\ndef show(word):\n    return in_each(lambda to: f"{to} {word}")\n'
    (tmp_path / "shown.py").write_text(shown, "utf-8")
    script = tmp_path / "00_lesson.py"
    for name, value in (("COURSE", tmp_path), ("MADE", tmp_path / "made")):
        monkeypatch.setattr(sources, name, value)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    record = tmp_path / "made" / "records" / "00_lesson.json"
    records: set[str] = set()
    with sources.lesson_kernel() as kernel:
        for changed, runs in (("", 1), ("Text", 1), ("word", 2)):
            script.write_text(text.replace(changed or " ", "other" if changed else " "), "utf-8")
            sources.recorded_outputs(script, kernel)
            records.add(record.read_text("utf-8"))
            assert len(records) == runs
    assert [path.name for path in sources.course_files(script)][1:] == ["shown.py", "labels.py"]
    for language in ("en", "zh"):
        notebook = sources.jupytext.read(script)
        if language == "zh":
            sources.translate_notebook(notebook, {})
        sources.add_outputs(notebook, sources.recorded_outputs(script, None), language)
        assert notebook.cells[-1].outputs[0].text == f"first\n{language} other\n"


# -- statements ----------------------------------------------------------------------------------------


def test_statement_table_marks_what_is_wrong_and_fills_in_values() -> None:
    statement = {"section": "S", "text": "a < b", "holds": True, "printed": "", "exact": ""}
    right = {**statement, "computed": "3 of 4 | x"}
    wrong = {**statement, "printed": "1.2", "exact": "1.3", "computed": "why"}
    source = {"title": "T", "author": "A", "file": "f", "url": "", "note": ""}
    found = {"source": source, "all": [right, wrong]}
    catalog = {"{some} of {all} | x": "{all} 中的 {some}", "why": "因为"}
    english, chinese = (part("sources").statement_table(found, x) for x in (None, catalog))
    assert "| ✓ | a \\< b | 3 of 4 \\| x |\n| ≠ | a \\< b: 1.2 | 1.3: why |" in english
    assert "| ✓ | a \\< b | 4 中的 3 |\n| ≠ | a \\< b: 1.2 | 1.3: 因为 |" in chinese


# -- rendering -----------------------------------------------------------------------------------------


def test_formulas_of_all_pages_become_mathml() -> None:
    rendering = part("rendering")
    pattern = re.compile(r"(?<![\\\w$])\$(?!\$)([^$`\n]+)\$(?!\w)|\$\$(.*?)\$\$", re.S)
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("examples/course/[0-9]*.py")]
    formulas = [max(x) for page in pages for x in pattern.findall(page.read_text("utf-8"))]
    assert len(formulas) > 20
    for formula in formulas:
        tex = " ".join(formula.replace("\n# ", " ").split())
        found = rendering.convert(rendering.plain_tex(tex))
        assert found.startswith("<math") and "\\" not in found, tex


SPACE = '<mspace width="0.17em"/>'


def test_formula_and_the_comma_after_it_are_not_broken() -> None:
    rendering = part("rendering")
    formula = rendering.mathml("x")
    context = {"body": f"<p>{formula}, {formula} 和 {formula}，</p>"}
    rendering.name_parts(None, "page", "", context, None)
    unbroken = f'<span class="unbroken">{formula}'
    assert context["body"] == f"<p>{unbroken},</span> {formula} 和 {unbroken}，</span></p>"


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        (r"\log p", f"<mi>log</mi>{SPACE}<mi>p</mi>"),
        (r"\log_2 p", f"<msub><mi>log</mi><mn>2</mn></msub>{SPACE}<mi>p</mi>"),
        (r"\log(p)", "<mi>log</mi><mo"),
    ],
)
def test_mathml_has_a_space_after_the_name_of_a_function(tex: str, expected: str) -> None:
    assert expected in part("rendering").mathml(tex)


DOCSTRING = r"""
Compute a * b, |x|, `a*b`.

    x = a * b

Say::

    f(*x)

Parameters
----------
x : int

    A line.
    **x, \*args** : Tensor
        Shape (*batch, d).
    **\*args, **kwargs**
    **x** : Tensor, shape (*batch, d)
"""
MARKED = r"""
Compute a \* b, \|x\|, `a*b`.

::

    x = a * b

Say::

    f(*x)

Parameters
----------
x : int

    A line.
    **x, \*args** : Tensor
        Shape (\*batch, d).
    **\*args, \*\*kwargs**
    **x** : Tensor, shape (\*batch, d)
"""


def test_docstring_code_and_asterisks_are_marked_for_sphinx() -> None:
    rendering, lines = part("rendering"), DOCSTRING.splitlines()
    for change in (rendering.mark_code, rendering.escape):
        change(None, "", "", None, None, lines)
    assert lines == MARKED.splitlines()


# -- what a page may not have --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ('<script async src="https://cdn.example.com/x.js"></script>', 1),
        ('<img alt="" src="//example.com/x.png">', 1),
        ('<link rel="stylesheet" type="text/css" href="https://example.com/x.css">', 1),
        ("<style>@font-face { src: url(https://example.com/x.woff) }</style>", 1),
        ("<style>@import 'https://example.com/x.css';</style>", 1),
        ('<a href="https://arxiv.org/">x</a><script src="_static/x.js"></script>', 0),
        ("<svg xmlns='http://www.w3.org/2000/svg'/>", 0),
    ],
)
def test_network_resources_finds_external_address(tmp_path: Path, body: str, count: int) -> None:
    (tmp_path / "a.html").write_text(f"<html>{body}</html>", "utf-8")
    assert len(part("check").network_resources(tmp_path)) == count


def test_missing_links_finds_missing_file(tmp_path: Path) -> None:
    links = '<a class="x" href="./b.html#part">b</a><a href="a.html">a</a><a href="#top">top</a>'
    (tmp_path / "a.html").write_text(f'{links}<a href="https://arxiv.org/">x</a>', "utf-8")
    found = part("check").missing_links(tmp_path)
    assert found == ["a.html: links to ./b.html, which is missing"]


@pytest.mark.slow
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "sphinx"])
def test_missing_results_finds_search_without_results(
    tmp_path: Path, driver: Any, ours: bool
) -> None:
    """Sphinx's own search in Chinese names a stemmer that its pages do not have."""
    needs("jieba")
    site, source = tmp_path / "site", tmp_path / "source"
    source.mkdir()
    (source / "index.rst").write_text(
        "Attention 注意力 is a softmax\n============================\n"
    )
    conf = "def setup(app):\n    import rendering\n    app.add_search_language(rendering.ChineseSearch)\n"
    (source / "conf.py").write_text(conf if ours else "")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "docs")}
    for language, folder in (("en", site), ("zh_CN", site / "zh")):
        command = [sys.executable, "-m", "sphinx", "-q", "-D", f"language={language}"]
        subprocess.run([*command, str(source), str(folder)], check=True, env=env)
    wrong = part("check").missing_results(driver, site, seconds=5)
    assert wrong == ([] if ours else ["zh/search.html: the search finds nothing for 注意力"])


@pytest.mark.slow
def test_look_at_unreadable_page_finds_its_problems(tmp_path: Path, driver: Any) -> None:
    (tmp_path / "bad.html").write_text(
        '<!DOCTYPE html><html><body style="background:#fff"><p style="color:#aaa">pale words</p>'
        '<div style="width:900px">wide</div><script>null.x</script></body></html>',
        encoding="utf-8",
    )
    found = "\n".join(part("check").look_at(driver, tmp_path / "bad.html", "bad", None))
    assert re.search("2.3.*pale words", found) and "TypeError" in found
    assert re.search("bad at 390.*too wide", found) and not re.search("at 1440.*too wide", found)


@pytest.mark.slow
def test_look_at_finds_what_a_scrolling_box_cuts_off(tmp_path: Path, driver: Any) -> None:
    line = "x" * 60
    (tmp_path / "cut.html").write_text(
        "<!DOCTYPE html><html><body><article><style>div { width: 300px; overflow-x: auto }</style>"
        '<div><svg role="img" aria-label="wide" style="min-width: 342px" width="9"></svg></div>'
        '<div><svg role="img" aria-label="fits" style="max-width: 100%" width="900"></svg></div>'
        f'<div><pre>{line}</pre></div><pre style="white-space: pre-wrap; width: 99px">a b</pre>'
        '<div hidden><svg role="img" aria-label="hidden" width="900"></svg></div>'
        '<iframe title="low" height="99" srcdoc="<p style=height:400px>a</p>"></iframe></article></body></html>',
        encoding="utf-8",
    )
    found = part("check").look_at(driver, tmp_path / "cut.html", "cut", None)
    assert [f for f in found if "wide" in f] == [
        *(f'cut at {n}, light: svg "wide" loses 42 px' for n in (390, 820, 1440)),
        'cut, printed: svg "wide" loses 42 px',
    ]
    assert len([f for f in found if "xxx" in f and "loses" in f]) == 4
    assert len([f for f in found if re.search('iframe "low" loses 3.. px of its height', f)]) == 4
    assert not [f for f in found if re.search('(fits|hidden|a b)".*loses', f)]


def test_files_that_lessons_name_have_pages_and_links() -> None:
    sources, context = part("sources"), {"content_root": "../", "body": ""}
    assert "minigrad/graph.py" in sources.named_files()
    code = '<code class="docutils literal"><span class="pre">{}</span></code>'
    names = ("minigrad/graph.py", "minigrad/nothing.py")
    context["body"] = " ".join(map(code.format, names))
    app = type("App", (), {"config": type("Config", (), {"language": "zh_CN"})})
    sources.link_files(app, "reading", "", context, None)
    content = ["[`minigrad/graph.py`](../minigrad/graph.py): `Node`"]
    sources.unlink_files(app, "reading", content)
    assert content == ["`minigrad/graph.py`: `Node`"]
    link = f'<a href="../../source/minigrad/graph.html">{code.format(names[0])}</a>'
    assert context["body"] == f"{link} {code.format(names[1])}"

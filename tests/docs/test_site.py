"""Generated pages of the site, their Chinese, and the checks of built pages.

`.ci/run` builds the whole site.
"""

from __future__ import annotations

import importlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

for module in ("jupytext", "babel", "latex2mathml", "docutils"):
    pytest.importorskip(module)
ROOT = Path(__file__).parents[2]
LOCALE = ROOT / "docs" / "locale" / "zh_CN" / "LC_MESSAGES"
# Formulas, code, numbers and places for values: the same in both languages.
FIXED = re.compile(r"`[^`]+`|\$[^$]+\$|(?<![A-Za-z0-9\\}^_])\{\w+!?\}|\d+(?:,\d{3})*(?:\.\d+)?")


def part(name: str) -> Any:
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


@pytest.mark.parametrize("path", sorted(LOCALE.rglob("course/*.po")), ids=lambda path: path.stem)
def test_emphasis_of_translations_is_rendered(path: Path) -> None:
    """Markdown reads no emphasis that ends with a Chinese mark and is followed by a letter."""
    markdown_it = pytest.importorskip("markdown_it").MarkdownIt()
    for message in part("sources").translations(f"course/{path.stem}").values():
        plain = re.sub(r"\$[^$]+\$|`[^`]+`", "", message)
        assert "*" not in markdown_it.render(plain), message


def test_markdown_is_translated_block_by_block() -> None:
    catalog = {"A title": "标题", "two lines": "两行", "item": "条目"}
    text = "# A title\n\ntwo\nlines\n\n- item\n- other\n\n$$\nx\n$$"
    chinese = "# 标题\n\n两行\n\n- 条目\n\n- other\n\n$$\nx\n$$"
    assert part("sources").translate_markdown(text, catalog) == chinese


def test_chinese_notebook_sets_its_language() -> None:
    nbformat = pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_markdown_cell("A title"), nbformat.v4.new_code_cell("1")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    part("sources").translate_notebook(notebook, {"A title": "标题"})
    assert [cell.source for cell in notebook.cells[1:]] == ["标题", "1"]
    assert "COURSE_LANGUAGE" in notebook.cells[0].source


# -- statements ----------------------------------------------------------------------------------------


def test_statement_table_marks_what_is_wrong_and_fills_in_values() -> None:
    statement = {"section": "S", "text": "a < b", "holds": True, "computed": "3 of 4 | x"}
    error = {**statement, "printed": "1.2", "exact": "1.3", "computed": "why"}
    source = {"title": "T", "author": "A", "file": "f", "url": "", "note": ""}
    found = {"source": source, "all": [{**statement, "printed": "", "exact": ""}, error]}
    catalog = {"{some} of {all} | x": "{all} 中的 {some}", "why": "因为"}
    english = part("sources").statement_table(found, None)
    chinese = part("sources").statement_table(found, catalog)
    assert "| ✓ | a \\< b | 3 of 4 \\| x |\n| ≠ | a \\< b: 1.2 | 1.3: why |" in english
    assert "| ✓ | a \\< b | 4 中的 3 |\n| ≠ | a \\< b: 1.2 | 1.3: 因为 |" in chinese


# -- rendering -----------------------------------------------------------------------------------------


def test_formulas_of_all_pages_become_mathml() -> None:
    rendering, docs, course = part("rendering"), ROOT / "docs", ROOT / "examples" / "course"
    pattern = re.compile(r"(?<![\\\w$])\$(?!\$)([^$`\n]+)\$(?!\w)|\$\$(.*?)\$\$", re.S)
    pages = [path.read_text("utf-8") for path in (*docs.glob("*.md"), *course.glob("[0-9]*.py"))]
    formulas = [inside or alone for page in pages for inside, alone in pattern.findall(page)]
    assert len(formulas) > 20
    for formula in formulas:
        tex = " ".join(formula.replace("\n# ", " ").split())
        found = rendering.convert(rendering.plain_tex(tex))
        assert found.startswith("<math") and "\\" not in found, tex


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
    "body",
    [
        '<script async src="https://cdn.example.com/x.js"></script>',
        '<img alt="" src="//example.com/x.png">',
        '<link rel="stylesheet" type="text/css" href="https://example.com/x.css">',
        "<style>@font-face { src: url(https://example.com/x.woff) }</style>",
        "<style>@import 'https://example.com/x.css';</style>",
    ],
)
def test_network_resources_finds_external_address(tmp_path: Path, body: str) -> None:
    (tmp_path / "a.html").write_text(f"<html>{body}</html>", "utf-8")
    assert len(part("check").network_resources(tmp_path)) == 1


def test_missing_links_finds_missing_file(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<a class="x" href="./a.html#part">a</a>', "utf-8")
    links = '<a href="b.html">b</a><a href="#top">top</a><a href="https://arxiv.org/">x</a>'
    (tmp_path / "a.html").write_text(links, "utf-8")
    assert part("check").missing_links(tmp_path) == []
    (tmp_path / "a.html").unlink()
    found = part("check").missing_links(tmp_path)
    assert found == ["b.html: links to ./a.html, which is missing"]


def test_network_resources_allows_links_and_local_files(tmp_path: Path) -> None:
    body = '<a href="https://arxiv.org/">x</a><script src="_static/x.js"></script>'
    (tmp_path / "a.html").write_text(body + "<svg xmlns='http://www.w3.org/2000/svg'/>", "utf-8")
    assert part("check").network_resources(tmp_path) == []


def build_site(folder: Path, language: str, text: str, conf: str = "") -> None:
    """Build a site of one page."""
    source = folder.with_name(f"{folder.name}-source")
    source.mkdir()
    (source / "index.rst").write_text(f"{text}\n{'=' * 20}\n", "utf-8")
    (source / "conf.py").write_text(conf, "utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-D", f"language={language}"]
    subprocess.run([*command, str(source), str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "sphinx"])
def test_missing_results_finds_search_without_results(
    tmp_path: Path, driver: Any, ours: bool
) -> None:
    """Sphinx's own search in Chinese names a stemmer that its pages do not have."""
    pytest.importorskip("jieba")
    conf = f"import sys\nsys.path.insert(0, {str(ROOT / 'docs')!r})\nimport rendering\n"
    conf += "def setup(app):\n    app.add_search_language(rendering.ChineseSearch)\n"
    build_site(tmp_path / "site", "en", "Attention is a softmax")
    build_site(tmp_path / "site" / "zh", "zh_CN", "注意力 是 权重", conf if ours else "")
    wrong = part("check").missing_results(driver, tmp_path / "site", seconds=5)
    assert wrong == ([] if ours else ["zh/search.html: the search finds nothing for 注意力"])


@pytest.mark.slow
def test_look_at_unreadable_page_finds_its_problems(tmp_path: Path, driver: Any) -> None:
    (tmp_path / "bad.html").write_text(
        '<!DOCTYPE html><html><body style="background:#fff"><p style="color:#aaa">pale words</p>'
        '<div style="width:900px">wide</div><script>null.x</script></body></html>',
        encoding="utf-8",
    )
    found = part("check").look_at(driver, tmp_path / "bad.html", "bad", None)
    assert any("pale words" in line and "2.3" in line for line in found)
    assert any("bad at 390" in line and "too wide" in line for line in found)
    assert not any("at 1440" in line and "too wide" in line for line in found)
    assert any("TypeError" in line for line in found)

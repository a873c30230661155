"""Sphinx configuration: `sphinx-build docs site` makes the whole site, in English and in Chinese."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "examples" / "course")]

import browser
import rendering
import sources
from sphinx import addnodes

import nn

RUN = sources.MADE / "runs" / "build_a_transformer"  # lesson 7 trains it
project = "minigrad"
copyright = author = "the minigrad authors"
chinese = tags.has("zh")  # noqa: F821 (Sphinx gives `tags`): sphinx-build -t zh
language = "zh_CN" if chinese else "en"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
]
if not chinese:  # it makes the live notebooks of both languages
    extensions.append("jupyterlite_sphinx")
suppress_warnings = ["toc.not_readable", "toc.excluded"]  # pages of one language
suppress_warnings += ["toc.not_included"]  # the pages of single functions; see `_shorten_menu`
if os.environ.get("PYODIDE"):
    tags.add("pyodide")  # noqa: F821
exclude_patterns = [
    "_build",
    "README.md",
    "live/*",
    "zh",
    "locale",
    "_templates",
    "course/records",
    "course/runs",
]
if not chinese:
    exclude_patterns += ["terms.md"]
if chinese or tags.has("draft"):  # noqa: F821 (the reference is in English only)
    exclude_patterns += ["reference/modules.md", "reference/api"]
templates_path = ["_templates"]
locale_dirs = ["locale"]
gettext_compact = False
figure_language_filename = "{root}.{language}{ext}"

html_theme = "furo"
html_title = "minigrad"
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_copy_source = False
html_math_renderer = "mathml"
pygments_dark_style = "github-dark"

# Docstrings: a word between single backticks is code.
default_role = "code"
autosummary_ignore_module_all = False
autosummary_imported_members = True
# Names of both modules are indexed once.
autosummary_context = {"twice": [f"nn.text.{n}" for n in vars(nn.text) if hasattr(nn, n)]}
autodoc_typehints = "none"
numpydoc_show_class_members = False
nitpick_ignore_regex = [("py:.*", ".*")]

# Notebooks: `sources.recorded_outputs` runs them.
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_output_stderr = "warn"  # a warning on a page fails the build with -W
# of code or its output
nb_code_prompt_show, nb_code_prompt_hide = (
    ("展开", "收起") if chinese else ("Show the {type}", "Hide the {type}")
)
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (sources.COURSE, sources.ROOT)))
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
jupyterlite_bind_ipynb_suffix = False  # MyST-NB reads notebooks
jupyterlite_dir = str(browser.LITE)
jupyterlite_content_dir = "_build/lite/notebooks"
jupyterlite_config = str(HERE / "live" / "jupyter_lite_config.json")
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def _name_bases(app: Any, name: str, obj: Any, options: Any, bases: list[type]) -> None:
    """Name the public bases of a class, whose pages describe what it inherits."""
    bases[:] = [base for base in bases if not base.__name__.startswith("_")] or [object]


def _shorten_menu(app: Any, doctree: Any) -> None:
    """Leave the pages of functions and classes out of the menu, which each of a thousand pages repeats."""
    if app.env.docname.startswith("reference/api/"):
        for node in [*doctree.findall(addnodes.toctree)]:
            node.parent.remove(node)


def _build_chinese(app: Any, error: Exception | None) -> None:
    if not error and app.builder.name == "html" and not chinese:
        print("the Chinese site:", flush=True)
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-t", "zh"]
        subprocess.run([*command, str(HERE), str(Path(app.outdir) / "zh")], check=True)


def _write_live_pages(app: Any, error: Exception | None) -> None:
    """Write the live translator, with Pyodide in it if PYODIDE names an unpacked one, and the recorded training."""
    if not error and app.builder.name == "html" and not chinese:
        from live_page import live_page
        from watch import watch_page

        page = live_page(RUN, browser.pyodide())
        (Path(app.outdir) / "translator.html").write_text(page, "utf-8")
        data = json.loads((RUN / "watch.json").read_text("utf-8"))
        page = watch_page(data, live="translator.html")
        (Path(app.outdir) / "watch.html").write_text(page, "utf-8")


def _open_lesson(app: Any, page: str, _: str, context: dict[str, Any], tree: Any) -> None:
    """Put the recorded training at a lesson's depth below its idea, and links to its notebook."""
    name = page.removeprefix("course/")
    if (sources.MADE / f"{name}.ipynb").is_file():
        values = {**context, "name": name, "lesson": int(name[:2])}
        render = app.builder.templates.render
        parts = render("watch.html", values) + render("notebook.html", values)
        idea, cell, rest = context["body"].partition('<div class="cell')
        context["body"] = idea + parts + cell + rest


def _mark_english(app: Any, page: str, _: str, context: dict[str, Any], tree: Any) -> None:
    """Put a note above the pages of the Chinese site that have no translation."""
    translated = (sources.LOCALE / f"{page}.po").is_file() or page.startswith("course/")
    if chinese and page in app.env.found_docs and not translated and page != "terms":
        context["body"] = '<p class="english">本页只有英文。</p>' + context["body"]


def _add_watch(app: Any, page: str, _: str, context: dict[str, Any], tree: Any) -> None:
    """Put the recorded training into the first page."""
    if page == "index":
        frame = app.builder.templates.render("watch.html", {**context, "lesson": None})
        context["body"] = context["body"].replace('<div id="run"></div>', frame)


def setup(app: Any) -> None:
    # jupyterlite_sphinx adds a font from the network to each page
    app.registry.css_files = [(f, o) for f, o in app.registry.css_files if "//" not in f]
    app.add_search_language(rendering.ChineseSearch)
    app.connect("autodoc-process-bases", _name_bases)
    app.connect("autodoc-process-docstring", rendering.mark_code, priority=100)  # before numpydoc
    app.connect("autodoc-process-docstring", rendering.escape)
    app.add_html_math_renderer(
        "mathml", *((rendering.write_math(block), None) for block in (False, True))
    )
    app.connect("doctree-read", _shorten_menu, priority=1)  # before Sphinx collects the menu
    # before MyST-NB reads its settings
    app.connect("builder-inited", sources.write_pages, priority=100)
    if not chinese:
        app.connect("builder-inited", browser.write_lite)
        app.connect("build-finished", browser.watch_notebooks)
    app.connect("html-page-context", _open_lesson)
    app.connect("source-read", sources.unlink_files)
    app.connect("html-page-context", sources.link_files)
    app.connect("html-collect-pages", sources.source_pages)
    app.connect("html-page-context", _mark_english)
    app.connect("html-page-context", sources.name_neighbours)
    app.connect("html-page-context", rendering.name_parts, priority=900)  # after the theme
    app.connect("html-page-context", _add_watch)
    app.connect("build-finished", sources.copy_notebooks)
    app.connect("build-finished", _write_live_pages)
    app.connect("build-finished", _build_chinese)

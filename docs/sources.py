"""Pages made from code: lessons as notebooks, statements of the texts, the command line."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import re
import runpy
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jupytext
import labels
import nbformat
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

from nn.commands import COMMANDS
from nn.commands import main as run_command

HERE = Path(__file__).parent
ROOT = HERE.parent
COURSE = ROOT / "examples" / "course"
STATEMENTS = ROOT / "tests" / "course" / "statements"
MADE = HERE / "course"
COLUMNS = (("text", "printed"), ("exact", "computed"))  # of the table of statements
START = """\
pip install --find-links . minigrad-nn matplotlib jupyterlab
jupyter lab course/00_autodiff.ipynb
"""
LOCALE = HERE / "locale" / "zh_CN" / "LC_MESSAGES"


def write_pages(app: Any) -> None:
    """Write the pages that Sphinx reads and no one writes by hand, in the language of the build."""
    chinese = app.config.language == "zh_CN"
    write_labels()
    if not chinese:
        write_command_line()
    with lesson_kernel() as kernel:
        for script in lessons():
            notebook = lesson_notebook(script, chinese)
            if app.builder.name != "gettext":
                outputs = recorded_outputs(script, kernel)
                add_outputs(notebook, outputs, "zh" if chinese else "en")
            write(MADE / f"{script.stem}.ipynb", nbformat.writes(notebook))
    for script in sorted(STATEMENTS.glob("*.py")):
        if app.builder.name != "gettext":
            name = f"statements_{script.stem}"
            catalog = translations(name) if chinese else None
            write(MADE / f"{name}.md", statement_table(recorded_statements(script), catalog))


def lessons() -> list[Path]:
    """Return the scripts of the lessons, in their order."""
    return sorted(COURSE.glob("[0-9]*.py"))


def lesson_notebook(script: Path, chinese: bool) -> Any:
    """Return the notebook of a lesson in a language."""
    notebook = jupytext.read(script)
    if chinese:
        translate_notebook(notebook, translations(f"course/{script.stem}"))
    return notebook


@contextlib.contextmanager
def lesson_kernel() -> Iterator[Any]:
    """Give the kernel in which all lessons run: a start with its imports takes as long as a short lesson."""
    client = NotebookClient(nbformat.v4.new_notebook(), kernel_name="python3")
    kernel = client.create_kernel_manager()
    try:
        yield kernel
    finally:
        if kernel.has_kernel:
            run_sync(kernel.shutdown_kernel)(now=True)


def recorded_outputs(script: Path, kernel: Any) -> list[Any]:
    """Return the outputs of the cells of a lesson, computed now or since its code changed.

    Their words are in both languages: a lesson runs once.
    """
    record = MADE / "records" / f"{script.stem}.json"
    notebook = jupytext.read(script)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    parts = [path.read_bytes() for path in course_files(script)[1:]]
    parts += [cell.source.encode() for cell in cells]
    code = hashlib.sha256(b"".join(parts)).hexdigest()
    found = json.loads(record.read_text("utf-8")) if record.is_file() else {}
    if found.get("code") != code:
        MADE.mkdir(parents=True, exist_ok=True)
        print(f"lesson {script.stem} ...", flush=True)
        began = time.monotonic()
        notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
        where = {"metadata": {"path": MADE}}
        client = NotebookClient(
            notebook, km=kernel, timeout=600, coalesce_streams=True, resources=where
        )
        client.execute(env={**os.environ, "COURSE_LANGUAGE": "both"})
        client.kc.stop_channels()
        print(f"lesson {script.stem}: {time.monotonic() - began:.0f} s", flush=True)
        found = {"code": code, "outputs": [cell.outputs for cell in cells]}
        write(record, json.dumps(found, ensure_ascii=False))
    return found["outputs"]


def course_files(script: Path) -> list[Path]:
    """Return a lesson, the modules of the course that it imports, and files of the same names beside them."""
    files = [script]
    for path in files:  # which grows meanwhile
        text = path.read_text("utf-8") if path.suffix == ".py" else ""
        for name in re.findall(r"^(?:from|import) ([\w.]+)", text, re.M):
            module = COURSE / name.replace(".", "/")
            files += [p for p in sorted(module.parent.glob(f"{module.name}.*")) if p not in files]
    # a compiled catalog contains the time at which it was compiled
    return [LOCALE / "course" / "labels.po" if p.suffix == ".mo" else p for p in files]


def add_outputs(notebook: Any, outputs: list[Any], language: str) -> None:
    """Add recorded outputs to the code cells of a notebook in a language, which may have one cell more."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, recorded in zip(cells[-len(outputs) :], outputs):
        cell.outputs = nbformat.from_dict(_in_language(recorded, language))


def _in_language(value: Any, language: str) -> Any:
    if isinstance(value, list):
        return [_in_language(part, language) for part in value]
    if isinstance(value, dict):
        return {key: _in_language(part, language) for key, part in value.items()}
    return labels.in_language(value, language) if isinstance(value, str) else value


def write_labels() -> None:
    """Compile the Chinese of pictures and graders for `labels.py`."""
    with (LOCALE / "course" / "labels.po").open("rb") as source:
        catalog = read_po(source)
    with (COURSE / "labels.mo").open("wb") as target:
        write_mo(target, catalog)


def course_modules() -> dict[str, Path]:
    """Return the modules that the lessons import, by their names in an archive."""
    patterns = ("[a-z]*.py", "*.json", "*.html", "labels.mo", "exercises/*.py")
    paths = [path for pattern in patterns for path in sorted(COURSE.glob(pattern))]
    return {path.relative_to(COURSE).as_posix(): path for path in paths}


def pictures() -> list[Path]:
    """Return the pictures that the lessons show, in both languages."""
    texts = [script.read_text("utf-8") for script in lessons()]
    texts += [path.read_text("utf-8") for path in LOCALE.glob("course/*.po")]
    names = {name for text in texts for name in re.findall(r"\(\.\./pictures/([\w.]+)\)", text)}
    return [HERE / "pictures" / name for name in sorted(names)]


def write(path: Path, text: str) -> None:
    """Write a file if its text changed, so that Sphinx reads only changed pages again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def copy_notebooks(app: Any, error: Exception | None) -> None:
    """Put all notebooks, and all that they need, into `course.zip`."""
    if error or app.builder.name != "html":
        return
    out = Path(app.outdir) / "course"
    with zipfile.ZipFile(out / "course.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for script in lessons():
            notebook = nbformat.writes(lesson_notebook(script, False))
            archive.writestr(f"course/{script.stem}.ipynb", notebook)
        for name, module in course_modules().items():
            archive.write(module, f"course/{name}")
        for picture in pictures():
            archive.write(picture, f"pictures/{picture.name}")
        for wheel in HERE.glob("_build/lite/pypi/minigrad_nn-*.whl"):
            archive.write(wheel, wheel.name)
        archive.writestr("README.md", "```sh\n" + START + "```\n")


# -- source files ------------------------------------------------------------------------------------


def named_files() -> dict[str, Path]:
    """Return the files of Python that the reading page and the lessons name."""
    texts = [path.read_text("utf-8") for path in (HERE / "reading.md", *lessons())]
    names = {name for text in texts for name in re.findall(r"`((?:\w+/)+\w+\.py)`", text)}
    return {name: ROOT / name for name in sorted(names) if (ROOT / name).is_file()}


def source_pages(app: Any) -> list[tuple[str, dict[str, Any], str]]:
    """Return a page with the code of each file that is named; the Chinese site links to the English one."""
    if app.config.language == "zh_CN":
        return []
    highlight = app.builder.highlighter.highlight_block
    return [
        (
            f"source/{name.removesuffix('.py')}",
            {
                "title": name,
                "body": f"<h1>{name}</h1>{highlight(path.read_text('utf-8'), 'python')}",
            },
            "page.html",
        )
        for name, path in named_files().items()
    ]


def unlink_files(app: Any, page: str, content: list[str]) -> None:
    """Replace links to files in the repository by names, which `link_files` links to pages."""
    content[0] = re.sub(r"\[(`([\w/]+\.py)`)\]\(\.\./\2\)", r"\1", content[0])


def link_files(app: Any, page: str, _: str, context: dict[str, Any], tree: Any) -> None:
    """Link the names of files in the reading page and the lessons to the pages of their code."""
    if page != "reading" and not page.startswith("course/"):
        return
    up = context["content_root"] + ("../" if app.config.language == "zh_CN" else "")
    files = named_files()

    def link(match: re.Match[str]) -> str:
        name = match[1].removesuffix(".py")
        return f'<a href="{up}source/{name}.html">{match[0]}</a>' if match[1] in files else match[0]

    code = r'<code class="[^"]*"><span class="pre">([\w/]+\.py)</span></code>'
    context["body"] = re.sub(code, link, context["body"])


# -- Chinese -------------------------------------------------------------------------------------------


def translations(name: str) -> dict[str, str]:
    """Return the translated messages of a page."""
    path = LOCALE / f"{name}.po"
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        return {str(m.id): str(m.string) for m in read_po(file) if m.id and m.string}


def name_neighbours(app: Any, page: str, _: str, context: dict[str, Any], tree: Any) -> None:
    """Call the previous and the next page of a Chinese one as the menu does, which marks English pages."""
    if app.config.language == "zh_CN":
        menu = translations("index")
        for link in filter(None, (context.get("prev"), context.get("next"))):
            link["title"] = menu.get(link["title"], link["title"])


def translate_notebook(notebook: Any, catalog: dict[str, str]) -> None:
    """Translate the Markdown of a notebook in place, and set the language of its code."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = translate_markdown(cell.source, catalog)
    cell = nbformat.v4.new_code_cell('import os\n\nos.environ["COURSE_LANGUAGE"] = "zh_CN"')
    cell.metadata["tags"] = ["remove-cell"]
    notebook.cells.insert(0, cell)


def translate_markdown(text: str, catalog: dict[str, str]) -> str:
    """Translate each heading, paragraph, list item and formula of Markdown; code stays."""
    blocks = re.split(r"\n\n+|\n(?=- |\d+\. )", text)
    for i, block in enumerate(blocks):
        mark, body, end = re.match(
            r"(#+ |- |\d+\. |> |\$\$\n)?(.*?)(\n\$\$)?\Z", block, re.S
        ).groups()  # type: ignore[union-attr]
        message = " ".join(body.split())
        if message in catalog:
            blocks[i] = (mark or "") + catalog[message] + (end or "")
    return "\n\n".join(blocks)


# -- statements ----------------------------------------------------------------------------------------


def recorded_statements(script: Path) -> dict[str, Any]:
    """Return the statements about a text, computed now or since the script changed."""
    record = MADE / "records" / f"{script.stem}.json"
    if not record.is_file() or record.stat().st_mtime < script.stat().st_mtime:
        sys.path[:0] = [str(COURSE), str(ROOT / "tests")]
        from support.statements import Statements

        spec = importlib.util.spec_from_file_location(f"state_{script.stem}", script)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        found = Statements()
        print(f"statements of {script.stem} ...", flush=True)
        began = time.process_time()
        module.state(found)
        print(f"statements of {script.stem}: {time.process_time() - began:.0f} s of a core")
        content = {"source": found.source, "all": [vars(s) for s in found.all]}
        write(record, json.dumps(content))
    return json.loads(record.read_text("utf-8"))


def statement_table(found: dict[str, Any], catalog: dict[str, str] | None) -> str:
    """Return the page of all statements about a text."""
    words = lambda text: fill(text, catalog) if catalog is not None else text
    cell = lambda text: re.sub(r"(?<!\\)([|<])", r"\\\1", words(text))
    intro = (
        "Every statement of this text that can be computed, and what the computation gives. "
        "✓: it holds. ≠: the text is wrong, and the exact value is beside it."
    )
    source = {name: words(text) for name, text in found["source"].items()}
    title = f"[{source['title']}]({source['url']})" if source["url"] else source["title"]
    parts = [f"# {words('Every statement, computed')}: {source['title']}", words(intro)]
    parts.append(f"{title}, {source['author']}. {source['note']}")
    section = None
    for s in found["all"]:
        if s["section"] != section:
            section = s["section"]
            head = f"| | {words('the text')} | {words('computed')} |\n| --- | --- | --- |"
            parts.append(f"## {words(section)}\n\n{head}" if section else head)
        mark = "✗" if not s["holds"] else "≠" if s["printed"] else "✓"
        stated, computed = (": ".join(cell(s[n]) for n in names if s[n]) for names in COLUMNS)
        parts[-1] += f"\n| {mark} | {stated} | {computed} |"
    return "---\norphan: true\n---\n\n" + "\n\n".join(parts) + "\n"


def fill(text: str, catalog: dict[str, str]) -> str:
    """Translate a text; `{name}` in a message stands for what the computation put there."""
    if text in catalog:
        return catalog[text]
    for message in sorted(catalog, key=len, reverse=True):
        names = re.findall(r"(?<![A-Za-z0-9\\}^_])\{(\w+)!?\}", message)
        if names:
            fixed = re.split(r"(?<![A-Za-z0-9\\}^_])\{\w+!?\}", message)
            match = re.fullmatch("(.+?)".join(map(re.escape, fixed)), text, re.S)
            if match:
                found = catalog[message]
                for name, value in zip(names, match.groups()):
                    found = re.sub(rf"\{{{name}!?\}}", lambda _: catalog.get(value, value), found)  # noqa: B023
                return found
    return text


# -- command line ---------------------------------------------------------------------------------------


def write_command_line() -> None:
    """Write the page with what each command and some examples print for --help."""
    about = "The commands of the package and some examples, as `--help` prints them. `python -m nn` is another name of `minigrad`."
    parts = ["# Command line", about]
    runs: dict[str, Callable[[], Any]] = {
        f"minigrad {name}": partial(run_command, [name, "--help"]) for name in COMMANDS
    }
    for name in ("train_toy_translation", "char_gpt", "classify", "multi30k"):
        script = str(ROOT / "examples" / f"{name}.py")
        runs[f"{name}.py"] = partial(runpy.run_path, script, run_name="__main__")
    for name, run in runs.items():
        printed = io.StringIO()
        with (
            mock.patch.dict(os.environ, COLUMNS="96"),
            mock.patch.object(sys, "argv", [name, "--help"]),
            mock.patch.object(sys, "path", [str(ROOT / "examples"), *sys.path]),
            contextlib.redirect_stdout(printed),
            contextlib.suppress(SystemExit),
        ):
            run()
        parts.append(f"## `{name}`\n\n```text\n{printed.getvalue().strip()}\n```")
    write(HERE / "reference" / "command-line.md", "\n\n".join(parts) + "\n")

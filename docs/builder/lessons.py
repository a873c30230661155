"""Lessons as pages, in each language: each is run once, and the blocks that it showed in its terminal become HTML."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_type_hints
from xml.etree import ElementTree

from formulas import FormulaError, mathml
from languages import PROSE, Catalogue, catalogue
from terminal import differing, plain, sentence

from minigrad.io.json import Settings, read_json
from minigrad.io.reading import found_file, read_text

from . import diagrams
from .markdown import anchor, code, inline, number
from .page import Page

__all__ = ["COURSE", "frame", "pages", "picture"]

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "examples" / "course"
INK = "#15181d"


def _run(script: Path, records: Path, reuse: bool) -> tuple[Path, str]:
    """Run a lesson; the folder of its record, and what went wrong."""
    folder = records / script.stem
    if reuse and os.path.lexists(folder / "lesson.json"):
        return folder, ""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    env |= {
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }  # several lessons run at once, a core for each
    command = [sys.executable, str(script), "--record", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    return (
        folder,
        done.stderr.strip() or f"exit status {done.returncode}" if done.returncode else "",
    )


def pages(records: Path, reuse: bool = False, jobs: int = 2) -> tuple[list[Page], list[str]]:
    """The pages of each lesson, by language, and all that went wrong: statements that did not hold, texts without Chinese."""
    scripts = sorted(
        COURSE.glob("[0-9][0-9]_*.py"), reverse=True
    )  # the last ones train, and so are the longest
    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(lambda script: _run(script, records, reuse), scripts))[::-1]
    scripts.reverse()
    wrong = [f"{script.name}: {error}" for script, (_, error) in zip(scripts, runs) if error]
    made = []
    for script, (folder, error) in zip(scripts, runs):
        if not error:
            found, problems = _in_each_language(script, folder)
            made, wrong = made + found, wrong + problems
    return made, wrong


def _in_each_language(script: Path, folder: Path) -> tuple[list[Page], list[str]]:
    """The pages of a lesson from the record of its run, and what is wrong with their Chinese."""
    blocks = _record(folder / "lesson.json")
    failed = [block["text"] for block in blocks if not block.get("holds", True)]
    wrong = [f"{folder / 'lesson.json'}: does not agree: {text}" for text in failed]
    english, chinese = Catalogue(), catalogue(script.stem, "zh")
    if len(chinese.of_file) < 2:
        wrong.append(f"{script.name}: expected its Chinese in zh/{script.stem}.txt")
        return [_page(script, folder, blocks, english)], wrong
    wrong += [f"{script.name}: {problem}" for problem in chinese.problems() + chinese.gaps(blocks)]
    return [_page(script, folder, blocks, words) for words in (english, chinese)], wrong


def _record(path: Path) -> list[dict[str, Any]]:
    """The blocks of a lesson as its run wrote them: each is what the method of `_View` for its kind takes."""
    blocks = read_json(path).list("blocks", dict)
    for i, block in enumerate(blocks):
        entries = Settings(block, f"{path}: block {i}")
        kind = entries.text("kind", choices=list(PROSE))
        hints = get_type_hints(getattr(_View, f"_{kind}"))
        del hints["return"]
        for name, hint in hints.items():
            entries.take(name, hint)
        entries.expect_no_others()
        if kind == "table" and any(len(row) != len(block["header"]) for row in block["rows"]):
            entries.fail("rows", f"{len(block['header'])} cells in each, as in the header")
        if Path(block.get("file", "")).name != block.get("file", "") and kind != "source":
            entries.fail("file", "the name of a file beside this one")
    if not blocks or blocks[0]["kind"] != "title":
        raise ValueError(f"{path}: expected a title as the first of its blocks")
    return blocks


def _page(script: Path, folder: Path, blocks: list[dict[str, Any]], words: Catalogue) -> Page:
    shown = [words.block(block) for block in blocks]
    number_of, title = script.stem[:2].lstrip("0") or "0", shown[0]["text"].rstrip(".。")
    title = re.sub(r'"([^"]*)"', "“\\1”", title)
    place = "course" if words.language == "en" else words.language
    view = _View(folder, f"course/{script.stem}", words)
    content = view.blocks(shown, words.words("Lesson {number}", number=number_of))
    options = "" if words.language == "en" else f" --lang {words.language}"
    run = words.words(
        "Run it yourself: {command}; {help} tells the options.",
        command=f"<code>python examples/course/{script.name}{options}</code>",
        help="<code>--help</code>",
    )
    short = f"{number_of} · {re.split('[:,：，]', title)[0]}"
    path, group = f"{place}/{script.stem}.html", words.words("Course")
    note = words.words("Every number in this lesson was computed when the page was built.")
    return Page(
        path, title, group, f"{content}<p>{run}</p>", short, words.language, view.files, note
    )


def picture(path: Path, alt: str, prefix: str) -> str:
    """A picture of matplotlib's, to stand in a page: its ids are its own, its ink is the page's."""
    svg = read_text(path)
    try:
        root = ElementTree.fromstring(svg).tag
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}: not an SVG ({error})") from None
    if root != "{http://www.w3.org/2000/svg}svg" or "<svg" not in svg:
        raise ValueError(f"{path}: expected an SVG, got <{root}>")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|href="#|url\(#)', lambda m: m[1] + prefix, svg)
    svg = re.sub(
        r'(<image\b[^>]*?) id="[^"]*"', r"\1", svg
    )  # its name is made of its content, which may come twice
    svg = svg.replace(INK, "currentColor")
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    width = f"{float(size[1]) * 1.15:.0f}px" if size else "100%"
    head = f'<svg role="img" aria-label="{html.escape(alt, quote=True)}" style="max-width:{width};--own:{width}"'
    return re.sub(r"<svg\b", head, re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2), count=1)


ABOUT = "What a small Transformer looked at to say “I have a cat”. Point at a word; choose a head; open the matrix."


def frame(address: str, words: Callable[..., str] = str) -> str:
    """The explorer inside a page; nothing where there is none."""
    if not address:
        return ""
    about = words(ABOUT)
    return (
        f'<figure class="wide"><iframe class="explorer" src="{address}" title="{about}" loading="lazy"></iframe>'
        f'<figcaption>{about} <a href="{address}">{words("Open it alone.")}</a></figcaption></figure>'
    )


class _View:
    """Blocks as HTML; `catalogue` has the words between them."""

    def __init__(self, folder: Path, path: str, catalogue: Catalogue | None = None) -> None:
        self.folder, self.path, self.files = folder, path, {}
        self.words = (catalogue or Catalogue()).words
        self.checks: list[str] = []

    def blocks(self, blocks: list[dict[str, Any]], label: str) -> str:
        parts = [f'<p class="lead">{label}</p>']
        for block in blocks:
            content = {k: v for k, v in block.items() if k != "kind"}
            try:
                shown = getattr(self, f"_{block['kind']}")(**content)
            except FormulaError as error:
                raise ValueError(f"{self.folder / 'lesson.json'}: {error}") from None
            if block["kind"] in ("fact", "erratum", "measured"):
                self.checks.append(shown)
            else:
                parts += [*self._close(), shown]
        return "\n".join([*parts, *self._close()])

    def _close(self) -> list[str]:
        """The list of statements that were checked since the last block of another kind."""
        done, self.checks = self.checks, []
        return [f'<ul class="checks">{"".join(done)}</ul>'] if done else []

    def _title(self, text: str) -> str:
        return f"<h1>{inline(text.rstrip('.。'))}</h1>"

    def _usage(self, text: str) -> str:
        return ""  # the end of the page tells how to run it

    def _source(self, title: str, author: str, file: str, url: str, note: str) -> str:
        name = (
            f'<a href="{html.escape(url, quote=True)}">{html.escape(title)}</a>'
            if url
            else f"<cite>{html.escape(title)}</cite>"
        )
        values = {
            "title": name,
            "author": html.escape(author),
            "file": html.escape(file),
            "note": inline(note),
        }
        return f'<p class="source">{self.words("The text: {title}, {author} ({file}). {note}", **values)}</p>'

    def _section(self, text: str) -> str:
        name = anchor(plain(text))
        return f'<h2 id="{name}"><a class="self" href="#{name}">{inline(text)}</a></h2>'

    def _say(self, text: str) -> str:
        return f"<p>{inline(text)}</p>"

    def _quote(self, text: str, english: str) -> str:
        chinese = ' lang="zh"' if re.search(r"[\u4e00-\u9fff]", text) else ""
        return f"<blockquote><p{chinese}>{inline(text)}</p>{f'<p>{inline(english)}</p>' if english else ''}</blockquote>"

    def _formula(self, tex: str, note: str) -> str:
        shown = "".join(
            mathml(part, block=True) for part in tex.split(r"\qquad")
        )  # below each other on a phone
        if r"\qquad" in tex:
            shown = f'<div class="several">{shown}</div>'
        return f'<div class="formula" tabindex="0">{shown}{f"<p>{inline(note)}</p>" if note else ""}</div>'

    def _code(self, text: str, note: str) -> str:
        return (f"<p>{inline(note)}</p>" if note else "") + code(text)

    def _value(self, name: str, shape: list[int], text: str) -> str:
        of = f" <span>({', '.join(map(str, shape))})</span>" if shape else ""
        return f'<figure class="value"><figcaption>{inline(name)}{of}</figcaption><pre tabindex="0">{html.escape(text)}</pre></figure>'

    def _table(self, header: list[str], rows: list[list[str]], caption: str) -> str:
        numeric = [all(number(row[i]) or not row[i] for row in rows) for i in range(len(header))]
        kinds = [' class="number"' if right else "" for right in numeric]
        head = "".join(
            f'<th scope="col"{kind}>{inline(cell)}</th>' for kind, cell in zip(kinds, header)
        )
        body = "".join(
            "<tr>"
            + "".join(f"<td{kind}>{inline(cell)}</td>" for kind, cell in zip(kinds, row))
            + "</tr>"
            for row in rows
        )
        title = f"<caption>{inline(caption)}</caption>" if caption else ""
        return f'<div class="table free" tabindex="0"><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

    def _listing(self, text: str, note: str) -> str:
        return (
            f"<p>{inline(note)}</p>" if note else ""
        ) + f'<pre tabindex="0">{html.escape(text)}</pre>'

    def _predict(self, question: str, answer: str) -> str:
        return f'<details class="ask"><summary><b>{self.words("Predict, then look.")}</b> {inline(question)}</summary><p>{inline(answer)}</p></details>'

    def _exercise(self, question: str, answer: str) -> str:
        return f'<details class="ask"><summary><b>{self.words("Exercise.")}</b> {inline(question)}</summary><p>{inline(answer)}</p></details>'

    def _picture(self, file: str, path: str, caption: str, alt: str) -> str:
        drawn = picture(self.folder / file, alt, f"{anchor(file)}-")
        words = f"<figcaption>{inline(caption)}</figcaption>" if caption else ""
        return f'<figure><div class="scroll" tabindex="0">{drawn}</div>{words}</figure>'

    def _diagram(self, name: str, caption: str) -> str:
        return diagrams.figure(name, caption, self.words)

    def _explorer(self, file: str, path: str, caption: str) -> str:
        self.files[f"{self.path}-{file}"] = found_file(self.folder / file).read_bytes()
        name = f"../{self.path}-{file}"  # one for all languages
        return (
            f'<figure class="wide"><iframe class="explorer" src="{name}" title="{html.escape(caption, quote=True)}" loading="lazy">'
            f'</iframe><figcaption>{inline(caption)} <a href="{name}">{self.words("Open it alone.")}</a></figcaption></figure>'
        )

    def _fact(self, text: str, holds: bool, detail: str) -> str:
        found = (
            f'{self.words(".")} <span class="found">{inline(sentence(detail))}</span>'
            if detail
            else ""
        )
        return f"<li{'' if holds else ' class=wrong'}>{inline(sentence(text))}{found}</li>"

    def _erratum(self, text: str, holds: bool, printed: str, exact: str, detail: str) -> str:
        pieces = [(exact, True)] if "$" in exact else differing(printed, exact)
        ours = "".join(f"<mark>{inline(s)}</mark>" if d else html.escape(s) for s, d in pieces)
        theirs, here = self.words("the text:"), self.words("computed:")
        versus = f"<span><span>{theirs}</span> {inline(printed)}</span><span><span>{here}</span> {ours}</span>"
        kind = "differs" if holds else "wrong"
        return f'<li class="{kind}">{inline(sentence(text))}<div class="versus">{versus}</div><span class="found">{inline(sentence(detail))}</span></li>'

    def _measured(self, text: str) -> str:
        return f'<li class="time">{inline(text)}</li>'

    def _end(self, text: str) -> str:
        return f'<p class="verdict">{html.escape(text)}</p>'

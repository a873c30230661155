"""Build the site: lessons, pages, reference. Everything is made here; the result needs no network and no server.

    python docs/build.py                    runs every lesson (some minutes), writes site/, and checks it
    python docs/build.py --reuse            the same with the runs of last time, where there are any
    python docs/build.py --pyodide DIR      with the live page too; DIR is an unpacked Pyodide with NumPy's wheel
    python docs/look.py site                looks at all pages in Chromium: three widths, light, dark, paper

It needs markdown-it-py, pygments and matplotlib. It fails on a statement that does not hold, a dead link, a picture
without words, an address elsewhere.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent),
    *(str(HERE.parent / "examples" / part) for part in ("", "course")),
]

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)
from builder import browser, check, diagrams, lessons, page, reference
from builder.markdown import render

from minigrad.console import count, run_script
from minigrad.io.reading import read_text

# The written pages, in the order of the menu; others of docs/ follow those of their group.
WRITTEN = {
    "index": "",
    "start": "Start",
    "live": "Start",
    "design": "More",
    "speed": "More",
    "scale": "More",
    "operations": "Reference",
    "numpy": "Reference",
}


def written() -> list[page.Page]:
    """A page for each Markdown file of this folder."""
    names = [
        *WRITTEN,
        *sorted(
            path.stem
            for path in HERE.glob("*.md")
            if path.stem not in WRITTEN and path.stem != "README"
        ),
    ]
    made = []
    for name in names:
        made.append(_page(HERE / f"{name}.md", WRITTEN.get(name, "More")))
        made[-1].files = {
            f"{name}/{p.name}": p.read_bytes()
            for p in sorted((HERE / name).glob("*"))
            if p.is_file()
        }
    return [*made, *(_page(path, "More") for path in sorted(HERE.glob("results/*/README.md")))]


def _page(path: Path, group: str, language: str = "en") -> page.Page:
    """A Markdown file as a page; `{{diagram NAME: caption}}` stands for a diagram."""
    text = read_text(path)
    title = re.match(r"# (.+)", text)
    if not title:
        raise ValueError(f"{path}: expected a title in the first line, # …")
    diagram = lambda found: diagrams.figure(found[1], found[2], page.words(language))
    try:
        content = re.sub(
            r"<p>\{\{diagram (\w+): (.*?)\}\}</p>", diagram, render(text), flags=re.DOTALL
        )
    except ValueError as error:  # of a formula, or a diagram
        raise ValueError(f"{path}: {error}") from None
    return page.Page(
        path.relative_to(HERE).with_suffix(".html").as_posix(),
        title[1],
        group,
        content,
        language=language,
    )


def first_page(here: page.Page, course: Sequence[page.Page]) -> None:
    """Put the list of lessons, and the explorer of the last one, into the first page of a language."""
    items = "".join(
        f'<li><a href="{here.up}{p.path}">{p.short}</a><p>{_rest(p.title)}</p></li>' for p in course
    )
    live = next((name for p in course for name in p.files if "/09" in name), "")
    frame = lessons.frame(here.up + live if live else "", page.words(here.language))
    here.content = here.content.replace("<p>{{course}}</p>", f'<ul class="cards wide">{items}</ul>')
    here.content = here.content.replace("<p>{{explorer}}</p>", frame)


def _rest(title: str) -> str:
    """What a title says after its first words, which a link above has."""
    rest = re.split("[:,：，] ?", title, maxsplit=1)[-1]
    return rest[0].upper() + rest[1:]


def with_live(live: page.Page, pyodide: Path | None, run_dir: Path) -> None:
    """Put the live translator beside the page about it; without Pyodide the page tells how to get one."""
    parts = re.split(
        r"<p>\{\{(with|without) pyodide\}\}</p>", live.content
    )  # for both, with, and without
    if parts[1::2] != ["with", "without"]:
        raise ValueError(
            f"{HERE / 'live.md'}: expected {{{{with pyodide}}}} and later {{{{without pyodide}}}}"
        )
    live.content = parts[0] + parts[2 if pyodide else 4]
    if pyodide:
        live.files["translator.html"] = browser.live_page(pyodide, run_dir).encode()


def build(out: Path, reuse: bool, jobs: int, pyodide: Path | None = None) -> list[str]:
    """Write the site to `out`; all that is wrong with it."""
    if (
        os.path.lexists(out)
        and not (out / "assets" / "style.css").is_file()
        and not (out.is_dir() and not any(out.iterdir()))
    ):
        raise ValueError(f"{out}: expected an empty folder, or a site to replace")
    records = out.with_name(out.name + "-records")
    if not reuse:
        shutil.rmtree(records, ignore_errors=True)
    lessons_of, wrong = lessons.pages(records, reuse, jobs)
    english, chinese = (
        [p for p in lessons_of if p.language == language] for language in ("en", "zh")
    )
    pages = written()
    first_page(pages[0], english)
    if english:
        with_live(
            next(p for p in pages if p.path == "live.html"),
            pyodide,
            records / "09_build_a_transformer",
        )
    group = lambda name: [p for p in pages[1:] if p.group == name]
    in_order = [
        pages[0],
        *group("Start"),
        *english,
        *reference.pages(),
        *group("Reference"),
        *group("More"),
        *in_chinese(chinese),
    ]
    shutil.rmtree(out, ignore_errors=True)
    page.write(in_order, out)
    return wrong + check.problems(out)


def in_chinese(course: Sequence[page.Page]) -> list[page.Page]:
    """The pages that are also in Chinese: the first, the lessons, the terms."""
    first, terms = (_page(HERE / "zh" / f"{name}.md", "", "zh") for name in ("index", "terms"))
    first_page(first, course)
    terms.group = course[0].group if course else ""
    return [first, *course, terms]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("site"),
        metavar="DIR",
        help="where the pages go (default: site)",
    )
    parser.add_argument(
        "--reuse",
        action="store_true",
        help="keep the runs of lessons that are there from last time",
    )
    parser.add_argument(
        "--jobs", type=count, default=2, metavar="N", help="lessons that run at once (default: 2)"
    )
    parser.add_argument(
        "--pyodide", type=Path, metavar="DIR", help="make the live page, with this unpacked Pyodide"
    )
    args = parser.parse_args(argv)
    wrong = build(args.out, args.reuse, args.jobs, args.pyodide)
    for line in wrong:
        print(line, file=sys.stderr)
    files = [path for path in args.out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    print(
        f"{len(list(args.out.rglob('*.html')))} pages, {size:.1f} MB: {args.out / 'index.html'}; {len(wrong)} problems"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run_script(main))

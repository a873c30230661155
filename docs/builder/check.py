"""What a page may not have: a dead link, a picture without words, an address elsewhere, an id twice."""

from __future__ import annotations

import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from minigrad.io.reading import read_text

from . import font

__all__ = ["problems"]

# Readers may follow links to these: texts of the course, papers, data sets, other software. Nothing is loaded from them.
LINKED = (
    "https://osanseviero.github.io/",
    "https://arxiv.org/",
    "https://www.manythings.org/anki/",
    "https://github.com/pyodide/pyodide/releases",
    "https://zh.d2l.ai/",
    "https://zhuanlan.zhihu.com/p/338817680",
    "https://jalammar.github.io/illustrated-transformer/",
    "https://slurm.schedmd.com/",
    "https://github.com/kubeflow/",
)
NAMESPACES = (
    "http://www.w3.org/2000/svg",
    "http://www.w3.org/1999/xlink",
    "http://www.w3.org/1998/Math/MathML",
)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[tuple[str, str, str]] = []  # tag, attribute, address
        self.wrong: list[str] = []
        self._formulas = 0  # that we are inside of

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self._formulas += tag == "math"
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "img" and not found.get("alt"):
            self.wrong.append(f"a picture without alt text: {found.get('src', '')[:60]}")
        if tag == "svg" and not found.get("aria-label") and found.get("aria-hidden") != "true":
            self.wrong.append("a drawing without a label")
        if tag in ("iframe", "math") and not (found.get("title") or found.get("aria-label")):
            self.wrong.append(f"<{tag}> without a title")
        for name in ("href", "src", "srcset", "xlink:href", "action", "poster", "data"):
            if found.get(name):
                self.links.append((tag, name, found[name]))
        for name, value in found.items():
            if "url(" in value and not re.search(r"url\([\"']?(#|data:)", value):
                self.wrong.append(f"an address in {name}: {value[:60]}")

    def handle_endtag(self, tag: str) -> None:
        self._formulas -= tag == "math"

    def handle_data(self, data: str) -> None:
        if self._formulas and (
            strange := {c for c in data if not wide(c)} - font.covered() - {"\n"}
        ):
            self.wrong.append(f"not in the font of formulas: {''.join(sorted(strange))}")


def wide(letter: str) -> bool:
    """Whether a letter is Chinese, Japanese or Korean: words in a formula, in the font of all words."""
    return unicodedata.east_asian_width(letter) in "WF"


def _page_problems(path: Path, site: Path, readers: dict[Path, _Reader]) -> list[str]:
    reader, text = readers[path], read_text(path)
    wrong = list(reader.wrong)
    wrong += [] if text.rstrip().endswith("</html>") else ["it does not end with </html>"]
    wrong += [
        f"a mark that nothing was put for: {mark}"
        for mark in re.findall(r"<p>(\{\{.*?)</p>", text, re.DOTALL)
    ]
    wrong += [
        f"id {name!r} twice" for name in sorted({n for n in reader.ids if reader.ids.count(n) > 1})
    ]
    for tag, name, address in reader.links:
        if re.match(r"[a-z]+:", address):
            fine = (address.startswith("data:") and tag != "a") or (
                tag == "a" and address.startswith(LINKED)
            )
            wrong += [] if fine else [f"an external address in <{tag} {name}>: {address[:80]}"]
            continue
        target, _, part = unquote(address).partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.is_file() or site not in file.parents:
            wrong.append(f"a dead link: {address}")
        elif (
            part
            and file.suffix == ".html"
            and (file not in readers or part not in readers[file].ids)
            and tag == "a"
        ):
            wrong.append(f"a link to a place that is not there: {address}")
    loaded = re.findall(
        r"(?:@import|fetch\(|importScripts\((?!URL\.createObjectURL)|new WebSocket|url\([\"']?https?:)[^\n]{0,60}",
        text,
    )
    return wrong + [f"something loaded: {found}" for found in loaded]


def problems(site: Path) -> list[str]:
    """All that is wrong with the pages of a site."""
    site = site.resolve()
    readers = {path: _Reader() for path in sorted(site.rglob("*.html"))}
    for path, reader in readers.items():
        reader.feed(read_text(path))
    found = [
        f"{path.relative_to(site)}: {wrong}"
        for path in readers
        for wrong in _page_problems(path, site, readers)
    ]
    for style in site.rglob("*.css"):
        addresses = re.findall(
            r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*",
            re.sub(r"/\*.*?\*/", "", read_text(style), flags=re.S),
        )
        found += [f"{style.relative_to(site)}: an external address: {a}" for a in addresses]
    return found
